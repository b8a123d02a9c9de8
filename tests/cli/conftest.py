"""A home of its own for every test of the command line, repositories to review, and councils to talk to."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from council.agents.mind import Case, Opinion, Ruling, ShownBallot
from council.api.client import Council
from council.cli import app
from council.cluster import known, reaper
from council.config.settings import SeatConfig
from tests.patience import HANG_S


class Said(NamedTuple):
    """What one run of the command line left."""

    code: int
    out: str
    err: str


Cli = Callable[..., Said]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, no settings and no councils from outside."""
    for name in [name for name in os.environ if name.startswith(("COUNCIL_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command line in this process."""

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        code = app.run(arguments)
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return run


class Repository:
    """A git repository with commits as a test wants them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        settings = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgSign=false")
        command = ["git", *settings, *arguments]
        done = subprocess.run(
            command, cwd=self.path, capture_output=True, text=True, timeout=HANG_S, check=True
        )
        return done.stdout

    def commit(self, message: str, **files: str) -> None:
        """Commits files; ``a__py`` stands for ``a.py``."""
        for name, text in files.items():
            (self.path / name.replace("__", ".")).write_text(text, encoding="utf-8")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)


@pytest.fixture
def repository(home: Path) -> Repository:
    return Repository(home)


def says(opinion: Opinion) -> Callable[[Case], Any]:
    """A mind of one opinion."""

    async def mind(case: Case) -> Opinion:
        return opinion

    return mind


class Chair:
    """Prime: of the opinion it is given, and rules as it is told."""

    def __init__(self, opinion: Opinion, ruling: Ruling) -> None:
        self._opinion, self._ruling = opinion, ruling

    async def review(self, case: Case) -> Opinion:
        return self._opinion

    async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        return self._ruling


def council_of(*, prime: Any = None, lite: Any = None, **settings: Any) -> Council:
    """A council in process whose seats agree, or are as given."""
    agrees = says(Opinion.yes("agreed", confidence=0.9))
    minds = {"prime": prime or agrees, "lite": lite or agrees, "codemind": agrees}
    return Council.inline(seats=[SeatConfig(name=n, mind=mind) for n, mind in minds.items()], **settings)


class Lent:
    """A council that goes on when a command has left it, as one that is up would."""

    def __init__(self, council: Council) -> None:
        self._council = council

    def __getattr__(self, name: str) -> Any:
        return getattr(self._council, name)

    def close(self) -> None:
        return


@pytest.fixture
def up(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Council], Council]]:
    """Makes a council in process the one that is up, as far as commands can tell."""
    councils = []

    def put_up(council: Council) -> Council:
        councils.append(council)
        known.write(entry(council.name, pid=os.getpid()))
        monkeypatch.setattr(Council, "connect", lambda *_, **__: Lent(council))
        return council

    yield put_up
    for council in councils:
        council.close()


def entry(
    name: str,
    *,
    pid: int,
    started: str | None = None,
    socket: str | None = None,
    machine: str = socket.gethostname(),
) -> known.Known:
    return known.Known(
        name=name,
        namespace="council",
        address="127.0.0.1:1",
        machine=machine,
        since_wall_s=time.time(),
        pid=pid,
        started=started or reaper.process_started(pid),
        token="0" * 64,
        log=None,
        socket=socket,
    )
