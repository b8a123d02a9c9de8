"""``python -m tests.chaos KIND --count N --seed S``: hurts a council so often, and says what was lost.

Exit code 0 only where nothing that was told is lost, duplicated or changed, and, with ``--timed``, the council came
back in time.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
KINDS = ("ray", "stop", "sqlite", "postgres", "full", "locked", "power", "nodes")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--count", type=int, default=20, help="how many faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the journals go; one that is removed at the end")
    parser.add_argument("--timed", action="store_true", help="fail where the council comes back too late")
    asked = parser.parse_args()
    logging.getLogger("council").setLevel(logging.CRITICAL)
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # of each connection that we cut it says so
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # all that a round has started ends with it
    for name in [name for name in os.environ if name.startswith("COUNCIL_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="chaos-", dir=asked.folder) as made:
        os.environ["XDG_STATE_HOME"] = f"{made}/state"
        began_s = time.monotonic()
        result = importlib.import_module(f"tests.chaos.{asked.kind}").run(asked.count, asked.seed, Path(made))
    print(f"{result}\n({time.monotonic() - began_s:.0f} s, seed {asked.seed})")
    in_time = result.in_time or not asked.timed
    return 0 if result.whole and in_time and result.kills >= asked.count else 1


if __name__ == "__main__":
    sys.exit(main())
