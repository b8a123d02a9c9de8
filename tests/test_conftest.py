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


# Stands for Ray where only matters whether it runs.
RAY = """
import sys, types
state = types.SimpleNamespace(runs=False)

def set_to(runs):
    state.runs = runs

sys.modules["ray"] = types.SimpleNamespace(
    is_initialized=lambda: state.runs, init=lambda: set_to(True), shutdown=lambda: set_to(False)
)
"""
RAY_OF_THE_FOLDER = """
import sys, pytest

@pytest.fixture(scope="package", autouse=True)
def a_ray():
    sys.modules["ray"].init()
    yield
    sys.modules["ray"].shutdown()
"""
USES = "def test_uses(): pass\n"
LEAVES = """
import sys
def test_is_no_culprit(): pass
def test_leaves(): sys.modules["ray"].init()
def test_uses(): pass
"""


@pytest.mark.parametrize(
    ("conftest", "in_ray", "failures"),
    [(RAY_OF_THE_FOLDER, USES, 0), ("", LEAVES, 1)],
    ids=["a fixture of the folder ends it", "a test leaves it running"],
)
def test_no_ray_outlives_its_folder(tmp_path: Path, conftest: str, in_ray: str, failures: int) -> None:
    """Mutations: a folder whose fixtures end with the session; a guard that bears a Ray from before the test."""
    for name, code in {
        "conftest.py": (TESTS / "conftest.py").read_text(encoding="utf-8") + RAY,
        "ray/conftest.py": conftest,
        "ray/test_in_ray.py": in_ray,
        "test_others.py": "def test_first(): pass\ndef test_second(): pass\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code, encoding="utf-8")
    options = ["-p", "no:cacheprovider", "--rootdir", tmp_path, "--junitxml=said.xml", "--basetemp", "own"]
    command = [sys.executable, "-m", "pytest", *options, "ray", "test_others.py"]
    subprocess.run(command, capture_output=True, timeout=HANG_S, cwd=tmp_path, check=False)
    cases = list(ElementTree.parse(tmp_path / "said.xml").iter("testcase"))
    told = [each.get("message", "") for case in cases for each in case]
    assert (len(cases), len(told)) == (in_ray.count("def ") + 2, failures)
    since = "Ray ran in this process before this test: it runs since ray/test_in_ray.py::test_leaves"
    assert all(since in each for each in told)
