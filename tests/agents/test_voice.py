"""A mind's voice: bounded pieces, rounds that an interrupt cuts, and no ballot among them (rules 1.14, 3.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.agents.mind import Case, Opinion, PlanStream, SpeakingMind
from council.agents.seat.plan_stream import (
    CUT,
    PIECE_CHARS,
    PIECES_MAX,
    ROUND_CHARS_MAX,
    ROUNDS_A_RUN,
    STAGE_CHARS_MAX,
    SeatPlanStream,
)
from council.protocol.envelope import Info, Vote
from council.protocol.values import plain as as_data
from tests.agents.test_seat import Bench
from tests.runtime.harness import in_loop

PID = "aaaaaaaa"


class Spoken:
    """A voice, and what it says."""

    def __init__(self) -> None:
        self.working = {PID}
        self.pieces: list[tuple[str, dict[str, Any]]] = []
        self.voice = SeatPlanStream(self.working.__contains__, self._piece)

    def _piece(self, proposal_id: str, text: str, data: Mapping[str, Any]) -> None:
        assert proposal_id == PID
        self.pieces.append((text, dict(data)))

    def heard(self, number: int) -> str:
        return "".join(text for text, data in self.pieces if data["round"] == number)


def test_pieces_are_joined_to_a_useful_size_and_end_with_the_stage() -> None:
    spoken = Spoken()
    for _ in range(100):
        spoken.voice.publish(PID, "plan", "a token ")
    assert [len(text) for text, _ in spoken.pieces] == [PIECE_CHARS] * 3
    spoken.voice.end(PID, "plan")
    assert spoken.heard(1) == "a token " * 100
    assert [data["at"] for _, data in spoken.pieces] == [0, 240, 480, 720]
    assert [data["whole"] for _, data in spoken.pieces] == [False, False, False, True]
    assert {data["stage"] for _, data in spoken.pieces} == {"plan"}


def test_what_is_said_after_its_pieces_are_used_up_is_dropped_and_holds_nothing_up() -> None:
    """Many short stages, then a long text. Mutation: what can't be sent is kept for ever, and all wait."""
    spoken = Spoken()
    for _ in range(PIECES_MAX):
        spoken.voice.publish(PID, "tool", "grep")
        spoken.voice.end(PID, "tool")
    for _ in range(3):
        spoken.voice.publish(PID, "plan", "x" * 10 * PIECE_CHARS)
        spoken.voice.end(PID, "plan")
    assert len(spoken.pieces) == PIECES_MAX


def test_a_stage_that_ends_exactly_at_a_piece_is_said_to_be_whole() -> None:
    spoken = Spoken()
    spoken.voice.publish(PID, "plan", "x" * PIECE_CHARS)
    spoken.voice.end(PID, "plan")
    assert spoken.pieces[-1] == ("", {"stage": "plan", "round": 1, "at": PIECE_CHARS, "whole": True})


def test_what_was_never_said_has_no_end() -> None:
    spoken = Spoken()
    spoken.voice.end(PID, "plan")
    spoken.voice.publish(PID, "plan", "")
    spoken.voice.end(PID, "plan")
    assert spoken.pieces == []


def test_each_telling_is_a_round_of_its_own_above_those_of_earlier_runs() -> None:
    spoken = Spoken()
    spoken.voice.begin_run(3)
    spoken.voice.begin_run(2)  # told late
    for text in ("first", "second"):
        spoken.voice.publish(PID, "plan", text)
        spoken.voice.end(PID, "plan")
    assert [(text, data["round"], data["at"]) for text, data in spoken.pieces] == [
        ("first", 3 * ROUNDS_A_RUN + 1, 0),
        ("second", 3 * ROUNDS_A_RUN + 2, 0),
    ]


@given(st.lists(st.tuples(st.text(max_size=5_000), st.booleans()), max_size=30))
def test_whatever_a_mind_says_is_bounded_and_can_be_sent(said: list[tuple[str, bool]]) -> None:
    spoken = Spoken()
    for text, ends in said * 12:
        spoken.voice.publish(PID, "s" * 99, text + "\0\ud800")
        if ends:
            spoken.voice.end(PID, "s" * 99)
    assert len(spoken.pieces) <= PIECES_MAX
    for number in {data["round"] for _, data in spoken.pieces}:
        assert len(spoken.heard(number)) <= ROUND_CHARS_MAX + len(CUT)
    for text, data in spoken.pieces:
        assert len(text) <= PIECE_CHARS
        assert "\0" not in text.encode().decode()
        assert len(data["stage"]) == STAGE_CHARS_MAX


def test_what_is_too_much_is_cut_and_says_so() -> None:
    spoken = Spoken()
    spoken.voice.publish(PID, "plan", "x" * ROUND_CHARS_MAX)
    spoken.voice.publish(PID, "plan", "y")
    spoken.voice.publish(PID, "plan", "never heard")
    spoken.voice.end(PID, "plan")
    assert spoken.heard(1) == "x" * ROUND_CHARS_MAX + CUT


def test_a_plan_that_is_made_anew_is_heard_however_long_those_before_it_were() -> None:
    """Mutation: one endless plan, and what the seat plans after its halt nobody observes (rules 1.8)."""
    spoken = Spoken()
    for number in range(1, 4):
        for _ in range(10):
            spoken.voice.publish(PID, "plan", "x" * ROUND_CHARS_MAX)
        spoken.voice.end(PID, "plan")
        spoken.voice.interrupt(PID, number, "not so")
    spoken.voice.publish(PID, "plan", "rm -rf /")
    spoken.voice.end(PID, "plan")
    assert spoken.pieces[-1] == ("rm -rf /", {"stage": "plan", "round": 4, "at": 0, "whole": True})


@in_loop
async def test_nothing_is_heard_about_a_proposal_that_it_casts_no_ballot_on() -> None:
    spoken = Spoken()
    spoken.working.clear()
    spoken.voice.publish(PID, "plan", "x" * 1_000)
    spoken.voice.end(PID, "plan")
    spoken.voice.interrupt(PID, 1, "halt")
    assert not spoken.voice.interrupted(PID).done()
    assert spoken.pieces == []
    assert not spoken.voice._speeches  # and nothing is kept


@in_loop
async def test_an_interrupt_is_told_once_and_the_next_has_to_be_asked_for() -> None:
    spoken = Spoken()
    halt = spoken.voice.interrupted(PID)
    assert spoken.voice.interrupted(PID) is halt  # asked twice, it is the same one
    spoken.voice.publish(PID, "plan", "rm -rf /")
    spoken.voice.end(PID, "plan")
    spoken.voice.interrupt(PID, 1, "not that")
    assert await halt == "not that"
    again = spoken.voice.interrupted(PID)
    assert again is not halt
    assert not again.done()


@in_loop
async def test_an_interrupt_that_comes_before_anybody_asks_is_kept() -> None:
    """Mutation: without ``unheard`` a mind between two stages never hears of it."""

    spoken = Spoken()
    spoken.voice.publish(PID, "plan", "x")
    spoken.voice.interrupt(PID, 1, "halt")
    assert await spoken.voice.interrupted(PID) == "halt"
    assert not spoken.voice.interrupted(PID).done()


@pytest.mark.parametrize("number", [0, 1, 3, 10**6])
@in_loop
async def test_an_interrupt_of_a_round_that_is_over_or_was_never_begun_halts_nothing(number: int) -> None:
    """It was interrupted, and began anew: what is called out about the first round is old."""

    spoken = Spoken()
    spoken.voice.publish(PID, "plan", "first")
    spoken.voice.interrupt(PID, 1, "halt")
    await spoken.voice.interrupted(PID)
    halt = spoken.voice.interrupted(PID)
    spoken.voice.publish(PID, "plan", "second")
    spoken.voice.interrupt(PID, number, "halt again")
    assert not halt.done()
    spoken.voice.interrupt(PID, 2, "halt for good reason")
    assert halt.result() == "halt for good reason"


@in_loop
async def test_the_rest_of_what_was_interrupted_is_not_heard_as_a_plan_of_its_own() -> None:
    """Else the observer would find a few words well, and the count of interrupts in a row began again (rules 1.8)."""

    spoken = Spoken()
    halt = spoken.voice.interrupted(PID)
    spoken.voice.publish(PID, "plan", "x" * PIECE_CHARS)
    spoken.voice.interrupt(PID, 1, "halt")
    spoken.voice.publish(PID, "plan", "the last words")  # on their way when the halt came
    spoken.voice.end(PID, "plan")
    assert halt.done()
    assert len(spoken.pieces) == 1
    spoken.voice.interrupted(PID)
    spoken.voice.publish(PID, "plan", "anew")
    spoken.voice.end(PID, "plan")
    assert spoken.pieces[1:] == [("anew", {"stage": "plan", "round": 2, "at": 0, "whole": True})]


@in_loop
async def test_work_that_begins_anew_hears_nothing_of_what_was_called_out_before() -> None:
    spoken = Spoken()
    spoken.voice.publish(PID, "plan", "x")
    spoken.voice.interrupt(PID, 1, "halt")
    spoken.voice.close(PID)
    halt = spoken.voice.interrupted(PID)
    spoken.voice.interrupt(PID, 1, "halt")
    assert not halt.done()


# In a seat


class Speaker:
    """Plans aloud, and begins anew for each halt."""

    def set_plan_stream(self, voice: PlanStream) -> None:
        self.voice = voice

    async def review(self, case: Case) -> Opinion:
        for attempt in range(3):
            halt = self.voice.interrupted(case.proposal_id)
            self.voice.publish(case.proposal_id, "plan", f"plan {attempt}")
            self.voice.end(case.proposal_id, "plan")
            if attempt == 0:
                why = await halt
        return Opinion.yes(f"{why}, so I thought again")


@in_loop
async def test_a_seat_says_what_its_mind_says_and_tells_it_of_a_halt() -> None:
    """Mutation: rounds are numbered by its clock, and on a node whose clock is behind nothing is heard of it."""

    async def unheard(sealed: bytes, name: str) -> None:
        return None

    mind = Speaker()
    assert isinstance(mind, SpeakingMind)
    bench = Bench(mind)
    attending = asyncio.ensure_future(bench.host.attend(3, unheard))
    await asyncio.sleep(0)
    (first,) = [bench.opened(each) for each in await bench.calls([bench.proposal()])]
    assert isinstance(first.content, Info)
    data = as_data(first.content.data)
    number = data["round"]
    assert number == 3 * ROUNDS_A_RUN + 1  # above those of earlier runs, whatever the clock says
    assert (first.content.kind, first.content.text, first.parent_id) == ("stream", "plan 0", PID)
    assert data == {"proposal_id": PID, "stage": "plan", "round": number, "at": 0, "whole": True}
    halt = bench.info("interrupt", text="that deletes all", observer="prime", round=number)
    said = [bench.opened(each) for each in await bench.calls([halt], want=3)]
    assert [each.content.text for each in said[:2]] == ["plan 1", "plan 2"]  # type: ignore[union-attr]
    ballot = said[2].content
    assert isinstance(ballot, Vote)
    assert ballot.reason == "that deletes all, so I thought again"
    assert not bench.host._stream._speeches
    late = bench.info("interrupt", text="too late", observer="prime", round=number + 2)
    assert await bench.seat.exchange([late]) == (False, [])
    attending.cancel()


@in_loop
async def test_a_mind_that_speaks_when_its_ballot_is_cast_is_not_heard() -> None:
    class Gossip(Speaker):
        async def review(self, case: Case) -> Opinion:
            asyncio.get_running_loop().call_later(
                0.01, self.voice.publish, case.proposal_id, "plan", "x" * 999
            )
            return Opinion.yes("fine")

    bench = Bench(Gossip())
    assert (await bench.ask(bench.proposal())).type == "VOTE"
    await asyncio.sleep(0.03)
    assert await bench.seat.exchange([]) == (False, [])
