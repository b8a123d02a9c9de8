"""Writes the council's dashboard into a folder that Grafana reads."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from council.protocol.errors import OperatorError

UID = "council"
FILE = Path(__file__).parent / "council.json"


def put(text: str, folder: Path) -> tuple[Path, str]:
    """Puts the dashboard ``text`` into a folder that Grafana reads; the file's path, and what was done.

    Raises OperatorError if another dashboard's file is there, or the folder can't be written.
    """
    path = folder / f"{UID}.json"
    try:
        before = path.read_text("utf-8", "replace") if path.exists() else None
        if before == text:
            return path, "is there already"
        if before is not None and _uid(before) != UID:
            raise OperatorError(
                f"{path} is another dashboard, and is not replaced: move it away, or import "
                "deploy/grafana/council.json in Grafana by hand"
            )
        folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}.new")
        fresh.write_text(text, "utf-8")
        fresh.replace(path)  # whole or not at all: Grafana may be reading
    except OSError as error:
        raise OperatorError(f"{path} on {socket.gethostname()} can't be written: {error.strerror}") from error
    return path, "written" if before is None else "replaced an earlier version"


def _uid(text: str) -> object:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document.get("uid") if isinstance(document, dict) else None
