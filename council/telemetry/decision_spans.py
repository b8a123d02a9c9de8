"""The span of each decision, made from a coordinator's announcements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from council.agents.messaging import spans as names
from council.core import effects as do
from council.core.state import Decision
from council.kinds.phrases import decided_by
from council.kinds.table import ANNOUNCED
from council.protocol import codec
from council.protocol.errors import CouncilError
from council.protocol.metadata import Metadata
from council.runtime.feed import touched
from council.telemetry.watcher import Announced, Watcher

if TYPE_CHECKING:
    from council.agents.messaging.span_recorder import SpanRecorder
    from council.config.settings import CouncilConfig
    from council.runtime.coordinator import Coordinator, View
    from council.telemetry.tracing import Traces

# Of one decision's span; 15 seats' ballots, losses and observations are fewer.
EVENTS_MAX = 100


def decision_spans(
    config: CouncilConfig, coordinator: Coordinator, traces: Traces | None
) -> list[DecisionSpans]:
    """The watcher that makes a span of each decision, if spans are made."""
    if traces is None:
        return []
    return [DecisionSpans(config.name, coordinator, traces.spans(coordinator.council_id))]


@dataclass(slots=True)
class _Open:
    """An open proposal: since when (Unix seconds), in which trace, and what was announced about it."""

    since_s: float
    metadata: Metadata | None
    events: list[tuple[str, float, dict[str, Any]]] = field(default_factory=list)


class DecisionSpans(Watcher):
    """Makes a span ``council.decide`` of each decision. The next coordinator makes those of what stays open."""

    def __init__(self, council: str, coordinator: Coordinator, spans: SpanRecorder) -> None:
        self._council = council
        self._spans = spans
        self._open: dict[str, _Open] = {}
        super().__init__(coordinator)

    def begin(self, view: View) -> None:
        uptime_s, wall_s = view.now
        for proposal_id, proposal in view.driver.state.open.items():
            payload = view.driver.outbox.payloads.get(proposal_id)
            try:
                metadata = None if payload is None else codec.decode(payload).metadata
            except CouncilError:
                metadata = None
            self._open[proposal_id] = _Open(wall_s - (uptime_s - proposal.opened_s), metadata)

    def see(self, announced: Announced, view: View) -> None:
        for wall_s, effect in announced:
            match effect:
                case do.AnnounceProposal(what):
                    metadata = view.driver.announcements.traced.pop(what.proposal_id, None)
                    self._open[what.proposal_id] = _Open(wall_s, metadata)
                case do.AnnounceDecision(decision):
                    self._decided(decision, wall_s)
                case _:
                    self._note(effect, wall_s)

    def _note(self, effect: do.Effect, wall_s: float) -> None:
        """Notes an announcement about an open proposal, without content."""
        line = ANNOUNCED[type(effect)].noted(effect)
        for found in map(self._open.get, touched([effect])):
            if line is not None and found is not None and len(found.events) < EVENTS_MAX:
                about = {f"council.{name}": value for name, value in line.facts.items()}
                found.events.append((line.title, wall_s, about))

    def _decided(self, decision: Decision, wall_s: float) -> None:
        found = self._open.pop(decision.proposal_id, None) or _Open(wall_s - decision.seconds, None)
        about: dict[str, Any] = {
            names.COUNCIL: self._council,
            names.PROPOSAL: decision.proposal_id,
            names.OUTCOME: decision.outcome or "",
            names.DECIDED_BY: decided_by(decision),
            names.DEGRADED: decision.degraded,
            names.QUORUM: decision.quorum,
        }
        if decision.missing:
            about[names.MISSING] = [seat for seat, _ in decision.missing]
        parent = self._spans.parent(decision.proposal_id, found.metadata)
        span = self._spans.tracer.start_span(
            names.DECIDE, parent, attributes=about, start_time=_ns(found.since_s)
        )
        for name, at_s, facts in found.events:
            span.add_event(name, facts, _ns(at_s))
        span.end(_ns(wall_s))


def _ns(wall_s: float) -> int:
    return int(wall_s * 1e9)
