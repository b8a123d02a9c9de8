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
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # or a power cut could take the name, with the file
    finally:
        os.close(folder)
