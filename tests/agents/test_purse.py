"""A seat's purse: no model call before it is granted, and each one settled once, whatever becomes of its mind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from council.agents.mind import BudgetClient, Case, Cost, Opinion, Ruling, ShownBallot, SpendingMind
from council.protocol.envelope import Envelope, Info
from council.protocol.errors import MindError
from council.protocol.values import plain as as_data
from tests.agents.test_seat import Bench, fault_of
from tests.runtime.harness import in_loop

WORST = Cost(500, 20)


class Spender:
    """A mind that makes one call, and then does whatever ``call`` does."""

    def __init__(self, call: Callable[[BudgetClient, str], Awaitable[Any]]) -> None:
        self._call = call

    def set_budget(self, purse: BudgetClient) -> None:
        self.purse = purse

    async def review(self, case: Case) -> Opinion:
        call_id = await self.purse.reserve(case.proposal_id, "ballot", "small-1", WORST)
        await self._call(self.purse, call_id)
        return Opinion.yes("it said so")


def facts(envelope: Envelope) -> tuple[str, dict[str, Any]]:
    assert isinstance(envelope.content, Info), envelope.content
    data = as_data(envelope.content.data)
    assert data.pop("proposal_id") == envelope.parent_id == "aaaaaaaa"
    assert (envelope.sender, envelope.role) == ("lite", "voter")
    return envelope.content.kind, data


async def hears(bench: Bench, *batch: bytes, want: int = 1) -> list[Envelope]:
    return [bench.opened(sealed) for sealed in await bench.calls(batch, want)]


@in_loop
async def test_a_call_is_asked_for_granted_made_and_settled() -> None:
    async def pays(purse: BudgetClient, call_id: str) -> None:
        purse.settle(call_id, Cost(120, 7))
        purse.settle(call_id, Cost(9_999))  # the first word counts

    mind = Spender(pays)
    assert isinstance(mind, SpendingMind)
    bench = Bench(mind)
    (asked,) = await hears(bench, bench.proposal())
    assert facts(asked) == (
        "reserve",
        {"task": "ballot", "model": "small-1", "tokens": 500, "microusd": 20},
    )
    settled, ballot = await hears(bench, bench.info("granted", call=asked.msg_id), want=2)
    assert facts(settled) == ("settle", {"call": asked.msg_id, "tokens": 120, "microusd": 7})
    assert ballot.type == "VOTE"
    assert bench.host._work.oldest() is None
    assert await bench.seat.exchange([]) == (False, [])


@pytest.mark.parametrize(
    ("told", "kind"),
    [("429", "429"), ("timeout", "timeout"), ("the plan is to sell", "other"), ("7777", "other")],
)
@in_loop
async def test_of_what_kind_a_call_failed_is_told_in_a_word_of_few(told: str, kind: str) -> None:
    """Mutation: as a mind says it, which would be a label of a metric, and may quote a proposal (rules 1.14)."""

    async def fails(purse: BudgetClient, call_id: str) -> None:
        purse.settle(call_id, None, told)

    bench = Bench(Spender(fails))
    (asked,) = await hears(bench, bench.proposal())
    settled, _ = await hears(bench, bench.info("granted", call=asked.msg_id), want=2)
    assert facts(settled) == ("settle", {"call": asked.msg_id, "tokens": None, "error": kind})


@in_loop
async def test_what_is_denied_is_not_made_and_costs_the_ballot_with_the_reason() -> None:
    async def never(purse: BudgetClient, call_id: str) -> None:
        pytest.fail("it was denied")

    bench = Bench(Spender(never))
    (asked,) = await hears(bench, bench.proposal())
    text = "the call may cost 500 tokens; of the 100 that lite may spend, 100 are left"
    (fault,) = await hears(bench, bench.info("denied", call=asked.msg_id, text=text))
    assert "may not call small-1 for aaaaaaaa: " + text in fault_of(fault)
    assert await bench.seat.exchange([]) == (False, [])


@pytest.mark.parametrize("how", ["raises", "returns"])
@in_loop
async def test_what_its_mind_leaves_open_is_settled_as_unknown(how: str) -> None:
    """Mutation: its reservation is held for the council's life."""

    async def leaves(purse: BudgetClient, call_id: str) -> None:
        if how == "raises":
            raise RuntimeError("the line broke")

    bench = Bench(Spender(leaves))
    (asked,) = await hears(bench, bench.proposal())
    said = await hears(bench, bench.info("granted", call=asked.msg_id), want=2)
    assert ("settle", {"call": asked.msg_id, "tokens": None}) in [
        facts(each) for each in said if each.type == "INFO" and each.content.kind == "settle"
    ]


@in_loop
async def test_a_call_that_is_withdrawn_in_the_middle_is_settled() -> None:
    """Mutation: the seat says that nothing more will come, and the settlement stays in its letter box."""

    begun = asyncio.Event()

    async def long(purse: BudgetClient, call_id: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            purse.settle(call_id, Cost(77))

    bench = Bench(Spender(long))
    (asked,) = await hears(bench, bench.proposal())
    parked = asyncio.ensure_future(bench.seat.exchange([bench.info("granted", call=asked.msg_id)]))
    await begun.wait()
    withdrawn = asyncio.ensure_future(bench.seat.exchange([bench.info("withdraw")]))
    (_, first), (more, second) = await asyncio.gather(parked, withdrawn)  # either may carry it
    (settled,) = (bench.opened(sealed) for sealed in first + second)
    assert facts(settled) == ("settle", {"call": asked.msg_id, "tokens": 77, "microusd": 0})
    assert not more
    assert await bench.seat.exchange([]) == (False, [])


@in_loop
async def test_a_call_that_was_never_made_costs_nothing() -> None:
    """Withdrawn before the council has answered: the reservation may be granted all the same."""

    async def never(purse: BudgetClient, call_id: str) -> None:
        pytest.fail("nobody waits for it")

    bench = Bench(Spender(never))
    (asked,) = await hears(bench, bench.proposal())
    (settled,) = await hears(bench, bench.info("withdraw"))
    assert facts(settled) == ("settle", {"call": asked.msg_id, "tokens": 0, "microusd": 0})
    (again,) = await hears(bench, bench.info("granted", call=asked.msg_id))
    assert facts(again) == facts(settled)  # the two may have changed places on their way


@in_loop
async def test_a_question_without_an_answer_is_asked_again_in_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutation: a coordinator that died with the question leaves its seat waiting for good."""
    monkeypatch.setattr("council.agents.seat.budget_client.ASK_AGAIN_S", 0.01)
    monkeypatch.setattr("council.agents.seat.budget_client.ANSWER_MAX_S", 0.05)

    async def never(purse: BudgetClient, call_id: str) -> None:
        pytest.fail("it was not granted")

    bench = Bench(Spender(never))
    sealed = await bench.calls([bench.proposal()], want=7)
    said = [bench.opened(each) for each in sealed]
    assert len(set(sealed[:5])) == 1
    assert facts(said[5]) == ("settle", {"call": said[0].msg_id, "tokens": 0, "microusd": 0})
    assert "did not answer within" in fault_of(said[6])


@in_loop
async def test_a_stray_answer_changes_nothing() -> None:
    bench = Bench(Spender(lambda purse, call_id: asyncio.sleep(0)))
    strays = [("denied", "dddddddd"), ("granted", 7), ("granted", "dddddddd")]
    for kind, call_id in strays:
        assert await bench.seat.exchange([bench.info(kind, call=call_id)]) == (False, [])


@in_loop
async def test_a_call_that_was_made_is_never_given_back() -> None:
    """Mutation: a grant that comes twice, the second after the settlement, makes the call cost nothing."""

    async def pays(purse: BudgetClient, call_id: str) -> None:
        purse.settle(call_id, Cost(300))

    bench = Bench(Spender(pays))
    (asked,) = await hears(bench, bench.proposal())
    settled, _ = await hears(bench, bench.info("granted", call=asked.msg_id), want=2)
    assert facts(settled)[1]["tokens"] == 300
    assert await bench.seat.exchange([bench.info("granted", call=asked.msg_id)]) == (False, [])


@in_loop
async def test_what_counts_as_made_without_having_been_is_asked_for_anew() -> None:
    """rules 2.6: a grant that was lost with its coordinator has cost what it may; the ballot need not be lost."""

    async def pays(purse: BudgetClient, call_id: str) -> None:
        purse.settle(call_id, Cost(5))

    bench = Bench(Spender(pays))
    (asked,) = await hears(bench, bench.proposal())
    (again,) = await hears(bench, bench.info("denied", call=asked.msg_id, anew=True, text="settled"))
    assert again.msg_id != asked.msg_id
    assert facts(again) == facts(asked)
    settled, ballot = await hears(bench, bench.info("granted", call=again.msg_id), want=2)
    assert facts(settled)[1] == {"call": again.msg_id, "tokens": 5, "microusd": 0}
    assert ballot.type == "VOTE"


@in_loop
async def test_one_mind_does_not_pay_for_two_seats() -> None:
    """Mutation: all that it spends is booked on the last seat, and the first one's cap is none."""
    mind = Spender(lambda purse, call_id: asyncio.sleep(0))

    first = Bench(mind)
    with pytest.raises(MindError, match="a mind of its own"):
        Bench(mind)
    first.host.close()
    Bench(mind)  # the seat's next life


@in_loop
async def test_one_piece_of_work_does_not_close_anothers_calls() -> None:
    """Mutation: Prime's ballot, still cleaning up after its time, ends the call for its ruling."""
    cleaned = asyncio.Event()

    class Prime(Spender):
        async def review(self, case: Case) -> Opinion:
            try:
                await asyncio.Event().wait()
            finally:
                await cleaned.wait()
            raise AssertionError

        async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
            call_id = await self.purse.reserve(case.proposal_id, "ruling", "small-1", WORST)
            cleaned.set()
            for _ in range(5):
                await asyncio.sleep(0)
            self.purse.settle(call_id, Cost(42))
            return Ruling("confirm", "so be it")

    bench = Bench(Prime(lambda purse, call_id: asyncio.sleep(0)))
    (fault,) = await hears(bench, bench.proposal(left_s=0.01))
    assert "did not answer" in fault_of(fault)
    (asked,) = await hears(bench, bench.ruling_request())
    settled, ruled = await hears(bench, bench.info("granted", call=asked.msg_id), want=2)
    assert facts(settled)[1]["tokens"] == 42
    assert facts(ruled)[0] == "ruling"


@pytest.mark.parametrize("wrong", [(-1,), (1.5,), (True,), (10**12 + 1,), (1, -1), (1, 10.5), ("1",)])
def test_what_cannot_be_booked_is_no_cost(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="expected a whole number from 0"):
        Cost(*wrong)
