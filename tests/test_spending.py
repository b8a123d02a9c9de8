"""A council whose minds call models spends within its budget, tells what it spent, and keeps that (rules 2.6)."""

from __future__ import annotations

import asyncio
import io
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from council import Council, SeatConfig
from council.agents.mind import BudgetClient, Case, Cost, Opinion
from council.agents.prompting import prompt
from council.cli import overview, render
from council.core.state import Account, Caps, Overrun, Spend
from council.protocol.errors import ConfigError
from council.runtime.build import rules_of
from tests.patience import HANG_S, until


class Spender:
    """Calls a model that does not exist: reserves, waits, settles."""

    def __init__(self, worst: int = 1_000, used: int | None = 300, seconds: float = 0.0) -> None:
        self.worst, self.used, self.seconds = worst, used, seconds

    def set_budget(self, purse: BudgetClient) -> None:
        self.purse = purse

    async def review(self, case: Case) -> Opinion:
        call_id = await self.purse.reserve(case.proposal_id, "ballot", "small-1", Cost(self.worst, 50))
        await asyncio.sleep(self.seconds)
        self.purse.settle(call_id, None if self.used is None else Cost(self.used, 10))
        return Opinion.yes("it said so")


def council_of(*minds: Spender, **settings: Any) -> Council:
    names = ("prime", "lite", "codemind")
    seats = [SeatConfig(name=name, mind=mind) for name, mind in zip(names, minds, strict=True)]
    return Council.inline(seats=seats, **settings)


def three(**options: Any) -> tuple[Spender, ...]:
    return tuple(Spender(**options) for _ in range(3))


def test_a_decision_tells_what_it_cost_and_status_what_all_of_them_did() -> None:
    with council_of(*three(), council_tokens_max=10_000) as council:
        decision = council.propose("a change", wait_for="all")
        assert decision.outcome == "approved"
        assert decision.spent == tuple(
            Account(seat, 1, Spend(300, 10)) for seat in ("codemind", "lite", "prime")
        )
        council.propose("another", wait_for="all")
        told = council.status()["budget"]
        assert told["council"] == {
            "calls": 6,
            "assumed": 0,
            "spent": {"tokens": 1_800, "microusd": 60},
            "held": {"tokens": 0, "microusd": 0},
            "caps": {"tokens": 10_000, "microusd": None},
        }
        assert [told["seats"][name]["spent"]["tokens"] for name in ("prime", "lite", "codemind")] == [600] * 3
        kinds = [event.kind for event in council.events(follow=False)]
        assert kinds.count("spending") == 6


def test_what_does_not_fit_is_not_called_and_costs_the_ballot() -> None:
    with council_of(*three(), proposal_tokens_max=2_000) as council:
        decision = council.propose("a change", wait_for="all", timeout_s=HANG_S)
        assert decision.outcome == "approved"
        ((seat, why),) = decision.missing
        assert "of the 2,000 that this proposal may spend" in why
        assert decision.degraded
        assert sum(account.spent.tokens for account in decision.spent) == 600
        denials = [event for event in council.events(follow=False) if event.kind == "denial"]
        assert [event.data["call"]["seat"] for event in denials] == [seat]


def test_a_council_without_money_decides_nothing_by_models() -> None:
    with council_of(*three(), council_tokens_max=0, time_budget_s=0.5) as council:
        standing = council.propose("a change")
        assert standing.standing == "escalated"
        assert standing.spent == ()


def test_the_third_model_stops_once_two_have_decided_and_no_action_follows() -> None:
    minds = (Spender(), Spender(), Spender(seconds=HANG_S))
    with council_of(*minds) as council:
        decision = council.propose("a question")
        assert decision.early
        until(lambda: not council.status()["budget"]["under_way"])
        again = council.decision(decision.proposal_id)
        assert again is not None
        (slow,) = (account for account in again.spent if account.seat == "codemind")
        assert (slow.spent, slow.held, slow.assumed) == (Spend(1_000, 50), Spend(), 1)


def test_what_was_spent_outlives_the_coordinator(tmp_path: Path) -> None:
    """Mutation: a snapshot without the accounts begins with a full purse after each restart."""
    settings: dict[str, Any] = {"store": str(tmp_path / "s.db"), "council_tokens_max": 1_000}
    with council_of(*three(worst=300, used=300), **settings) as council:
        council.propose("a change", wait_for="all")
    with council_of(*three(worst=300, used=300), **settings) as council:
        told = council.status()["budget"]["council"]
        assert told["spent"] == {"tokens": 900, "microusd": 30}
        decision = council.propose("another", wait_for="all", timeout_s=1.0)
        assert decision.standing == "escalated"
        assert sum(account.calls for account in decision.spent) == 0


def test_caps_come_from_the_configuration() -> None:
    seats = [
        SeatConfig(name="prime", mind=Spender(), tokens_max=5),
        SeatConfig(name="lite", mind=Spender(), usd_max=0.25),
        SeatConfig(name="codemind", mind=Spender()),
    ]
    with Council.inline(seats=seats, seat_tokens_max=9, proposal_usd_max=1.5) as council:
        budget = rules_of(council.config).budget
    assert budget.seat == Caps(9)
    assert dict(budget.seats) == {"prime": Caps(5), "lite": Caps(9, 250_000)}
    assert budget.proposal == Caps(None, 1_500_000)
    for wrong in ({"council_tokens_max": -1}, {"council_usd_max": float("inf")}, {"seat_tokens_max": 1.5}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Council.inline(seats=seats, **wrong)  # type: ignore[arg-type]


def test_what_is_drawn_says_who_spent_what() -> None:
    minds = (Spender(used=None), Spender(), Spender(used=120))
    with council_of(
        *minds, council_tokens_max=12_000, seat_usd_max=0.5, proposal_tokens_max=3_000
    ) as council:
        decision = council.propose("a change", wait_for="all")
        told = council.status()["budget"]
    drawn = Console(width=80, file=io.StringIO())
    drawn.print(overview.budget(told), render.decision(decision))
    lines = drawn.file.getvalue()  # type: ignore[attr-defined]
    assert [line.split()[0] for line in lines.splitlines()[:5]] == [
        "seat",
        "prime",
        "lite",
        "codemind",
        "all",
    ]
    assert "10,580" in lines  # of the council's 12,000
    assert "at most 3,000 tokens on one proposal" in lines
    assert "1,420 tokens, $0.000070 (codemind 120, lite 300, prime 1,000)" in lines
    assert "because the usage is unknown" in " ".join(lines.replace("│", " ").split())
    assert all(len(line) <= 80 for line in lines.splitlines())


def test_what_was_shortened_and_what_a_prompt_was_made_of_is_on_the_record() -> None:
    """rules 2.4: TOKEN_BUDGET_OVERRUN is an event; rules 7: whoever reads the journal knows the prompts."""
    cut = {"packet": "p", "field": "history", "limit": 9, "before": 20, "after": 8, "how": "local tf-idf"}

    class Telling(Spender):
        async def review(self, case: Case) -> Opinion:
            call_id = await self.purse.reserve(
                case.proposal_id, "ballot", "small-1", Cost(10), prompt="ab" * 32, overruns=[cut]
            )
            self.purse.settle(call_id, Cost(5))
            return Opinion.yes("it said so")

    with council_of(Telling(), *three()[1:]) as council:
        council.propose("a change", wait_for="all")
        (event,) = (event for event in council.events(follow=False) if event.kind == "overrun")
        assert event.data["overruns"] == [cut]
        assert event.data["call"]["prompt"] == "ab" * 32
        kept = [entry for entry in council.history(types=["call"]) if entry.who == "prime"]
        assert kept[0].data["overruns"] == [cut]


def test_a_question_that_cannot_be_read_is_answered() -> None:
    """Mutation: its seat waits for the answer until the time budget is over."""

    class Garbler(Spender):
        async def review(self, case: Case) -> Opinion:
            await self.purse.reserve(case.proposal_id, "ballot", "small-1", Cost(10), overruns="none")
            return Opinion.yes("it was granted")

    with council_of(Garbler(), *three()[1:]) as council:
        decision = council.propose("a change", wait_for="all", timeout_s=HANG_S)
        ((seat, why),) = decision.missing
        assert (seat, "content.data.overruns" in why) == ("prime", True)
        assert decision.seconds < HANG_S


def test_dollars_are_never_rounded_up() -> None:
    seats = [SeatConfig(name=name, mind=Spender(), usd_max=0.0000015) for name in ("prime", "lite")]
    with Council.inline(seats=seats, council_usd_max=0.57) as council:
        budget = rules_of(council.config).budget
    assert {caps.microusd for _, caps in budget.seats} == {1}
    assert budget.council.microusd == 570_000


def test_an_overrun_is_kept_as_prompts_tell_it() -> None:
    """Its shape stands twice, as agents know no core: a field that one of them lacks would be lost on the way."""
    assert [field.name for field in fields(prompt.Overrun)] == list(Overrun.__struct_fields__)
