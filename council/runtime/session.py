"""A client's side of a council: sends signed envelopes and waits for what becomes of them. Knows no Ray.

Whatever fails on the way is sent again, byte for byte, until its deadline: the council knows an envelope
by its id, so that a retry is never a second proposal (rules 1.12). Lives on one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar

from council.agents.messaging.ids import new_id
from council.agents.messaging.mailbox import Courier, Reply
from council.core.state import Decision
from council.journal.record import PASSING
from council.protocol import signing
from council.protocol.envelope import Envelope, Proposal
from council.protocol.errors import CallerError, CouncilDied, CouncilError, NoAnswer, Refused, Unreachable
from council.runtime import messages
from council.runtime.messages import reference
from council.runtime.questions import Question, name_of

T = TypeVar("T")
# After a call that failed, so long until the next: a coordinator that restarts is back within seconds.
RETRY_S = 0.2
# Longer than any restart of a network or a machine: who waits for a human's answer, for a day perhaps, would
# otherwise wait on for a council that is gone.
UNREACHABLE_MAX_S = 600.0


class Port(Protocol):
    """A coordinator, as its clients reach it; ``close`` ends it. What is asked is in ``runtime.questions``.

    Methods raise CouncilError alone: Unreachable where trying again may help, CouncilDied where not, unless it says
    ``reconnecting``.
    """

    async def join(self, name: str, role: str, key: bytes) -> dict[str, Any]: ...
    async def leave(self, session: str) -> None: ...
    async def exchange(self, session: str, batch: Sequence[bytes]) -> Reply: ...
    async def ask(self, question: Question[T]) -> T: ...
    async def close(self) -> None: ...


class _Outcome(Generic[T]):
    """What an envelope comes to, for all who wait for it: each has a limit of its own."""

    def __init__(self) -> None:
        self._come = asyncio.Event()
        self._found: T | Exception

    def done(self) -> bool:
        return self._come.is_set()

    def settle(self, found: T | Exception) -> None:
        """Ends the wait; what comes later changes nothing."""
        if not self.done():
            self._found = found
            self._come.set()

    async def wait(self, limit_s: float | None) -> T:
        """The result. Raises TimeoutError, and the error that it came to."""
        try:
            async with asyncio.timeout(limit_s):
                await self._come.wait()
        except TimeoutError:
            if not self.done():
                raise
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


@dataclass(slots=True)
class _Waiting:
    """One envelope on its way: its bytes, to be sent again, and who waits for what it came to."""

    sealed: bytes
    told: _Outcome[Decision | None] = field(default_factory=_Outcome)
    final: _Outcome[Decision] | None = None
    unanswered: bool = False
    resent: bool = False
    ends_s: float = 0.0  # of its time budget, by the loop's clock
    ending: asyncio.TimerHandle | None = None  # set while nothing can be kept


class Session:
    """One sender's connection to a council. ``key`` signs; ``call_timeout_s`` bounds the council's answers.

    A human's key is for the council of ``council_id`` alone, and is shown to hold, never sent: whatever
    answers there, and as whichever council, learns nothing that signs (rules 1.14).
    """

    def __init__(
        self, port: Port, name: str, role: str, key: bytes, call_timeout_s: float, council_id: str = ""
    ) -> None:
        self.name = name
        self.role = role
        self.council_id = council_id
        self._port = port
        self._key = key
        self._call_timeout_s = call_timeout_s
        self._session = ""
        self._courier = Courier(self._call, self._receive, self._failed)
        self._proposals: dict[str, _Waiting] = {}
        self._acts: dict[str, _Waiting] = {}
        self._refs: dict[str, tuple[dict[str, _Waiting], str]] = {}
        self._retrying: asyncio.Task[None] | None = None
        self._unreachable_s: float | None = None
        self._away: CouncilError | None = None
        self._stalled: CouncilError | None = None

    async def open(self) -> None:
        """Joins the council. Raises NameTaken, NotEnrolled, Unreachable, CouncilDied, NoAnswer.

        Where it is another council than before, what waits fails: the one before may have decided it (rules 1.12).
        """
        human = self.role == "human"
        shown = signing.greeting(self._key, self.council_id, self.name) if human else self._key
        joined = await self.within(self._port.join(self.name, self.role, shown), "join")
        if not human and joined["council_id"] != self.council_id:
            self.council_id = joined["council_id"]
            self._fail_all(self._replaced(list(self._proposals)))
        self._session = joined["session"]
        self._stalled = None  # or it is told again

    async def close(self) -> None:
        """Leaves. What was proposed stays open; whoever still waits here is told so."""
        if self._retrying is not None:
            self._retrying.cancel()
        self._courier.drop()
        why = "the connection was closed; what is open stays open"
        self._fail_all(CouncilDied(why, name=self.name, open_ids=list(self._proposals)))
        try:
            await self.within(self._port.leave(self._session), "leave")
        except CouncilError:
            return  # a council that is gone has forgotten us already

    def _replaced(self, open_ids: list[str]) -> CouncilDied:
        """What whoever still waits is told when another council has taken the place of the one that was asked."""
        name = self.council_id.rpartition(".")[0]
        return CouncilDied(
            f"another council runs under the name {name} by now, and knows nothing of what the one before it had "
            "open: propose it again",
            name=name,
            open_ids=open_ids,
        )

    async def propose(
        self, envelope: Envelope, wait_for_human: bool = False, human_timeout_s: float | None = None
    ) -> Decision:
        """The decision on a proposal, or how it stands once it waits for a human, unless that is waited for.

        Raises what the council refuses it with, CouncilDied, and NoAnswer when nothing was heard within
        the time in which the council must have decided or asked a human: twice the time budget (rules 1.8).
        Raises Unreachable once the council has been out of reach for ``UNREACHABLE_MAX_S`` in one go, and CouncilDied
        once one that went away has not been found again for as long as a call may take, or where another took its
        place.
        """
        content = envelope.content
        if not isinstance(content, Proposal):
            raise CallerError(
                f"an envelope of type {envelope.type} was proposed, expected a PROPOSAL (see draft)"
            )
        waiting = self._proposals.get(envelope.msg_id)
        if waiting is None:
            waiting = self._send(envelope, self._proposals, envelope.msg_id)
        elif self.signed(envelope) != waiting.sealed:
            raise Refused(  # rules 1.12, which the council would refuse it by
                f"{envelope.msg_id} is under way with other content: give a revised proposal an id of its own",
                code="id_reused",
                proposal_id=envelope.msg_id,
            )
        elif waiting.unanswered:
            self._courier.send(waiting.sealed)
        waiting.unanswered = False
        waiting.ends_s = asyncio.get_running_loop().time() + content.time_budget_s
        self._end_if_stalled(waiting)
        # It is decided by then, or a human is asked.
        limit_s = 2 * content.time_budget_s + self._call_timeout_s
        try:
            standing = await self._answer(waiting.told, limit_s, envelope.msg_id)
        except CouncilError:
            waiting.unanswered = not waiting.told.done()  # so that proposing it again sends it again
            raise
        assert standing is not None
        if standing.final or not wait_for_human:
            return standing
        if waiting.final is None:
            waiting.final = _Outcome()
        return await self._answer(waiting.final, human_timeout_s, envelope.msg_id)

    def signed(self, envelope: Envelope) -> bytes:
        return signing.sign(envelope, self._key, self.council_id)

    async def act(self, envelope: Envelope) -> None:
        """Sends an act (a cancellation, an answer); returns once the council has taken it.

        Raises what the council refuses it with, NoAnswer, CouncilDied.
        """
        sealed = self.signed(envelope)
        waiting = self._send(envelope, self._acts, reference(sealed))
        try:
            await self._answer(waiting.told, self._call_timeout_s, envelope.msg_id)
        finally:
            self._done(reference(sealed))

    async def inform(self, proposal_id: str, kind: str, text: str, data: Mapping[str, Any]) -> None:
        """``act`` with an INFO of that kind, on a proposal."""
        envelope = Envelope.build(
            msg_id=new_id(),
            parent_id=proposal_id,
            timestamp=datetime.now(UTC),
            sender=self.name,
            role="human" if self.role == "human" else "proposer",
            type="INFO",
            content={"kind": kind, "text": text, "data": dict(data)},
        )
        await self.act(envelope)

    # On its way

    def _send(self, envelope: Envelope, table: dict[str, _Waiting], key: str) -> _Waiting:
        sealed = self.signed(envelope)
        if not self._proposals and not self._acts:
            self._unreachable_s = None  # what failed before was given up; this begins anew
        waiting = table[key] = _Waiting(sealed)
        self._refs[reference(sealed)] = (table, key)
        self._courier.send(sealed)
        return waiting

    async def _answer(self, outcome: _Outcome[T], limit_s: float | None, msg_id: str) -> T:
        """What ``outcome`` comes to. Raises NoAnswer, or why the council is out of reach."""
        try:
            return await outcome.wait(limit_s)
        except TimeoutError:
            raise (
                _no_answer(msg_id, limit_s) if self._away is None else _undecided(self._away, msg_id)
            ) from None

    async def _call(self, batch: list[bytes]) -> Reply:
        reply = await self._port.exchange(self._session, batch)
        self._unreachable_s = self._away = None
        if batch:
            self._stalled = None  # or it would not have been taken in
        return reply

    def _receive(self, items: Sequence[bytes | messages.Message]) -> None:
        for item in items:
            try:
                message = self._opened(item) if isinstance(item, bytes) else item
            except CouncilError:
                continue  # its sender waits in vain, and hears so; what stands behind it is read
            if isinstance(message, messages.Told):
                self._told(message.decision)
            elif isinstance(message, messages.Stalled):
                self._stalled = None if message.why is None else message.why.error()
                for waiting in list(self._proposals.values()):
                    self._end_if_stalled(waiting)
            elif isinstance(message, messages.Acknowledged):
                _settle(self._done(message.ref), None)
            else:
                _settle(self._done(message.ref), message.error())

    def _opened(self, sealed: bytes) -> messages.Message:
        """An answer of the council's. Raises SignatureError, and EnvelopeError for what is none."""
        return messages.from_bytes(signing.open_to(sealed, self._key, self.council_id, self.name))

    def _done(self, ref: str) -> _Waiting | None:
        table, key = self._refs.pop(ref, ({}, ""))
        return table.pop(key, None)

    def _told(self, decision: Decision) -> None:
        waiting = self._proposals.get(decision.proposal_id)
        if waiting is None:
            return
        _settle(waiting, decision)
        if decision.final:
            self._done(reference(waiting.sealed))
            if waiting.final is not None:
                waiting.final.settle(decision)
        elif waiting.final is None:
            waiting.final = _Outcome()

    # When something fails

    def _end_if_stalled(self, waiting: _Waiting) -> None:
        """While nothing can be kept, a proposal in flight waits no longer than its time budget; it is not lost."""
        if self._stalled is None or waiting.told.done() or waiting.ending is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < waiting.ends_s:
            waiting.ending = loop.call_at(waiting.ends_s, self._budget_over, waiting)
        else:
            proposal_id = self._refs[reference(waiting.sealed)][1]
            _settle(self._done(reference(waiting.sealed)), _undecided(self._stalled, proposal_id))

    def _budget_over(self, waiting: _Waiting) -> None:
        waiting.ending = None
        self._end_if_stalled(waiting)

    def _failed(self, batch: list[bytes], error: Exception) -> None:
        if isinstance(error, Refused) and error.code == "no_session":
            self._retry(join=True)
        elif isinstance(error, CouncilError) and _passes(error):
            lost, out_s = "reconnecting" in error.facts, self._out_of_reach_s()
            if out_s < (self._call_timeout_s if lost else UNREACHABLE_MAX_S):
                self._away = error if lost else None
                self._retry(join=False)
                return
            self._unreachable_s = None
            what = "what is open may still be decided: propose the same draft again to ask"
            gone = f"the council has been out of reach for {out_s:.0f} s; {what} ({error.message})"
            self._fail_all(type(error)(gone, **error.facts))
        elif batch and isinstance(error, PASSING):  # none of them was taken in; what was before waits on
            for ref in map(reference, batch):
                table, key = self._refs.get(ref, ({}, ""))
                if key in table and table[key].resent:  # it may have been, before
                    self._stalled = error
                    self._end_if_stalled(table[key])
                    self._retry(join=False)
                else:
                    _settle(self._done(ref), error)
            if self._refs:
                self._courier.expect()
        else:
            known = isinstance(error, CouncilError)
            self._fail_all(error if known else Unreachable(f"the council can't be reached: {error!r}"))

    def _out_of_reach_s(self) -> float:
        """For how long no call has come through."""
        now_s = asyncio.get_running_loop().time()
        if self._unreachable_s is None:
            self._unreachable_s = now_s
        return now_s - self._unreachable_s

    def _retry(self, *, join: bool) -> None:
        if self._retrying is None or self._retrying.done():
            self._retrying = asyncio.get_running_loop().create_task(self._send_again(join=join))

    async def _send_again(self, *, join: bool) -> None:
        await asyncio.sleep(RETRY_S)
        try:
            if join:
                await self.open()
        except CouncilError as error:
            self._retrying = None
            self._failed([], error)
            return
        for waiting in [*self._proposals.values(), *self._acts.values()]:
            waiting.resent = True
            self._courier.send(waiting.sealed)

    def _fail_all(self, error: Exception) -> None:
        for waiting in [*self._proposals.values(), *self._acts.values()]:
            _settle(waiting, error)
            if waiting.final is not None:
                waiting.final.settle(error)
        self._proposals.clear()
        self._acts.clear()
        self._refs.clear()

    async def ask(self, question: Question[T], wait_s: float = 0.0) -> T:
        """The council's answer; ``wait_s`` is how long the council may wait before it answers.

        Raises NoAnswer, and what the council refuses the question with.
        """
        return await self.within(self._port.ask(question), name_of(question), wait_s)

    async def within(self, call: Awaitable[T], what: str, wait_s: float = 0.0) -> T:
        """What a call to the council came to, within the time that one may take. Raises NoAnswer."""
        limit_s = wait_s + self._call_timeout_s
        try:
            return await asyncio.wait_for(asyncio.ensure_future(call), limit_s)
        except TimeoutError:
            raise NoAnswer(
                f"the council did not answer within {limit_s:g} s (call: {what})", waited_s=limit_s
            ) from None


def _passes(error: CouncilError) -> bool:
    """Whether trying again may help."""
    return isinstance(error, Unreachable) or "reconnecting" in error.facts


def _no_answer(msg_id: str, waited_s: float | None) -> NoAnswer:
    return NoAnswer(
        f"the council did not answer {msg_id} within {waited_s:g} s; it may still decide it: "
        "ask for the decision by this id",
        waited_s=waited_s,
        proposal_id=msg_id,
    )


def _undecided(why: CouncilError, proposal_id: str) -> CouncilError:
    """What the caller of a proposal in flight hears while nothing can be kept."""
    again = f"{proposal_id} may still be decided: propose the same draft again, or ask for the decision by this id"
    return type(why)(f"{why.message}; {again}", **{**why.facts, "proposal_id": proposal_id})


def _settle(waiting: _Waiting | None, result: Decision | Exception | None) -> None:
    if waiting is not None:
        waiting.told.settle(result)
