"""The tool ``git.commit``: commits named files of a repository under a root, without its hooks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from council.action.command import known_keys
from council.action.paths import under
from council.action.sandbox import Limits, run_sandboxed
from council.action.tool import ArgumentsRefused, Operation, Safety, ToolResult
from council.protocol.errors import CallerError

PATHS_MAX, MESSAGE_CHARS_MAX = 256, 8_192
# A repository's own settings may name programs; these are the ones that a commit or a reset would run.
_SAFE = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "commit.gpgSign=false", "gc.auto=0")
# Further settings that name programs. A commit without them may have other bytes, so it is refused.
_PROGRAMS = r"^(filter\..*\.(clean|process)|hook\..*\.command)$"
_WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "council"), ("EMAIL", "council@localhost"))
}
_QUESTION_S = 30.0


class GitCommit:
    """``{"repository": ".", "paths": ["a.py"], "message": "text"}``. The whole files are committed, as they are."""

    name = "git.commit"
    safety: Safety = "WRITE"
    operations: tuple[Operation, ...] = ("write", "modify")

    def __init__(
        self, root: Path, *, limits: Limits | None = None, sandbox: Literal["auto", "none"] = "auto"
    ) -> None:
        self._root = Path(os.path.realpath(root))
        self._limits = limits or Limits()
        self._sandbox: Literal["auto", "none"] = sandbox

    def check(self, args: Mapping[str, Any]) -> None:
        known_keys(self.name, args, ("paths", "message"), ("repository",))
        where = self._repository(args)
        if not (where / ".git").is_dir():
            raise ArgumentsRefused.at(
                self.name, "repository", f"{where} without a folder .git", "a repository"
            )
        paths, message = args["paths"], args["message"]
        if not isinstance(paths, list) or not 0 < len(paths) <= PATHS_MAX:
            raise ArgumentsRefused.at(
                self.name, "paths", "another value", f"a list of 1 to {PATHS_MAX} paths"
            )
        for path in paths:
            if under(where, self.name, "paths", path) == where or ".git" in path.split("/"):
                raise ArgumentsRefused.at(
                    self.name, "paths", repr(path)[:200], "a file of the repository's content"
                )
        if (
            not isinstance(message, str)
            or not message.strip()
            or len(message) > MESSAGE_CHARS_MAX
            or "\0" in message
        ):
            expected = f"a text of 1 to {MESSAGE_CHARS_MAX:,} characters"
            raise ArgumentsRefused.at(self.name, "message", "another value", expected)

    def _repository(self, args: Mapping[str, Any]) -> Path:
        return under(self._root, self.name, "repository", args.get("repository", "."))

    def resources(self, args: Mapping[str, Any]) -> tuple[str, ...]:
        where = self._repository(args)
        return tuple(f"file:{where / path}" for path in (".git", *args["paths"]))

    def _git(self, where: Path, *arguments: str, timeout_s: float = _QUESTION_S) -> ToolResult:
        settings = [part for each in _SAFE for part in ("-c", each)]
        return run_sandboxed(
            ["git", "--literal-pathspecs", *settings, "-c", f"safe.directory={where}", *arguments],
            cwd=where,
            writable=(self._root,),  # not ``where``: a link in its path could be changed to lead out by now
            env={
                **_WHO,
                "GIT_DIR": f"{where}/.git",
                "GIT_WORK_TREE": str(where),
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_CONFIG_GLOBAL": "/dev/null",
                "GIT_TERMINAL_PROMPT": "0",
            },
            limits=replace(self._limits, timeout_s=timeout_s),
            sandbox=self._sandbox,
        )

    def _head(self, where: Path) -> str:
        """The commit that HEAD names; empty before the first."""
        return self._git(where, "rev-parse", "--verify", "--quiet", "HEAD").output.strip()

    def run(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolResult:
        """``undo`` of the result is the commit before, and the new one."""
        where = self._repository(args)
        if named := self._git(where, "config", "--name-only", "--get-regexp", _PROGRAMS).output.split():
            raise CallerError(
                f"{self.name}: nothing was committed: a commit in {where} would run a program that nobody approved. "
                f"Remove the setting {named[0]} from the repository, or commit with the tool command"
            )
        timeout_s = min(timeout_s, self._limits.timeout_s)
        before = self._head(where)
        found = self._git(where, "add", "--", *args["paths"], timeout_s=timeout_s)
        if found.ok:
            left = max(1.0, timeout_s - found.seconds)
            message = ("--no-verify", "--message", args["message"])
            found = self._git(where, "commit", *message, "--only", "--", *args["paths"], timeout_s=left)
        return replace(found, undo=(before, self._head(where) if found.ok else before))

    def verify(self, args: Mapping[str, Any], result: ToolResult) -> str:
        where = self._repository(args)
        before, after = result.undo
        if after == before:
            return "HEAD did not move"
        if (now := self._head(where)) != after:
            return f"HEAD is {now}, expected {after}"
        parent = self._git(where, "rev-parse", "--verify", "--quiet", "HEAD^").output.strip()
        return (
            ""
            if parent == before
            else f"the commit's parent is {parent or 'none'}, expected {before or 'none'}"
        )

    def revert(self, args: Mapping[str, Any], result: ToolResult) -> None:
        """Takes the commit back; files stay as they are. Raises CallerError if HEAD is another commit by now."""
        where = self._repository(args)
        before, after = result.undo
        if (now := self._head(where)) != after or before == after:
            raise CallerError(f"{self.name}: not reverted: HEAD is {now}, and the commit of this run {after}")
        # Conditional, so that a commit in between is not lost.
        command = ("update-ref", "HEAD", before, after) if before else ("update-ref", "-d", "HEAD", after)
        if not (found := self._git(where, *command)).ok:
            raise CallerError(f"{self.name}: not reverted: {found.error.strip()[:300]}")
