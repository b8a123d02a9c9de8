"""A whole council, of real seats: one thinks aloud, one observes and calls a halt (rules 1.8, 3.1, 6.7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from council import Council
from council.agents.mind import BudgetClient, Case, Cost, Observation, Opinion, PlanStream, Stream
from council.agents.seat.plan_stream import HALTS_MAX, PIECE_CHARS
from council.api.client import handle_of
from council.config.settings import CouncilConfig, SeatConfig
from council.core.effects import AnnounceDenial, AnnounceLoss, AnnounceObservation
from council.core.state import Budget, Caps
from council.protocol.errors import MindError
from council.runtime.build import new_seat, rules_of
from council.runtime.messages import Told
from tests.patience import HANG_S
from tests.runtime.harness import (
    CalledTransport,
    in_loop,
    run,
    until,
)
from tests.runtime.test_coordinator import Bench, Chair, SlowJournal

GLANCE_S = 0.002


class Planner(Chair):
    """Says a plan for each of ``plans``, and thinks again when it is halted; then it votes.

    It waits for a halt until ``well`` says that none will come: its plan was heard to the end. Where nobody can say
    that it waits ``wait_s``, counted in turns of the loop, so that a machine that stands still takes nothing of it.
    """

    def __init__(self, *plans: str, wait_s: float = 30.0) -> None:
        self.plans, self.halts, self.wait_s = plans, list[str](), wait_s
        self.well: Callable[[str], bool] = lambda plan: False

    def set_plan_stream(self, voice: PlanStream) -> None:
        self.voice = voice

    async def review(self, case: Case) -> Opinion:
        for plan in self.plans:
            halt = self.voice.interrupted(case.proposal_id)
            for word in plan.split():
                self.voice.publish(case.proposal_id, "plan", f"{word} ")
                await asyncio.sleep(0)
            self.voice.end(case.proposal_id, "plan")
            for _ in range(round((self.wait_s if len(self.halts) < HALTS_MAX else 1.0) / GLANCE_S)):
                if halt.done() or self.well(plan):
                    break
                await asyncio.sleep(GLANCE_S)
            if not halt.done():
                return Opinion.yes(f"by this plan: {plan}")
            self.halts.append(halt.result())
        return Opinion.yes("without a plan")


class Watch:
    """Votes as it likes, and calls a halt to whatever would delete all."""

    def __init__(self) -> None:
        self.seen = list[Stream]()

    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("fine")

    async def observe(self, case: Case, stream: Stream) -> Observation:
        self.seen.append(stream)
        if "rm -rf" in stream.text:
            return Observation(True, "that deletes all")
        return Observation(False, "nothing speaks against it")

    def attends(self, planner: Planner, bench: Bench) -> None:
        """The planner hears of each plan that was looked at whole, and what was said of it announced."""

        def well(plan: str) -> bool:
            said = [
                each
                for _, each in bench.coordinator._driver.announcements.feed.newest(1_000)
                if type(each) is AnnounceObservation
            ]
            whole = [each for each in self.seen if each.is_whole and each.text == f"{plan} "]
            return bool(whole and said and not said[-1].interrupt and "rm -rf" not in plan)

        planner.well = well


def decided(planner: Planner, watch: Watch, **options: Any) -> tuple[Told, list[Any]]:
    """The decision, and what was announced."""

    async def scenario() -> tuple[Told, list[Any]]:
        minds = {"prime": planner, "lite": watch, "codemind": Chair()}
        async with Bench(minds, observer="lite", **options) as bench:
            watch.attends(planner, bench)
            client = await bench.client()
            (told,) = await client.exchange(client.proposal(wait_for="all"))
            assert isinstance(told, Told)
            return told, [each for _, each in bench.coordinator._driver.announcements.feed.newest(1_000)]

    return run(scenario())


def test_a_bad_plan_is_halted_while_it_is_made_and_a_better_one_stands() -> None:
    planner, watch = Planner("first rm -rf / then " + "see " * 1_000, "look at the diff"), Watch()
    told, announced = decided(planner, watch)
    assert told.decision.outcome == "approved"
    assert planner.halts == ["that deletes all"]
    (ballot,) = [ballot for ballot in told.decision.ballots if ballot.seat == "prime"]
    assert ballot.reason == "by this plan: look at the diff"
    first, *_, last = watch.seen
    assert first.text.startswith("first rm -rf /")
    assert not first.is_whole
    assert last == Stream("prime", "plan", "look at the diff ", True)
    seen = [each for each in announced if isinstance(each, AnnounceObservation)]
    assert [(each.observer, each.stream, each.interrupt, each.text) for each in seen] == [
        ("lite", "prime", True, "that deletes all"),
        ("lite", "prime", False, "nothing speaks against it"),
    ]
    assert told.decision.escalated_for == ()


def test_three_halts_in_a_row_send_it_to_prime() -> None:
    """rules 1.8: that seat's ballot is heard, and Prime rules on all of them."""
    planner = Planner(*["rm -rf /"] * 3)
    told, _ = decided(planner, Watch())
    assert planner.halts == ["that deletes all"] * 3
    assert told.decision.escalated_for == ("3 interrupts in a row on prime's stream",)
    assert told.decision.ruling is not None
    assert told.decision.outcome == "approved"


@pytest.mark.parametrize("words", [45, 80, 200])
def test_a_fault_at_the_end_of_long_plans_sends_it_to_prime_all_the_same(words: int) -> None:
    """Mutation: their beginnings, which are well, take back the halts, and use up the looks."""
    planner = Planner(*["look at the file " * words + "then rm -rf /"] * 5)
    told, _ = decided(planner, Watch())
    assert len(planner.halts) == 3
    assert told.decision.escalated_for == ("3 interrupts in a row on prime's stream",)


def test_a_look_that_would_cost_a_ballot_is_denied_and_the_ballot_is_cast() -> None:
    """rules 2.6: of three calls' worth one plan and two ballots are needed."""

    asked = asyncio.Event()  # for a look, and answered

    class Paying:
        def set_budget(self, purse: BudgetClient) -> None:
            self.purse = purse

        async def pay(self, case: Case, task: str) -> None:
            call = await self.purse.reserve(case.proposal_id, task, "small-1", Cost(100))
            self.purse.settle(call, Cost(100))

    class Votes(Paying, Planner):
        async def review(self, case: Case) -> Opinion:
            await self.pay(case, "plan")
            self.voice.publish(case.proposal_id, "plan", "look at the diff")
            self.voice.end(case.proposal_id, "plan")
            await asyncio.wait_for(asked.wait(), HANG_S)
            await self.pay(case, "ballot")
            return Opinion.no("it deletes the index")

    class Watches(Paying, Watch):
        async def review(self, case: Case) -> Opinion:
            await self.pay(case, "ballot")
            return Opinion.yes("fine")

        async def observe(self, case: Case, stream: Stream) -> Observation:
            try:
                await self.pay(case, "observe")
            finally:
                asked.set()
            return await super().observe(case, stream)

    told, announced = decided(Votes(), Watches(), budget=Budget(proposal=Caps(tokens=300)))
    assert {ballot.seat: ballot.vote for ballot in told.decision.ballots}["prime"] == "no"
    (denial,) = [each for each in announced if isinstance(each, AnnounceDenial)]
    assert denial.why.endswith("100 are left, and 100 of them are kept for ballots")


def test_a_clean_look_in_between_starts_the_count_again() -> None:
    planner = Planner("rm -rf /", "rm -rf /", "look at the diff")
    told, _ = decided(planner, Watch())
    assert len(planner.halts) == 2
    assert told.decision.ruling is None


@pytest.mark.parametrize("watch", [Chair(), Watch()])
@in_loop
async def test_without_an_observer_or_a_mind_that_observes_all_goes_as_ever(watch: Any) -> None:
    options = {} if isinstance(watch, Chair) else {"observer": ""}
    minds = {"prime": Planner("rm -rf /", wait_s=1.0), "lite": watch, "codemind": Chair()}
    async with Bench(minds, **{"observer": "lite", **options}) as bench:
        client = await bench.client()
        (told,) = await client.exchange(client.proposal(wait_for="all"))
        assert isinstance(told, Told)
        assert told.decision.outcome == "approved"
        kinds = [type(each) for _, each in bench.coordinator._driver.announcements.feed.newest(100)]
        assert AnnounceObservation not in kinds


def test_an_observer_that_fails_is_told_once_and_the_others_decide() -> None:
    class Broken(Watch):
        async def observe(self, case: Case, stream: Stream) -> Observation:
            raise ValueError("no idea")

    told, announced = decided(Planner("x" * 3_000, wait_s=1.0), Broken())
    assert told.decision.outcome == "approved"
    (loss,) = [each for each in announced if isinstance(each, AnnounceLoss)]
    assert (loss.seat, loss.task, loss.why) == ("lite", "observation", "its mind raised ValueError: no idea")
    assert told.decision.missing == ()


@in_loop
async def test_a_halt_reaches_its_seat_only_when_its_record_is_kept() -> None:
    """rules 4.7; found by the simulated councils too (``tests/sim``)."""
    journal, planner, watch = SlowJournal(), Planner("rm -rf /", "better"), Watch()
    minds = {"prime": planner, "lite": watch, "codemind": Chair()}
    async with Bench(minds, journal, observer="lite") as bench:
        watch.attends(planner, bench)
        client = await bench.client()
        asking = asyncio.ensure_future(client.exchange(client.proposal(wait_for="all")))
        kept = lambda: [type(r.event).__name__ for batch in journal.batches for r in batch]  # noqa: E731
        await until(lambda: "ProposalSubmitted" in kept())
        await until(lambda: bench.coordinator._driver.announcements.feed.position == 0)
        await asyncio.sleep(0.05)
        assert planner.halts == []
        journal.gate.set()
        await until(lambda: planner.halts == ["that deletes all"])
        (told,) = await asking
        assert isinstance(told, Told)


@in_loop
async def test_a_seat_that_takes_no_letters_misses_streams_and_is_not_lost_for_them() -> None:
    """Pieces may be dropped; ballots and proposals may not. Mutation: pieces count as letters that must arrive."""

    class Fluent(Planner):
        async def review(self, case: Case) -> Opinion:
            for _ in range(5):
                self.voice.publish(case.proposal_id, "plan", "x" * 20 * PIECE_CHARS)
                await asyncio.sleep(0.02)
            return Opinion.yes("said too fast")

    minds = {"prime": Fluent(), "lite": Watch(), "codemind": Chair()}
    async with Bench(minds, observer="lite", open_max=2, transport=CalledTransport) as bench:
        parked = bench.transport.exchange

        async def slow(seat: str, batch: list[bytes]) -> Any:
            if seat == "lite" and batch:
                await asyncio.sleep(0.2)
            return await parked(seat, batch)

        bench.transport.exchange = slow
        client = await bench.client()
        (told,) = await client.exchange(client.proposal(wait_for="all"))
        assert isinstance(told, Told)
        assert {ballot.seat for ballot in told.decision.ballots} == set(minds)
        assert bench.coordinator._driver.state.seats["lite"].boot == 0


# Who observes


def a_seat(name: str, mind: Any) -> SeatConfig:
    return SeatConfig(name=name, mind=mind)


@pytest.mark.parametrize(
    ("given", "names", "observer"),
    [
        (None, ("prime", "lite", "codemind"), "lite"),
        ("none", ("prime", "lite", "codemind"), ""),
        ("codemind", ("prime", "lite", "codemind"), "codemind"),
        (None, ("prime", "codemind"), ""),
    ],
)
def test_lite_observes_where_it_is_there_and_no_other_is_named(
    given: str | None, names: tuple[str, ...], observer: str
) -> None:
    seats = tuple(a_seat(name, Chair) for name in names)
    assert rules_of(CouncilConfig(seats=seats, observer=given)).observer == observer


def test_a_mind_that_is_named_to_observe_must_be_able_to() -> None:
    """Unset, Lite's mind may be any; a name in the settings that would do nothing is told at once."""
    seats = (a_seat("prime", Chair), a_seat("lite", Chair), a_seat("codemind", Watch))
    new_seat(CouncilConfig(seats=seats, observer="codemind"), "codemind", b"k" * 32, "c.1").close()
    new_seat(CouncilConfig(seats=seats), "lite", b"k" * 32, "c.1").close()
    with pytest.raises(MindError, match=r"seat lite is to observe, but its mind, Chair, has no"):
        new_seat(CouncilConfig(seats=seats, observer="lite"), "lite", b"k" * 32, "c.1")


def test_a_council_of_the_public_api_is_observed_by_the_built_in_lite() -> None:
    """The static mind, real seats, real words: `council watch` and `show` tell of the halt."""
    planner = Planner("1. run `rm -rf /` first", "1. look at the diff")
    config = CouncilConfig(
        seats=(
            a_seat("prime", planner),
            a_seat("lite", "council.agents.lite:Lite"),
            a_seat("codemind", Chair),
        )
    )
    with Council.inline(config) as council:
        feed = handle_of(council).port._driver.announcements.feed  # type: ignore[attr-defined]
        planner.well = lambda plan: any(
            isinstance(each, AnnounceObservation) and not each.interrupt for _, each in feed.newest(1_000)
        )
        decision = council.propose("Rotate the log", wait_for="all")
        assert decision.outcome == "approved"
        told = [event for event in council.events(follow=False) if event.kind == "observation"]
    assert planner.halts == [
        "static policy checks, no model: its plan holds the text:1 Removes the whole file system. "
        "Name the folder that is meant. (rm-root)"
    ]
    assert [(event.data["observer"], event.data["stream"], event.data["interrupt"]) for event in told] == [
        ("lite", "prime", True),
        ("lite", "prime", False),
    ]
