"""Collects what an observing seat hears from other seats, and chooses the stage that its mind observes next.

Pieces of streams are joined by proposal, seat and stage. All memory is bounded, and kept only while the proposal may
be open. An observation costs a model call, so there are few of them (``OBSERVATIONS_MAX``). As many of these are
reserved for complete stages as halts send a proposal to Prime, because each plan may have a fault at its end.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from council.agents.mind import Case, Stream
from council.agents.seat.plan_stream import HALTS_MAX, OBSERVATIONS_MAX

# A mind looks again after this many more characters: a paragraph. It looks at a complete stage in any case.
LOOK_CHARS = 600
# This many stages of one seat's work on one proposal are kept: there are five (rules 3.1).
STAGES_MAX = 5
CASES_MAX = 2_000
# Characters of cases and of what was heard about them. Above this the oldest are forgotten.
CHARS_MAX = 32 * 2**20
GAP = "\n[some of it was not heard]\n"


@dataclass(slots=True)
class Looks:
    """The observations of one seat's work on a case: how many were made, and how many halts in a row they gave."""

    made: int = 0
    halts: int = 0

    def may(self, *, whole: bool) -> bool:
        """Whether another may be made, of a complete stage or of one in progress."""
        kept = 0 if whole else HALTS_MAX - self.halts
        return self.halts < HALTS_MAX and self.made + kept < OBSERVATIONS_MAX


@dataclass(slots=True)
class ObservedStage:
    """One stage of one seat's work on a case, as far as it was heard. Only the newest round is kept.

    ``at`` is the number of characters that the seat has said; ``shown`` is how much of ``text`` the mind has seen.
    ``looking``: an observation is under way. ``halted``: the mind has interrupted this round. ``look`` is the round
    of the newest observation, and whether the stage was complete. ``looks`` is shared by all stages of the seat.
    """

    proposal_id: str
    seat: str
    stage: str
    looks: Looks
    round: int = -1
    text: str = ""
    at: int = 0
    is_whole: bool = False
    shown: int = 0
    shown_whole: bool = False
    looking: bool = False
    look: tuple[int, bool] = (-1, False)
    halted: bool = False
    counted: int = -1  # the last round that was halted: a round counts as one halt
    waits: bool = False  # in the queue of stages to observe

    def add(self, number: int, at: int, text: str, whole: bool) -> int:
        """Adds a piece, unless it is old. Returns the number of characters by which ``text`` has grown."""
        before = len(self.text)
        if number > self.round:
            self.round, self.at, self.text = number, 0, ""
            self.shown, self.is_whole, self.shown_whole, self.halted = 0, False, False, False
        if number < self.round or at < self.at or self.is_whole:
            return 0
        self.text += (GAP if at > self.at else "") + text
        self.at, self.is_whole = at + len(text), whole
        return len(self.text) - before

    @property
    def is_due(self) -> bool:
        """Whether the mind should observe it now."""
        if self.looking or self.halted or self.shown_whole or not self.looks.may(whole=self.is_whole):
            return False
        return self.is_whole or len(self.text) - self.shown >= LOOK_CHARS

    def begin_observation(self) -> Stream:
        """Begins an observation, and gives what the mind is shown. ``looked`` or ``put_off`` may follow."""
        self.looking, self.look = True, (self.round, self.is_whole)
        self.shown, self.shown_whole = len(self.text), self.is_whole
        self.looks.made += 1
        return Stream(self.seat, self.stage, self.text, self.is_whole)

    def looked(self, *, interrupt: bool) -> None:
        """Takes the observation's result. Its round may be over by now."""
        number, whole = self.look
        if interrupt:
            self.looks.halts += number != self.counted
            self.counted = number
            self.halted = self.halted or number == self.round
        elif whole:
            self.looks.halts = 0

    def put_off(self) -> None:
        """Gives up the observation for more urgent work. What was shown counts as not seen."""
        self.shown, self.shown_whole = 0, False
        self.looks.made -= 1


@dataclass(slots=True)
class _OpenCase:
    case: Case
    until_s: float
    chars: int
    stages: dict[tuple[str, str], ObservedStage] = field(default_factory=dict)
    looks: dict[str, Looks] = field(default_factory=dict)


class ObservedCases:
    """The open cases that a seat was given, and what it heard about each. It keeps none unless it ``hears``."""

    def __init__(self, *, hears: bool = True) -> None:
        self._hears = hears
        self._kept: OrderedDict[str, _OpenCase] = OrderedDict()
        self._chars = 0
        self._due: deque[ObservedStage] = deque()

    def add_case(self, case: Case, now_s: float) -> None:
        """Keeps a case until its time is over, because others may speak about it.

        If the case is sent again, a message or the coordinator was lost, and maybe a halt with it. So a stage that
        was halted and goes on is observed again.
        """
        if not self._hears:
            return
        while self._kept and next(iter(self._kept.values())).until_s <= now_s:
            self.forget(next(iter(self._kept)))
        if case.proposal_id not in self._kept:
            kept = _OpenCase(case, now_s + case.time_left_s, case.chars)
            self._kept[case.proposal_id] = kept
            self._weigh(kept.chars)
            return
        for stage in self._kept[case.proposal_id].stages.values():
            stage.halted = False

    def add(self, proposal_id: str, text: str, data: Mapping[str, Any]) -> None:
        """Adds a piece of another seat's stream, as the council relays it."""
        kept, key = self._kept.get(proposal_id), (data["seat"], data["stage"])
        if kept is None:
            return
        stage = kept.stages.get(key)
        if stage is None:
            if sum(seat == key[0] for seat, _ in kept.stages) >= STAGES_MAX:
                return
            looks = kept.looks.setdefault(key[0], Looks())
            stage = kept.stages[key] = ObservedStage(proposal_id, *key, looks)
        grown = stage.add(data["round"], data["at"], text, data["whole"])
        kept.chars += grown
        self._wait(stage)
        self._weigh(grown)

    def next_due(self, now_s: float) -> tuple[ObservedStage, Case] | None:
        """The stage to observe next, and its case with the time that is left. Call ``finish`` afterwards."""
        while self._due:
            stage = self._due.popleft()
            stage.waits = False
            kept = self._kept.get(stage.proposal_id)
            if stage.is_due and kept is not None and kept.until_s > now_s:
                return stage, replace(kept.case, time_left_s=kept.until_s - now_s)
        return None

    def finish(self, stage: ObservedStage) -> None:
        """Ends the observation of a stage, with or without a result."""
        stage.looking = False
        self._wait(stage)

    def forget(self, proposal_id: str) -> None:
        """Drops a proposal that is not open any more."""
        kept = self._kept.pop(proposal_id, None)
        if kept is not None:
            self._chars -= kept.chars

    def _wait(self, stage: ObservedStage) -> None:
        if stage.is_due and not stage.waits:
            stage.waits = True
            self._due.append(stage)

    def _weigh(self, more: int) -> None:
        self._chars += more
        while len(self._kept) > CASES_MAX or self._chars > CHARS_MAX:
            self.forget(next(iter(self._kept)))
