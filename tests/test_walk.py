"""A proposal passes the functions that council/README.md lists, in their order."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import FrameType

from council import Council

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| `([a-z_/]+\.py)` \| `([a-z_]+)` \|", re.M)


def called_while_proposing() -> list[tuple[str, str]]:
    """The file and name of each function that is called for one proposal in process, in their order."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))

    threading.setprofile(note)  # for the council's thread, which begins in ``inline``
    try:
        with Council.inline() as council:
            council.propose("Begin")  # what is loaded once
            calls.clear()
            sys.setprofile(note)
            council.propose("Rename the variable total to sum", wait_for="all")  # so that Prime votes
            sys.setprofile(None)
            return list(calls)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def test_a_proposal_passes_the_functions_of_the_readme() -> None:
    page = (ROOT / "council/README.md").read_text(encoding="utf-8")
    section = page.partition("## Step by step")[2].partition("\n## ")[0]
    made = [(str(Path(file).resolve()), name) for file, name in called_while_proposing()]
    ways = section.split("| back |")
    assert len(ways) == 2
    for way in ways:  # ballots come in any order, so the way back may begin before the last mind is asked
        listed = [(str((ROOT / "council" / file).resolve()), name) for file, name in ROW.findall(way)]
        assert len(listed) == way.count(".py` |") > 10, "a row that can't be read"
        calls = made
        for each in listed:
            assert each in calls, f"{each} was not called after those before it"
            calls = calls[calls.index(each) + 1 :]
