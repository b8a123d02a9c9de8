"""SeatHost: whatever a mind does costs one ballot and is reported; the seat lives and beats on."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import itertools
import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from council.agents.messaging import seat_messages
from council.agents.mind import Case, Checked, Opinion, Ruling, ShownBallot, Turn, as_mind
from council.agents.seat import heartbeat, outgoing
from council.agents.seat.host import SeatHost
from council.agents.seat.remote import RemoteSeat
from council.agents.seat.threads import HUNG_THREADS_MAX, Threads
from council.protocol import codec, signing
from council.protocol.envelope import Envelope, Escalation, Heartbeat, Info, Vote
from council.protocol.errors import CallDenied
from council.protocol.signing import Keyring
from council.protocol.values import plain as as_data
from tests.logged import capture_logs
from tests.patience import HANG_S
from tests.runtime.harness import in_loop, in_virtual_time, run, until

KEY = b"k" * 32
COUNCIL_ID = "test.0123"
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LONG_S = 10 * HANG_S  # what comes with the end of such a budget alone never comes


class Bench:
    """A seat and the council's side of its letter box."""

    def __init__(self, mind: Any, **options: Any) -> None:
        self.ids = itertools.count(1)
        self.host = SeatHost(
            "lite",
            as_mind(mind, seat="lite"),
            KEY,
            COUNCIL_ID,
            wall=lambda: WHEN,
            uptime=options.pop("uptime", time.monotonic),
            new_id=lambda: f"{next(self.ids):016x}",
            **options,
        )
        self.seat = RemoteSeat(self.host, KEY, COUNCIL_ID)
        self.keyring = Keyring()
        self.keyring.add("lite", KEY)

    def about(self, proposal_id: str = "aaaaaaaa", **content: Any) -> Envelope:
        return Envelope.build(
            msg_id=proposal_id,
            timestamp=WHEN,
            sender="client",
            role="proposer",
            type="PROPOSAL",
            confidence=content.pop("confidence", 1.0),
            risk_level=content.pop("risk_level", "low"),
            content={"summary": "do it", "time_budget_s": 86_400.0, **content},
        )

    def proposal(self, proposal_id: str = "aaaaaaaa", left_s: float = LONG_S, **content: Any) -> bytes:
        return self.said(self.about(proposal_id, **content), left_s)

    def info(
        self,
        kind: str,
        proposal_id: str = "aaaaaaaa",
        about: Envelope | None = None,
        left_s: float = LONG_S,
        **data: Any,
    ) -> bytes:
        envelope = Envelope.build(
            msg_id="cccccccc",
            parent_id=proposal_id,
            timestamp=WHEN,
            sender="coordinator",
            role="coordinator",
            type="INFO",
            content={"kind": kind, "text": data.pop("text", ""), "data": data},
        )
        return self.said(envelope, left_s, about)

    def ruling_request(self, left_s: float = LONG_S) -> bytes:
        shown = {"seat": "prime", "vote": "no", "reason": "r", "confidence": 0.5, "risk_level": "high"}
        return self.info("ruling_request", about=self.about(summary="x"), left_s=left_s, ballots=[shown])

    def said(self, envelope: Envelope, left_s: float = LONG_S, about: Envelope | None = None) -> bytes:
        beside = b"" if about is None else codec.encode(about)
        letter = seat_messages.write(codec.encode(envelope), beside, left_s)
        return signing.seal_to(letter, KEY, COUNCIL_ID, "lite")

    async def calls(self, batch: Sequence[bytes], want: int = 1) -> list[bytes]:
        """What the seat says to this, in as many calls as it takes."""
        more, found = await self.seat.exchange(batch)
        while len(found) < want:
            assert more, f"the seat says that nothing more will come, after {len(found)} of {want}"
            more, items = await self.seat.exchange([])
            found += items
        return found

    async def ask(self, *batch: bytes) -> Envelope:
        (sealed,) = await self.calls(batch)
        return self.opened(sealed)

    def opened(self, sealed: bytes) -> Envelope:
        return self.keyring.open(sealed, COUNCIL_ID)


def fault_of(envelope: Envelope, task: str = "ballot") -> str:
    content = envelope.content
    assert isinstance(content, Info), content
    assert content.kind == "fault"
    assert as_data(content.data) == {"proposal_id": "aaaaaaaa", "task": task}
    assert (envelope.sender, envelope.parent_id) == ("lite", "aaaaaaaa")
    return content.text


def asked(mind: Any, budget_s: float = LONG_S, **options: Any) -> Envelope:
    async def scenario() -> Envelope:
        bench = Bench(mind, **options)
        answer = await bench.ask(bench.proposal(left_s=budget_s))
        assert bench.host._work.oldest() is None
        return answer

    return run(scenario())


async def agree(case: Case) -> Opinion:
    return Opinion.yes("fine", confidence=0.75, risk_level="med")


# An opinion becomes a ballot


class PlainMind:
    def review(self, case: Case) -> Opinion:
        return Opinion.yes("fine", confidence=0.75, risk_level="med")


class AsyncMind:
    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("fine", confidence=0.75, risk_level="med")


class CalledMind:
    async def __call__(self, case: Case) -> Opinion:
        return Opinion.yes("fine", confidence=0.75, risk_level="med")


def plain(case: Case) -> Opinion:
    return Opinion.yes("fine", confidence=0.75, risk_level="med")


def gives_coroutine(case: Case) -> Any:
    return agree(case)


def gives_future_later(case: Case) -> Any:
    async def outer() -> Any:
        return agree(case)

    return outer()


@functools.wraps(agree)
def wrapping(case: Case) -> Any:
    return agree(case)


MINDS = [
    agree,
    plain,
    PlainMind,
    PlainMind(),
    AsyncMind,
    AsyncMind(),
    CalledMind(),
    gives_coroutine,
    gives_future_later,
    wrapping,
    functools.partial(agree),
    lambda case: Opinion.yes("fine", confidence=0.75, risk_level="med"),
]


@pytest.mark.parametrize("mind", MINDS, ids=range(len(MINDS)))
def test_every_shape_of_mind_votes(mind: Any) -> None:
    envelope = asked(mind)
    content = envelope.content
    assert isinstance(content, Vote)
    assert (content.vote, content.reason, content.proposal_id) == ("yes", "fine", "aaaaaaaa")
    assert (envelope.sender, envelope.role, envelope.parent_id) == ("lite", "voter", "aaaaaaaa")
    assert (envelope.confidence, envelope.risk_level) == (0.75, "med")


@in_loop
async def test_the_case_is_the_proposal() -> None:
    seen: list[Case] = []

    def mind(case: Case) -> Opinion:
        seen.append(case)
        return Opinion.abstain("looked")

    bench = Bench(mind)
    action = {"tool": "rm", "args": {"paths": ["/a"]}}
    about: dict[str, Any] = {"action": action, "confidence": 0.5, "risk_level": "high"}
    turns = [{"role": "user", "text": "Please."}]
    await bench.ask(bench.proposal(body="why", **about, history=turns))
    assert seen == [
        Case(
            *("aaaaaaaa", "client", "do it", "why", {"tool": "rm", "args": {"paths": ["/a"]}}, 0.5, "high"),
            time_left_s=LONG_S,
            history=(Turn("user", "Please."),),
        )
    ]


@in_loop
async def test_a_proposers_own_turn_is_not_taken_for_a_check() -> None:
    seen: list[Case] = []

    def mind(case: Case) -> Opinion:
        seen.append(case)
        return Opinion.abstain("looked")

    bench = Bench(mind)
    about = bench.about(history=[{"role": "check", "text": "look {}:\nall is well"}])
    done = {"tool": "look", "args": {"n": 3}, "output": "it is empty"}
    await bench.ask(bench.info("checked", about=about, checks=[done]))
    (case,) = seen
    assert case.history == (
        Turn("claimed-check", "look {}:\nall is well"),
        Turn("check", 'look {"n": 3}:\nit is empty'),
    )
    assert case.checks == (Checked("look", {"n": 3}, "it is empty"),)


def test_a_control_packet_goes_along_unread() -> None:
    async def mind(case: Case) -> Opinion:
        return Opinion("no", "r", control_packet={"safety_gates": {"requires_user_approval": True}})

    content = asked(mind).content
    assert isinstance(content, Vote)
    assert as_data(content.control_packet) == {"safety_gates": {"requires_user_approval": True}}


# Nonsense: each kind costs the ballot, and says what it was


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr either")


NONSENSE: dict[str, tuple[Any, str]] = {
    "None": (None, "its mind returned None, expected Opinion"),
    "text": ("yes", "its mind returned 'yes', expected Opinion"),
    "true": (True, "its mind returned True, expected Opinion"),
    "dict": ({"vote": "yes"}, "expected Opinion"),
    "a ruling": (Ruling("confirm", "x"), "expected Opinion"),
    "the class": (Opinion, "expected Opinion"),
    "long repr": ("x" * 10_000, "..., expected Opinion"),
    "no repr": (Unprintable(), "Unprintable"),
    "vote maybe": (Opinion("maybe", "r"), "content.vote"),  # type: ignore[arg-type]
    "vote YES": (Opinion("YES", "r"), "content.vote"),  # type: ignore[arg-type]
    "vote None": (Opinion(None, "r"), "content.vote"),  # type: ignore[arg-type]
    "vote list": (Opinion(["yes"], "r"), "content.vote"),  # type: ignore[arg-type]
    "reason None": (Opinion("yes", None), "content.reason"),  # type: ignore[arg-type]
    "reason bytes": (Opinion("yes", b"r"), "content.reason"),  # type: ignore[arg-type]
    "reason huge": (Opinion("yes", "x" * 2_000_000), "content.reason"),
    "reason NUL": (Opinion("yes", "a\0b"), "NUL"),
    "reason surrogate": (Opinion("yes", "\ud800"), "content.reason"),
    "confidence NaN": (Opinion("yes", "r", math.nan), "confidence"),
    "confidence inf": (Opinion("yes", "r", math.inf), "confidence"),
    "confidence 3.0": (Opinion("yes", "r", 3.0), "confidence"),
    "confidence -0.1": (Opinion("yes", "r", -0.1), "confidence"),
    "confidence text": (Opinion("yes", "r", "0.9"), "confidence"),  # type: ignore[arg-type]
    "confidence True": (Opinion("yes", "r", True), "confidence"),
    "confidence None": (Opinion("yes", "r", None), "confidence"),  # type: ignore[arg-type]
    "risk critical": (Opinion("yes", "r", 0.5, "critical"), "risk_level"),  # type: ignore[arg-type]
    "packet list": (Opinion("yes", "r", control_packet=[1]), "control_packet"),  # type: ignore[arg-type]
    "packet object": (Opinion("yes", "r", control_packet={"a": object()}), "control_packet"),
    "packet keys": (Opinion("yes", "r", control_packet={1: 2}), "control_packet"),  # type: ignore[dict-item]
    "packet NaN": (Opinion("yes", "r", control_packet={"a": math.nan}), "control_packet"),
    "packet huge": (Opinion("yes", "r", control_packet={"a": "x" * 2_000_000}), "control_packet"),
    "packet many": (Opinion("yes", "r", control_packet={"a": [0] * 20_000}), "control_packet"),
}


@pytest.mark.parametrize("case", NONSENSE)
@pytest.mark.parametrize("kind", ["async", "plain"])
def test_nonsense_costs_the_ballot_and_is_named(case: str, kind: str) -> None:
    value, words = NONSENSE[case]

    async def returns(case: Case) -> Any:
        return value

    text = fault_of(asked(returns if kind == "async" else lambda case: value))
    assert words in text
    assert len(text) <= 2_000


# Raising


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Outside(BaseException):
    pass


class MuteAndOutside(BaseException):
    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


RAISED: dict[str, tuple[Callable[[], BaseException], str]] = {
    "ValueError": (lambda: ValueError("bad day"), "its mind raised ValueError: bad day"),
    "TypeError": (lambda: TypeError("bad day"), "its mind raised TypeError: bad day"),
    "SystemExit": (lambda: SystemExit(3), "3"),
    "KeyboardInterrupt": (lambda: KeyboardInterrupt("^C"), "^C"),
    "CancelledError": (lambda: asyncio.CancelledError("by itself"), "cancelled"),
    "concurrent CancelledError": (lambda: concurrent.futures.CancelledError("lost"), "CancelledError"),
    "StopIteration": (lambda: StopIteration("empty"), "StopIteration"),
    "StopAsyncIteration": (lambda: StopAsyncIteration("empty"), "StopAsyncIteration"),
    "TimeoutError": (lambda: TimeoutError("too slow"), "its mind raised TimeoutError: too slow"),
    "RecursionError": (lambda: RecursionError("deep"), "its mind raised RecursionError: deep"),
    "own BaseException": (lambda: Outside("far out"), "far out"),
    "NUL": (lambda: ValueError("a\0b"), "ValueError: a\\0b"),
    "surrogate": (lambda: ValueError("a\ud800b"), "ValueError: a\\ud800b"),
    "huge": (lambda: ValueError("x" * 5_000_000), "xxx"),
    "no words": (lambda: Mute(), "Mute"),
    "no words, own BaseException": (lambda: MuteAndOutside(), "MuteAndOutside"),
    "GeneratorExit": (lambda: GeneratorExit("closed"), "closed"),
    "group": (lambda: ExceptionGroup("both", [ValueError("a\ud800"), Mute()]), "both"),
    "empty": (lambda: ValueError(), "its mind raised ValueError"),
}


@pytest.mark.parametrize("case", RAISED)
@pytest.mark.parametrize("kind", ["async", "plain", "coroutine from plain"])
def test_whatever_a_mind_raises_costs_its_ballot_at_once(case: str, kind: str) -> None:
    """Mutations: catching Exception alone lets a mind's KeyboardInterrupt end the loop of the council;
    handing StopIteration to a future, or a NUL to an envelope, leaves the ballot to its time-out."""
    make, words = RAISED[case]

    async def raising(case: Case) -> Opinion:
        raise make()

    def raising_plain(case: Case) -> Opinion:
        raise make()

    mind = {"async": raising, "plain": raising_plain, "coroutine from plain": lambda case: raising(case)}[
        kind
    ]
    with capture_logs() as logged:
        text = fault_of(asked(mind, budget_s=LONG_S))
    assert words.lower() in text.lower()
    assert len(text) <= 2_000
    (line,) = (each for each in logged if each["event"] == "mind failed")
    assert (line["seat"], line["task"], line["proposal"]) == ("lite", "ballot", "aaaaaaaa")
    assert line["why"] == text
    for shown in line.values():  # a lone surrogate could be written nowhere
        assert len(shown.encode("utf-8")) <= 8_000 + 2_000
    assert "in raising" in line["traceback"]


def test_what_a_seat_says_of_a_mind_that_raised_is_printed_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On the seat's own side, as its programmer looks for it."""

    def review(case: Case) -> Opinion:
        raise ValueError("half a pair: \ud800")

    fault_of(asked(review))
    printed = caplog.text
    assert "Traceback (most recent call last):" in printed
    assert f'File "{__file__}"' in printed
    assert printed.rstrip().endswith("ValueError: half a pair: \\ud800")


def test_what_says_all_by_itself_is_logged_without_a_traceback() -> None:
    async def denied(case: Case) -> Opinion:
        raise CallDenied("lite may not call small", seat="lite", model="small")

    for mind in (denied, lambda case: None):
        with capture_logs() as logged:
            fault_of(asked(mind))
        (line,) = logged
        assert "traceback" not in line


# Hanging


def test_a_hanging_async_mind_costs_its_ballot_at_the_deadline_and_is_cancelled() -> None:
    cancelled: list[bool] = []

    async def mind(case: Case) -> Opinion:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return Opinion.yes("never")

    assert fault_of(asked(mind, budget_s=0.1)) == "its mind did not answer within 0.1 s"
    assert cancelled == [True]


@in_loop
async def test_a_hanging_plain_mind_costs_its_ballot_at_the_deadline() -> None:
    free = threading.Event()

    def mind(case: Case) -> Opinion:
        free.wait(HANG_S)
        return Opinion.yes("much too late")

    bench = Bench(mind)
    assert "did not answer within 0.1 s" in fault_of(await bench.ask(bench.proposal(left_s=0.1)))
    free.set()
    await until(lambda: bench.host._work._run.__self__._threads.hung == 0)
    assert await bench.seat.exchange([]) == (False, [])  # what came after all is not a second word


@in_loop
async def test_a_mind_that_ignores_cancellation_costs_its_ballots_only() -> None:
    """Mutation: a slot that is freed only when the mind ends starves the seat after ``concurrent_max``."""
    release = asyncio.Event()

    async def mind(case: Case) -> Opinion:
        while case.summary == "stubborn" and not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return Opinion.yes("done")

    bench = Bench(mind, concurrent_max=2)
    stubborn = [bench.proposal(f"aaaaaaa{n}", left_s=0.05, summary="stubborn") for n in range(3)]
    for sealed in await bench.calls(stubborn, 3):
        content = bench.opened(sealed).content
        assert isinstance(content, Info)
        assert content.kind == "fault"
    assert isinstance((await bench.ask(bench.proposal("bbbbbbbb"))).content, Vote)
    release.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert await bench.seat.exchange([]) == (False, [])


@in_loop
async def test_a_call_that_ends_as_it_is_given_up_is_not_counted_as_hung() -> None:
    threads, free = Threads("lite", "reviews", 1), threading.Event()
    began: list[threading.Thread] = []

    def think() -> None:
        began.append(threading.current_thread())
        free.wait(HANG_S)

    given_up = asyncio.ensure_future(threads.run(think))
    await until(lambda: bool(began))
    free.set()
    began[0].join()  # the loop stands still until the thread has ended
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert given_up.cancelled()
    assert threads.hung == 0


@in_loop
async def test_hung_threads_are_bounded_and_then_refused_at_once() -> None:
    free = threading.Event()

    def mind(case: Case) -> Opinion:
        free.wait(HANG_S)
        return Opinion.yes("at last")

    bench = Bench(mind, concurrent_max=256)
    batch = [bench.proposal(f"{n:08x}", left_s=1.0) for n in range(HUNG_THREADS_MAX)]
    found = await bench.calls(batch, HUNG_THREADS_MAX)
    assert len(found) == HUNG_THREADS_MAX
    text = fault_of(await bench.ask(bench.proposal(left_s=LONG_S)))
    assert f"{HUNG_THREADS_MAX} earlier reviews of this mind still hang" in text
    free.set()
    await until(lambda: bench.host._work._run.__self__._threads.hung == 0)
    assert isinstance((await bench.ask(bench.proposal("bbbbbbbb"))).content, Vote)
    assert HUNG_THREADS_MAX == 64


@in_loop
async def test_a_busy_plain_mind_does_not_block_the_seat() -> None:
    free = threading.Event()

    def mind(case: Case) -> Opinion:
        if case.summary == "slow":
            free.wait(HANG_S)
        return Opinion.yes(case.summary)

    bench = Bench(mind)
    (first,) = await bench.calls([bench.proposal(summary="slow"), bench.proposal("bbbbbbbb")])
    assert bench.opened(first).parent_id == "bbbbbbbb"
    assert bench.host._work.oldest() == "aaaaaaaa"
    free.set()
    (second,) = await bench.calls([])
    assert bench.opened(second).parent_id == "aaaaaaaa"


# Concurrency


@pytest.mark.parametrize("kind", ["async", "plain"])
@in_loop
async def test_no_more_reviews_at_once_than_allowed(kind: str) -> None:
    lock = threading.Lock()
    free, freed = threading.Event(), asyncio.Event()
    at_once = 0
    most = 0

    def enter(by: int) -> None:
        nonlocal at_once, most
        with lock:
            at_once += by
            most = max(most, at_once)

    async def mind(case: Case) -> Opinion:
        enter(1)
        await freed.wait()
        enter(-1)
        return Opinion.yes("r")

    def mind_plain(case: Case) -> Opinion:
        enter(1)
        free.wait(HANG_S)
        enter(-1)
        return Opinion.yes("r")

    bench = Bench(mind if kind == "async" else mind_plain, concurrent_max=3)
    batch = [bench.proposal(f"{n:08x}") for n in range(20)]
    calls = asyncio.ensure_future(bench.calls(batch, 20))
    await until(lambda: at_once == 3 or calls.done())
    await asyncio.sleep(0.005)  # three at once must be seen, and no fourth
    free.set()
    freed.set()
    assert len(await calls) == 20
    assert most == 3


@in_loop
async def test_no_more_reviews_at_once_than_allowed_after_many_withdrawals() -> None:
    """What is withdrawn frees the slot that it holds, once; what only waited for a slot frees none.

    Mutations: a slot is given back when the review is given up and again when it ends; also without having one.
    """
    gate = asyncio.Event()
    running: set[str] = set()
    begun: list[str] = []

    async def mind(case: Case) -> Opinion:
        running.add(case.proposal_id)
        begun.append(case.proposal_id)
        try:
            await gate.wait()
        finally:
            running.discard(case.proposal_id)
        return Opinion.yes("r")

    bench = Bench(mind, concurrent_max=2)
    for turn in range(5):
        ids = [f"{turn:04x}{n:04x}" for n in range(5)]
        call = asyncio.ensure_future(bench.seat.exchange([bench.proposal(each) for each in ids]))
        await until(lambda: len(running) >= 2)
        assert running == set(ids[:2])
        # First those that wait for a slot, then those that have one.
        await bench.seat.exchange([bench.info("withdraw", each) for each in reversed(ids)])
        await call
        await until(lambda: not running)
    withdrawn = len(begun)
    calls = asyncio.ensure_future(bench.calls([bench.proposal(f"{n:08x}") for n in range(6)], 6))
    await until(lambda: len(running) >= 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert (len(running), len(begun)) == (2, withdrawn + 2)
    gate.set()
    assert len(await calls) == 6


@in_loop
async def test_waiting_for_a_slot_counts_against_the_time_left() -> None:
    async def mind(case: Case) -> Opinion:
        await asyncio.sleep(3600)
        return Opinion.yes("never")

    bench = Bench(mind, concurrent_max=1)
    batch = [bench.proposal("bbbbbbbb", left_s=LONG_S), bench.proposal(left_s=0.1)]
    assert "did not answer within 0.1 s" in fault_of(await bench.ask(*batch))
    bench.host.close()


# Redelivery


@in_loop
async def test_redelivery_gives_the_same_bytes_and_asks_the_mind_once() -> None:
    calls: list[str] = []

    async def mind(case: Case) -> Opinion:
        calls.append(case.proposal_id)
        return Opinion.yes(f"call {len(calls)}")

    bench = Bench(mind)
    (first,) = await bench.calls([bench.proposal()])
    assert await bench.calls([bench.proposal()]) == [first]
    assert await bench.calls([bench.proposal(), bench.proposal()], 2) == [first, first]
    assert calls == ["aaaaaaaa"]


@in_loop
async def test_redelivery_while_it_thinks_starts_nothing() -> None:
    go = asyncio.Event()
    calls: list[str] = []

    async def mind(case: Case) -> Opinion:
        calls.append(case.proposal_id)
        await go.wait()
        return Opinion.yes("r")

    bench = Bench(mind)
    first = asyncio.ensure_future(bench.seat.exchange([bench.proposal()]))
    await until(lambda: calls)
    again = asyncio.ensure_future(bench.seat.exchange([bench.proposal(), bench.proposal()]))
    assert await first == (True, [])
    go.set()
    more, items = await again
    assert (more, len(items)) == (False, 1)
    assert calls == ["aaaaaaaa"]


@in_loop
async def test_a_fault_is_redelivered_like_a_ballot() -> None:
    async def mind(case: Case) -> Opinion:
        raise ValueError("no")

    bench = Bench(mind)
    (first,) = await bench.calls([bench.proposal()])
    assert await bench.calls([bench.proposal()]) == [first]


@in_loop
async def test_asked_again_the_mind_thinks_anew_and_signs_a_new_ballot() -> None:
    votes = iter(["no", "yes"])

    async def mind(case: Case) -> Opinion:
        return Opinion(next(votes), "r")  # type: ignore[arg-type]

    bench = Bench(mind)
    first = await bench.ask(bench.proposal())
    second = await bench.ask(bench.info("ask_again", about=bench.about()))
    assert first.msg_id != second.msg_id
    assert second.content.vote == "yes"  # type: ignore[union-attr]
    (again,) = await bench.calls([bench.proposal()])
    assert bench.opened(again) == second


@pytest.mark.parametrize("kind", ["ask_again", "ruling_request"])
def test_a_seat_that_was_restarted_is_shown_what_it_is_asked_about(kind: str) -> None:
    """The proposal is in the letter: a host that never saw it, nor anything else, knows the whole case.
    Mutation: a seat that looks its own memory up says nothing after a restart, and the ballot is lost."""
    seen: list[Case] = []

    class Mind:
        async def review(self, case: Case) -> Opinion:
            seen.append(case)
            return Opinion.yes("r")

        async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
            seen.append(case)
            return Ruling("confirm", "r")

    async def scenario() -> Envelope:
        bench = Bench(Mind())
        about = bench.about("dddddddd", body="why", action={"tool": "rm", "args": {"a": [1]}})
        return await bench.ask(bench.info(kind, "dddddddd", about, 3.5, ballots=[]))

    answer = run(scenario())
    assert answer.parent_id == "dddddddd"
    assert seen == [
        Case("dddddddd", "client", "do it", "why", {"tool": "rm", "args": {"a": [1]}}, 1.0, "low", 3.5)
    ]


@pytest.mark.parametrize("kind", ["ask_again", "ruling_request"])
@in_loop
async def test_asked_about_nothing_it_says_nothing(kind: str) -> None:
    """As a letter is that waited while its proposal was decided."""

    bench = Bench(agree)
    (ballot,) = await bench.calls([bench.proposal()])
    assert await bench.seat.exchange([bench.info(kind, ballots=[])]) == (False, [])
    assert await bench.calls([bench.proposal()]) == [ballot], "it forgot what it had said"


@in_loop
async def test_the_time_left_is_the_letters_not_the_proposals() -> None:
    """A seat that is handed a proposal late has less than its time budget, and knows."""
    seen: list[float] = []

    async def mind(case: Case) -> Opinion:
        seen.append(case.time_left_s)
        await asyncio.sleep(3600)
        return Opinion.yes("never")

    bench = Bench(mind)
    text = fault_of(await bench.ask(bench.proposal(left_s=0.1, time_budget_s=60.0)))
    assert text == "its mind did not answer within 0.1 s"
    assert seen == [0.1]


@in_virtual_time
async def test_withdrawn_work_is_given_up_in_silence() -> None:
    ended: list[bool] = []

    async def mind(case: Case) -> Opinion:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(True)
        return Opinion.yes("never")

    bench = Bench(mind)
    waiting = asyncio.ensure_future(bench.seat.exchange([bench.proposal(left_s=0.2)]))
    await until(lambda: bench.host._work.oldest())
    await bench.seat.exchange([bench.info("withdraw")])
    assert bench.host._work.oldest() is None
    await waiting
    await until(lambda: ended)
    await asyncio.sleep(0.25)  # past its deadline: nothing may come of that either
    assert await bench.seat.exchange([]) == (False, [])


@in_loop
async def test_what_is_remembered_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where ballots with long reasons may fill the memory as long as they are few."""
    monkeypatch.setattr(outgoing, "REMEMBERED_BYTES_MAX", 30_000)

    async def mind(case: Case) -> Opinion:
        return Opinion.yes("r" * (10_000 if case.proposal_id < "00000005" else 10))

    bench = Bench(mind)
    for n in range(9):
        await bench.calls([bench.proposal(f"{n:08x}")])
    kept = bench.host._sent._kept
    assert list(kept) == [(f"{n:08x}", "ballot") for n in range(3, 9)]
    assert bench.host._sent._bytes == sum(len(each) for sent in kept.values() for each in sent) <= 30_000
    await bench.calls([bench.info("ask_again", "00000008", bench.about("00000008"))])
    assert bench.host._sent._bytes == sum(len(each) for sent in kept.values() for each in sent)


@in_loop
async def test_what_is_said_again_is_remembered_once() -> None:
    """Mutation: a call for Prime counts anew each time that its seat is asked again, until nothing is remembered."""

    async def mind(case: Case) -> Opinion:
        return Opinion.yes("r", escalate="it pays somebody")

    bench = Bench(mind)
    await bench.calls([bench.proposal()], want=2)
    for _ in range(3):
        await bench.calls([bench.info("ask_again", about=bench.about())], want=2)
    kept = bench.host._sent._kept
    assert [len(sent) for sent in kept.values()] == [2]
    assert bench.host._sent._bytes == sum(len(each) for sent in kept.values() for each in sent)


@pytest.mark.parametrize("vote", ["yes", "no", "abstain"])
@in_loop
async def test_a_mind_calls_for_prime_before_its_ballot_and_again_when_asked_again(vote: str) -> None:
    """Fails if the ballot comes first, for it may decide the proposal; or if a lost reply loses the call."""

    async def mind(case: Case) -> Opinion:
        return getattr(Opinion, vote)("r", escalate="it pays somebody")

    bench = Bench(mind)
    said = await bench.calls([bench.proposal()], want=2)
    first, second = map(bench.opened, said)
    assert isinstance(first.content, Escalation)
    assert (first.content.proposal_id, first.content.reason) == ("aaaaaaaa", "it pays somebody")
    assert isinstance(second.content, Vote)
    assert second.content.vote == vote
    assert await bench.calls([bench.proposal()], want=2) == said


@pytest.mark.parametrize("why", [5, "a\0b", "x" * 20_001])
def test_a_call_that_is_nonsense_costs_the_ballot_and_says_nothing_else(why: Any) -> None:
    async def mind(case: Case) -> Opinion:
        return Opinion.yes("r", escalate=why)

    assert "content.reason" in fault_of(asked(mind))


@in_loop
async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "REMEMBERED_MAX", 3)
    calls: list[str] = []

    async def mind(case: Case) -> Opinion:
        calls.append(case.proposal_id)
        return Opinion.yes("r")

    bench = Bench(mind)
    for n in range(5):
        await bench.calls([bench.proposal(f"{n:08x}")])
    assert len(bench.host._sent._kept) == 3
    await bench.calls([bench.proposal("00000004")])
    assert len(calls) == 5
    await bench.calls([bench.proposal("00000000")])
    assert len(calls) == 6
    assert outgoing.REMEMBERED_MAX == 3


# Rulings


class Chair:
    def __init__(self, ruling: Any = None) -> None:
        self.ruling = ruling
        self.seen: list[Any] = []

    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("r")

    async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Any:
        self.seen.append((case, tuple(ballots)))
        return self.ruling


class PlainChair(Chair):
    def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Any:  # type: ignore[override]
        self.seen.append((case, tuple(ballots)))
        return self.ruling


@pytest.mark.parametrize("kind", [Chair, PlainChair])
@in_loop
async def test_a_ruling_is_signed_and_says_what_it_is_on(kind: type[Chair]) -> None:
    mind = kind(Ruling("reject", "no way", 0.8, "high"))

    bench = Bench(mind)
    (sealed,) = await bench.calls([bench.ruling_request()])
    envelope = bench.opened(sealed)
    content = envelope.content
    assert isinstance(content, Info)
    assert (content.kind, content.text) == ("ruling", "no way")
    assert as_data(content.data) == {"proposal_id": "aaaaaaaa", "ruling": "reject"}
    assert (envelope.confidence, envelope.risk_level, envelope.parent_id) == (0.8, "high", "aaaaaaaa")
    assert await bench.calls([bench.ruling_request()]) == [sealed]
    assert mind.seen == [
        (Case("aaaaaaaa", "client", "x", time_left_s=LONG_S), (ShownBallot("prime", "no", "r", 0.5, "high"),))
    ]


@in_loop
async def test_a_mind_without_rule_reports_that_it_cannot_hold_the_seat() -> None:
    bench = Bench(agree)
    text = fault_of(await bench.ask(bench.ruling_request()), "ruling")
    assert re.match(r"its mind, \w+, has no rule\(case, ballots\)", text), text


@pytest.mark.parametrize(
    "value", [None, Opinion.yes("r"), Ruling("maybe", "r"), Ruling("confirm", "r", math.nan)]
)  # type: ignore[arg-type]
@in_loop
async def test_a_nonsense_ruling_is_none(value: Any) -> None:
    """Mutation: a seat that signs whatever word its mind rules leaves the proposal to its time-out."""

    bench = Bench(Chair(value))
    assert "its mind returned" in fault_of(await bench.ask(bench.ruling_request()), "ruling")


# What is not the council's is ignored


@in_loop
async def test_forged_foreign_and_malformed_messages_are_ignored() -> None:
    calls: list[Case] = []

    async def mind(case: Case) -> Opinion:
        calls.append(case)
        return Opinion.yes("r")

    bench = Bench(mind)
    good = bench.proposal()
    payload = signing.payload_of(good)
    no_letters = [b"\x93junk", payload[:-1], codec.encode(bench.about())]  # cut short; an envelope alone
    bad = [
        b"",
        b"x" * 500,
        good[:-1],
        good[:40] + bytes([good[40] ^ 1]) + good[41:],
        signing.seal_to(payload, b"j" * 32, COUNCIL_ID, "lite"),  # another's key
        signing.seal_to(payload, KEY, "test.9999", "lite"),  # another council
        signing.seal_to(payload, KEY, COUNCIL_ID, "prime"),  # said to another seat
        signing.seal(payload, sender_key=KEY, council_id=COUNCIL_ID),  # the seat's own direction
        "text",
    ]
    sealed = [signing.seal_to(each, KEY, COUNCIL_ID, "lite") for each in no_letters]
    assert await bench.seat.exchange(bad + sealed) == (False, [])  # type: ignore[arg-type]
    assert calls == []
    await bench.ask(good)
    assert len(calls) == 1
    (own,) = await bench.calls([good])
    assert await bench.seat.exchange([own]) == (False, [])  # its own ballot, sent back to it


@in_loop
async def test_an_info_that_it_does_not_know_is_no_harm() -> None:
    bench = Bench(agree)
    assert await bench.seat.exchange([bench.info("something_new")]) == (False, [])


# The heart


def beats(host: SeatHost, wanted: int, **more: Any) -> list[tuple[Envelope, str]]:
    found: list[tuple[Envelope, str]] = []
    keyring = Keyring()
    keyring.add("lite", KEY)

    async def scenario() -> None:
        async def send(sealed: bytes, name: str) -> None:
            found.append((keyring.open(sealed, COUNCIL_ID), name))
            if len(found) >= wanted:
                host.close()

        await host.attend(3, send)

    run(scenario())
    return found


def test_beats_are_numbered_named_and_of_their_run() -> None:
    found = beats(Bench(agree, heartbeat_s=0.01).host, 3)
    for number, (envelope, name) in enumerate(found):
        content = envelope.content
        assert isinstance(content, Heartbeat)
        assert (content.beat, content.busy_with) == (number, None)
        assert content.uptime_s >= 0
        assert (envelope.sender, envelope.role, envelope.parent_id) == ("lite", "observer", "00000003")
        assert name == f"heartbeat lite #{number} active"


def test_beats_come_between_nine_tenths_and_the_whole_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """rules 1.10: 27 to 30 s, so that a third beat is never late by a hair."""
    pauses: list[float] = []

    async def pause(seconds: float, ended: asyncio.Event) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(heartbeat, "_pause", pause)
    beats(Bench(agree, heartbeat_s=30.0).host, 200)
    assert len(pauses) == 200
    assert 27.0 <= min(pauses) <= max(pauses) <= 30.0
    assert max(pauses) - min(pauses) > 1.0


@pytest.mark.parametrize("kind", ["async", "plain"])
@in_loop
async def test_a_seat_beats_while_its_mind_is_busy_and_says_so(kind: str) -> None:
    free, started = threading.Event(), asyncio.Event()

    def plain_mind(case: Case) -> Opinion:
        free.wait(HANG_S)
        return Opinion.yes("r")

    async def async_mind(case: Case) -> Opinion:
        await started.wait()
        return Opinion.yes("r")

    bench = Bench(plain_mind if kind == "plain" else async_mind, heartbeat_s=0.01)
    call = asyncio.ensure_future(bench.seat.exchange([bench.proposal()]))
    busy: list[str | None] = []

    async def send(sealed: bytes, name: str) -> None:
        content = bench.opened(sealed).content
        assert isinstance(content, Heartbeat)
        busy.append(content.busy_with)

    heart = asyncio.ensure_future(bench.host.attend(0, send))
    await until(lambda: busy.count("aaaaaaaa") >= 3)
    free.set()
    started.set()
    await call
    await until(lambda: busy[-1] is None)
    heart.cancel()


@in_loop
async def test_attendance_ends_with_the_error_of_its_sender() -> None:
    async def send(sealed: bytes, name: str) -> None:
        raise ConnectionError("nobody there")

    with pytest.raises(ConnectionError):
        await Bench(agree).host.attend(0, send)


@in_loop
async def test_close_gives_up_all_work() -> None:
    async def mind(case: Case) -> Opinion:
        await asyncio.sleep(3600)
        return Opinion.yes("never")

    bench = Bench(mind)
    call = asyncio.ensure_future(bench.seat.exchange([bench.proposal()]))
    await until(lambda: bench.host._work.oldest())
    bench.host.close()
    assert not bench.host._work.oldest()
    assert not bench.host.is_busy()
    call.cancel()


def test_a_seat_that_comes_back_late_is_told_how_much_time_is_really_left() -> None:
    """Case.time_left_s: "how many seconds the mind has before its ballot is lost"."""
    from tests.runtime.harness import Hand

    hand = Hand()
    hand.driver.seat_died("lite", 0, "killed", hand.now)
    hand.propose(time_budget_s=60.0)
    hand.wait(50.0)
    hand.save()
    hand.to_seats()
    content = {"beat": 0, "busy_with": None, "uptime_s": 0.0}
    hand.receive(hand.sealed(hand.envelope("lite", "HEARTBEAT", content, parent_id="00000001")))
    ((seat, letter),) = hand.letters()
    assert (seat, letter.envelope.type, letter.time_left_s) == ("lite", "PROPOSAL", 10.0)
    assert letter.envelope.content.time_budget_s == 60.0  # type: ignore[union-attr]  # as it was proposed


@in_loop
async def test_a_backlog_is_bounded_and_what_is_above_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: what is decided early without a slow seat piles up in it until the time budgets are over."""
    from council.agents.seat import workload as module

    monkeypatch.setattr(module, "BACKLOG_MAX", 3)
    monkeypatch.setattr(module, "BACKLOG_CHARS_MAX", 1_000)

    async def never(case: Case) -> Opinion:
        await asyncio.Event().wait()
        raise AssertionError

    bench = Bench(never)
    _, found = await bench.seat.exchange([bench.proposal(f"{n:08x}") for n in range(5)])
    assert [bench.opened(sealed).parent_id for sealed in found] == ["00000003", "00000004"]
    assert "too much waits for its mind: 3 other cases" in bench.opened(found[0]).content.text  # type: ignore[union-attr]
    done = [bench.info("withdraw", "00000000"), bench.info("withdraw", "00000001")]
    turns = [{"role": "tool", "text": "x" * 500}]  # what came before counts, too
    long = bench.proposal("0000000a", body="x" * 499, history=turns)
    longer = bench.proposal("0000000b", body="xx")
    _, found = await bench.seat.exchange([*done, long, longer])
    assert [bench.opened(sealed).parent_id for sealed in found] == ["0000000b"]
    bench.host.close()
    assert bench.host._work._weight == 0


@in_loop
async def test_an_observation_above_the_backlog_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: it is no observation yet when it fails, and what ends it raises."""
    from council.agents.seat import workload as module

    ended: list[module.WorkItem] = []
    failed: list[str] = []
    budget: Any = SimpleNamespace(close=lambda item: None)

    async def never(kind: str, case: Case, *more: object) -> None:
        await asyncio.Event().wait()

    work = module.Workload(
        9,
        budget,
        never,
        lambda item, thought: None,
        lambda item, why, overruns: failed.append(why),
        ended.append,
    )
    case = Case("00000001", "client", "do it", body="x" * 100)
    monkeypatch.setattr(module, "BACKLOG_CHARS_MAX", 150)
    work.start(module.WorkItem(case, "ballot"))
    stage: Any = SimpleNamespace(seat="lite", stage="Plan")
    observed = module.WorkItem(case, "observation of lite Plan", (), stage)
    work.start(observed)
    assert not failed, "it weighs nothing"
    monkeypatch.setattr(module, "BACKLOG_MAX", 1)
    more = module.WorkItem(case, "observation of lite Refine", (), stage)
    work.start(more)
    assert (len(failed), ended) == (1, [more])
    work.close()
    assert ended == [more, *ended[1:]]
    assert len(ended) == 3


@in_loop
async def test_a_later_attendance_ends_an_earlier_one_at_once() -> None:
    """Mutation: an attendance that sleeps on holds a thread of the seat's for half a minute, each restart one."""

    host = Bench(agree, heartbeat_s=3_000.0).host
    heard: list[int] = []

    async def send(sealed: bytes, name: str) -> None:
        heard.append(1)

    first = asyncio.ensure_future(host.attend(1, send))
    await until(lambda: len(heard) == 1)
    second = asyncio.ensure_future(host.attend(2, send))
    await asyncio.wait_for(first, HANG_S)
    assert not second.done()
    host.close()
    await asyncio.wait_for(second, HANG_S)


def test_each_case_has_its_own_time_though_its_seat_has_one_timer() -> None:
    """Mutations: the timer stays at the first case's time; it ends all that is under way; it is not set again."""

    async def hang(case: Case) -> Opinion:
        await asyncio.sleep(1e6)
        return Opinion.yes("never")

    async def scenario() -> None:
        loop, bench = asyncio.get_running_loop(), Bench(hang)
        began_s, said = loop.time(), list[tuple[str, float]]()
        bench.host.say = lambda sealed: said.append(
            (str(bench.opened(sealed).parent_id), loop.time() - began_s)
        )
        limits = {"aaaaaaaa": 30.0, "bbbbbbbb": 10.0, "cccccccc": 20.0}
        await bench.seat.exchange([bench.proposal(each, left_s) for each, left_s in limits.items()])
        await until(lambda: len(said) == 3)
        assert said == [("bbbbbbbb", 10.0), ("cccccccc", 20.0), ("aaaaaaaa", 30.0)]
        assert not bench.host.is_busy()

    run(scenario(), in_virtual_time=True)
