"""Writes files atomically, on disk before they are in place, readable by their owner alone."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def whole(path: Path, *, replace: bool = True) -> Iterator[IO[bytes]]:
    """A new file, which gets its place at ``path`` once it is whole.

    Without ``replace``, a file that is there by then stays. If it raises OSError, nothing has changed.
    """
    if path.exists() and not path.is_file():  # a file would replace a device or a pipe
        raise OSError(errno.EINVAL, "it is there, and no file", str(path))
    path = path.resolve()  # what a link names is replaced, not the link
    begun = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if replace:
            begun.replace(path)
        else:
            with contextlib.suppress(FileExistsError):  # another process was first
                os.link(begun, path)
    finally:
        begun.unlink(missing_ok=True)
    sync_folder(path.parent)  # or a power cut could take the name, with the file


def sync_folder(folder: Path) -> None:
    """Writes a folder's entries to disk. Does nothing on Windows, which can't open a folder."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_to_others(path: Path) -> bool:
    """Whether users other than its owner may use a file, by its mode. Windows has no such modes. Raises OSError."""
    return os.name != "nt" and bool(path.stat().st_mode & 0o077)


def lock(descriptor: int) -> bool:
    """Locks an open file for this process, and returns at once. False if another process has locked it.

    The lock ends with the descriptor, and so with the process. Raises OSError.
    """
    from filelock import lock_descriptor  # it takes 30 ms

    return lock_descriptor(descriptor, blocking=False)
