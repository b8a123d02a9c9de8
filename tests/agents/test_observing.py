"""The seat that observes: it puts together what it hears, looks a few times, and its own ballot goes first."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from council.agents.mind import BudgetClient, Case, Cost, Observation, Opinion, Stream
from council.agents.seat import observed_cases, threads
from council.agents.seat.observed_cases import GAP, LOOK_CHARS, STAGES_MAX, ObservedCases
from council.agents.seat.plan_stream import HALTS_MAX, OBSERVATIONS_MAX
from council.protocol.envelope import Envelope, Info, Vote
from council.protocol.values import plain as as_data
from tests.agents.test_seat import Bench
from tests.patience import HANG_S, SilenceLoop
from tests.runtime.harness import in_loop, in_virtual_time, until

PID = "aaaaaaaa"
ROUND = {"stream": "prime", "stage": "plan", "whole": True}


def case(pid: str = PID, body: str = "", left_s: float = 60.0) -> Case:
    return Case(pid, "client", "do it", body, time_left_s=left_s)


def hearing(*pids: str) -> ObservedCases:
    found = ObservedCases()
    for pid in pids or (PID,):
        found.add_case(case(pid), 0.0)
    return found


def piece(
    at: int, whole: bool = False, number: int = 1, seat: str = "prime", stage: str = "plan"
) -> dict[str, Any]:
    return {"seat": seat, "stage": stage, "round": number, "at": at, "whole": whole}


def look(found: ObservedCases, now_s: float = 1.0, halts: str = "") -> Stream | None:
    """What its mind is shown next, which then is done with it; it calls a halt where it sees this."""
    due = found.next_due(now_s)
    if due is None:
        return None
    heard, _ = due
    stream = heard.begin_observation()
    heard.looked(interrupt=halts and halts in stream.text)
    found.finish(heard)
    return stream


# What is heard


def test_pieces_are_put_together_and_looked_at_when_there_is_enough_and_when_it_is_whole() -> None:
    found = hearing()
    found.add(PID, "x" * (LOOK_CHARS - 1), piece(0))
    assert look(found) is None
    found.add(PID, "y", piece(LOOK_CHARS - 1))
    text = "x" * (LOOK_CHARS - 1) + "y"
    assert look(found) == Stream("prime", "plan", text, False)
    found.add(PID, "z", piece(LOOK_CHARS))
    assert look(found) is None
    found.add(PID, "", piece(LOOK_CHARS + 1, whole=True))
    assert look(found) == Stream("prime", "plan", text + "z", True)
    assert look(found) is None


def test_a_long_stream_is_looked_at_so_often_and_no_more_and_when_it_is_whole() -> None:
    """Mutation: without the looks that are kept for the end, what stands there is never seen."""
    found, seen = hearing(), []
    for n in range(20):
        found.add(PID, "x" * LOOK_CHARS, piece(n * LOOK_CHARS))
        seen.append(look(found))
    found.add(PID, "rm -rf /", piece(20 * LOOK_CHARS, whole=True))
    seen.append(look(found))
    streams = [each for each in seen if each is not None]
    assert len(streams) == OBSERVATIONS_MAX - HALTS_MAX + 1
    assert streams[-1].is_whole
    assert streams[-1].text.endswith("rm -rf /")
    assert not any(each.is_whole for each in streams[:-1])


def test_a_seat_has_so_many_looks_over_all_its_stages_and_restarts() -> None:
    """Mutation: a mad seat has another pay for as many looks as it has stages. Others' are not fewer for it."""
    found, looks = hearing(), 0
    for number in range(10):
        for stage in range(STAGES_MAX):
            found.add(PID, "short", piece(0, True, number, stage=f"s{stage}"))
            looks += look(found) is not None
    assert looks == OBSERVATIONS_MAX
    found.add(PID, "short", piece(0, True, seat="codemind"))
    assert look(found) is not None


@pytest.mark.parametrize("paragraphs", [0, 1, 2, 10])
def test_a_fault_at_the_end_of_each_plan_is_halted_as_often_as_it_takes(paragraphs: int) -> None:
    """rules 1.8. Mutations: clean looks at beginnings use up the looks at what is whole; they take back halts."""
    found, halts = hearing(), 0
    for number in range(1, 6):
        for n in range(paragraphs):
            found.add(PID, "x" * LOOK_CHARS, piece(n * LOOK_CHARS, number=number))
            look(found, halts="rm -rf")
        found.add(PID, "then rm -rf /", piece(paragraphs * LOOK_CHARS, True, number))
        seen = look(found, halts="rm -rf")
        halts += seen is not None and "rm -rf" in seen.text
    assert halts == HALTS_MAX  # by then Prime rules on it, and nothing more is looked at


def test_what_is_put_off_was_no_look() -> None:
    """Mutation: under load, a whole plan is looked at by nobody."""
    found = hearing()
    found.add(PID, "rm -rf /", piece(0, True))
    for _ in range(3 * OBSERVATIONS_MAX):
        due = found.next_due(1.0)
        assert due is not None
        due[0].begin_observation()
        due[0].put_off()
        found.finish(due[0])
    assert look(found) is not None


def test_a_halt_that_may_be_lost_is_looked_at_again_when_the_case_is_handed_over_again() -> None:
    """Its coordinator died with it, say. It is one halt all the same."""
    found = hearing()
    found.add(PID, "rm -rf /" + "x" * LOOK_CHARS, piece(0))
    assert look(found, halts="rm") is not None
    found.add(PID, "more", piece(LOOK_CHARS + 8, True))
    assert look(found) is None
    found.add_case(case(), 1.0)
    for _ in range(2):
        found.add(PID, "", piece(LOOK_CHARS + 12, True))
    assert look(found, halts="rm") == Stream("prime", "plan", "rm -rf /" + "x" * LOOK_CHARS + "more", True)
    assert found._kept[PID].looks["prime"].halts == 1


def test_a_later_round_takes_the_place_of_the_earlier_and_what_comes_late_of_that_is_nothing() -> None:
    found = hearing()
    found.add(PID, "first", piece(0, number=1))
    found.add(PID, "second", piece(0, number=2))
    found.add(PID, " of the first", piece(5, True, number=1))
    assert look(found) is None
    found.add(PID, "!", piece(6, True, number=2))
    assert look(found) == Stream("prime", "plan", "second!", True)


def test_a_piece_twice_is_heard_once_and_one_that_is_missed_leaves_a_mark() -> None:
    found = hearing()
    for text, at in (("a", 0), ("a", 0), ("c", 2), ("b", 1)):
        found.add(PID, text, piece(at))
    found.add(PID, "d", piece(3, whole=True))
    found.add(PID, "e", piece(4))  # whole is whole
    assert look(found) == Stream("prime", "plan", f"a{GAP}cd", True)


def test_seats_and_stages_are_heard_apart() -> None:
    found = hearing()
    for seat in ("prime", "codemind"):
        for stage in ("plan", "refine"):
            found.add(PID, f"{seat} {stage}", piece(0, True, seat=seat, stage=stage))
    streams = [look(found) for _ in range(4)]
    assert [each.text for each in streams if each] == [
        "prime plan",
        "prime refine",
        "codemind plan",
        "codemind refine",
    ]


def test_a_seat_with_stages_without_end_is_heard_in_five() -> None:
    found = hearing()
    for n in range(50):
        found.add(PID, "x", piece(0, True, stage=f"stage {n}"))
        found.add(PID, "x", piece(0, True, seat="codemind", stage=f"stage {n}"))
    looks = 0
    while look(found) is not None:
        looks += 1
    assert looks == 2 * STAGES_MAX


def test_what_it_was_not_given_is_nothing_to_it_and_what_is_over_is_forgotten() -> None:
    found = hearing()
    found.add("bbbbbbbb", "x", piece(0, True))
    assert look(found) is None
    found.add(PID, "x", piece(0, True))
    found.forget(PID)
    found.forget(PID)
    assert look(found) is None


def test_a_case_whose_time_is_over_is_not_looked_at_and_makes_room() -> None:
    found = hearing()
    found.add(PID, "x", piece(0, True))
    assert look(found, now_s=60.0) is None
    found.add_case(case("bbbbbbbb"), 60.0)
    assert list(found._kept) == ["bbbbbbbb"]


def test_the_case_is_shown_with_the_time_that_is_left() -> None:
    found = hearing()
    found.add(PID, "x", piece(0, True))
    due = found.next_due(20.0)
    assert due is not None
    assert due[1] == case(left_s=40.0)


@pytest.mark.parametrize(("limit", "most"), [("CASES_MAX", 3), ("CHARS_MAX", 3_000)])
def test_what_is_kept_is_bounded_by_count_and_by_size(
    limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed_cases, limit, most)
    found = ObservedCases()
    for n in range(10):
        found.add_case(case(f"{n:08x}", body="x" * 500), 0.0)
        found.add(f"{n:08x}", "y" * 500, piece(0))
    assert list(found._kept) == ["00000007", "00000008", "00000009"]
    assert found._chars == 3_000
    for pid in list(found._kept):
        found.forget(pid)
    assert found._chars == 0


# In a seat


class Watcher:
    """A mind that observes: it keeps what it is shown, and says what it is told to, or raises it."""

    def __init__(self, *says: Any, review_s: float = 0.0, observe_s: float = 0.0) -> None:
        self.says, self.shown = list(says), list[tuple[str, Stream]]()
        self.review_s, self.observe_s = review_s, observe_s
        self.cancelled = 0

    async def review(self, case: Case) -> Opinion:
        await asyncio.sleep(self.review_s)
        return Opinion.yes("fine")

    async def observe(self, case: Case, stream: Stream) -> Observation:
        self.shown.append((case.summary, stream))
        try:
            await asyncio.sleep(self.observe_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        said = self.says.pop(0) if self.says else Observation(False)
        if isinstance(said, Exception):
            raise said
        return said  # type: ignore[no-any-return]  # nonsense too, on purpose


def told(bench: Bench, text: str = "rm -rf /", pid: str = PID, **facts: Any) -> bytes:
    return bench.info("stream", pid, text=text, **{**piece(0, True), **facts})


def facts(envelope: Envelope) -> tuple[str, str, dict[str, Any]]:
    content = envelope.content
    assert isinstance(content, Info), content
    assert (envelope.sender, envelope.role, envelope.parent_id) == (
        "lite",
        "voter",
        content.data["proposal_id"],
    )
    data = as_data(content.data)
    del data["proposal_id"]
    return content.kind, content.text, data


async def hears(bench: Bench, *batch: bytes, want: int = 1) -> list[Envelope]:
    return [bench.opened(sealed) for sealed in await bench.calls(batch, want)]


@pytest.mark.parametrize("interrupt", [True, False])
@in_loop
async def test_what_a_mind_makes_of_a_stream_is_signed_and_sent(interrupt: bool) -> None:
    mind = Watcher(Observation(interrupt, "it deletes everything"))
    bench = Bench(mind)
    ballot, seen = await hears(bench, bench.proposal(), told(bench), want=2)
    assert isinstance(ballot.content, Vote)
    assert facts(seen) == (
        "observation",
        "it deletes everything",
        {"stream": "prime", "stage": "plan", "round": 1, "whole": True, "interrupt": interrupt},
    )
    assert mind.shown == [("do it", Stream("prime", "plan", "rm -rf /", True))]
    assert await bench.seat.exchange([]) == (False, [])


@in_loop
async def test_a_plain_observe_may_block_and_a_mind_without_one_hears_nothing() -> None:
    class Plain:
        def review(self, case: Case) -> Opinion:
            return Opinion.yes("fine")

        def observe(self, case: Case, stream: Stream) -> Observation:
            return Observation(True, "halt")

    bench = Bench(Plain())
    _, seen = await hears(bench, bench.proposal(), told(bench), want=2)
    assert facts(seen)[2]["interrupt"] is True
    deaf = Bench(lambda case: Opinion.yes("fine"))
    await hears(deaf, deaf.proposal(), told(deaf))
    assert await deaf.seat.exchange([]) == (False, [])
    assert not deaf.host._observed._kept  # nor does it keep what it might hear of


@in_loop
async def test_after_a_halt_nothing_is_looked_at_before_the_work_begins_anew() -> None:
    """One fault is one interrupt: three in a row are three tries (rules 1.8)."""

    mind = Watcher(Observation(True, "halt"), Observation(False))
    bench = Bench(mind)
    start = told(bench, "x" * LOOK_CHARS, whole=False)
    _, first = await hears(bench, bench.proposal(), start, want=2)
    assert (facts(first)[2]["interrupt"], facts(first)[2]["whole"]) == (True, False)
    assert await bench.seat.exchange([told(bench, "more", at=LOOK_CHARS)]) == (False, [])
    (second,) = await hears(bench, told(bench, "anew", round=2))
    assert facts(second)[2] == {**ROUND, "round": 2, "interrupt": False}


@in_loop
async def test_what_it_says_of_a_round_that_is_over_is_said_all_the_same() -> None:
    """The council counts a seat's halts, whatever it is at by now. Mutation: one that hurries is never halted."""

    go = asyncio.Event()

    class Slow(Watcher):
        async def observe(self, case: Case, stream: Stream) -> Observation:
            found = await super().observe(case, stream)
            await go.wait()
            return found

    mind = Slow(Observation(True, "halt"), Observation(False))
    bench = Bench(mind)
    await hears(bench, bench.proposal(), told(bench, round=1))
    hearing = asyncio.ensure_future(hears(bench, told(bench, "anew", round=2), want=2))
    for _ in range(5):  # until it is told of it
        await asyncio.sleep(0)
    go.set()
    late, seen = await hearing
    assert facts(late)[2] == {**ROUND, "round": 1, "interrupt": True}
    assert facts(seen)[2] == {**ROUND, "round": 2, "interrupt": False}
    assert [stream.text for _, stream in mind.shown] == ["rm -rf /", "anew"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (ValueError("no idea"), "its mind raised ValueError: no idea"),
        ("halt", "its mind returned 'halt', expected Observation"),
        (Opinion.no("halt"), "its mind returned Opinion("),
        (Observation("yes"), "its mind returned 'yes' as interrupt, expected True or False"),  # type: ignore[arg-type]
    ],
)
@in_loop
async def test_a_mind_that_fails_to_observe_is_reported_and_halts_nobody(said: Any, why: str) -> None:
    bench = Bench(Watcher(said))
    ballot, fault = await hears(bench, bench.proposal(), told(bench), want=2)
    assert isinstance(ballot.content, Vote)
    kind, text, data = facts(fault)
    assert (kind, data) == ("fault", {"task": "observation"})
    assert text.startswith(why)
    again = await hears(bench, bench.proposal())  # what it says again is its ballot alone
    assert [each.content for each in again] == [ballot.content]


@in_virtual_time
async def test_an_observation_that_takes_too_long_is_given_up() -> None:
    mind = Watcher(observe_s=60.0)
    bench = Bench(mind, uptime=asyncio.get_running_loop().time)
    _, fault = await hears(bench, bench.proposal(left_s=0.05), told(bench), want=2)
    assert facts(fault)[1].startswith("its mind did not answer within 0.0")
    await until(lambda: mind.cancelled == 1)
    assert await bench.seat.exchange([]) == (False, [])


@in_loop
async def test_an_observer_is_shown_what_it_has_voted_on_and_casts_no_second_ballot() -> None:
    """As the council hands it over when the seat has begun anew."""

    mind = Watcher()
    bench = Bench(mind)
    sealed = bench.info("observe", about=bench.about())
    (seen,) = await hears(bench, sealed, told(bench))
    assert facts(seen)[0] == "observation"
    assert await bench.seat.exchange([]) == (False, [])


def test_looks_that_hang_cost_no_ballot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: they count with the reviews that hang, and a seat that watched for a while votes no more."""
    monkeypatch.setattr(threads, "LOOKS_HUNG_MAX", 1)
    monkeypatch.setattr(threads, "HUNG_THREADS_MAX", 1)
    hangs, looking, begun = threading.Event(), threading.Event(), list[Bench]()

    class Stuck:
        def review(self, case: Case) -> Opinion:
            return Opinion.yes("fine")

        def observe(self, case: Case, stream: Stream) -> Observation:
            looking.set()
            hangs.wait(HANG_S)
            return Observation(False)

    def silent() -> bool:  # once each ballot is cast, nothing comes before a look's time is over
        return looking.is_set() and len(begun[0].host._sent._kept) == len(begun)

    async def scenario() -> None:
        bench, why = Bench(Stuck(), uptime=asyncio.get_running_loop().time), []
        for n in range(3):
            pid = f"{n:08x}"
            begun.append(bench)
            said = await hears(bench, bench.proposal(pid, left_s=60.0), told(bench, pid=pid), want=2)
            assert sorted(each.type for each in said) == ["INFO", "VOTE"]
            why += [facts(each)[1] for each in said if each.type == "INFO"]
        assert why[-1].endswith("1 earlier looks at others of this mind still hang; restart its seat")

    try:
        with asyncio.Runner(loop_factory=lambda: SilenceLoop(silent)) as runner:
            runner.run(scenario())
    finally:
        hangs.set()


@in_loop
async def test_its_own_ballot_goes_first() -> None:
    """rules 6.7. Mutation: an observation that keeps the one place has the ballot wait for it."""

    class Cancelled(Watcher):
        async def observe(self, case: Case, stream: Stream) -> Observation:
            try:
                return await super().observe(case, stream)
            except asyncio.CancelledError:
                self.observe_s = 0.0
                raise

    mind = Cancelled(observe_s=60.0)
    bench = Bench(mind, concurrent_max=1)
    await hears(bench, bench.proposal())
    watching = asyncio.ensure_future(bench.seat.exchange([told(bench)]))
    await until(lambda: len(mind.shown) == 1)
    (ballot,) = await hears(bench, bench.proposal("bbbbbbbb"))
    assert ballot.parent_id == "bbbbbbbb"
    assert isinstance(ballot.content, Vote)
    assert mind.cancelled == 1
    found = (await watching)[1] + (await bench.calls([], want=1))
    assert [facts(bench.opened(each))[0] for each in found] == ["observation"]
    assert [stream.is_whole for _, stream in mind.shown] == [True, True]  # it looked once more


@in_loop
async def test_looks_wait_while_ballots_take_all_the_room() -> None:
    mind = Watcher(review_s=0.05)
    bench = Bench(mind, concurrent_max=2)
    batch = [bench.proposal(), bench.proposal("bbbbbbbb"), bench.proposal("cccccccc"), told(bench)]
    said = await hears(bench, *batch, want=4)
    assert [each.type for each in said[:2]] == ["VOTE", "VOTE"]
    assert sorted(each.type for each in said[2:]) == ["INFO", "VOTE"]


@in_loop
async def test_a_call_for_an_observation_is_paid_from_the_purse_and_settled_with_it() -> None:
    class Paying(Watcher):
        def set_budget(self, purse: BudgetClient) -> None:
            self.purse = purse

        async def observe(self, case: Case, stream: Stream) -> Observation:
            await self.purse.reserve(case.proposal_id, "observe", "small-1", Cost(100))
            return Observation(False)

    bench = Bench(Paying())
    await hears(bench, bench.proposal())
    (asked,) = await hears(bench, told(bench))
    assert facts(asked)[2]["task"] == "observe"
    granted = bench.info("granted", call=asked.msg_id)
    kinds = [facts(each) for each in await hears(bench, granted, want=2)]
    assert sorted(kind for kind, _, _ in kinds) == ["observation", "settle"]


@in_loop
async def test_what_is_withdrawn_is_observed_no_more() -> None:
    mind = Watcher(observe_s=60.0)
    bench = Bench(mind)
    await hears(bench, bench.proposal())
    watching = asyncio.ensure_future(bench.seat.exchange([told(bench)]))
    await until(lambda: len(mind.shown) == 1)
    await bench.seat.exchange([bench.info("withdraw")])
    await until(lambda: mind.cancelled == 1)
    assert (await watching)[1] == []
    assert await bench.seat.exchange([told(bench, "more", round=2)]) == (False, [])
