"""Remembers which councils were brought up from here, in files of this user's own. Knows nothing of Ray.

One file for each council, ``councils/<name>.json`` in the state folder, readable by its owner alone since it
holds the token that admits to a local Ray. A file whose host process is gone is stale, and is removed by
whoever notices.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess  # for ps, where there is no /proc
from dataclasses import dataclass
from pathlib import Path

import msgspec

from council.files import whole
from council.humans import state_dir
from council.protocol.errors import OperatorError
from council.settings import NAME_PATTERN, CouncilConfig

FILE_BYTES_MAX = 64 * 2**10  # ours have some 500
PS_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Known:
    """A council that was brought up. ``pid`` and ``started`` name its host process; None on a foreign cluster.

    ``panel`` and ``dashboard`` are addresses of pages to look at.
    ``token`` is that of a Ray of our own; the token of somebody else's cluster stays in the environment.
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

    def stale(self) -> bool:
        """Whether its host process is certainly gone; of another machine's nothing is certain."""
        if self.pid is None or self.machine != socket.gethostname():
            return False
        return process_started(self.pid) != self.started

    def admit(self) -> None:
        """Sets what Ray must find in the environment when it is imported, to be let in."""
        if self.token is not None:
            os.environ["RAY_AUTH_MODE"] = "token"
            os.environ["RAY_AUTH_TOKEN"] = self.token
            os.environ.pop("RAY_AUTH_TOKEN_PATH", None)


def folder() -> Path:
    """Where the files are, made if need be. Raises OperatorError."""
    path = state_dir() / "councils"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise OperatorError(
            f"the state folder {path} can't be made: {error.strerror}; set XDG_STATE_HOME to one that can"
        ) from error
    return path


def write(known: Known) -> Path:
    """Keeps ``known``, at once and whole, readable by nobody else. Raises OperatorError."""
    return _put(folder() / f"{known.name}.json", msgspec.json.format(msgspec.json.encode(known), indent=1))


def refuse_unwritable(name: str) -> None:
    """Raises OperatorError where what is to be kept of ``name`` could not be written, as far as can be seen now."""
    _put(folder() / f"{name}.json.tried", b" " * FILE_BYTES_MAX).unlink(missing_ok=True)


def _put(path: Path, content: bytes) -> Path:
    try:
        with whole(path) as file:
            file.write(content)
    except OSError as error:
        raise OperatorError(
            f"{path} can't be written: {error.strerror}; mend that, or set XDG_STATE_HOME to a folder that can"
        ) from error
    return path


def forget(name: str) -> None:
    """Removes what is kept of ``name``, if anything."""
    with contextlib.suppress(OSError):
        (state_dir() / "councils" / f"{name}.json").unlink()


def read(name: str) -> Known | None:
    """What is kept of ``name``, stale or not. Raises OperatorError for a file that is not as ours are."""
    path = state_dir() / "councils" / f"{name}.json"
    try:
        if path.stat().st_mode & 0o077:
            raise OperatorError(f"{path} is open to others, and holds a token: chmod 600 it, or remove it")
        with path.open("rb") as file:
            known = msgspec.json.decode(file.read(FILE_BYTES_MAX), type=Known)
        if known.name != name or (known.pid is not None and known.pid <= 1):
            raise ValueError("it is another council's, or names no process")
        return known
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise OperatorError(f"{path} can't be used: {error}; remove it if the council is gone") from error


def every() -> list[Known]:
    """All that are kept and not stale; files that can't be used are passed over, ``read`` tells why."""
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
    """What is kept of ``name``, unless its host is gone: then its file is removed, and there is none."""
    known = read(name)
    if known is not None and known.stale():
        forget(name)
        return None
    return known


def located(config: CouncilConfig) -> CouncilConfig:
    """``config`` with the address of the council of its name, where that was brought up from here.

    A configuration with an address of its own stays as it is. Sets in the environment what Ray reads when
    it is imported, so this comes before that. Raises OperatorError.
    """
    known = running(config.name) if config.ray_address is None else None
    if known is None:
        return config
    known.admit()
    return config.model_copy(update={"ray_address": known.address, "ray_namespace": known.namespace})


def process_started(pid: int) -> str | None:
    """When the process of that id began, in some notation; None where it is gone, or only waits to be reaped.

    With the id it names one process for good: ids are used again, ids with a start are not.
    """
    try:
        after_name = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        )
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _started_by_ps(pid)
    state, *rest = after_name.split()
    return None if state in "ZX" else f"{boot}/{rest[18]}"


def _started_by_ps(pid: int) -> str | None:
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PS_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OperatorError(f"ps does not say whether process {pid} runs: {error}") from error
    return done.stdout.strip() or None
