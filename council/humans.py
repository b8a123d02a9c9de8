"""The keys with which humans sign their answers, kept in their own folder. Knows nothing of proposals."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from council.protocol.envelope import SENDER_PATTERN
from council.protocol.errors import CallerError, OperatorError

KEY_BYTES = 32
_NAME = re.compile(SENDER_PATTERN.removesuffix("$"))


def state_dir(env: Mapping[str, str] | None = None) -> Path:
    """Where this user's councils keep what outlives a process: ``$XDG_STATE_HOME/council``."""
    env = os.environ if env is None else env
    base = env.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "council"


def me() -> str:
    """This user's name, in the form that senders' names have."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "human"
    return re.sub(r"[^a-z0-9._-]", "-", user.lower()).lstrip("._-")[:64] or "human"


def human_key(name: str, folder: Path | None = None) -> bytes:
    """This human's key, made when first asked for; readable by nobody else.

    Raises OperatorError where the file can't be written, or holds no key, or is open to others, and
    CallerError for what is no sender's name.
    """
    if not _NAME.fullmatch(name):  # it names a file, and must not lead out of the folder
        raise CallerError(
            f"{name[:80]!a} is no human's name: 1 to 64 of a-z 0-9 . _ -, a letter or digit first"
        )
    path = (folder or state_dir()) / "humans" / f"{name}.key"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _make_key(path)
        if path.stat().st_mode & 0o077:
            raise OperatorError(f"{path} is open to others: chmod 600 it, or remove it to get a new key")
        key = path.read_bytes()
    except OSError as error:
        raise OperatorError(f"the key of {name} can't be kept in {path}: {error}") from error
    if len(key) != KEY_BYTES:
        raise OperatorError(
            f"{path} holds {len(key)} bytes, a key has {KEY_BYTES}: remove it to get a new one"
        )
    return key


def _make_key(path: Path) -> None:
    """Puts a whole key in place at once: whoever looks meanwhile finds none, or all of it."""
    begun = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with contextlib.suppress(FileExistsError):  # another process was first: its key it is
            os.link(begun, path)
    finally:
        begun.unlink()
