"""No canary that an action prints or fails with is in clear in the journal, an event, a log, a metric or a report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from council import Case, Council, Opinion, SeatConfig
from council.protocol.errors import NotApproved
from tests.action.canaries import CANARIES
from tests.logged import capture_logs
from tests.ray.nodes import free_port
from tests.test_prometheus import scraped
from tests.test_tracing import InMemorySpanExporter
from tests.test_tracing import told as told

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


def torn(case: Case) -> Opinion:
    """Approves what is to be run, and fails or leaves the rest to a human, with canaries in each reason."""
    if case.action is None:
        raise RuntimeError(PRINTED)
    return Opinion.yes(PRINTED[:1_000], risk_level="low" if case.action.tool == "show" else "high")


def test_no_metric_and_no_span_holds_what_a_proposal_a_seat_or_a_tool_says(
    told: InMemorySpanExporter,
) -> None:
    """The journal has a proposal word for word. Metrics and spans leave for other systems, and have no text of it."""
    seats = [SeatConfig(name, mind=torn) for name in ("prime", "lite", "codemind")]
    port = free_port()
    with Council.inline(seats=seats, sender="bob", traces="global", metrics_port=port) as council:

        @council.tool
        def show(name: str) -> str:
            raise RuntimeError(PRINTED)

        @council.tool(requester={"agent": CANARIES["GitHub token"], "user": CANARIES["phone"]})
        def send(name: str) -> None:
            raise AssertionError("it was not approved")

        assert not council.act("show", {"name": PRINTED}, summary=CANARIES["mail address"], body=PRINTED)
        with pytest.raises(NotApproved):
            send(PRINTED)
        assert not council.propose(PRINTED[:500], PRINTED, history=[("user", PRINTED)]).final
        seen = scraped(f"http://127.0.0.1:{port}/metrics")
    spans = told.get_finished_spans()
    assert len(spans) > 10
    for line in ('outcome="failed"', "council_ballots_total"):
        assert line in seen
    seen += "".join(words_of(span) for span in spans)
    assert {kind for kind, canary in CANARIES.items() if canary in seen} == set()


def words_of(span: Any) -> str:
    """All that is exported of a span in words."""
    parts: list[Mapping[str, Any] | None] = [span.attributes, span.resource.attributes]
    parts += [event.attributes for event in span.events]
    return repr(
        (span.name, span.status.description, [event.name for event in span.events], *map(dict, parts))
    )
