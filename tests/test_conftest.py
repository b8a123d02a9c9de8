"""What the fixtures of every test forbid is forbidden: each finds a planted fault."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

SLEEPS = """
import time
def test_planted():
    time.sleep(0.001)
"""
CATCHES = """
import threading, time
def test_planted():
    thread = threading.Thread(target=lambda: time.sleep(0.001))
    thread.start()
    thread.join()
"""
CONNECTS = """
import socket
def test_planted():
    try:
        socket.create_connection(("127.0.0.1", 9), 0.1)
    except Exception:
        pass
"""
LISTENS = """
import asyncio
def test_planted():
    async def serve():
        await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    asyncio.run(serve())
"""
HARMLESS = """
import asyncio, subprocess, sys
def test_planted():
    asyncio.run(asyncio.sleep(0))
    subprocess.run([sys.executable, "-c", "import time; time.sleep(0.2)"], timeout=30, check=True, stdout=-3)
"""


@pytest.mark.parametrize(
    ("code", "folder", "told"),
    [
        (SLEEPS, "core", "slept 0.001 s"),
        (SLEEPS, "", None),
        (SLEEPS, "agents", "slept"),
        (CATCHES, "sim", "slept"),
        (CONNECTS, "protocol", "opened a socket"),
        (LISTENS, "runtime", "opened a socket"),
        (HARMLESS, "core", None),
    ],
)
def test_no_test_below_sleeps_or_opens_a_socket(
    code: str, folder: str, told: str | None, tmp_path: Path
) -> None:
    """Mutation: a guard that looks at other folders, or only raises, which a thread or an except swallows."""
    shutil.copy(TESTS / "conftest.py", tmp_path)
    planted = tmp_path / folder / "test_planted.py"
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(code, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(planted),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert done.returncode == (0 if told is None else 1), done.stdout
    assert told is None or f"this test {told}" in done.stdout
