"""Files under a root, reached without following a link: each part of a path is opened from the one before it."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from council.action.tool import ArgumentsRefused

PATH_CHARS_MAX = 1_024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def under(root: Path, tool: str, argument: str, path: object) -> Path:
    """The absolute place of a relative path below ``root``; nothing is looked up but links of now.

    Raises ArgumentsRefused for a path that is absolute, goes up, or leads out by a link.
    """
    expected = f"a path below {root}, relative to it, without '..' and links out of it"
    if not isinstance(path, str) or not path or "\0" in path or len(path) > PATH_CHARS_MAX:
        raise ArgumentsRefused.at(tool, argument, f"a value of type {type(path).__name__}", expected)
    if path.startswith("/") or ".." in path.split("/"):
        raise ArgumentsRefused.at(tool, argument, repr(path[:200]), expected)
    place = os.path.realpath(root / path)
    if Path(place) != root and root not in Path(place).parents:
        raise ArgumentsRefused.at(tool, argument, f"{path[:200]!r}, which leads to {place[:200]!r}", expected)
    return root / os.path.normpath(path)


@contextlib.contextmanager
def folder_of(root: Path, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The descriptor of a file's folder, and the file's name. ``make``: missing folders are created.

    Raises FileNotFoundError for a missing folder, and OSError where a part is a link, or no folder.
    """
    *folders, name = os.path.normpath(path).split("/")
    here = os.open(root, _FOLDER)
    try:
        for each in folders:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(each, 0o755, dir_fd=here)
                    os.fsync(here)
            try:
                below = os.open(each, _FOLDER, dir_fd=here)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise OSError(
                    f"{each!r} in the path {path!r} is not a folder that can be opened, or is a link"
                ) from error
            os.close(here)
            here = below
        yield here, name
    finally:
        os.close(here)


def read_at(folder: int, name: str, bytes_max: int) -> tuple[bytes, int] | None:
    """A file's bytes and mode; None if there is none. Raises OSError for a link, a special file, or a larger one."""
    try:
        number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OSError(f"{name!r} is a link, or can't be opened: {error.strerror}") from error
    with open(number, "rb") as file:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{name} is not a regular file")
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise OSError(f"{name} has more than {bytes_max:,} bytes")
    return content, stat.S_IMODE(found.st_mode)


def replace_at(folder: int, name: str, content: bytes, mode: int) -> None:
    """Replaces a file at once, durably: a reader sees the old bytes or the new ones."""
    other = f".{secrets.token_hex(8)}.council"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    number = os.open(other, flags, 0o600, dir_fd=folder)
    try:
        with open(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(number, mode)
            os.fsync(number)
        os.replace(other, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(other, dir_fd=folder)
        raise
    os.fsync(folder)
