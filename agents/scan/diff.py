"""Reads the code in a text: unified diffs and fenced code blocks.

``read_changes`` accepts any text. ``Reading.faults`` lists what it could not read, so that a seat that judges the
rest can say so.

``diff_lines`` finds where diffs, hunks and fences are; this module reads each of them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from council.agents.scan.diff_lines import NULL, PREFIX, FileDiff, Scanner, plain_name, short_quote, unquote

Kind = Literal["added", "deleted", "modified", "renamed"]
Tag = Literal[" ", "+", "-"]

_INDEX = re.compile(r"index [0-9a-f]{4,64}\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?$")
_LINK_MODE = "120000"
WIDE_CONTEXT_LINES = 25  # a diff with so much context usually shows the whole file


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a hunk. ``old_no`` and ``new_no`` count from 1; None if the line is not on that side.

    ``text`` has no line ending. ``ending`` is "\\n", "\\r\\n", or "" for a last line without newline.
    """

    tag: Tag
    text: str
    old_no: int | None
    new_no: int | None
    ending: str = "\n"


@dataclass(frozen=True, slots=True)
class Hunk:
    """Adjacent lines of a file, before and after the change."""

    old_start: int
    new_start: int
    lines: tuple[DiffLine, ...]

    @property
    def added(self) -> list[tuple[int, str]]:
        """(line number in the new file, text) of each added line."""
        return [(line.new_no or 0, line.text) for line in self.lines if line.tag == "+"]

    @property
    def removed(self) -> list[tuple[int, str]]:
        """(line number in the old file, text) of each removed line."""
        return [(line.old_no or 0, line.text) for line in self.lines if line.tag == "-"]

    def old_text(self) -> str:
        """The part of the old file that the hunk shows, with its line endings."""
        return "".join(line.text + line.ending for line in self.lines if line.tag != "+")

    def new_text(self) -> str:
        """The part of the new file that the hunk shows, with its line endings."""
        return "".join(line.text + line.ending for line in self.lines if line.tag != "-")


@dataclass(frozen=True, slots=True)
class FileChange:
    """The changes of a diff to one file. A copy counts as ``renamed``: its hunks are relative to ``old_path``.

    ``is_whole``: the hunks show the entire file, both sides. ``is_complete`` is False if a hunk of the file could not
    be read; ``Reading.faults`` says which. Paths are as the author wrote them. They may be absolute or climb with
    "..", and must only be shown, never opened. ``is_link``: the new file is a symbolic link, and its one line is the
    target.
    """

    path: str
    old_path: str | None
    kind: Kind
    is_binary: bool = False
    is_link: bool = False
    hunks: tuple[Hunk, ...] = ()
    is_whole: bool = False
    is_complete: bool = True
    line: int = 0

    @property
    def added(self) -> list[tuple[int, str]]:
        """(line number in the new file, text) of each added line."""
        return [item for hunk in self.hunks for item in hunk.added]

    @property
    def removed(self) -> list[tuple[int, str]]:
        """(line number in the old file, text) of each removed line."""
        return [item for hunk in self.hunks for item in hunk.removed]


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A fenced block. ``language`` is in lower case, "" if none is named; ``line`` is the line of its opening fence.

    ``has_diff``: it holds a diff, which is also in ``Reading.files`` or in its faults.
    """

    language: str
    code: str
    line: int
    has_diff: bool = False


@dataclass(frozen=True, slots=True)
class ScannedText:
    """The code in a text, and the parts of it that could not be read.

    ``prose`` is the text with its diffs blanked out, line by line.
    """

    files: tuple[FileChange, ...] = ()
    blocks: tuple[CodeBlock, ...] = ()
    faults: tuple[str, ...] = ()
    prose: str = field(default="", compare=False)

    def with_more(self, other: ScannedText) -> ScannedText:
        """Both readings as one, with the prose of this one."""
        return replace(
            self,
            files=self.files + other.files,
            blocks=self.blocks + other.blocks,
            faults=self.faults + other.faults,
        )


def read_changes(text: str) -> ScannedText:
    """The diffs and code blocks in ``text``. No text makes it raise; limits are reported as faults."""
    scanner = Scanner(text)
    scanner.run()
    files: list[FileChange] = []
    hashed: set[int] = set()  # the numbers of files for which git gives the hash of the new content
    for section in scanner.sections:
        try:
            files.append(_build(section))
        except ValueError as error:
            scanner.fault(f"line {section.line}: this diff can't be read: {error}")
            continue
        if "index" in section.extended:
            hashed.add(len(files) - 1)
    blocks = tuple(
        CodeBlock(fence.language, fence.code(), fence.line, fence.has_diff) for fence in scanner.fences
    )
    prose = "\n".join(scanner.prose)
    return ScannedText(tuple(_judge_wholeness(files, hashed)), blocks, tuple(scanner.faults), prose)


def _build(section: FileDiff) -> FileChange:
    """Raises ValueError if the section's header can't be read."""
    extended = section.extended
    old, new = _names(section)
    hunks = tuple(_hunk(*found) for found in section.hunks)
    index = _INDEX.match(extended.get("index", ""))
    kind: Kind = "modified"
    if old is None or "new file mode" in extended or _is_plain_creation(section, hunks):
        kind = "added"
    elif new is None or "deleted file mode" in extended:
        kind = "deleted"
    elif old != new:
        kind = "renamed"
    change = FileChange(
        path=(old if kind == "deleted" else new) or old or "?",
        old_path=None if kind == "added" else old,
        kind=kind,
        is_binary=section.is_binary,
        is_link=_is_link(extended, index[2] if index else None, hunks),
        hunks=hunks,
        is_complete=section.is_complete,
        line=section.line,
    )
    return replace(change, is_whole=_is_surely_whole(change, index[1] if index else None))


def _is_link(extended: dict[str, str], index_mode: str | None, hunks: tuple[Hunk, ...]) -> bool:
    """Whether all modes of the new side are a link's, and it has only the one line of a link."""
    said = {extended.get("new file mode"), extended.get("new mode"), index_mode} - {None}
    modes = said or {extended.get("deleted file mode")}
    return modes == {_LINK_MODE} and sum(len(hunk.added) for hunk in hunks) <= 1


def _is_plain_creation(section: FileDiff, hunks: tuple[Hunk, ...]) -> bool:
    """Whether a diff that is not git's, and so has no mode, creates the file."""
    if section.git_header is not None or len(hunks) != 1:
        return False
    starts = hunks[0].old_start, hunks[0].new_start
    return starts == (0, 1) and all(line.tag == "+" for line in hunks[0].lines)


def _hunk(old_start: int, new_start: int, raw: list[str]) -> Hunk:
    lines: list[DiffLine] = []
    old_no, new_no = old_start, new_start
    for line in raw:
        if line[0] == "\\":  # "No newline at end of file", in git's language setting
            lines[-1:] = [replace(last, ending="") for last in lines[-1:]]
            continue
        text, ending = (line[1:-1], "\r\n") if line.endswith("\r") else (line[1:], "\n")
        if line[0] == "+":
            lines.append(DiffLine("+", text, None, new_no, ending))
        elif line[0] == "-":
            lines.append(DiffLine("-", text, old_no, None, ending))
        else:
            lines.append(DiffLine(" ", text, old_no, new_no, ending))
        old_no += line[0] != "+"
        new_no += line[0] != "-"
    return Hunk(old_start, new_start, tuple(lines))


# Names


def _names(section: FileDiff) -> tuple[str | None, str | None]:
    """(old, new) paths; None for a side that does not exist. Raises ValueError if there is only one name."""
    extended = section.extended
    old_moved = extended.get("rename from", extended.get("copy from"))
    new_moved = extended.get("rename to", extended.get("copy to"))
    if old_moved is not None and new_moved is not None:
        return unquote(old_moved), unquote(new_moved)
    if section.old_name is not None and section.new_name is not None:
        old, new = plain_name(section.old_name), plain_name(section.new_name)
    else:
        old, new = _split_git_header((section.git_header or "").removeprefix("diff --git "))
    has_prefixes = all(name == NULL or PREFIX.match(name) for name in (old, new))
    if NULL not in (old, new) and old[:2] == new[:2]:
        has_prefixes = False  # git --no-prefix on a folder named "a"
    sides = [None if name == NULL else name[2:] if has_prefixes else name for name in (old, new)]
    if "new file mode" in extended:
        sides[0] = None
    if "deleted file mode" in extended:
        sides[1] = None
    return sides[0], sides[1]


def _split_git_header(names: str) -> tuple[str, str]:
    """Both names. Without their prefixes they are usually equal; otherwise the last space separates them."""
    half = len(names) // 2
    old, new = unquote(names[:half]), unquote(names[half + 1 :])
    if names[half : half + 1] == " " and old[2:] == new[2:]:
        return old, new
    old, blank, new = names.rpartition(" ")
    if not blank:
        raise ValueError(f"expected two names, found {short_quote(names)}")
    return unquote(old), unquote(new)


# Whether a hunk shows the whole file


def _starts_at_top(change: FileChange) -> bool:
    if len(change.hunks) != 1 or not change.is_complete or change.is_binary:
        return False
    return change.hunks[0].old_start <= 1 and change.hunks[0].new_start <= 1


def _is_surely_whole(change: FileChange, new_blob: str | None) -> bool:
    """Whether the hunk itself proves that it shows the whole file."""
    if not _starts_at_top(change):
        return False
    if change.kind in ("added", "deleted") or any(not line.ending for line in change.hunks[0].lines):
        return True
    # git's hash of the new content is the best proof.
    return new_blob is not None and _is_blob(change.hunks[0].new_text(), new_blob)


def _is_blob(text: str, name: str) -> bool:
    """Whether ``text`` is the content that git calls ``name`` (SHA-1, or SHA-256 if it is longer)."""
    for version in {text, text.replace("\r\n", "\n")}:  # a diff sent with CRLF
        content = version.encode("utf-8", "replace")
        content = b"blob %d\0" % len(content) + content
        is_long = len(name) > 40
        digest = hashlib.sha256(content) if is_long else hashlib.sha1(content, usedforsecurity=False)
        if digest.hexdigest().startswith(name):
            return True
    return False


def _judge_wholeness(files: list[FileChange], hashed: set[int]) -> list[FileChange]:
    """Marks files as whole if their one hunk must reach the end of the file, by the context elsewhere in the diff.

    A diff with n lines of context shows n lines after a hunk's last change unless the file ends. The hunks give a
    lower bound of n: no run before the first change is longer than n, and none between two changes is longer than 2n.
    If git's hash is there and did not prove it, it disproves it.
    """
    runs = [[_context_runs(hunk) for hunk in change.hunks] for change in files]
    shown_runs = [(before, (between + 1) // 2, after) for of in runs for before, between, after in of]
    context = max(chain.from_iterable(shown_runs), default=0)
    judged = []
    for at, change in enumerate(files):
        if at not in hashed and change.kind not in ("added", "deleted") and _starts_at_top(change):
            reaches_end = runs[at][0][2] < context or context >= WIDE_CONTEXT_LINES
            change = replace(change, is_whole=change.is_whole or reaches_end)
        judged.append(change)
    return judged


def _context_runs(hunk: Hunk) -> tuple[int, int, int]:
    """The number of context lines before the first change, the most between two, and those after the last."""
    runs = [len(run) for run in re.split("[-+]", "".join(line.tag for line in hunk.lines))]
    return (runs[0], max(runs[1:-1], default=0), runs[-1]) if len(runs) > 1 else (0, 0, runs[0])
