"""The tools ``file.write`` and ``file.patch``: files under a root, replaced at once; the old bytes are kept."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unidiff.constants import LINE_TYPE_NO_NEWLINE
from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchedFile, PatchSet

from council.action.command import known_keys
from council.action.paths import folder_of, read_at, replace_at, under
from council.action.tool import OUTSIDE, ArgumentsRefused, Operation, Safety, ToolResult
from council.protocol.errors import CallerError

FILE_BYTES_MAX = 8 * 2**20
FILES_MAX = 256  # of a patch


class _Files(ABC):
    """What both tools share. ``undo`` maps each path to its bytes and mode before, and its bytes after."""

    name = "file"
    safety: Safety = "WRITE"
    operations: tuple[Operation, ...] = ("write", "modify")

    def __init__(self, root: Path) -> None:
        self._root = Path(os.path.realpath(root))

    @abstractmethod
    def _paths(self, args: Mapping[str, Any]) -> list[str]: ...

    @abstractmethod
    def _changed(self, args: Mapping[str, Any], path: str, old: bytes | None) -> bytes | None:
        """The new bytes of a file; None to delete it. Raises ValueError if the change does not fit."""

    def resources(self, args: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(f"file:{self._root / path}" for path in self._paths(args))

    def run(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolResult:
        """Computes every file first; a change that does not fit writes nothing. A failed write is taken back."""
        began = time.monotonic()
        undo: dict[str, tuple[tuple[bytes, int] | None, bytes | None]] = {}
        error = ""
        try:
            for path in self._paths(args):
                before = self._before(path)
                undo[path] = before, self._changed(args, path, before and before[0])
        except (OSError, ValueError) as failure:
            undo, error = {}, f"nothing was written: {failure}"
        written: dict[str, Any] = {}
        try:
            for path, (before, after) in undo.items():
                written[path] = before, after
                self._put(path, None if after is None else (after, before[1] if before else 0o644))
        except OSError as failure:
            error = f"not written: {failure}"
            self._put_back(written)
            undo = {}
        told = "\n".join(f"{path}: {len(after) if after else 0} bytes" for path, (_, after) in undo.items())
        seconds = time.monotonic() - began
        return ToolResult(not error, told, error, None, OUTSIDE, seconds, False, undo=undo)

    def _put(self, path: str, file: tuple[bytes, int] | None) -> None:
        with folder_of(self._root, path, make=file is not None) as (folder, name):
            if file is None:
                os.unlink(name, dir_fd=folder)
            else:
                replace_at(folder, name, *file)

    def _before(self, path: str) -> tuple[bytes, int] | None:
        """A file's bytes and mode; None if there is no file or no folder of it. Set-user-id bits are not kept."""
        try:
            with folder_of(self._root, path) as (folder, name):
                found = read_at(folder, name, FILE_BYTES_MAX)
        except FileNotFoundError:
            return None
        return found and (found[0], found[1] & 0o777)

    def _found(self, path: str) -> bytes | None:
        found = self._before(path)
        return found and found[0]

    def _put_back(self, undo: Mapping[str, Any]) -> None:
        for path, (before, _) in undo.items():
            if self._found(path) != (before and before[0]):
                self._put(path, before)

    def verify(self, args: Mapping[str, Any], result: ToolResult) -> str:
        try:
            wrong = [path for path, (_, after) in result.undo.items() if self._found(path) != after]
        except OSError as error:
            return str(error)
        return f"not as it was written: {', '.join(wrong)}" if wrong else ""

    def revert(self, args: Mapping[str, Any], result: ToolResult) -> None:
        """Restores the old bytes. Raises CallerError if a file was changed since, and then changes none."""
        if problem := self.verify(args, result):
            raise CallerError(f"{self.name}: not reverted: {problem}")
        self._put_back(result.undo)


class FileWrite(_Files):
    """``{"path": "notes.txt", "content": "text"}``: the file's whole new content, in UTF-8.

    Missing folders below the root are made; ``revert`` leaves them, empty.
    """

    name = "file.write"

    def check(self, args: Mapping[str, Any]) -> None:
        known_keys(self.name, args, ("path", "content"), ())
        place = under(self._root, self.name, "path", args["path"])
        if place == self._root:
            raise ArgumentsRefused.at(self.name, "path", "the root itself", "a file below it")
        content = args["content"]
        try:
            too_large = not isinstance(content, str) or len(content.encode()) > FILE_BYTES_MAX
        except UnicodeEncodeError:
            too_large = True
        if too_large:
            expected = f"a text of up to {FILE_BYTES_MAX:,} bytes in UTF-8"
            raise ArgumentsRefused.at(
                self.name, "content", f"a value of type {type(content).__name__}", expected
            )

    def _paths(self, args: Mapping[str, Any]) -> list[str]:
        return [os.path.normpath(args["path"])]

    def _changed(self, args: Mapping[str, Any], path: str, old: bytes | None) -> bytes:
        return bytes(args["content"].encode())


class FilePatch(_Files):
    """``{"diff": "--- a/x\\n+++ b/x\\n@@ …"}``: a unified diff, whose lines must stand exactly where it says."""

    name = "file.patch"
    operations: tuple[Operation, ...] = ("write", "modify", "delete")

    def check(self, args: Mapping[str, Any]) -> None:
        known_keys(self.name, args, ("diff",), ())
        diff = args["diff"]
        if not isinstance(diff, str) or len(diff) > FILE_BYTES_MAX:
            raise ArgumentsRefused.at(
                self.name, "diff", f"a value of type {type(diff).__name__}", "a unified diff"
            )
        try:
            files = list(PatchSet(diff))
        except UnidiffParseError as error:
            raise ArgumentsRefused.at(self.name, "diff", str(error)[:200], "a unified diff") from error
        if not 0 < len(files) <= FILES_MAX:
            raise ArgumentsRefused.at(self.name, "diff", f"{len(files)} files", f"1 to {FILES_MAX} files")
        for file in files:
            under(self._root, self.name, "diff", file.path)
            if file.is_rename or file.is_binary_file or not file:
                raise ArgumentsRefused.at(
                    self.name, "diff", f"{file.path[:200]!r} without lines", "changed lines"
                )
        if len({os.path.normpath(file.path) for file in files}) != len(files):
            raise ArgumentsRefused.at(self.name, "diff", "a file twice", "each file once")

    def _paths(self, args: Mapping[str, Any]) -> list[str]:
        return [os.path.normpath(file.path) for file in PatchSet(args["diff"])]

    def _changed(self, args: Mapping[str, Any], path: str, old: bytes | None) -> bytes | None:
        file = next(each for each in PatchSet(args["diff"]) if os.path.normpath(each.path) == path)
        if (old is None) != file.is_added_file:
            raise ValueError(f"{path} {'is not there' if old is None else 'is there already'}")
        text = _patched(file, (old or b"").decode("utf-8"), path)
        return None if file.is_removed_file else text.encode()


def _patched(file: PatchedFile, old: str, path: str) -> str:
    lines, new, at = _lines(old), [], 0
    for hunk in file:
        begin = max(hunk.source_start - (1 if hunk.source_length else 0), 0)
        source: list[str] = []
        target: list[str] = []
        for line in hunk:
            for side, belongs in ((source, not line.is_added), (target, not line.is_removed)):
                if line.line_type == LINE_TYPE_NO_NEWLINE:
                    continue
                if belongs:
                    side.append(line.value)
        if begin < at or [each.rstrip("\n") for each in lines[begin : begin + len(source)]] != [
            each.rstrip("\n") for each in source
        ]:
            raise ValueError(f"{path}: the lines at {hunk.source_start} are not those of the diff")
        new += lines[at:begin] + target
        at = begin + len(source)
    return "".join(new + lines[at:])


def _lines(text: str) -> list[str]:
    """Lines as diffs count them: by newlines alone, each with its own."""
    return [f"{line}\n" for line in text.split("\n")[:-1]] + (
        [last] if (last := text.rpartition("\n")[2]) else []
    )
