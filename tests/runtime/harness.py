"""A driver in hand: time and ids by hand, real envelopes with real signatures, saving when the test says so."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from council import Council
from council import Decision as Decided
from council.agents.messaging import seat_messages
from council.agents.messaging.mailbox import Courier, Reply
from council.agents.messaging.seat_messages import Letter
from council.agents.seat.host import SeatHost
from council.agents.seat.remote import RemoteSeat, courier_to
from council.api.client import handle_of
from council.api.inline import InlineTransport
from council.core.state import Decision, Rules
from council.protocol import codec, signing
from council.protocol.envelope import Envelope
from council.runtime.driver import Driver
from council.runtime.messages import Acknowledged, Failed, Message, Told
from tests import patience
from tests.core.invariants import check
from tests.patience import HANG_S, VirtualLoop

T = TypeVar("T")
COUNCIL_ID = "test.0123456789abcdef"
WALL_0 = 1_700_000_000.0
THREE = ("prime", "lite", "codemind")
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def run(coroutine: Coroutine[Any, Any, T], *, in_virtual_time: bool = False) -> T:
    """The coroutine's result on a loop of its own; hanging is a failure, not a wait.

    ``in_virtual_time`` the loop's timers pass at once, one after another: for what uses no thread.

    What the loop reports by itself (an error of a task that nobody awaited) is dropped: formatting it, from
    the garbage collector, in the middle of pytest's own formatting, trips Python 3.11.
    """

    async def bounded() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        return await asyncio.wait_for(coroutine, HANG_S)

    with asyncio.Runner(loop_factory=VirtualLoop if in_virtual_time else None) as runner:
        return runner.run(bounded())


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A decorator: the test is a coroutine, which ``run`` runs."""

    @functools.wraps(test)
    def ran(*arguments: Any, **given: Any) -> None:
        run(test(*arguments, **given))

    return ran


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """As ``in_loop``, in virtual time."""

    @functools.wraps(test)
    def ran(*arguments: Any, **given: Any) -> None:
        run(test(*arguments, **given), in_virtual_time=True)

    return ran


async def until(condition: Any) -> None:
    """Lets the loop turn until ``condition()`` is true."""
    deadline = asyncio.get_running_loop().time() + HANG_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "what was waited for did not come"
        await asyncio.sleep(0.002)


def overdue(council: Council, propose: Callable[[], Decided]) -> Decided:
    """What ``propose`` gives on a council in process. The time is over once each ballot is cast or lost."""
    handle = handle_of(council)
    coordinator: Any = handle.port
    with ThreadPoolExecutor(1) as pool:
        deciding = pool.submit(propose)

        def all_done() -> bool:
            state = coordinator._driver.state
            return any(len(each.done()) == len(state.seats) for each in list(state.open.values()))

        patience.until(lambda: deciding.done() or all_done())
        clock = coordinator._clock
        coordinator._clock = replace(clock, uptime=lambda: clock.uptime() + 2 * HANG_S)
        handle.background._loop.call_soon_threadsafe(coordinator._wake)
        return deciding.result(HANG_S)


def key_of(name: str) -> bytes:
    return name.encode().ljust(32, b"\0")[:32]


def greeting(name: str, key: bytes | None = None, council_id: str = COUNCIL_ID) -> bytes:
    return signing.greeting(key or key_of(name), council_id, name)


def none_decided(part: int) -> bytes:
    """The parts of a store whose snapshots nobody keeps."""
    raise AssertionError(f"part {part} was asked for, and no snapshot was kept")


class CalledTransport(InlineTransport):
    """Seats that are called as those elsewhere are: letters are sealed, and each call may fail or take its time."""

    def __init__(self, hosts: dict[str, SeatHost]) -> None:
        super().__init__(hosts)
        self.seats = {name: RemoteSeat(host, key_of(name), COUNCIL_ID) for name, host in hosts.items()}

    def link(  # type: ignore[override]  # another way, for the same seats
        self, seat: str, heard: Callable[[Sequence[bytes]], None], lost: Callable[[Exception], None]
    ) -> Courier:
        return courier_to(
            seat, key_of(seat), COUNCIL_ID, lambda batch: self.exchange(seat, batch), heard, lost
        )

    async def exchange(self, seat: str, batch: list[bytes]) -> Reply:
        return await self.seats[seat].exchange(batch)


class Hand:
    """A driver, its seats' and clients' pens, and its journal. ``client`` has joined, ``ada`` may answer."""

    def __init__(
        self,
        seats: Iterable[str] = THREE,
        *,
        events_kept: int = 20_000,
        decided: Callable[[int], bytes] | None = none_decided,
        decisions_kept: int | None = None,
        **rules: Any,
    ) -> None:
        rules.setdefault("prime", "prime")
        rules.setdefault("lost_at_once", True)
        rules.setdefault("asks_outcome", True)
        rules.setdefault("keeps_escalation", True)
        self.t = 0.0
        self.wall = WALL_0
        self.ids = itertools.count(1)
        self.rules = Rules(seats=tuple(seats), **rules)
        keys = {name: key_of(name) for name in self.rules.seats}
        self.driver = Driver(
            self.rules,
            COUNCIL_ID,
            keys,
            self.now,
            new_id=self.new_id,
            humans={"ada": key_of("ada")},
            events_kept=events_kept,
            decided=decided,
            decisions_kept=decisions_kept,
        )
        self.driver.join("client", "proposer", key_of("client"))
        self.records: list[Any] = []

    @property
    def now(self) -> tuple[float, float]:
        return self.t, self.wall

    def new_id(self) -> str:
        return f"{next(self.ids):016x}"

    def wait(self, seconds: float) -> None:
        self.t += seconds
        self.wall += seconds
        self.driver.wake(self.now)

    # Pens

    def envelope(self, sender: str, type: str, content: dict[str, Any], **fields: Any) -> Envelope:
        parts = {"voter": "voter", "human": "human"}
        part = parts.get(self.driver.senders.roles.get(sender, ""), "proposer")
        fields.setdefault("role", "proposer" if type == "PROPOSAL" and part == "voter" else part)
        fields.setdefault("msg_id", self.new_id())
        return Envelope.build(timestamp=WHEN, sender=sender, type=type, content=content, **fields)

    def sealed(self, envelope: Envelope, key: bytes | None = None, council_id: str = COUNCIL_ID) -> bytes:
        return signing.sign(envelope, key or key_of(envelope.sender), council_id)

    def vote(self, seat: str, proposal_id: str, vote: str = "yes", **fields: Any) -> bytes:
        content = {"proposal_id": proposal_id, "vote": vote, "reason": f"{seat} says {vote}"}
        content |= fields.pop("content", {})
        return self.sealed(self.envelope(seat, "VOTE", content, parent_id=proposal_id, **fields))

    def info(self, sender: str, proposal_id: str | None, kind: str, text: str = "", **data: Any) -> bytes:
        content = {"kind": kind, "text": text, "data": data}
        return self.sealed(self.envelope(sender, "INFO", content, parent_id=proposal_id))

    def ruling(self, proposal_id: str, word: str, seat: str = "prime", confidence: float = 0.9) -> bytes:
        data = {"proposal_id": proposal_id, "ruling": word}
        content = {"kind": "ruling", "text": f"{seat} rules {word}", "data": data}
        return self.sealed(self.envelope(seat, "INFO", content, parent_id=proposal_id, confidence=confidence))

    def unreadable_vote(self, seat: str, proposal_id: str, vote: str = "maybe") -> bytes:
        """An authentic VOTE whose content is not one: its bytes are altered before they are signed."""
        good = codec.encode(
            self.envelope(
                seat,
                "VOTE",
                {"proposal_id": proposal_id, "vote": "abstain", "reason": "x"},
                parent_id=proposal_id,
            )
        )
        assert good.count(b"\xa7abstain") == 1
        bad = good.replace(b"\xa7abstain", bytes([0xA0 + len(vote)]) + vote.encode())
        return signing.seal(bad, sender_key=key_of(seat), council_id=COUNCIL_ID)

    # Doing

    def receive(self, sealed: bytes, session: str | None = None, *, save: bool = True) -> None:
        self.driver.receive(self.driver.open(sealed), self.now, session)
        if save:
            self.save()

    def save(self) -> None:
        records = self.driver.drain()
        self.records += records
        self.driver.saved(self.driver.position)
        check(self.driver.state)

    def propose(
        self, session: str | None = "s1", *, sender: str = "client", save: bool = True, **content: Any
    ) -> str:
        fields = {name: content.pop(name) for name in ("risk_level", "confidence") if name in content}
        what = {"summary": "do it", **content}
        envelope = self.envelope(sender, "PROPOSAL", what, **fields)
        self.receive(self.sealed(envelope), session, save=save)
        return envelope.msg_id

    # Seeing

    def told(self, session: str = "s1") -> list[Message]:
        """What the session was told since the last look; other sessions' messages stay."""
        mine = [message for name, message in self.driver.announcements.to_sessions if name == session]
        rest = [(name, message) for name, message in self.driver.announcements.to_sessions if name != session]
        self.driver.announcements.to_sessions.clear()
        self.driver.announcements.to_sessions.extend(rest)
        return mine

    def decision(self, session: str = "s1") -> Decision:
        (message,) = self.told(session)
        assert isinstance(message, Told), message
        return message.decision

    def failed(self, session: str = "s1") -> Failed:
        (message,) = self.told(session)
        assert isinstance(message, Failed), message
        return message

    def acknowledged(self, session: str = "s1") -> None:
        (message,) = self.told(session)
        assert isinstance(message, Acknowledged), message

    def letters(self) -> list[tuple[str, Letter]]:
        """What went to seats since the last look."""
        found = []
        while self.driver.outbox.to_seats:
            seat, item = self.driver.outbox.to_seats.popleft()
            found.append((seat, seat_messages.read(item)))
        return found

    def to_seats(self) -> list[tuple[str, Envelope]]:
        """The envelopes of these letters."""
        return [(seat, letter.envelope) for seat, letter in self.letters()]

    def kinds_to(self, seat: str) -> list[str]:
        return [
            envelope.content.kind if envelope.type == "INFO" else envelope.type  # type: ignore[union-attr]
            for name, envelope in self.to_seats()
            if name == seat
        ]

    def kinds(self, after: int = 0) -> list[str]:
        return [event["kind"] for event in self.driver.announcements.feed.after(after, 1_000)]

    def last(self, kind: str) -> dict[str, Any]:
        events = self.driver.announcements.feed.after(0, 1_000)
        return [event for event in events if event["kind"] == kind][-1]["data"]
