"""The short way of a lone blocking caller, over a real coordinator in process that its thread can call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from council import Council, Decision
from council.agents.messaging.mailbox import Reply
from council.agents.mind import Case, Opinion
from council.config.settings import CouncilConfig, SeatConfig
from council.protocol import signing
from council.protocol.errors import CouncilDied, NoAnswer, Refused, StoreFull, StoreLocked, Unreachable
from council.runtime import blocking_session
from council.runtime.blocking_session import Shortcut
from council.runtime.messages import Stalled, failure, to_bytes
from tests.patience import HANG_S
from tests.runtime.harness import until

NAMES = ("prime", "lite", "codemind")


async def agree(case: Case) -> Opinion:
    if "slow" in case.summary:
        await asyncio.sleep(0.2)
    if "gate" in case.summary:
        await until(Path(case.body).exists)
    if "never" in case.summary:
        await asyncio.Event().wait()
    return Opinion.yes("agreed")


class ThreadPort:
    """A council in process as one that threads call and that seals its answers: what Ray's port does."""

    def __init__(self, council: Council) -> None:
        self.council = council
        self.calls: list[int] = []
        self.fail: Callable[[int], Exception | None] = lambda call: None
        self.fail_after: Callable[[int], Exception | None] = lambda call: None

    def exchange_now(self, session: str, batch: Sequence[bytes], timeout_s: float) -> Reply:
        self.calls.append(len(batch))
        error = self.fail(len(self.calls))
        if error is not None:
            raise error
        port: Any = self.council._port
        more, items = self.council._background.wait(port.exchange(session, batch))
        own: Any = self.council._session
        sealed = [signing.seal_to(to_bytes(item), own._key, own.council_id, own.name) for item in items]
        error = self.fail_after(len(self.calls))
        if error is not None:
            raise error
        return more, sealed


@contextmanager
def council(**settings: Any) -> Iterator[tuple[Council, ThreadPort, list[str]]]:
    """A council, its port for threads, and the summaries that went the long way."""
    config = CouncilConfig(
        seats=tuple(SeatConfig(name=name, mind="tests.runtime.test_shortcut:agree") for name in NAMES),
        humans={},
        **settings,
    )
    with Council.inline(config) as made:
        port = ThreadPort(made)
        made._shortcut = Shortcut(port, made._session, lambda: made._background.wait(made._session.beside()))
        long_way: list[str] = []
        propose = made._session.propose

        async def noted(envelope: Any, *more: Any) -> Decision:
            long_way.append(envelope.content.summary)
            return await propose(envelope, *more)

        made._session.propose = noted  # type: ignore[method-assign]
        yield made, port, long_way


def by_hand(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the short way sees from here on, to be set."""
    now_s = [0.0]
    monkeypatch.setattr(blocking_session, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    return now_s


def proposed(made: Council) -> int:
    return sum(event.kind == "proposal" for event in made.events(follow=False))


def test_a_lone_caller_takes_the_short_way_and_gets_the_same_decision() -> None:
    with council() as (made, _, long_way):
        draft = made.draft("x")
        decision = made.propose(draft)
        assert decision
        assert long_way == []
        again = made.propose(draft)  # a retry; the third ballot may be in by now, too late to count
        assert (again.ballots, again.position) == (decision.ballots, decision.position)
        assert proposed(made) == 1
        assert made.status()["sessions"].count(made.sender) == 2


def test_callers_beside_it_take_the_long_way(tmp_path: Path) -> None:
    """Mutation: to wait for the short way's turn makes the second caller wait for the first one's decision."""
    with council() as (made, _, long_way):
        gate = tmp_path / "gate"
        first = threading.Thread(target=made.propose, args=("until the gate opens", str(gate)))
        first.start()
        while not made.status()["open"]:
            pass
        assert made.propose("quick")
        assert made.status()["open_count"] == 1
        gate.touch()
        first.join(HANG_S)
        assert not first.is_alive()
        assert long_way == ["quick"]


def test_a_short_way_that_fails_costs_nothing_but_time() -> None:
    """Mutation: to give the failure to the caller, or to draft it anew, loses the decision or makes two."""
    with council() as (made, port, long_way):
        port.fail = lambda call: Unreachable("not now", name="c", address=None)
        assert made.propose("not delivered")
        port.fail = lambda call: None
        port.fail_after = lambda call: Unreachable("the answer was lost", name="c", address=None)
        assert made.propose("answer lost")
        port.fail_after = lambda call: None
        assert made.propose("well again")
        assert long_way == ["not delivered", "answer lost"]
        assert proposed(made) == 3


def test_an_answer_to_an_interrupted_caller_is_not_taken_for_ones_own() -> None:
    with council() as (made, port, long_way):
        interrupted = made.draft("slow")

        def interrupt(call: int) -> Exception | None:
            raise KeyboardInterrupt

        made.propose("x")
        session: Any = made._shortcut
        port.fail_after = interrupt
        port.council._background.wait(
            made._port.exchange(session._token, [made._session.signed(interrupted)])
        )
        with pytest.raises(KeyboardInterrupt):
            made.propose("y")
        port.fail_after = lambda call: None
        decision = made.propose("mine")
        assert decision.summary == "mine"
        assert long_way == []


def test_a_refusal_is_told_as_what_it_is() -> None:
    with council() as (made, _, long_way):
        with pytest.raises(Refused) as caught:
            made.propose("x", supersedes="a" * 16)
        assert caught.value.code == "unknown_proposal"
        assert long_way == []


def test_a_session_that_the_council_has_forgotten_is_joined_again() -> None:
    with council() as (made, port, long_way):
        made.propose("x")
        port.council._background.wait(made._port.leave(made._session._beside))
        assert made.propose("y")
        assert long_way == ["y"]
        assert made.propose("z")
        assert long_way == ["y"]


def test_a_council_that_says_nothing_is_waited_for_so_long() -> None:
    """Mutation: without the limit of its own the short way asks for ever."""
    with council() as (made, port, _):
        made.propose("x")
        made._session._call_timeout_s = 0.3
        port.exchange_now = lambda session, batch, timeout_s: (True, [])  # type: ignore[method-assign]
        with pytest.raises(NoAnswer, match=r"within 0\.4 s"):
            made.propose("never", timeout_s=0.05)


def test_a_stalled_journal_is_told_within_the_time_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: the notice is passed over, and the caller hears after twice that time that nobody answered."""
    with council(call_timeout_s=30.0) as (made, port, long_way):
        made.propose("x")
        now_s = by_hand(monkeypatch)
        own: Any = made._session
        why = failure(b"", StoreFull("no room", where="s.db"))
        notice = signing.seal_to(to_bytes(Stalled(why)), own._key, own.council_id, own.name)
        limits = list[float]()

        def stalls(session: str, batch: Sequence[bytes], timeout_s: float) -> Reply:
            limits.append(timeout_s)
            if batch:
                return True, [notice]
            now_s[0] += timeout_s
            raise NoAnswer("given up", waited_s=timeout_s)

        port.exchange_now = stalls  # type: ignore[method-assign]
        with pytest.raises(
            StoreFull, match=r"no room; .* may still be decided: propose the same draft again"
        ):
            made.propose("never", timeout_s=0.2)
        assert len(limits) == 2
        assert limits[1] <= 0.2
        assert long_way == []


def test_whoever_waits_when_the_connection_is_closed_is_told_so() -> None:
    with council() as (made, _, _long):
        told: list[BaseException] = []

        def wait() -> None:
            try:
                made.propose("never", timeout_s=30.0)
            except BaseException as error:
                told.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        while not made.status()["open"]:
            pass
        made.close()
        waiting.join(HANG_S)
        assert [type(error) for error in told] == [CouncilDied]


def test_a_call_given_up_at_the_limit_is_no_reason_to_wait_as_long_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutation: the long way begins its whole limit anew, and the error names half of what was waited."""
    with council() as (made, port, long_way):
        made.propose("x")
        made._session._call_timeout_s = 0.3
        now_s = by_hand(monkeypatch)

        def hang(session: str, batch: Sequence[bytes], timeout_s: float) -> Reply:
            now_s[0] += timeout_s
            raise Unreachable("it did not answer", name="c", address=None)

        port.exchange_now = hang  # type: ignore[method-assign]
        with pytest.raises(NoAnswer, match=r"within 0\.4 s"):
            made.propose("y", timeout_s=0.05)
        assert now_s[0] == pytest.approx(0.4)
        assert long_way == []


def test_what_is_refused_in_a_stall_takes_no_session_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: each refused proposal joins once more, until no other client can join for minutes."""
    with council() as (made, _, _):
        assert made.propose("x")
        coordinator: Any = made._port
        before = len(coordinator._sessions)
        stalled = StoreLocked("held", where="x", timeout_s=1)
        with monkeypatch.context() as held:
            held.setattr(type(coordinator._journal), "trouble", stalled)
            for number in range(20):
                with pytest.raises(StoreLocked):
                    made.propose(f"p{number}")
        assert len(coordinator._sessions) == before
        assert made.propose("y")
