"""Metrics: each figure is what the rules and the record say, by whom it should be, and never more series than fit."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest

from council.core.state import Budget, Caps
from council.kinds.phrases import decided_by
from council.runtime.coordinator import View
from council.telemetry import metrics
from council.telemetry.metrics import METRICS, Meter, Registry
from tests.runtime.harness import Hand


class Kept:
    """What a journal tells of its commits."""

    def __init__(self) -> None:
        self.commits: deque[tuple[int, float]] = deque()
        self.trouble: Exception | None = None


class Metered:
    """A driver in hand with a meter on it; it is a coordinator as far as a meter reads one."""

    def __init__(self, *, events_kept: int = 20_000, **rules: Any) -> None:
        self.hand = Hand(events_kept=events_kept, **rules)
        self.journal = Kept()
        self.kept: int | None = None
        self.registry = Registry()
        self.meter = Meter("main", self, [self.registry])

    def view(self) -> View:
        kept = self.hand.driver.position if self.kept is None else self.kept
        journal: Any = self.journal
        return View(self.hand.driver, journal, self.hand.now, kept)

    def value(self, name: str, **labels: str) -> float | None:
        """A sample's value, as it would be scraped now."""
        self.meter.read()
        return self.registry.collected.get_sample_value(name, {"council": "main", **labels})

    def series(self, name: str) -> list[dict[str, str]]:
        return [
            dict(sample.labels)
            for family in self.registry.collected.collect()
            for sample in family.samples
            if sample.name == name
        ]

    def decided(self, *votes: str, **content: Any) -> str:
        proposal = self.hand.propose(**content)
        for seat, vote in zip(("lite", "codemind", "prime"), votes, strict=False):
            self.hand.receive(self.hand.vote(seat, proposal, vote))
        return proposal


@pytest.fixture
def metered() -> Metered:
    return Metered()


def test_a_heartbeats_age_grows_until_the_next_and_is_told_of_dead_seats_too(metered: Metered) -> None:
    hand = metered.hand
    assert metered.value("council_seat_heartbeat_age_seconds", seat="lite") == 0.0
    hand.wait(70.0)
    assert metered.value("council_seat_heartbeat_age_seconds", seat="lite") == 70.0
    assert metered.value("council_seat_active", seat="lite") == 1.0
    hand.wait(21.0)
    hand.save()
    assert metered.value("council_seat_heartbeat_age_seconds", seat="lite") == 91.0  # rules 1.10
    assert metered.value("council_seat_active", seat="lite") == 0.0
    assert metered.value("council_seat_silence_limit_seconds") == 90.0
    assert metered.value("council_quorum_seats") == 2.0


def beat(metered: Metered, seat: str, number: int, boot: int = 0) -> None:
    hand = metered.hand
    content = {"beat": number, "busy_with": None, "uptime_s": 1.0}
    envelope = hand.envelope(seat, "HEARTBEAT", content, role="observer", parent_id=f"{boot:08x}")
    hand.receive(hand.sealed(envelope))


def test_the_interval_is_between_beats_of_one_run(metered: Metered) -> None:
    """Also over beats that came between two looks; a beat of another run begins anew."""
    name = "council_seat_heartbeat_interval_seconds"
    beat(metered, "lite", 0)
    assert metered.value(name, seat="lite") is None
    metered.hand.wait(28.0)
    beat(metered, "lite", 1)
    assert metered.value(name, seat="lite") == 28.0
    metered.hand.wait(30.0)
    beat(metered, "lite", 2)
    metered.hand.wait(20.0)
    beat(metered, "lite", 3)
    assert metered.value(name, seat="lite") == 25.0
    metered.hand.driver.seat_died("lite", 0, "killed", metered.hand.now)
    metered.hand.save()
    metered.hand.wait(5.0)
    beat(metered, "lite", 0, boot=1)
    assert metered.value(name, seat="lite") == 25.0
    assert metered.value("council_seat_restarts_total", seat="lite") == 1.0
    assert metered.value("council_seat_restarts_total", seat="prime") is None


def test_decisions_are_counted_by_outcome_and_by_what_decided(metered: Metered) -> None:
    hand = metered.hand
    of = {"outcome": "approved", "decided_by": "early", "degraded": "no"}
    metered.decided("yes", "yes")
    hand.wait(0.2)
    second = hand.propose()
    hand.wait(0.3)
    hand.receive(hand.vote("lite", second))
    hand.receive(hand.vote("codemind", second))
    assert metered.value("council_decisions_total", **of) == 2.0
    assert metered.value("council_proposals_total") == 2.0
    metered.decided("yes", "no", "yes", wait_for="all")
    assert metered.value("council_decisions_total", **of | {"decided_by": "all_ballots"}) == 1.0
    metered.decided("no", "yes", "abstain", wait_for="all")  # a tie that Prime can't break
    assert metered.value("council_escalations_total", to="human") == 1.0
    assert metered.value("council_decision_duration_seconds_count", outcome="approved") == 3.0
    assert metered.value("council_decision_duration_seconds_sum", outcome="approved") == pytest.approx(0.3)
    assert metered.value("council_decision_duration_seconds_bucket", outcome="approved", le="0.25") == 2.0
    assert metered.value("council_ballots_total", seat="codemind", vote="yes") == 3.0
    assert metered.value("council_ballots_total", seat="prime", vote="abstain") == 1.0


def test_a_missing_ballot_a_tie_break_and_a_ruling_are_told_apart(metered: Metered) -> None:
    hand = metered.hand
    hand.driver.seat_died("lite", 0, "killed", hand.now)
    hand.save()
    proposal = hand.propose(wait_for="all")
    hand.receive(hand.vote("codemind", proposal, "no"))
    hand.receive(hand.vote("prime", proposal, "yes"))
    tied = {"outcome": "approved", "decided_by": "tie_break", "degraded": "yes"}
    assert metered.value("council_decisions_total", **tied) == 1.0
    risky = hand.propose(risk_level="high")
    hand.receive(hand.vote("codemind", risky))
    hand.receive(hand.vote("prime", risky))
    assert metered.value("council_proposals_open", stage="ruling") == 1.0
    assert metered.value("council_escalations_total", to="prime") == 1.0
    hand.receive(hand.ruling(risky, "confirm"))
    ruled = {"outcome": "approved", "decided_by": "ruling", "degraded": "yes"}
    assert metered.value("council_decisions_total", **ruled) == 1.0
    assert metered.value("council_proposals_open", stage="ruling") == 0.0


def test_what_waits_for_a_human_has_an_age_and_then_an_answer(metered: Metered) -> None:
    hand = metered.hand
    assert metered.value("council_escalation_age_seconds") == 0.0
    first = metered.decided("no", "yes", "abstain", wait_for="all")
    hand.wait(40.0)
    metered.decided("no", "yes", "abstain", wait_for="all")
    hand.wait(60.0)
    assert metered.value("council_escalations_open") == 2.0
    assert metered.value("council_proposals_open", stage="human") == 2.0
    assert metered.value("council_escalation_age_seconds") == 100.0
    hand.receive(hand.info("ada", first, "answer", "go", approve=True))
    answered = {"outcome": "approved", "decided_by": "human", "degraded": "no"}
    assert metered.value("council_decisions_total", **answered) == 1.0
    assert metered.value("council_escalation_age_seconds") == 60.0
    hand.wait(90_000.0)
    hand.save()
    ended = {"outcome": "deferred", "decided_by": "nobody", "degraded": "no"}
    assert metered.value("council_decisions_total", **ended) == 1.0
    assert metered.value("council_escalations_open") == 0.0


def test_an_escalation_is_told_once_it_is_on_the_record(metered: Metered) -> None:
    """rules 4.7. Mutation: an alert sends for a human whom status says nothing of."""
    hand = metered.hand
    proposal = hand.propose(wait_for="all")
    for seat, vote in (("lite", "no"), ("codemind", "yes"), ("prime", "abstain")):
        hand.receive(hand.vote(seat, proposal, vote), save=False)
    assert hand.driver.escalations()
    metered.kept = hand.driver.position - 3
    assert metered.value("council_escalations_open") == 0.0
    assert metered.value("council_proposals_open", stage="human") == 0.0
    hand.save()
    metered.kept = None
    assert metered.value("council_escalations_open") == 1.0
    assert metered.value("council_proposals_open", stage="human") == 1.0


def test_late_ballots_losses_and_refusals_are_counted_by_reason(metered: Metered) -> None:
    hand = metered.hand
    proposal = metered.decided("yes", "yes")
    hand.receive(hand.vote("prime", proposal, "no"))
    assert metered.value("council_late_ballots_total", seat="prime", vote="no") == 1.0
    assert metered.value("council_ballots_total", seat="prime", vote="no") is None
    again = hand.propose()
    hand.receive(hand.info("lite", again, "fault", "its mind raised", task="ballot"))
    assert metered.value("council_losses_total", seat="lite", task="ballot") == 1.0
    ballot = hand.vote("codemind", again)
    hand.receive(ballot)
    hand.receive(ballot)
    hand.receive(b"garbage")
    hand.receive(b"garbage")
    refused = metered.series("council_refused_envelopes_total")
    metered.meter.read()
    assert sum(hand.driver.refused.values()) == 2
    found = {each["reason"] for each in metered.series("council_refused_envelopes_total")}
    assert found == set(hand.driver.refused)
    assert refused == []  # nothing is told before a look
    for reason, count in hand.driver.ignored.items():
        assert metered.value("council_ignored_envelopes_total", reason=reason) == count
    assert hand.driver.ignored


def test_only_what_is_on_the_record_is_counted(metered: Metered) -> None:
    """rules 4.7. Caught: counting effects as the core gives them, before their record is kept."""
    hand = metered.hand
    proposal = hand.propose()
    hand.receive(hand.vote("lite", proposal), save=False)
    hand.receive(hand.vote("codemind", proposal), save=False)
    metered.kept = hand.driver.position - 2
    assert metered.series("council_decisions_total") == []
    assert metered.value("council_ballots_total", seat="lite", vote="yes") is None
    assert metered.value("council_journal_lag_records") == 2.0
    hand.save()
    metered.kept = None
    assert metered.value("council_ballots_total", seat="lite", vote="yes") == 1.0
    assert metered.value("council_journal_lag_records") == 0.0


def test_a_meter_counts_what_is_announced_from_its_beginning_on_and_each_once() -> None:
    metered = Metered()
    metered.decided("yes", "yes")
    later = Registry()
    meter = Meter("main", metered, [later])
    metered.decided("yes", "yes")
    meter.read()
    meter.read()
    assert later.collected.get_sample_value("council_proposals_total", {"council": "main"}) == 1.0
    assert metered.value("council_proposals_total") == 2.0


@pytest.mark.parametrize("events_kept", [1, 2, 7, 20])
def test_nothing_is_missed_where_few_events_are_kept(events_kept: int) -> None:
    """Caught: a meter that looks now and then alone, and finds the newest events only."""
    metered = Metered(events_kept=events_kept)
    for _ in range(50):
        metered.decided("yes", "yes")
    assert metered.value("council_proposals_total") == 50.0
    assert metered.value("council_ballots_total", seat="lite", vote="yes") == 50.0
    assert metered.value("council_decision_duration_seconds_count", outcome="approved") == 50.0


def test_what_an_earlier_coordinator_refused_is_not_counted_again() -> None:
    metered = Metered()
    metered.hand.receive(b"garbage")
    metered.hand.driver.seat_died("lite", 0, "killed", metered.hand.now)
    metered.hand.save()
    later = Registry()
    meter = Meter("main", metered, [later])
    (code,) = metered.hand.driver.refused
    meter.read()
    refused = {"council": "main", "reason": code}
    assert later.collected.get_sample_value("council_refused_envelopes_total", refused) is None
    assert (
        later.collected.get_sample_value("council_seat_restarts_total", {"council": "main", "seat": "lite"})
        is None
    )
    metered.hand.receive(b"garbage")
    meter.read()
    assert later.collected.get_sample_value("council_refused_envelopes_total", refused) == 1.0


def test_commits_are_observed_once_with_their_records(metered: Metered) -> None:
    metered.journal.commits.extend([(4, 0.0008), (100, 0.02)])
    assert metered.value("council_journal_batch_records_sum") == 104.0
    assert metered.value("council_journal_batch_records_count") == 2.0
    assert metered.value("council_journal_commit_duration_seconds_bucket", le="0.001") == 1.0
    assert metered.value("council_journal_commit_duration_seconds_sum") == pytest.approx(0.0208)
    assert metered.value("council_journal_stalled") == 0.0
    metered.journal.trouble = OSError("full")
    assert metered.value("council_journal_stalled") == 1.0


def spend(
    metered: Metered,
    seat: str,
    proposal: str,
    tokens: int,
    microusd: int,
    used: int | None,
    seconds: float = 0.0,
    model: str = "gpt-4o",
    **failed: str,
) -> None:
    hand = metered.hand
    facts = {"task": "ballot", "model": model, "tokens": tokens, "microusd": microusd}
    content = {"kind": "reserve", "text": "", "data": facts}
    envelope = hand.envelope(seat, "INFO", content, parent_id=proposal)
    hand.receive(hand.sealed(envelope))
    hand.wait(seconds)
    if used is not None:
        cost = {"tokens": used, "microusd": microusd, **failed}
        hand.receive(hand.info(seat, proposal, "settle", call=envelope.msg_id, **cost))


def test_spending_is_told_by_seat_and_model_beside_what_is_left() -> None:
    budget = Budget(council=Caps(10_000, 2_000_000), seats=(("lite", Caps(1_000, None)),))
    metered = Metered(budget=budget)
    assert metered.value("council_budget_tokens", whose="council") == 10_000.0
    assert metered.value("council_budget_left_dollars", whose="council") == 2.0
    assert metered.value("council_budget_tokens", whose="prime") is None
    proposal = metered.hand.propose()
    spend(metered, "lite", proposal, 400, 500_000, used=150, seconds=2.0)
    spend(metered, "lite", proposal, 300, 250_000, used=None)
    of = {"seat": "lite", "model": "gpt-4o"}
    assert metered.value("council_model_tokens_total", **of) == 150.0
    assert metered.value("council_model_cost_dollars_total", **of) == 0.5
    assert metered.value("council_model_calls_total", **of, usage="told") == 1.0
    assert metered.value("council_model_call_duration_seconds_sum", **of) == 2.0
    assert metered.value("council_model_reserved_tokens", **of) == 300.0
    assert metered.value("council_budget_left_tokens", whose="council") == 10_000 - 450
    assert metered.value("council_budget_left_tokens", whose="lite") == 550.0
    assert metered.value("council_budget_left_dollars", whose="council") == 1.25
    spend(metered, "lite", proposal, 900, 0, used=None)
    assert metered.value("council_model_denials_total", **of) == 1.0
    metered.hand.driver.seat_died("lite", 0, "killed", metered.hand.now)
    metered.hand.save()
    assert metered.value("council_model_calls_total", **of, usage="assumed") == 1.0
    assert metered.value("council_model_reserved_tokens", **of) == 0.0


def test_calls_that_failed_are_counted_by_seat_model_and_kind(metered: Metered) -> None:
    """Each attempt, tried again or not; a word that is none of the kinds is not shown."""
    proposal = metered.hand.propose()
    for error in ("429", "timeout", "429", "canary of a proposal"):
        spend(metered, "lite", proposal, 400, 0, used=0, error=error)
    spend(metered, "prime", proposal, 400, 0, used=100)
    name, of = "council_model_errors_total", {"seat": "lite", "model": "gpt-4o"}
    assert metered.value(name, **of, error="429") == 2.0
    assert metered.value(name, **of, error="timeout") == 1.0
    assert metered.value(name, **of, error="other") == 1.0
    assert len(metered.series(name)) == 3
    assert metered.value("council_model_calls_total", **of, usage="told") == 4.0


def test_what_is_reserved_is_told_by_model_and_falls_to_nothing(
    metered: Metered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutations: what one more than fits holds takes the place of what others hold; a series stays where it was."""
    monkeypatch.setattr(metrics, "SERIES_MAX", 2)
    proposal, name = metered.hand.propose(), "council_model_reserved_tokens"
    for number, tokens in enumerate((100, 20, 3, 4)):
        spend(metered, "lite", proposal, tokens, 0, used=None, model=f"model-{number}")
    spend(metered, "lite", proposal, 100, 0, used=None, model="model-0")
    assert metered.value(name, seat="lite", model="model-0") == 200.0
    assert metered.value(name, seat="lite", model="model-1") == 20.0
    assert metered.value(name, seat="other", model="other") == 7.0
    metered.hand.driver.seat_died("lite", 0, "killed", metered.hand.now)
    metered.hand.save()
    assert metered.value(name, seat="lite", model="model-0") == 0.0
    assert metered.value(name, seat="other", model="other") == 0.0


def test_a_seat_that_makes_names_up_makes_no_series_without_end(
    metered: Metered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "SERIES_MAX", 5)
    for number in range(20):
        metered.meter._add("council_model_tokens", 10, "lite", f"model-{number}")
    metered.meter.read()
    found = {each["model"] for each in metered.series("council_model_tokens_total")}
    assert found == {f"model-{number}" for number in range(5)} | {"other"}
    other = metered.value("council_model_tokens_total", seat="other", model="other")
    assert other == 150.0


async def status(metered: Metered, method: str, accept: bytes = b"", encoding: bytes = b"") -> int:
    """The status of a request to the metrics' app."""
    app = metrics._scraped(metered.registry, metered.meter, asyncio.get_running_loop())
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"accept", accept), (b"accept-encoding", encoding)]
    scope = {"type": "http", "method": method, "path": "/metrics", "query_string": b"", "headers": headers}
    await app(scope, receive, send)
    return sent[0]["status"]


@pytest.mark.parametrize(
    ("method", "found"), [("GET", 200), ("HEAD", 200), ("POST", 405), ("OPTIONS", 405), ("DELETE", 405)]
)
def test_only_a_get_or_head_is_served(metered: Metered, method: str, found: int) -> None:
    assert asyncio.run(status(metered, method)) == found


def test_only_an_unreadable_accept_is_the_callers_fault(
    metered: Metered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: a fault of the meter is answered with 400."""
    for accept in (b"application/openmetrics-text; version=x.y.z", b"\xff"):
        assert asyncio.run(status(metered, "GET", accept)) == 400
    assert asyncio.run(status(metered, "GET", encoding=b"\xff")) == 400
    monkeypatch.setattr(metered.meter, "read", lambda: int("x"))
    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(status(metered, "GET"))


def test_each_metric_says_what_it_is_in_the_units_that_prometheus_uses() -> None:
    units = {"seconds", "tokens", "dollars", "records", "seats"}
    for metric in METRICS.values():
        assert metric.name.startswith("council_")
        assert metric.help.endswith(".")
        assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert "council" not in metric.labels
        if metric.kind == "histogram":
            assert list(metric.buckets) == sorted(metric.buckets)
            assert metric.name.rpartition("_")[2] in units
    assert decided_by.__doc__
