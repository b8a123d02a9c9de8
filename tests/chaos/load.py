"""Clients and a human who use a council as hard as they can, whatever happens to it. Knows only its port."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from council.config.human_keys import answering_key
from council.config.settings import CouncilConfig, SeatConfig
from council.core.state import Decision
from council.protocol.errors import CouncilError, Refused
from council.runtime.questions import AskDecision, AskEscalations
from council.runtime.session import Port, Session
from tests.chaos.ledger import JOURNAL, mark
from tests.chaos.proposals import proposal

Note = Callable[..., None]
SENDER, KEY = "chaos", bytes(range(32))
HUMAN, HUMAN_KEY = "ada", "CHAOS_ADA"
TIMEOUT_S = 30.0
PAUSE_S = 0.05
ASKED_AT_ONCE = 200
NEWCOMERS_MAX = 400  # more than come while a database that is locked is still hoped for


def config(store: str, name: str = JOURNAL, **settings: Any) -> CouncilConfig:
    """A council of three seats that keeps its journal in ``store``."""
    os.environ.setdefault(HUMAN_KEY, "ad" * 32)
    minds = {"prime": "Chair", "lite": "member", "codemind": "member"}
    seats = tuple(SeatConfig(name=seat, mind=f"tests.chaos.minds:{mind}") for seat, mind in minds.items())
    humans = {HUMAN: f"env:{HUMAN_KEY}"}
    return CouncilConfig(name=name, seats=seats, humans=humans, store=store, **settings)


class Load:
    """Proposals by their numbers, ``in_flight`` at once, each sent until it is decided; escalations are answered."""

    def __init__(self, port: Port, config: CouncilConfig, note: Note, *, in_flight: int = 16) -> None:
        self._port = port
        self._config = config
        self._note = note
        self._in_flight = in_flight
        self._session = Session(port, SENDER, "proposer", KEY, TIMEOUT_S)
        self._human: Session | None = None
        self._new: set[asyncio.Task[None]] = set()
        self._ending = False

    async def open(self) -> None:
        await self._session.open()
        key = answering_key(HUMAN, self._config, self._session.council_id)
        self._human = Session(self._port, HUMAN, "human", key, TIMEOUT_S, self._session.council_id)
        await self._human.open()

    async def run(self, numbers: Iterator[int]) -> None:
        """Proposes these, and returns once all are told; ``finish`` ends them early."""
        beside = [asyncio.ensure_future(self._answer_all()), asyncio.ensure_future(self._newcomers(numbers))]
        try:
            await asyncio.gather(*(self._propose_all(numbers) for _ in range(self._in_flight)))
            await asyncio.gather(*self._new)
            await self._answer_once()
        finally:
            for each in beside:
                each.cancel()

    def finish(self) -> None:
        """No new proposals: those under way are the last."""
        self._ending = True

    async def _propose_all(self, numbers: Iterator[int]) -> None:
        while not self._ending and (number := next(numbers, None)) is not None:
            await self.propose(number)

    async def _newcomers(self, numbers: Iterator[int]) -> None:
        """Some more now and then, whether or not those before them were answered: they hear how the council is."""
        while not self._ending and (number := next(numbers, None)) is not None:
            self._new.add(task := asyncio.ensure_future(self.propose(number)))
            task.add_done_callback(self._new.discard)
            while len(self._new) >= NEWCOMERS_MAX:
                await asyncio.wait(self._new, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(PAUSE_S)

    async def propose(self, number: int) -> None:
        """Sends it, the same bytes each time, until it is decided or a human has it."""
        envelope = proposal(number, SENDER)
        self._note("sent", number)
        while True:
            try:
                self.tell(await self._session.propose(envelope))
                return
            except CouncilError as error:
                self._note("refused", error.code)
                await asyncio.sleep(PAUSE_S)

    async def _answer_all(self) -> None:
        while True:
            await self._answer_once()
            await asyncio.sleep(PAUSE_S)

    async def _answer_once(self) -> None:
        """The human answers what is asked: anything, and perhaps another thing than was answered before."""
        assert self._human is not None
        try:
            waiting = await self._port.ask(AskEscalations())
            for escalation in waiting:
                asked = escalation.proposal_id
                try:
                    await self._human.inform(asked, "answer", "", {"approve": secrets.randbits(1) == 1})
                    self._note("answered", asked)
                except Refused:
                    pass  # an answer before this one, of which we did not hear, was the first
                await self.ask(asked)
        except CouncilError as error:
            self._note("refused", error.code)

    async def ask(self, proposal_id: str) -> Decision | None:
        """The decision on a proposal as the council tells it now; it must know one that it was given."""
        try:
            decision = await self._port.ask(AskDecision(proposal_id))
        except Refused:
            self._note("unknown", proposal_id)
            return None
        if decision is not None:
            self.tell(decision)
        return decision

    async def ask_all(self, proposal_ids: Sequence[str]) -> None:
        """Asks for every one of these again; what is told now is compared with what was told then."""
        for begin in range(0, len(proposal_ids), ASKED_AT_ONCE):
            some = proposal_ids[begin : begin + ASKED_AT_ONCE]
            await asyncio.gather(*(self.ask(each) for each in some))

    def tell(self, decision: Decision) -> None:
        self._note("told", decision.proposal_id, decision.outcome, mark(decision))
