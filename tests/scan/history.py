"""Applies the rules to the commits of a repository: ``python -m tests.scan.history GIT_DIR N [FILE…]``.

Prints each finding, and how many of 100 commits have a stop or an ask.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from council.agents.scan import code, lines
from council.agents.scan.change import read_changes
from council.agents.scan.compare import compare
from council.agents.scan.pieces import pieces_of
from council.agents.scan.ruleset import read
from council.agents.scan.spelling import spelled
from tests.scan.examples import files


def main(git_dir: str, count: str, *names: str) -> None:
    def git(*words: str) -> str:
        done = subprocess.run(["git", "--git-dir", git_dir, *words], capture_output=True, check=True)
        return done.stdout.decode("utf-8", "replace")

    rules = [rule for file in (list(map(Path, names)) or files()) for rule in read(file)]
    commits = git("log", "--no-merges", "-n", count, "--format=%H").split()
    alarmed = 0
    for commit in commits:
        changes = read_changes(git("show", "--format=", "--no-color", commit)[:2_000_000]).files
        pieces = spelled(pieces_of(changes))
        found = compare(
            [
                *code.matches(pieces, [r for r in rules if r.languages], timeout_s=60.0),
                *lines.matches(pieces, [r for r in rules if not r.languages]),
            ],
            pieces,
        )
        for each in found:
            print(commit[:10], each.weight, each)
        alarmed += any(each.weight != "note" for each in found)
    print(
        f"{len(commits)} commits, {alarmed} with a stop or an ask: {100 * alarmed / max(1, len(commits)):.1f} of 100"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
