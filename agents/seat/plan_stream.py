"""A mind's plan stream: what it publishes while it thinks, and how the observer interrupts it.

Pieces of it travel as INFO of kind ``stream``. They are relayed to the observer and never journaled. A ballot is
never among them: voting is blind (rules 1.14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# rules 1.8: the third halt in a row sends the proposal to Prime. More halts would only keep the seat from voting.
HALTS_MAX = 3
# Calls of ``observe`` for one seat's work on one proposal, over all stages and restarts: they may cost money. They
# must include HALTS_MAX complete stages, and some observations of work in progress.
OBSERVATIONS_MAX = 6
# The size of a piece: some sentences. Smaller ones would be a message for each token; larger ones would come late.
PIECE_CHARS = 240
# How much one seat may say about one proposal, and in one round: many times a plan. The rest is dropped. A plan that
# is made again after a halt (rules 1.8) is heard, however long the earlier ones were.
PIECES_MAX = 200
ROUND_CHARS_MAX = 11_000
STAGE_CHARS_MAX = 40
# Each run of a seat numbers its rounds above those of earlier runs. The council counts the runs, as clocks differ.
ROUNDS_A_RUN = 2**32
CUT = "\n[cut: it says more than is listened to]"


def sayable(text: str) -> str:
    """The text without what an envelope can't hold: NUL characters and halves of surrogate pairs are escaped."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


@dataclass(slots=True)
class _Round:
    """One round of a stage: its number, the characters said, those sent, and the text that waits to be sent."""

    number: int
    chars: int = 0
    at: int = 0
    waiting: str = ""


@dataclass(slots=True)
class _Speech:
    """The stream about one proposal.

    ``cut``: rounds up to this number were interrupted, or are older. ``hushed``: after an interrupt, text is dropped
    until the mind waits for the next one, because it still belongs to the interrupted round.
    """

    cut: int
    rounds: dict[str, _Round] = field(default_factory=dict)
    pieces: int = 0
    halt: asyncio.Future[str] | None = None
    pending_halt: str | None = None
    hushed: bool = False


class SeatPlanStream:
    """The plan stream of a seat. ``say_piece`` sends a piece: the proposal, its text and its data.

    ``at_work`` says whether the mind works on a ballot for a proposal. Text about other proposals is dropped.
    """

    def __init__(
        self,
        at_work: Callable[[str], bool],
        say_piece: Callable[[str, str, Mapping[str, Any]], None],
    ) -> None:
        self._at_work = at_work
        self._say_piece = say_piece
        self._last = 0
        self._speeches: dict[str, _Speech] = {}

    # What the mind calls

    def publish(self, proposal_id: str, stage: str, text: str) -> None:
        speech = self._speech(proposal_id)
        if speech is None or speech.hushed or not text:
            return
        stage = stage[:STAGE_CHARS_MAX]
        now = speech.rounds.get(stage)
        if now is None:
            self._last += 1
            now = speech.rounds[stage] = _Round(self._last)
        clean, room = sayable(text), ROUND_CHARS_MAX - now.chars
        if room < 0:
            return  # it was cut already
        now.chars += len(clean)
        now.waiting += clean if len(clean) <= room else clean[:room] + CUT
        while len(now.waiting) >= PIECE_CHARS:  # each send shortens it, even if the piece is dropped
            self._send(proposal_id, speech, stage, whole=False)

    def end(self, proposal_id: str, stage: str) -> None:
        speech, stage = self._speech(proposal_id), stage[:STAGE_CHARS_MAX]
        if speech is not None and stage in speech.rounds:
            self._send(proposal_id, speech, stage, whole=True)
            del speech.rounds[stage]

    def interrupted(self, proposal_id: str) -> asyncio.Future[str]:
        speech = self._speech(proposal_id)
        halt: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if speech is None:
            return halt
        speech.hushed = False
        if speech.pending_halt is not None:  # the interrupt came before the mind waited for it
            halt.set_result(speech.pending_halt)
            speech.pending_halt = None
        elif speech.halt is not None and not speech.halt.done():
            halt = speech.halt
        else:
            speech.halt = halt
        return halt

    # What its seat calls

    def interrupt(self, proposal_id: str, number: int, why: str) -> None:
        """Interrupts the round of that number. Has no effect if the round is unknown or was interrupted already."""
        speech = self._speeches.get(proposal_id)
        if speech is None or not speech.cut < number <= self._last:
            return
        speech.cut = self._last
        speech.rounds.clear()
        if speech.halt is not None and not speech.halt.done():
            speech.halt.set_result(why)
            speech.hushed = True
        else:
            speech.pending_halt = why

    def begin_run(self, number: int) -> None:
        """Begins the seat's run of that number, as the council counts runs."""
        self._last = max(self._last, number * ROUNDS_A_RUN)

    def close(self, proposal_id: str) -> None:
        """Ends the work on a proposal."""
        self._speeches.pop(proposal_id, None)

    def _speech(self, proposal_id: str) -> _Speech | None:
        if not self._at_work(proposal_id):
            return None
        return self._speeches.setdefault(proposal_id, _Speech(self._last))

    def _send(self, proposal_id: str, speech: _Speech, stage: str, *, whole: bool) -> None:
        now = speech.rounds[stage]
        text, now.waiting = now.waiting[:PIECE_CHARS], now.waiting[PIECE_CHARS:]
        speech.pieces += 1
        if speech.pieces > PIECES_MAX:
            return
        self._say_piece(
            proposal_id, text, {"stage": stage, "round": now.number, "at": now.at, "whole": whole}
        )
        now.at += len(text)
