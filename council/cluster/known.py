"""Files that record which councils this user has brought up on this machine.

There is one file for each council, ``councils/<name>.json`` in the state folder. Only its owner may read it, because
it holds the token of a local Ray. A file whose host process is gone is stale: that council has crashed. The file
stays until the council is brought up or taken down again.
"""

from __future__ import annotations

import contextlib
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from council.cluster.reaper import process_started
from council.config.files import open_to_others, whole
from council.config.human_keys import state_dir
from council.config.settings import NAME_PATTERN
from council.protocol.errors import CouncilDied, OperatorError
from council.protocol.wording import msgspec_text

FILE_BYTES_MAX = 64 * 2**10  # ours have about 500


@dataclass(frozen=True, slots=True)
class Known:
    """A council that was brought up. ``pid`` and ``started`` identify its host process; None on a foreign cluster.

    ``panel`` and ``dashboard`` are addresses of web pages. ``socket`` is the path of the host's Unix socket. ``ray``
    lists processes of our own Ray that may outlive the host, the raylet, its agents and its workers: their ids, and
    when each began. ``token`` is that of our own Ray; the token of a foreign cluster stays in the environment.
    """

    name: str
    namespace: str
    address: str
    machine: str
    since_wall_s: float
    pid: int | None = None
    started: str | None = None
    token: str | None = None
    log: str | None = None
    panel: str | None = None
    dashboard: str | None = None
    socket: str | None = None
    ray: dict[int, str] = field(default_factory=dict)

    def hosted_here(self) -> bool:
        """Whether its host process is one of this machine's."""
        return self.pid is not None and self.machine == socket.gethostname()

    def stale(self) -> bool:
        """Whether its host process is certainly gone. For another machine's process that is never certain."""
        if self.pid is None or not self.hosted_here():
            return False
        return process_started(self.pid) != self.started

    def crashed(self) -> CouncilDied:
        """The error for a council whose host process is gone: ``council down`` would have removed its file."""
        return CouncilDied(
            f"council {self.name!r} has crashed: its process {self.pid} ended without council down; "
            f"bring it up again with council up{f' (its log: {self.log})' if self.log else ''}",
            name=self.name,
            open_ids=[],
        )


def folder() -> Path:
    """The folder of the files, which is created if needed. Raises OperatorError."""
    path = state_dir() / "councils"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise OperatorError(
            f"the state folder {path} can't be made: {error.strerror}; set XDG_STATE_HOME to a folder of yours"
        ) from error
    return path


def write(known: Known) -> Path:
    """Writes ``known`` atomically, readable by its owner alone. Raises OperatorError."""
    return _put(folder() / f"{known.name}.json", msgspec.json.format(msgspec.json.encode(known), indent=1))


def refuse_unwritable(name: str) -> None:
    """Raises OperatorError if the file of ``name`` probably can't be written."""
    _put(folder() / f"{name}.json.tried", b" " * FILE_BYTES_MAX).unlink(missing_ok=True)


def _put(path: Path, content: bytes) -> Path:
    try:
        with whole(path) as file:
            file.write(content)
    except OSError as error:
        raise OperatorError(
            f"{path} can't be written: {error.strerror}; correct that, or set XDG_STATE_HOME to a folder that can"
        ) from error
    return path


def forget(name: str) -> None:
    """Removes the file of ``name``, if any."""
    with contextlib.suppress(OSError):
        (state_dir() / "councils" / f"{name}.json").unlink()


def read(name: str) -> Known | None:
    """The stored entry of ``name``, stale or not. Raises OperatorError if the file is invalid."""
    path = state_dir() / "councils" / f"{name}.json"
    try:
        if open_to_others(path):
            raise OperatorError(f"{path} is open to others, and holds a token: chmod 600 it, or remove it")
        with path.open("rb") as file:
            known = msgspec.json.decode(file.read(FILE_BYTES_MAX), type=Known)
        if known.name != name or (known.pid is not None and known.pid <= 1):
            raise ValueError("it is another council's, or names no process")
        return known
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        why = msgspec_text(error, "it") if isinstance(error, msgspec.ValidationError) else str(error)
        raise OperatorError(f"{path} can't be used: {why}; remove it if the council is gone") from error


def every() -> list[Known]:
    """All entries that are not stale. Invalid files are skipped; ``read`` reports their errors."""
    found = []
    names = sorted(path.stem for path in (state_dir() / "councils").glob("*.json"))
    for name in names:
        if re.fullmatch(NAME_PATTERN, name):
            with contextlib.suppress(OperatorError):
                known = read(name)
                if known is not None and not known.stale():
                    found.append(known)
    return found


def running(name: str) -> Known | None:
    """The entry of ``name``, unless its host process is gone."""
    known = read(name)
    return None if known is None or known.stale() else known


def located(name: str) -> Known | None:
    """The entry of the council of that name. Raises CouncilDied if it has crashed, and OperatorError."""
    known = read(name)
    if known is not None and known.stale():
        raise known.crashed()
    return known
