"""The process that holds a council on a Ray of its own, where it fails; that it works is tried in tests/ray."""

from __future__ import annotations

import subprocess
import time
from typing import Any

import pytest

from council.cli import hosting
from council.protocol.errors import MindError
from council.settings import CouncilConfig


def test_a_host_that_failed_and_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: to wait for it alone, and tell of the wait that was too long instead of the error."""
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def popen(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        told = '{"error": {"code": "mind", "type": "MindError", "message": "seat lite: no"}}'
        started.append(
            start(["bash", "-c", f"cat >/dev/null; echo '{told}' >&{command[4]}; exec sleep 100"], **how)
        )
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(hosting, "END_TIMEOUT_S", 0.3)
    began = time.monotonic()
    with pytest.raises(MindError, match="seat lite: no"):
        hosting._host(CouncilConfig(name="failing"))
    assert started[0].poll() is not None
    assert time.monotonic() - began < 30
