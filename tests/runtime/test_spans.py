"""The span of each decision: in its proposal's trace, with all that was announced on it, whenever one looks."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from council.agents.messaging.span_recorder import SpanRecorder
from council.journal.memory import MemoryJournal
from council.protocol.metadata import Metadata
from council.runtime import announcements
from council.runtime.coordinator import View
from council.telemetry.decision_spans import DecisionSpans
from tests.logged import capture_logs
from tests.runtime.harness import COUNCIL_ID, Hand


class Traced:
    """A driver in hand whose decisions have spans; it is a coordinator as far as these read one."""

    def __init__(self, processor: SpanProcessor | None = None, **rules: Any) -> None:
        self.hand = Hand(**rules)
        self._memory = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(processor or SimpleSpanProcessor(self._memory))
        self.spans = DecisionSpans(
            "main", self, SpanRecorder(provider.get_tracer("council"), COUNCIL_ID, provider.sampler)
        )

    def view(self) -> View:
        return View(self.hand.driver, MemoryJournal(), self.hand.now, self.hand.driver.position)

    def propose(self, span: int, *, save: bool = True) -> str:
        """A proposal that was sent in that span, in the trace of the same number."""
        metadata = Metadata(traceparent=f"00-{span:032x}-{span:016x}-01")
        envelope = self.hand.envelope("client", "PROPOSAL", {"summary": "do it"}, metadata=metadata)
        self.hand.receive(self.hand.sealed(envelope), save=save)
        return envelope.msg_id

    def decide(self, proposal_id: str) -> None:
        for seat in ("lite", "codemind"):
            self.hand.receive(self.hand.vote(seat, proposal_id))

    def told(self) -> list[ReadableSpan]:
        self.spans.read()
        return list(self._memory.get_finished_spans())


def test_a_look_before_a_proposals_record_is_kept_takes_its_trace_from_nobody() -> None:
    """Mutation: forget at each look which traces proposals came in."""
    traced = Traced()
    proposal_id = traced.propose(0xABC, save=False)
    assert traced.told() == []
    traced.hand.save()
    traced.decide(proposal_id)
    (span,) = traced.told()
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id) == (0xABC, 0xABC)


@pytest.mark.parametrize("events_kept", [1, 2, 7, 20])
def test_nothing_is_missed_where_few_events_are_kept(events_kept: int) -> None:
    """Caught: one that looks now and then alone, and finds the newest events only."""
    traced = Traced(events_kept=events_kept)
    for number in range(1, 51):
        traced.decide(traced.propose(number))
    spans = traced.told()
    assert [span.parent.trace_id for span in spans if span.parent] == list(range(1, 51))
    assert [[event.name for event in span.events] for span in spans] == [["ballot", "ballot"]] * 50
    assert traced.spans._open == {}


def test_where_nobody_asks_for_traces_the_newest_alone_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may send them to a council that makes no spans."""
    monkeypatch.setattr(announcements, "TRACED_MAX", 3)
    traced = Traced()
    proposals = [traced.propose(number) for number in range(1, 6)]
    assert list(traced.hand.driver.announcements.traced) == proposals[2:]


class Broken(SpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("no room")


def test_a_processor_that_fails_ends_no_council() -> None:
    """The provider is the program's own, and so is what it does with spans. Mutation: a feed that has it look."""
    traced = Traced(Broken(), events_kept=1)
    with capture_logs() as logs:
        for number in range(1, 4):
            traced.decide(traced.propose(number))
    assert traced.hand.driver.announcements.counts["approved"] == 3
    assert {(each["what"], each["why"]) for each in logs} == {("DecisionSpans", "RuntimeError: no room")}


def test_what_fails_again_and_again_is_told_once() -> None:
    traced = Traced(Broken())
    with capture_logs() as logs:
        for number in range(1, 4):
            traced.decide(traced.propose(number))
            traced.spans.glance()
    assert len(logs) == 1
