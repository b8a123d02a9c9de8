"""Names the rules that take long: ``python -m tests.scan.slow_rules GIT_DIR COMMIT [SECONDS]``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from council.agents.scan import code
from council.agents.scan.change import read_changes
from council.agents.scan.pieces import pieces_of
from council.agents.scan.ruleset import OWN
from council.agents.scan.spelling import spelled
from council.agents.scan.tools import ToolFailed
from council.cli.decide import changes
from tests.scan.examples import load


def main(git_dir: str, commit: str, seconds: str = "0.3") -> None:
    """Applies each rule by itself."""
    pieces = spelled(pieces_of(read_changes(changes.find(commit, Path(git_dir)).body).files))
    for rule in load(OWN / "ast"):
        began, found = time.perf_counter(), 0
        try:
            found = len(code.matches(pieces, [rule], timeout_s=10.0))
        except ToolFailed as error:
            print(rule.id, error)
        if (took := time.perf_counter() - began) > float(seconds):
            print(f"{took:6.2f} s {rule.id}: {found} matches")


if __name__ == "__main__":
    main(*sys.argv[1:])
