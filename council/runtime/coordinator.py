"""The coordinator's shell: carries bytes between seats, clients, journal and driver, and keeps one timer.

It runs on one event loop, as a Ray actor or in process. Only the ``Transport`` to the seats differs. It has no rules:
the driver says what to do, and ``runtime.commit`` says when to write and to announce.
"""

from __future__ import annotations

import asyncio
import copy
import secrets
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from council.agents.messaging.ids import new_id
from council.agents.messaging.logs import get_logger
from council.agents.messaging.mailbox import Mailbox, Reply
from council.agents.messaging.timer import Timer
from council.core.state import Decision, Rules
from council.core.step import WALL_CHECK_S, next_deadline
from council.journal.entries import HistoryPage, Wanted
from council.journal.packet_keeper import is_packet
from council.journal.record import Journal
from council.protocol import signing
from council.protocol.errors import (
    CouncilClosed,
    CouncilError,
    EnvelopeError,
    EpochFenced,
    OperatorError,
    Refused,
    StoreError,
)
from council.runtime import messages
from council.runtime.archive import Away
from council.runtime.commit import TROUBLE_CHECK_S, Commit
from council.runtime.driver import Driver, Opened
from council.runtime.messages import Message, Stalled, failure
from council.runtime.open_escalations import Waiting, packed
from council.runtime.questions import (
    AskDecision,
    AskEscalations,
    AskEvents,
    AskHistory,
    AskPages,
    AskStatus,
    AskTokens,
    Question,
)
from council.runtime.read_back import ReadBack
from council.runtime.status import status
from council.runtime.supervision import Supervision, first_line
from council.runtime.surroundings import Clock, Transport
from council.runtime.token_standing import TokenStanding, standings

if TYPE_CHECKING:
    from council.runtime.proposal_size import ProposalSize

log = get_logger("council")
T = TypeVar("T")

# A client that has not called for this many seconds is gone. Its proposals stay open, and it may join again.
SESSION_IDLE_S = 600.0
# Each session may keep two calls waiting. With those who follow events, all fit the coordinator's calls on Ray.
SESSIONS_MAX = 1_500
WATCHERS_MAX = 1_000
EVENTS_MAX = 1_000
# Within a large batch, waiting deliveries are sent once there are this many: enough to fill a call to each seat.
FLUSH_AT = 300


class View(NamedTuple):
    """The data for watchers: ``now`` is in uptime and Unix seconds; records are kept up to ``kept_position``."""

    driver: Driver
    journal: Journal
    now: tuple[float, float]
    kept_position: int


@dataclass(slots=True)
class _Session:
    """One client's connection: its sender and key, and the messages that wait for it."""

    sender: str
    key: bytes
    mailbox: Mailbox
    seen_s: float
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Coordinator:
    """One running council. All methods but the constructor belong to one event loop.

    Methods that clients call take and return bytes or values, so that they work across processes. With
    ``in_process``, messages to clients are not sealed. ``humans`` are the keys of all who may answer (rules 1.14).
    The constructor reads the journal, which may take seconds: call it on a thread if others use the loop.
    """

    def __init__(
        self,
        rules: Rules,
        council_id: str,
        keys: Mapping[str, bytes],
        transport: Transport,
        journal: Journal,
        clock: Clock,
        *,
        humans: Mapping[str, bytes] = MappingProxyType({}),
        executors: Mapping[str, bytes] = MappingProxyType({}),
        events_kept: int = 20_000,
        decisions_kept: int = 10_000,
        in_process: bool = False,
        fitting: ProposalSize | None = None,
    ) -> None:
        self.council_id = council_id
        self._fitting = fitting
        self._in_process = in_process
        self._journal = journal
        self._rules = rules
        self._driver = Driver(
            rules,
            council_id,
            keys,
            clock.now(),
            new_id=new_id,
            humans=humans,
            executors=executors,
            events_kept=events_kept,
            decided=journal.decided if journal.durable else None,
            decisions_kept=max(decisions_kept, rules.open_max),
        )
        journal.recover(self._driver)
        self._clock = clock.going_on(self._driver.state.uptime_s)
        self._seats = Supervision(
            self._driver,
            transport,
            self._clock,
            receive=self._receive,
            settle=self._settle,
            kept=self._until_kept,
        )
        self._sessions: dict[str, _Session] = {}
        self._feed_waiters: set[asyncio.Future[None]] = set()
        self._commit = Commit(self._driver.position, journal.linger_s)
        self._appending: asyncio.Task[None] | None = None
        self._read_back = ReadBack(self._driver, self._receive_late)
        self._timer = Timer(self._wake)
        self._broken: CouncilError | None = None

    async def open(self) -> None:
        """Starts, or continues where an earlier coordinator ended, and supervises the seats, which must exist."""
        self._driver.begin(self._journal.epoch, self._rules, self._clock.now())
        self._seats.begin()
        self._settle()

    async def close(self, why: CouncilError | None = None) -> None:
        """Ends the council: its seats, timers and waiting calls. Open proposals remain in the journal.

        Later calls raise ``why``, by default CouncilClosed.
        """
        was = self._broken
        name = self.council_id.rpartition(".")[0]
        closed = f"council {name!r} was closed by the user who brought it up: bring it up again to go on"
        self._broken = was or why or CouncilClosed(closed, name=name, open_ids=[])
        self._timer.cancel()
        if self._appending is not None:  # before the first await, or it would announce and write again
            self._appending.cancel()
        self._seats.give_up()  # or a seat's message would begin another append
        await self._read_back.end()
        await self._seats.end()
        if self._appending is not None:
            await asyncio.wait([self._appending])
        for session in self._sessions.values():
            session.mailbox.release()
        self._wake_feed()
        # Not announced, but saved, so that a restart need not repeat these decisions.
        last = self._driver.drain()
        await self._journal.close(*((last, self._driver.snapshot) if was is None else ()))

    # Calls by clients and seats

    async def join(self, name: str, role: str, key: bytes) -> dict[str, Any]:
        """Admits a client with its key, or an enrolled human, whose ``key`` is a greeting (``Senders.join``).

        Returns the session to call ``exchange`` with, and the council's id.
        """
        self._refuse_if_broken()
        self._drop_idle_sessions()
        self._driver.join(name, role, key)
        session = secrets.token_hex(16)
        own = self._driver.senders.keyring.key(name)
        self._sessions[session] = _Session(name, own, Mailbox(), self._clock.uptime())
        return {"council_id": self.council_id, "session": session}

    async def leave(self, session: str) -> None:
        """Ends a client's session. Its proposals stay open."""
        if (gone := self._sessions.pop(session, None)) is not None:
            self._forget(session, gone)

    async def exchange(self, session: str, batch: Sequence[bytes]) -> Reply:
        """Accepts a client's sealed envelopes; returns answers as they come, and whether more will come."""
        self._refuse_if_broken()
        if (known := self._sessions.get(session)) is None:
            why = "this session is not known, or was idle for too long: join again"
            raise Refused(why, code="no_session")
        # All are checked before the first is received: what was received must be kept.
        for wrong in (each for each in batch if not isinstance(each, bytes)):
            raise EnvelopeError(f"envelope: expected bytes, found {type(wrong).__name__}", field="envelope")
        async with known.turn:  # a cancellation does not overtake the proposal that is still measured
            if batch:
                self._refuse_if_troubled()
            known.seen_s = self._clock.uptime()
            await self._accept(batch, session)
            self._settle()
        reply = await known.mailbox.collect(
            lambda: self._broken is None and self._driver.announcements.owes(session)
        )
        known.seen_s = self._clock.uptime()
        self._refuse_if_broken()
        return reply

    async def _accept(self, batch: Sequence[bytes], session: str) -> None:
        """Has the driver receive these; answers those that can't be kept with the store's error."""
        now = self._clock.now()
        for opened in map(self._driver.open, batch):  # one at a time, because many may be large
            if (
                self._fitting is not None
                and opened.envelope is not None
                and len(opened.sealed) > self._fitting.free_bytes
            ):
                self._settle()  # for those before it: measuring takes a while, and may be cancelled
                opened = opened._replace(unfit=await self._fitting.problem(opened.envelope))
                self._refuse_if_broken()
                now = self._clock.now()
            trouble = self._journal.trouble
            while trouble is None and (away := self._driver.receive(opened, now, session)):
                self._settle()  # for the messages before it: the read takes a while, and may be cancelled
                try:
                    await self._take_back(away)
                    trouble = self._journal.trouble  # it may have begun meanwhile
                except StoreError as error:
                    trouble = error
                now = self._clock.now()
            if trouble is not None:
                self._notify_sessions((session,), failure(opened.sealed, trouble))
            if len(self._driver.outbox.to_seats) >= FLUSH_AT:
                self._settle()  # the seats begin while the rest is read

    async def _take_back(self, away: Away) -> None:
        """Reads a decided proposal back into memory. Raises StoreError, and the reason why the council ended."""
        try:
            await self._read_back.take_back(away)
        except CouncilError:
            self._refuse_if_broken()  # the store is closed then
            raise
        self._refuse_if_broken()

    def _receive(self, items: Sequence[bytes]) -> None:
        """Accepts the messages of a seat."""
        now = self._clock.now()
        for opened in map(self._driver.open, items):
            if opened.envelope is not None and is_packet(opened.envelope):
                if self._driver.knows(opened.envelope.parent_id or ""):
                    self._journal.keep_packet(opened.envelope)
            elif self._driver.receive(opened, now) is not None:
                self._read_back.receive_later(opened.sealed)
        self._settle()

    def _receive_late(self, opened: Opened) -> Away | None:
        if self._broken is not None:
            return None
        away = self._driver.receive(opened, self._clock.now())
        self._settle()
        return away

    async def hear(self, sealed: bytes) -> None:
        """Accepts one sealed envelope that a seat sends by itself: a heartbeat."""
        self._refuse_if_broken()
        self._receive((sealed,))
        self._journal.tend()  # also where nothing else happens

    async def ask(self, question: Question[T]) -> T:
        """The answer to a question (``runtime.questions``)."""
        asked: Any = question
        answer: Any
        match asked:
            case AskStatus():
                answer = await self.status()
            case AskDecision():
                answer = await self.decision(asked.proposal_id)
            case AskEscalations():
                answer = await self.escalations()
            case AskHistory():
                answer = await self.history(asked.wanted)
            case AskEvents():
                answer = await self.events(asked.after, asked.limit, asked.wait_s)
            case AskTokens():
                answer = await self.tokens(asked.proposal_id)
            case AskPages():  # it serves none itself
                answer = {"panel": None, "dashboard": None, "grafana": None, "installed": None}
            case _:
                raise OperatorError(f"{type(asked).__name__} is not a question that a council answers")
        return cast(T, answer)

    async def status(self) -> dict[str, Any]:
        """The council's status as plain data (``runtime.status``), also while nothing can be kept."""
        self._refuse_if_broken()
        found, lag = status(self._driver, self._clock.now()), self._lag()
        trouble = await self._until_durable()
        if trouble is not None:
            found, lag = status(self._driver, self._clock.now(), stalled=True), self._lag()
        return found | {
            "durable": self._journal.durable,
            "journal_lag": lag,
            "journal_trouble": None if trouble is None else trouble.message,
            "journal_unsigned": self._journal.unsigned,
            "journal_write_s": self._commit.write_s,
            "sessions": [session.sender for session in self._sessions.values()],
        }

    async def decision(self, proposal_id: str) -> Decision | None:
        """The decision on a proposal, or its standing; None while it is deliberated.

        While nothing can be kept, this is the kept one. If it has changed since, the store's error is raised.
        """
        self._refuse_if_broken()
        decision = await self._decision(proposal_id)
        if (trouble := await self._until_durable()) is not None:
            decision = self._driver.kept.decision(proposal_id, await self._decision(proposal_id), trouble)
        return decision

    async def _decision(self, proposal_id: str) -> Decision | None:
        while away := self._driver.away(proposal_id):
            await self._take_back(away)
        return self._driver.decision(proposal_id)

    async def escalations(self) -> list[Waiting]:
        """The escalations that wait for a human; while nothing can be kept, those that are kept."""
        waiting = self._driver.escalations()
        if await self._until_durable() is not None:
            waiting = self._driver.kept.escalations()
        return packed(waiting, self._driver.outbox.payloads)

    async def tokens(self, proposal_id: str | None) -> list[TokenStanding]:
        """The tokens that are kept, or the one of a proposal. Raises the store's error while nothing can be kept."""
        self._refuse_if_broken()
        found = standings(self._driver.state, self._clock.now(), proposal_id)
        if (trouble := await self._until_durable()) is not None:
            raise trouble
        return found

    async def history(self, wanted: Wanted) -> HistoryPage:
        """A page of the journal's records. It waits until they hold what happened so far, if they can be written."""
        await self._until_durable()
        return await self._journal.history(wanted)

    async def events(self, after: int, limit: int = EVENTS_MAX, wait_s: float = 0.0) -> list[dict[str, Any]]:
        """Up to ``limit`` events after a cursor; waits up to ``wait_s`` for the first. Raises PositionLost."""
        limit = max(1, min(limit, EVENTS_MAX))
        found = self._driver.announcements.feed.after(after, limit)
        if not found and wait_s > 0:
            self._refuse_if_broken()
            if len(self._feed_waiters) >= WATCHERS_MAX:
                raise OperatorError(f"{WATCHERS_MAX} calls wait for events, the most a council keeps waiting")
            await self._something_told(min(wait_s, WALL_CHECK_S))
            self._refuse_if_broken()
            found = self._driver.announcements.feed.after(after, limit)
        return found

    def view(self) -> View:
        """The coordinator as its watchers read it (``telemetry.watcher``)."""
        return View(self._driver, self._journal, self._clock.now(), self._commit.kept_position)

    def _lag(self) -> int:
        return self._driver.position - self._commit.kept_position

    async def _until_durable(self) -> StoreError | None:
        """Returns once all that happened so far is kept, so that it may be announced (rules 4.7).

        While that is not possible, returns the store's error instead.
        """
        self._refuse_if_broken()
        position = self._driver.position
        self._hurry(position)
        while self._commit.kept_position < position:
            self._refuse_if_broken()
            if self._journal.trouble is not None:
                return copy.copy(self._journal.trouble)
            await self._something_told(TROUBLE_CHECK_S)
            self._refuse_if_broken()
        return None

    async def _until_kept(self, position: int) -> None:
        """Returns once the record at ``position`` is kept, however long that takes."""
        self._hurry(position)
        while self._commit.kept_position < position:
            await self._something_told()

    def _hurry(self, position: int) -> None:
        """Writes the records up to ``position`` soon, because a caller waits for them."""
        self._commit.hurry(position)
        self._settle()

    async def _something_told(self, within_s: float | None = None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._feed_waiters.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=within_s)
        finally:
            self._feed_waiters.discard(waiter)

    # Writing and announcing

    def _settle(self) -> None:
        """Sends what may be sent, writes what must be kept, and sets the timer; after every turn of the driver."""
        self._seats.send()
        self._write()
        self._arm()

    def _write(self) -> None:
        """Writes the driver's records and then announces them; at once if the journal needs no time."""
        driver, commit, now = self._driver, self._commit, asyncio.get_running_loop().time()
        while commit.writes(driver, now):
            position, records = driver.position, driver.drain()
            try:
                keeping = self._journal.append(records) if records else None
                if records and self._journal.snapshot_due(position):
                    self._journal.keep(driver.snapshot())
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing more may be told
                self._break(error)
                return
            if keeping is not None:
                commit.began(position, now)
                self._appending = asyncio.get_running_loop().create_task(self._finish(keeping, position))
                return
            self._publish_durable(position, now)

    async def _finish(self, keeping: Awaitable[None], position: int) -> None:
        try:
            await keeping
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing more may be told
            self._break(error)
            return
        self._publish_durable(position, asyncio.get_running_loop().time())
        self._journal.tend()
        self._settle()

    def _publish_durable(self, position: int, now: float) -> None:
        self._commit.written(position, now)
        self._driver.saved(position)
        self._driver.let_go(self._journal.snapshot_kept)
        self._deliver()

    def _check_stall(self) -> None:
        """Tells waiting sessions why nothing can be kept, and later that it can be again."""
        trouble, now = self._journal.trouble, asyncio.get_running_loop().time()
        owed = {name for name in self._sessions if self._driver.announcements.owes(name)}
        names = self._commit.looked(now, owed, stalls=trouble is not None)
        self._notify_sessions(names, Stalled(None if trouble is None else failure(b"", trouble)))

    def _break(self, error: Exception) -> None:
        """Ends the council after the journal failed for good: waiting calls get the error, and nothing else."""
        log.error("journal failed", why=first_line(error))
        self._commit.fail()
        self._broken = OperatorError(f"the journal failed, so nothing more is decided: {error}")
        if isinstance(error, CouncilError):
            self._broken = error
        if isinstance(error, EpochFenced):  # another coordinator has its seats now
            self._seats.give_up()
        for session in self._sessions.values():
            session.mailbox.release()
        self._wake_feed()

    def _deliver(self) -> None:
        while self._driver.announcements.to_sessions:
            name, message = self._driver.announcements.to_sessions.popleft()
            self._notify_sessions((name,), message)
        self._seats.send()
        self._wake_feed()

    def _notify_sessions(self, names: Iterable[str], message: Message) -> None:
        for name in names:
            if (session := self._sessions.get(name)) is not None:
                session.mailbox.put(message if self._in_process else self._sealed(session, message))

    def _sealed(self, session: _Session, message: Message) -> bytes:
        packed = messages.to_bytes(message)
        return signing.seal_to(packed, session.key, self.council_id, session.sender)

    def _wake_feed(self) -> None:
        for waiter in self._feed_waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _arm(self) -> None:
        """Sets the timer for the first deadline, of the driver or of a write."""
        if self._broken is not None:
            return
        uptime_s, wall_s = self._clock.now()
        wake_s = next_deadline(self._driver.state).wake_at(uptime_s, wall_s) - uptime_s
        self._timer.set(min(asyncio.get_running_loop().time() + max(wake_s, 0.0), self._commit.next_due))

    def _wake(self) -> None:
        self._driver.wake(self._clock.now())
        if self._commit.stall_due(asyncio.get_running_loop().time()):
            self._check_stall()
        self._settle()

    # Sessions and timers

    def _refuse_if_broken(self) -> None:
        if self._broken is not None:
            raise copy.copy(self._broken)  # a copy, because a traceback grows each time an error is raised

    def _refuse_if_troubled(self) -> None:
        """Raises the store's error: what can't be kept is not accepted, so nothing is lost (rules 4.7)."""
        if self._journal.trouble is not None:
            raise copy.copy(self._journal.trouble)

    def _forget(self, name: str, session: _Session) -> None:
        self._driver.announcements.forget(name)
        session.mailbox.release()
        if all(other.sender != session.sender for other in self._sessions.values()):
            self._driver.retire(session.sender)

    def _drop_idle_sessions(self) -> None:
        oldest_s = self._clock.uptime() - SESSION_IDLE_S
        for name, session in list(self._sessions.items()):
            if session.seen_s < oldest_s:
                del self._sessions[name]
                self._forget(name, session)
        if len(self._sessions) >= SESSIONS_MAX:
            raise OperatorError(f"{SESSIONS_MAX} clients are connected, the most a council admits")
