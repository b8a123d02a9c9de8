"""A mind's purse: what a model call may cost is reserved before it, and settled after it (rules 2.6).

The council grants a reservation or denies it, on the record, before the mind goes on; what nobody settles has
cost what was reserved. Knows nothing of models, prices or signatures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from council.protocol.errors import CallDenied

# The question, or its answer, may have been lost with a coordinator; asked again, it is the same question.
ASK_AGAIN_S = 5.0
# A council that has not answered for so long is gone, and its mind has better to do than to wait.
ANSWER_MAX_S = 120.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens, prompt and output together, and millionths of a dollar, rounded up."""

    tokens: int
    microusd: int = 0


class Purse(Protocol):
    """What a seat gives its mind to spend from. Both methods belong to the seat's event loop."""

    async def reserve(self, proposal_id: str, task: str, model: str, worst: Cost) -> str:
        """Asks for a call that costs ``worst`` at most; gives its id once it is granted.

        ``task`` is "ballot", "ruling" or another word for what the call is for. Raises CallDenied where the
        call does not fit what is left, or nobody waits for it any more.
        """

    def settle(self, call_id: str, used: Cost | None) -> None:
        """Says what the call has cost; None where nobody knows. Also after it failed or was given up.

        The first word counts. A call that its mind left open is settled, as unknown, with the mind's work.
        """


@runtime_checkable
class SpendingMind(Protocol):
    """A mind that calls models: it is handed its purse before its first case."""

    def take_purse(self, purse: Purse) -> None: ...


class SeatPurse:
    """The purse of a seat: its questions and settlements leave by ``say``, which gives each message's id.

    ``say`` takes the proposal, the message's kind and facts, and gives its id and what sends it, again and again.
    """

    def __init__(
        self, seat: str, say: Callable[[str, str, Mapping[str, Any]], tuple[str, Callable[[], None]]]
    ) -> None:
        self._seat = seat
        self._say = say
        self._asked: dict[str, asyncio.Future[str | None]] = {}
        self._open: dict[str, str] = {}

    @property
    def busy(self) -> bool:
        """Whether the council will hear more of it."""
        return bool(self._asked or self._open)

    async def reserve(self, proposal_id: str, task: str, model: str, worst: Cost) -> str:
        facts = {"task": task, "model": model, "tokens": worst.tokens, "microusd": worst.microusd}
        call_id, send = self._say(proposal_id, "reserve", facts)
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._asked[call_id] = answer
        self._open[call_id] = proposal_id  # from here on: it may be granted, whoever waits for that
        why: str | None = f"the council did not answer within {ANSWER_MAX_S:g} s"
        try:
            for _ in range(int(ANSWER_MAX_S / ASK_AGAIN_S)):
                send()
                if (await asyncio.wait([answer], timeout=ASK_AGAIN_S))[0]:
                    why = answer.result()
                    break
        except asyncio.CancelledError:
            self.settle(call_id, Cost(0))  # it was never made
            raise
        finally:
            del self._asked[call_id]
        if why is None:
            return call_id
        if answer.done():
            del self._open[call_id]
        else:
            self.settle(call_id, Cost(0))
        raise CallDenied(
            f"{self._seat} may not call {model} for {proposal_id}: {why}", seat=self._seat, model=model
        )

    def answered(self, proposal_id: str, call_id: object, why: str | None) -> None:
        """The council's answer: None grants, anything else says why not."""
        if not isinstance(call_id, str):
            return
        answer = self._asked.get(call_id)
        if answer is not None and not answer.done():
            answer.set_result(why)
        elif why is None and call_id not in self._open:  # nobody waits for it any more: it costs nothing
            self._open[call_id] = proposal_id
            self.settle(call_id, Cost(0))

    def settle(self, call_id: str, used: Cost | None) -> None:
        proposal_id = self._open.pop(call_id, None)
        if proposal_id is None:
            return
        cost = {"tokens": None} if used is None else {"tokens": used.tokens, "microusd": used.microusd}
        self._say(proposal_id, "settle", {"call": call_id, **cost})[1]()

    def close(self, proposal_id: str) -> None:
        """The work on a proposal is over: what its mind left open is settled as unknown."""
        for call_id in [each for each, what in self._open.items() if what == proposal_id]:
            self.settle(call_id, None)
