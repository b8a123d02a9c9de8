"""The short way of a thread that proposes and waits: its own session, and no event loop in between.

Between a thread and its client's loop, and between Ray's threads and that loop, lie three hand-overs that cost a
lone decision a tenth of its time. Whatever is out of the ordinary is left to ``Session``, which sends the same
bytes again: to the council that is a retry (rules 1.12). Knows nothing of how a call is made.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from council.agents.messaging.mailbox import PARK_S, Reply
from council.core.state import Decision
from council.journal.record import PASSING
from council.protocol.envelope import Envelope, Proposal
from council.protocol.errors import CouncilError
from council.runtime import messages
from council.runtime.messages import reference
from council.runtime.session import Session, no_answer, undecided


@runtime_checkable
class BlockingPort(Protocol):
    """A coordinator that a thread can call without an event loop. Raises CouncilError alone."""

    def exchange_now(self, session: str, batch: Sequence[bytes], timeout_s: float) -> Reply: ...


def shortcut_of(port: object, session: Session, join: Callable[[], str]) -> Shortcut | None:
    """The short way to a council, where its port has one: in process the council's loop is the only way."""
    return Shortcut(port, session, join) if isinstance(port, BlockingPort) else None


class Shortcut:
    """One proposal at a time, on the caller's own thread; ``join`` gives a session of the same sender."""

    def __init__(self, port: BlockingPort, session: Session, join: Callable[[], str]) -> None:
        self._port = port
        self._session = session
        self._join = join
        self._busy = threading.Lock()
        self._token = ""

    def propose(self, envelope: Envelope) -> Decision | None:
        """The decision, or how it stands with a human; None where ``Session.propose`` must be asked.

        Raises what the council refuses the proposal with, and NoAnswer.
        """
        content = envelope.content
        if not isinstance(content, Proposal) or self._session.is_waiting(envelope.msg_id):
            return None
        if not self._busy.acquire(blocking=False):  # calls of many threads share one, on the client's loop
            return None
        try:
            limit_s, budget_s = self._session.limit_s(content), content.time_budget_s
            return self._ask(self._session.signed(envelope), envelope.msg_id, limit_s, budget_s)
        finally:
            self._busy.release()

    def _ask(self, sealed: bytes, proposal_id: str, limit_s: float, budget_s: float) -> Decision | None:
        began_s = time.monotonic()
        ends_s = began_s + limit_s
        batch = [sealed]
        stalled: CouncilError | None = None
        while (left_s := ends_s - time.monotonic()) > 0:
            if stalled is not None:
                left_s = began_s + budget_s - time.monotonic()
                if left_s <= 0:
                    raise undecided(stalled, proposal_id)
            try:
                self._token = self._token or self._join()
                more, items = self._port.exchange_now(self._token, batch, min(left_s, 2 * PARK_S))
                answers = [self._session.opened(item) for item in items]
            except PASSING:  # it was not taken in, and what else there is of this session stays
                raise
            except CouncilError:
                self._token = ""
                if stalled is not None and time.monotonic() >= began_s + budget_s:
                    raise undecided(stalled, proposal_id) from None
                if time.monotonic() < ends_s:
                    return None
                break  # a call that was given up at the limit is no reason to wait for as long again
            for answer in answers:  # there may be one to an earlier proposal, whose caller was interrupted
                if isinstance(answer, messages.Told) and answer.decision.proposal_id == proposal_id:
                    return answer.decision
                if isinstance(answer, messages.Stalled):
                    stalled = None if answer.why is None else answer.why.error()
                if isinstance(answer, messages.Failed) and answer.ref == reference(sealed):
                    raise answer.error()
            if not more:
                return None
            batch = []
        raise no_answer(proposal_id, limit_s)
