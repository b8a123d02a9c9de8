"""No token is used more often than it allows, whatever is killed (rules 4.6, 5)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HANG_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.long)])
def test_eight_executors_and_kills_never_use_a_token_too_often(kills: int) -> None:
    """In a process of its own, which forks."""
    command = [sys.executable, "-m", "tests.runtime.racing", "--kills", str(kills)]
    limit_s = HANG_S + kills * HANG_S / 50
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False)
    assert done.stdout, done.stderr[-2_000:]
    found = json.loads(done.stdout)
    assert found["over"] == []
    assert done.returncode == 0, done.stderr[-2_000:]
    assert found["tokens"] >= kills
    assert found["runs"] > 0, "nothing was raced for"
    assert found["unknown"] > 0, "no kill came between a use and its result"
