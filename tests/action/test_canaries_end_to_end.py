"""No canary that an action prints or fails with is in clear in the journal, an event, a log, a metric or a report."""

from pathlib import Path

import pytest

from council import Council
from tests.action.canaries import CANARIES
from tests.logged import capture_logs

PRINTED = "\n".join(f"it says {canary}\nand more" for canary in CANARIES.values())


@pytest.mark.parametrize("fails", [False, True])
def test_what_an_executor_reports_holds_no_canary(tmp_path: Path, fails: bool) -> None:
    with capture_logs() as logged, Council.inline(sender="bob", store=str(tmp_path / "s.db")) as council:

        @council.tool
        def show(name: str) -> str:
            """Shows it."""
            if fails:
                raise RuntimeError(PRINTED)
            return PRINTED

        done = council.act("show", {"name": "x"})
        seen = [repr(entry) for entry in council.history(envelopes=True)]
        seen += [repr(council.tokens()), repr(council.episode(done.decision.proposal_id)), repr(logged)]
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    told = "\n".join(seen)
    assert "[redacted: GitHub token]" in told
    assert {kind for kind, canary in CANARIES.items() if canary in told or canary.encode() in stored} == set()
