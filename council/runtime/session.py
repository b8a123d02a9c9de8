"""A client's connection to a council: sends signed envelopes and waits for the results.

If a call fails, the same bytes are sent again until the deadline. The council recognises an envelope by its id, so a
retry is never a second proposal (rules 1.12). A session belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar, cast

from council.agents.messaging.ids import new_id
from council.agents.messaging.mailbox import Courier, Reply
from council.core.state import Decision
from council.protocol import signing
from council.protocol.envelope import Envelope, Proposal, Role
from council.protocol.errors import (
    PASSING,
    CallerError,
    CouncilDied,
    CouncilError,
    EnvelopeError,
    NoAnswer,
    Refused,
    Unreachable,
)
from council.protocol.models import renamed
from council.runtime import messages
from council.runtime.messages import reference
from council.runtime.questions import Question, name_of

T = TypeVar("T")
# The pause in seconds after a failed call. A coordinator that restarts is back within seconds.
RETRY_S = 0.2
# Longer than any restart of a network or a machine. Without this limit a caller that waits for a human, maybe for a
# day, would wait for a council that is gone.
UNREACHABLE_MAX_S = 600.0
# How long a proposal waits for the line that says where it waits for a human.
SAY_S = 1.0


class Port(Protocol):
    """A coordinator, as its clients reach it; ``close`` ends it. ``runtime.questions`` has the questions.

    Methods raise only CouncilError: Unreachable if a retry may help; CouncilDied if not, unless it says
    ``reconnecting``.
    """

    async def join(self, name: str, role: str, key: bytes) -> dict[str, Any]: ...
    async def leave(self, session: str) -> None: ...
    async def exchange(self, session: str, batch: Sequence[bytes]) -> Reply: ...
    async def ask(self, question: Question[T]) -> T: ...
    async def close(self) -> None: ...


def _outcome() -> asyncio.Future[Any]:
    """The result of an envelope, for all callers that wait for it."""
    outcome = asyncio.get_running_loop().create_future()
    outcome.add_done_callback(asyncio.Future.exception)  # it is not lost if no caller waits any more
    return outcome


def _set(outcome: asyncio.Future[Any], found: Decision | Exception | None) -> None:
    """Sets a result or an error, unless there is one already."""
    if outcome.done():
        return
    if isinstance(found, Exception):
        outcome.set_exception(found)
    else:
        outcome.set_result(found)


@dataclass(slots=True)
class _Waiting:
    """An envelope without an answer: its bytes, to be sent again, and the outcome that callers wait for."""

    sealed: bytes
    identity: str = ""  # of a proposal, to compare another one with
    answer: asyncio.Future[Decision | None] = field(default_factory=_outcome)
    final: asyncio.Future[Decision] = field(default_factory=_outcome)
    unanswered: bool = False
    resent: bool = False
    ends_s: float = 0.0  # end of its time budget, by the loop's clock
    ending: asyncio.TimerHandle | None = None  # set while nothing can be kept


def _settle(waiting: _Waiting | None, found: Exception | None) -> None:
    """Ends the wait for an envelope with an error, or without a result."""
    if waiting is not None:
        _set(waiting.answer, found)
        _set(waiting.final, found)


class Session:
    """One sender's connection to a council. ``key`` signs; ``call_timeout_s`` limits the wait for an answer.

    A human's key is valid only for the council of ``council_id``. It is never sent: joining proves that the human
    holds it. So a false council learns nothing that it could sign with (rules 1.14).
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

        If it is another council than before, all waiting calls fail: the earlier one may have decided them (rules
        1.12).
        """
        human = self.role == "human"
        shown = signing.greeting(self._key, self.council_id, self.name) if human else self._key
        joined = await self.within(self._port.join(self.name, self.role, shown), "join")
        if not human and joined["council_id"] != self.council_id:
            self.council_id = joined["council_id"]
            self._fail_all(self._replaced(list(self._proposals)))
        self._session = joined["session"]
        self._stalled = None  # otherwise it is reported again

    async def close(self) -> None:
        """Leaves the council. Proposals stay open; callers that still wait here get an error."""
        if self._retrying is not None:
            self._retrying.cancel()
        self._courier.drop()
        why = "the connection was closed; what is open stays open"
        self._fail_all(CouncilDied(why, name=self.name, open_ids=list(self._proposals)))
        try:
            await self.within(self._port.leave(self._session), "leave")
        except CouncilError:
            return  # a council that is gone has removed us already

    def _replaced(self, open_ids: list[str]) -> CouncilDied:
        """The error for waiting callers if another council has replaced the one they asked."""
        name = self.council_id.rpartition(".")[0]
        return CouncilDied(
            f"another council runs under the name {name} by now, and does not know what the one before it had "
            "open: propose it again",
            name=name,
            open_ids=open_ids,
        )

    async def propose(
        self,
        envelope: Envelope,
        wait_for_human: bool = False,
        human_timeout_s: float | None = None,
        on_waiting: Callable[[Decision], None] | None = None,
    ) -> Decision:
        """The decision on a proposal, or its standing once it waits for a human, unless the call waits for that too.

        ``on_waiting`` is called on a thread with the standing once it waits for a human.

        Raises the council's refusal, and CouncilDied. Raises NoAnswer if there is no answer in twice the time budget:
        by then the council must have decided or asked a human (rules 1.8). Raises Unreachable once no call has
        succeeded for ``UNREACHABLE_MAX_S``. Raises CouncilDied if a lost council is not found again within the time
        of one call, or if another council has replaced it.
        """
        content = envelope.content
        if not isinstance(content, Proposal):
            raise CallerError(
                f"an envelope of type {envelope.type} was proposed, expected a PROPOSAL (see draft)"
            )
        waiting = self._proposals.get(envelope.msg_id)
        if waiting is None:
            waiting = self._send(envelope, self._proposals, envelope.msg_id)
            waiting.identity = signing.identity_of(envelope, waiting.sealed)
        elif signing.identity_of(envelope, self.signed(envelope)) != waiting.identity:
            raise Refused(  # rules 1.12: the council would refuse it too
                f"{envelope.msg_id} is under way with other content: give a revised proposal an id of its own",
                code="id_reused",
                proposal_id=envelope.msg_id,
            )
        elif waiting.unanswered:
            self._courier.send(waiting.sealed)
        waiting.unanswered = False
        waiting.ends_s = asyncio.get_running_loop().time() + content.time_budget_s
        self._end_if_stalled(waiting)
        # By then it is decided, or a human is asked.
        limit_s = 2 * content.time_budget_s + self._call_timeout_s
        try:
            standing = await self._answer(waiting.answer, limit_s, envelope.msg_id)
        except CouncilError:
            waiting.unanswered = not waiting.answer.done()  # so that proposing it again sends it again
            raise
        assert standing is not None
        if standing.final:
            return standing
        if on_waiting is not None:  # it may write to a terminal or a pipe that takes nothing
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.to_thread(on_waiting, standing), SAY_S)
        if not wait_for_human:
            return standing
        return await self._answer(waiting.final, human_timeout_s, envelope.msg_id)

    def signed(self, envelope: Envelope) -> bytes:
        return signing.sign(envelope, self._key, self.council_id)

    async def act(self, envelope: Envelope) -> None:
        """Sends an act (a cancellation, an answer), and returns once the council has accepted it.

        Raises the council's refusal, NoAnswer, CouncilDied.
        """
        sealed = self.signed(envelope)
        waiting = self._send(envelope, self._acts, reference(sealed))
        try:
            await self._answer(waiting.answer, self._call_timeout_s, envelope.msg_id)
        finally:
            self._pop_waiting(reference(sealed))

    async def inform(
        self,
        proposal_id: str | None,
        kind: str,
        text: str,
        data: Mapping[str, Any],
        msg_id: str | None = None,
    ) -> None:
        """``act`` with an INFO of that kind about a proposal, or about none."""
        try:
            envelope = Envelope.build(
                msg_id=msg_id or new_id(),
                parent_id=proposal_id,
                timestamp=datetime.now(UTC),
                sender=self.name,
                role=cast(Role, self.role),
                type="INFO",
                content={"kind": kind, "text": text, "data": dict(data)},
            )
        except EnvelopeError as error:
            raise renamed(error, {"parent_id": "proposal_id", "content.text": "reason"}) from None
        await self.act(envelope)

    # Sending

    def _send(self, envelope: Envelope, table: dict[str, _Waiting], key: str) -> _Waiting:
        sealed = self.signed(envelope)
        if not self._proposals and not self._acts:
            self._unreachable_s = None  # earlier failures were given up; the time counts from now
        waiting = table[key] = _Waiting(sealed)
        self._refs[reference(sealed)] = (table, key)
        self._courier.send(sealed)
        return waiting

    async def _answer(self, outcome: asyncio.Future[T], limit_s: float | None, msg_id: str) -> T:
        """The result of ``outcome``. Raises NoAnswer, or the reason why the council can't be reached."""
        done, _ = await asyncio.wait([outcome], timeout=limit_s)
        if done:
            return outcome.result()
        raise _no_answer(msg_id, limit_s) if self._away is None else _undecided(self._away, msg_id)

    async def _call(self, batch: list[bytes]) -> Reply:
        reply = await self._port.exchange(self._session, batch)
        self._unreachable_s = self._away = None
        if batch:
            self._stalled = None  # a stalled council would not have accepted it
        return reply

    def _receive(self, items: Sequence[bytes | messages.Message]) -> None:
        for item in items:
            try:
                message = self._opened(item) if isinstance(item, bytes) else item
            except CouncilError:
                continue  # its sender gets NoAnswer; the answers after it are read
            if isinstance(message, messages.Told):
                self._resolve(message.decision)
            elif isinstance(message, messages.Stalled):
                self._stalled = None if message.why is None else message.why.error()
                for waiting in list(self._proposals.values()):
                    self._end_if_stalled(waiting)
            elif isinstance(message, messages.Acknowledged):
                _settle(self._pop_waiting(message.ref), None)
            else:
                self._end_refused(message.ref, message.error())

    def _opened(self, sealed: bytes) -> messages.Message:
        """An answer of the council. Raises SignatureError; EnvelopeError if it is not an answer."""
        return messages.from_bytes(signing.open_to(sealed, self._key, self.council_id, self.name))

    def _pop_waiting(self, ref: str) -> _Waiting | None:
        table, key = self._refs.pop(ref, ({}, ""))
        return table.pop(key, None)

    def _resolve(self, decision: Decision) -> None:
        waiting = self._proposals.get(decision.proposal_id)
        if waiting is None:
            return
        _set(waiting.answer, decision)
        if decision.final:
            self._pop_waiting(reference(waiting.sealed))
            _set(waiting.final, decision)

    # When something fails

    def _end_if_stalled(self, waiting: _Waiting) -> None:
        """During a stall, a proposal waits no longer than its time budget. It is not lost."""
        if self._stalled is None or waiting.answer.done() or waiting.ending is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < waiting.ends_s:
            waiting.ending = loop.call_at(waiting.ends_s, self._budget_over, waiting)
        else:
            proposal_id = self._refs[reference(waiting.sealed)][1]
            _settle(self._pop_waiting(reference(waiting.sealed)), _undecided(self._stalled, proposal_id))

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
        elif batch and isinstance(error, PASSING):  # none of them was accepted; earlier ones keep waiting
            for ref in map(reference, batch):
                self._end_refused(ref, error)
            if self._refs:
                self._courier.expect()
        else:
            known = isinstance(error, CouncilError)
            self._fail_all(error if known else Unreachable(f"the council can't be reached: {error!r}"))

    def _end_refused(self, ref: str, error: Exception) -> None:
        """The council did not take this in. An earlier attempt may have been taken in: then it is sent again."""
        table, key = self._refs.get(ref, ({}, ""))
        waiting = table.get(key)
        if waiting is not None and waiting.resent and isinstance(error, PASSING):
            self._stalled = error
            self._end_if_stalled(waiting)
            self._retry(join=False)
            return
        _settle(self._pop_waiting(ref), error)

    def _out_of_reach_s(self) -> float:
        """Seconds since the last successful call, if calls fail."""
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
        self._proposals.clear()
        self._acts.clear()
        self._refs.clear()

    async def ask(self, question: Question[T], wait_s: float = 0.0) -> T:
        """The council's answer. ``wait_s`` is how many seconds the council may wait before it answers.

        Raises NoAnswer, or the council's refusal.
        """
        return await self.within(self._port.ask(question), name_of(question), wait_s)

    async def within(self, call: Awaitable[T], what: str, wait_s: float = 0.0) -> T:
        """The result of a call to the council, within the time limit of one call. Raises NoAnswer."""
        limit_s = wait_s + self._call_timeout_s
        try:
            return await asyncio.wait_for(asyncio.ensure_future(call), limit_s)
        except TimeoutError:
            raise NoAnswer(
                f"the council did not answer within {limit_s:g} s (call: {what})", waited_s=limit_s
            ) from None


def _passes(error: CouncilError) -> bool:
    """Whether a retry may help."""
    return isinstance(error, Unreachable) or "reconnecting" in error.facts


def _no_answer(msg_id: str, waited_s: float | None) -> NoAnswer:
    return NoAnswer(
        f"the council did not answer {msg_id} within {waited_s:g} s; it may still decide it: "
        "ask for the decision by this id",
        waited_s=waited_s,
        proposal_id=msg_id,
    )


def _undecided(why: CouncilError, proposal_id: str) -> CouncilError:
    """The error for the caller of an undecided proposal during a stall."""
    again = f"{proposal_id} may still be decided: propose the same draft again, or ask for the decision by this id"
    return type(why)(f"{why.message}; {again}", **{**why.facts, "proposal_id": proposal_id})
