"""What the fixtures of every test forbid is forbidden: each finds a planted fault."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.patience import HANG_S

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
    subprocess.run([sys.executable, "-c", "import time; time.sleep(0.2)"], check=True, stdout=-3)
"""


# What is planted, in which folder, and what is told of it; nothing of what is harmless.
PLANTED = [
    (SLEEPS, "core", "slept 0.001 s"),
    (SLEEPS, "", None),
    (SLEEPS, "agents", "slept"),
    (CATCHES, "sim", "slept"),
    (CONNECTS, "protocol", "opened a socket"),
    (LISTENS, "runtime", "opened a socket"),
    (HARMLESS, "corpus", None),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Why each failed, by its folder, when all were run at once; nothing where it passed."""
    root = tmp_path_factory.mktemp("planted")
    shutil.copy(TESTS / "conftest.py", root)
    for code, folder, _ in PLANTED:
        (root / folder).mkdir(exist_ok=True)
        (root / folder / f"test_in_{folder}.py").write_text(code, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        root,
        "--junitxml=said.xml",
        "--basetemp",
        root / "of-its-own",  # elsewhere it would close the folders of all to others, which some tests open
    ]
    subprocess.run([*command, root], capture_output=True, timeout=HANG_S, cwd=root, check=False)
    cases = ElementTree.parse(root / "said.xml").iter("testcase")
    return {
        str(case.get("classname")).rpartition("test_in_")[2]: " ".join(
            each.get("message", "") for each in case
        )
        for case in cases
    }


@pytest.mark.parametrize(("folder", "why"), [(folder, why) for _, folder, why in PLANTED])
def test_no_test_below_sleeps_or_opens_a_socket(folder: str, why: str | None, told: dict[str, str]) -> None:
    """Mutation: a guard that looks at other folders, or only raises, which a thread or an except swallows."""
    assert (why is None) == (told[folder] == "")
    assert why is None or f"this test {why}" in told[folder]
