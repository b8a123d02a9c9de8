"""Councils that ``council up`` brought up, from shells with a state folder of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from council.cluster import reaper
from tests.patience import HANG_S, until

ROOT = Path(__file__).parent.parent.parent
# The settings of a council that decides nothing.
SLOW = """
[seats.codemind]
mind = "tests.ray.minds:Endless"
"""


class Shell:
    """A shell with a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "XDG_STATE_HOME": str(folder), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_MODE", "RAY_ADDRESS"):
            self.env.pop(name, None)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return self.popen("-P", "-m", "council.cli", *arguments, stdin=subprocess.DEVNULL)

    def program(self, code: str) -> subprocess.Popen[str]:
        """A Python program of somebody who uses the council; it reads its standard input."""
        return self.popen("-c", code, stdin=subprocess.PIPE)

    def popen(self, *arguments: str, stdin: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=stdin,
            text=True,
            env=self.env,
            cwd=self.folder,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def told(self, *arguments: str) -> dict[str, Any]:
        found = json.loads(self.run(*arguments, "--json").stdout)
        assert isinstance(found, dict)
        return found


def below(pid: int) -> set[int]:
    """All processes that a process started, and those that they did."""
    found = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (each.split() for each in found.splitlines())}
    family = {pid}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return family - {pid}


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if reaper.process_started(pid) is not None}


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Shell]:
    try:
        yield Shell(folder)
    finally:
        for path in (folder / "council" / "councils").glob("*.json"):  # what a failed test left up
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["pid"] is not None and reaper.process_started(kept["pid"]) == kept["started"]:
                os.kill(kept["pid"], signal.SIGTERM)
                until(lambda pid=kept["pid"]: not alive({pid}))


class Up:
    """A council that is up, in its shell; ``told`` is what ``council up`` told of it."""

    def __init__(self, shell: Shell, told: dict[str, Any]) -> None:
        self.shell, self.told = shell, told
        self.pid: int = told["pid"]
        self.path = shell.folder / "council" / "councils" / f"{told['name']}.json"
        self.look()

    def look(self) -> None:
        """Notes its host and all that this has started, with when each began."""
        found = {pid: reaper.process_started(pid) for pid in {self.pid, *below(self.pid)}}
        self._family = {pid: began for pid, began in found.items() if began is not None}
        assert len(self._family) > 3

    def kill(self) -> None:
        """Kills its host, unless a test before did, and waits for its end; not for that of what it has started."""
        if reaper.process_started(self.pid) == self._family[self.pid]:
            self.look()
            os.kill(self.pid, signal.SIGKILL)
        until(lambda: not alive({self.pid}))

    def gone(self) -> bool:
        """Whether all that was noted has ended."""
        return not any(reaper.process_started(pid) == began for pid, began in self._family.items())


class Document(NamedTuple):
    """What a command printed with ``--json``."""

    command: str
    exit_code: int
    said: Any


class First(Up):
    """With what the commands printed that were run first.

    ``opened`` has the address that a browser was handed. Lite is built once ``gate`` is there.
    """

    def __init__(self, shell: Shell, documents: list[Document], opened: Path, gate: Path) -> None:
        assert documents[0].exit_code == 0, documents[0]
        super().__init__(shell, documents[0].said["up"])
        self.documents, self.opened, self.gate = documents, opened, gate

    def said(self, *command: str) -> dict[str, Any]:
        """What the last of such commands printed."""
        wanted = "council " + " ".join(command)
        (*_, found) = (each.said for each in self.documents if each.command == wanted)
        assert isinstance(found, dict)
        return found


class Ended(NamedTuple):
    """A council that was taken down, and the command that watched it."""

    first: First
    documents: list[Document]
    watching: subprocess.Popen[str]


class Killed(NamedTuple):
    """A council whose host was killed, and those who waited for its decision."""

    up: Up
    program: subprocess.Popen[str]
    command: subprocess.Popen[str]
