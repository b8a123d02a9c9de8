"""Finds out who asks: the program, its user, host, folder and git repository (``Requester``).

A field that can't be found out is left out. A repository is found by reading its files; no program is started.
"""

from __future__ import annotations

import configparser
import getpass
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from council.kinds.text import line
from council.protocol.errors import CallerError

if TYPE_CHECKING:
    from council.protocol.envelope import Requester

GIVEN = "a Requester, or a mapping of agent, user, host, folder and repository"
CONFIG_BYTES_MAX = 2**20  # of a repository's own configuration


def of_this_process(agent: str | None = None) -> dict[str, str]:
    """The fields of a ``Requester`` that are known here. ``agent`` is by default the program's name."""
    folder = _folder()
    found = {
        "agent": agent or _program(),
        "user": _user(),
        "host": socket.gethostname(),
        "folder": _at_home(folder) if folder else "",
        "repository": _repository(folder) if folder else "",
    }
    return {name: _short(value) for name, value in found.items() if value.strip()}


def changed(default: Mapping[str, str], given: Requester | Mapping[str, str | None] | None) -> dict[str, Any]:
    """The fields of a proposal's requester. A mapping replaces fields of the default, a ``Requester`` replaces all.

    Raises CallerError for anything else. The envelope checks the fields.
    """
    from council.protocol.envelope import Requester

    if given is None:
        return dict(default)
    if isinstance(given, Requester):
        return given.model_dump()
    if not isinstance(given, Mapping):
        raise CallerError(f"requester is {given!r:.80}, expected {GIVEN}")
    return {**default, **given}


def _short(value: str) -> str:
    from council.protocol.envelope import REQUESTER_CHARS_MAX

    return line(value, REQUESTER_CHARS_MAX)


def _program() -> str:
    path = Path(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-", "-c") else Path("python")
    return path.parent.name if path.name == "__main__.py" else path.stem


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user id without a name
        return ""


def _folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return None


def _at_home(folder: Path) -> str:
    """``~/shop`` for a folder at home."""
    try:
        inner = folder.relative_to(Path.home())
    except (ValueError, RuntimeError):
        return str(folder)
    return f"~/{inner}" if inner.parts else "~"


def _repository(folder: Path) -> str:
    """The repository's name by its remote ``origin``, without user and password, else the name of its folder."""
    for root in (folder, *folder.parents):
        try:
            git = root / ".git"
            if git.is_file():  # of a further working tree: it names the folder that git keeps for it
                kept = root / git.read_text("utf-8", "replace").removeprefix("gitdir:").strip()
                common = kept / "commondir"
                git = kept / common.read_text("utf-8", "replace").strip() if common.is_file() else kept
            if git.is_dir():
                return _remote(git / "config") or root.name
        except (OSError, ValueError):
            return ""
    return ""


def _remote(config: Path) -> str:
    if not config.is_file() or config.stat().st_size > CONFIG_BYTES_MAX:
        return ""
    read = configparser.RawConfigParser(strict=False, allow_no_value=True, interpolation=None)
    try:
        read.read_string(config.read_text("utf-8", "replace"))
    except configparser.Error:
        return ""
    url = read.get('remote "origin"', "url", fallback="") or ""
    if "://" not in url:  # git@host:path, or a path
        url = url.partition("@")[2] or url
        return os.path.basename(url.rstrip("/").rpartition(":")[2])
    # In codecommit::region://profile@repository all of it counts as the path.
    return os.path.basename(urlsplit(url).path.rstrip("/")).rpartition("@")[2]
