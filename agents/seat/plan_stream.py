"""A mind's voice: what it says while it thinks, for the seat that observes it, and how it is interrupted.

Its pieces travel as INFO of kind ``stream``; they are relayed and forgotten, never journaled. A ballot is
never among them: voting is blind (rules 1.14). Knows nothing of models, signatures or what observers think.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# rules 1.8: the third halt in a row has Prime rule on it; further ones would only keep the seat from voting.
HALTS_MAX = 3
# Calls of ``observe`` for one seat's work on one proposal, all its stages and restarts: they may cost money. So many
# halts of what is whole must be among them, and some looks at what is being said.
OBSERVATIONS_MAX = 6
# So much is said at once: some sentences. Less would be a message for each token, more would come too late.
PIECE_CHARS = 240
# What one seat may say about one proposal, and of it in one round: many times a plan. What is above is not heard; a
# plan that is made anew after each halt (rules 1.8) is, however long those before it were.
PIECES_MAX = 200
ROUND_CHARS_MAX = 11_000
STAGE_CHARS_MAX = 40
# Rounds are numbered above those of a seat's earlier runs, by the council's count of these: nodes' clocks differ.
ROUNDS_A_RUN = 2**32
CUT = "\n[cut: it says more than is listened to]"


def sayable(text: str) -> str:
    """A mind's words as an envelope can hold them: no NUL, and no halves of surrogate pairs."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


@dataclass(slots=True)
class _Round:
    """One telling of one stage: its number, how much of it was said, how much sent, and what waits to be."""

    number: int
    chars: int = 0
    at: int = 0
    waiting: str = ""


@dataclass(slots=True)
class _Speech:
    """What was said about one proposal.

    ``cut``: rounds up to this number were interrupted, or came before. ``hushed``: an interrupt was told, and what
    comes until its mind asks for the next one is the end of what was interrupted.
    """

    cut: int
    rounds: dict[str, _Round] = field(default_factory=dict)
    pieces: int = 0
    halt: asyncio.Future[str] | None = None
    unheard: str | None = None
    hushed: bool = False


class SeatPlanStream:
    """The voice of a seat. ``say_piece`` sends a piece, given its proposal, its text and its facts.

    ``at_work`` tells whether the mind works on a ballot for a proposal: about others nothing is heard.
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
            return  # it is cut
        now.chars += len(clean)
        now.waiting += clean if len(clean) <= room else clean[:room] + CUT
        while len(now.waiting) >= PIECE_CHARS:  # each of them takes from it, if only to drop
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
        if speech.unheard is not None:  # it came before anybody asked
            halt.set_result(speech.unheard)
            speech.unheard = None
        elif speech.halt is not None and not speech.halt.done():
            halt = speech.halt
        else:
            speech.halt = halt
        return halt

    # What its seat calls

    def interrupt(self, proposal_id: str, number: int, why: str) -> None:
        """An observer calls a halt to the round of that number; to one that is cut already, or unknown, it can't."""
        speech = self._speeches.get(proposal_id)
        if speech is None or not speech.cut < number <= self._last:
            return
        speech.cut = self._last
        speech.rounds.clear()
        if speech.halt is not None and not speech.halt.done():
            speech.halt.set_result(why)
            speech.hushed = True
        else:
            speech.unheard = why

    def begin_run(self, number: int) -> None:
        """The council counts this as the seat's run of that number."""
        self._last = max(self._last, number * ROUNDS_A_RUN)

    def close(self, proposal_id: str) -> None:
        """The work on it is over."""
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
