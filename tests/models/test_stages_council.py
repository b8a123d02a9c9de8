"""A council in process whose seats plan before they vote, while Lite's model observes: who is told what, and when."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from council import Council, Decision
from council.agents.seat.plan_stream import HALTS_MAX, OBSERVATIONS_MAX
from tests.models.stub import Call, Entry, Stub, after, ballot, for_each, plan, ruling, says
from tests.patience import HANG_S

SEATS = ("prime", "lite", "codemind")
DEED: dict[str, Any] = {"action": {"tool": "shell", "args": {"command": "rm -r index"}}, "risk": "med"}
GOES_ON, HALTS = says('{"interrupt": null}'), says('{"interrupt": "it removes more than the index"}')


@contextmanager
def council(observes: Sequence[Entry], **scripts: Entry) -> Iterator[tuple[Council, Stub]]:
    """Three seats that plan and vote yes, but for what ``scripts`` says; Lite observes as told."""
    usual = {
        seat: for_each(
            plan=[says(plan(f"{seat} looks at it."))],
            ballot=[says(ballot("yes", f"{seat} sees no harm"))],
            ruling=[says(ruling("reject"))],
            observe=observes,
        )
        for seat in SEATS
    }
    with Stub({seat: [entry] for seat, entry in (usual | scripts).items()}) as stub:
        seats = {seat: {"model": seat, "base_url": stub.base_url} for seat in SEATS}
        with Council.inline(seats=seats, observer="lite") as running:
            yield running, stub


def decided(running: Council, **details: Any) -> Decision:
    return running.propose("Delete the old index", timeout_s=HANG_S, **{**DEED, **details})


def task(call: Call) -> str:
    return str(call.body["response_format"]["json_schema"]["name"])


def shown(call: Call) -> str:
    return "\n".join(message["content"] for message in call.body["messages"])


def tasks(running: Council) -> list[tuple[str, str]]:
    """What was reserved, by seat and task."""
    spent = [event.data["call"] for event in running.events(follow=False) if event.kind == "spending"]
    return [(call["seat"], call["task"]) for call in spent]


def first_observed(entry: Entry) -> tuple[Entry, Entry]:
    """An observer, and a Prime that votes when that has answered once."""
    answered = threading.Event()

    async def observes(call: Call) -> None:
        await entry(call)
        answered.set()

    votes = after(answered, says(ballot("yes", "prime sees no harm")))
    return observes, for_each(plan=[says(plan("prime looks at it."))], ballot=[votes])


def test_each_seat_plans_votes_and_lite_observes_the_others() -> None:
    """And the cost of each stage is told apart. Mutations: an observer of its own stream; ballots in the stream."""
    observes, prime = first_observed(GOES_ON)
    with council([observes], prime=prime) as (running, stub):
        decision = decided(running)
        made = tasks(running)
    assert decision.outcome == "approved"
    assert {(seat, name) for seat, name in made if name != "observe"} == {
        (seat, name) for seat in SEATS for name in ("plan", "ballot")
    }
    watched = [shown(call) for call in stub.requests if task(call) == "observe"]
    assert {seat for seat, name in made if name == "observe"} == {"lite"}
    assert 1 <= len(watched) <= 2 * OBSERVATIONS_MAX
    for text in watched:
        assert ("prime looks at it." in text) != ("codemind looks at it." in text)
        assert "lite looks at it." not in text
        assert "sees no harm" not in text
    # rules 1.14, 6.7: no ballot's prompt holds another seat's plan, nor what was observed.
    for call in stub.requests:
        if task(call) == "ballot":
            assert f"1. {call.model} looks at it." in shown(call)
            assert all(f"{seat} looks at it." not in shown(call) for seat in SEATS if seat != call.model)


def test_a_plain_question_is_voted_on_in_one_call_each() -> None:
    with council([HALTS]) as (running, _):
        decision = running.propose("Is the index still read?", timeout_s=HANG_S, wait_for="all")
        assert sorted(tasks(running)) == sorted((seat, "ballot") for seat in SEATS)
    assert decision.outcome == "approved"


def test_an_interrupt_reaches_the_seat_whose_plan_is_made_anew() -> None:
    """End to end. The halt may come while it plans or votes: a ballot by the first plan never counts."""
    slow = _slowly(ballot("yes", "prime votes by the first plan"))
    prime = for_each(
        plan=[says(plan("Run it at once.")), says(plan("Look at what it reaches."))],
        ballot=[slow, says(ballot("no", "it reaches more"))],
    )
    seen = False

    async def observes(call: Call) -> None:
        nonlocal seen
        halts = "Run it at once." in shown(call) and not seen
        seen |= halts
        await (HALTS if halts else GOES_ON)(call)

    with council([observes], prime=prime) as (running, stub):
        decision = decided(running)
        told = [event for event in running.events(follow=False) if event.kind == "observation"]
    (cast,) = [each for each in decision.ballots if each.seat == "prime"]
    assert (cast.vote, cast.reason) == ("no", "it reaches more")
    again = [shown(call) for call in stub.requests if call.model == "prime" and task(call) == "plan"][1]
    assert "it removes more than the index" in again
    assert "1. Run it at once." in again
    assert told


def test_three_interrupts_send_it_to_prime_and_the_seat_still_votes() -> None:
    """rules 1.8: the risk is high then, and Prime rules. Mutation: an observer keeps a seat from voting for good."""
    slow = [_slowly(ballot("yes"))] * HALTS_MAX
    codemind = for_each(
        plan=[says(plan("Run it at once."))], ballot=[*slow, says(ballot("yes", "and yet it votes"))]
    )

    async def observes(call: Call) -> None:
        await (HALTS if "Run it at once." in shown(call) else GOES_ON)(call)

    with council([observes], codemind=codemind) as (running, _):
        decision = decided(running)
        made = tasks(running)
    assert made.count(("codemind", "plan")) == HALTS_MAX + 1
    assert ("prime", "ruling") in made
    assert decision.outcome == "rejected"
    assert "and yet it votes" in [each.reason for each in decision.ballots]


def _slowly(text: str) -> Entry:
    """An answer that never ends by itself: whoever waits for it is halted before."""

    async def entry(call: Call) -> None:
        await call.head()
        await call.chunk(text[:-1])
        await call.silent()

    return entry


def test_a_seat_that_makes_no_plan_has_prime_look() -> None:
    """GCP 6: a missing plan is asked for twice, then escalated; the ballot counts."""
    lite = for_each(plan=[says("I would look at it.")], ballot=[says(ballot())], observe=[GOES_ON])
    with council([GOES_ON], lite=lite) as (running, _):
        decision = decided(running)
        made = tasks(running)
    assert made.count(("lite", "plan")) == 2
    assert ("prime", "ruling") in made
    assert len(decision.ballots) == 3
    assert decision.outcome == "rejected"  # as Prime rules


def test_an_observer_that_answers_nonsense_interrupts_nobody() -> None:
    observes, prime = first_observed(says("INTERRUPT: stop it all"))
    with council([observes], prime=prime) as (running, _):
        decision = decided(running)
        told = [event for event in running.events(follow=False) if event.kind in ("observation", "loss")]
    assert decision.outcome == "approved"
    assert len(decision.ballots) == 3
    assert {(event.kind, event.data.get("task")) for event in told} <= {("loss", "observation")}
    assert all("its answer can't be taken" in event.data["why"] for event in told)
