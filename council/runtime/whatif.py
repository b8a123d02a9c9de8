"""Runs a journal with another rule, or without a seat's ballots, and reports which proposals end otherwise.

The recorded events run through the core again by the changed rules. Deadlines pass as these rules set them. A ruling
or a human's answer counts if the same question would have been asked. If another question would have been asked, its
answer is unknown.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import replace

from council.config.settings import did_you_mean
from council.core import effects as do
from council.core import events as ev
from council.core.conclusion import count
from council.core.state import CouncilState, Moment, Rules
from council.core.state_store import Effects, first_timer, first_wall_timer
from council.journal.packets import StoredRecord
from council.protocol.errors import CallerError, CouncilError, InternalError
from council.runtime.replay import Replay, pack, stepped

# What can be changed; the rules have the names of the settings.
CHOICES = ("quorum", "prime", "without")
HUMAN = ("human", "")
LEFT_OUT = "its ballot is left out"
SUMMARY_CHARS_MAX = 200


class End(NamedTuple):
    """The end of a proposal: an outcome, or ``ruling``, ``human``, ``undecided``, ``refused``; and why."""

    word: str
    why: str
    tally: str = ""


class Otherwise(NamedTuple):
    """A proposal that would have ended differently."""

    proposal_id: str
    summary: str
    was: End
    would: End


class WhatIfResult(NamedTuple):
    """The result.

    ``otherwise`` are those of ``proposals`` that end differently; ``refounded`` end the same, for another reason.
    """

    records: int
    proposals: int
    otherwise: tuple[Otherwise, ...]
    refounded: int


@dataclass(frozen=True, slots=True)
class WhatIfChange:
    """The change: rules, and the seats whose ballots are left out."""

    rules: Mapping[str, Any]
    without: frozenset[str]

    @classmethod
    def read(cls, given: Iterable[str]) -> WhatIfChange:
        """Reads ``quorum=3``, ``without=lite`` and the like. Raises CallerError that lists what can be set."""
        rules: dict[str, Any] = {}
        without: set[str] = set()
        for each in given:
            key, _, value = each.partition("=")
            if key not in CHOICES or not value:
                hint = did_you_mean(key, CHOICES) if key not in CHOICES else ""
                raise CallerError(f"what-if {each!r:.60}: expected {', '.join(CHOICES)} and =VALUE{hint}")
            if key == "without":
                without.add(value)
            elif key in rules:
                raise CallerError(f"what-if {key}: given twice; compare one with the record at a time")
            else:
                try:
                    rules[key] = int(value) if key == "quorum" else value
                except ValueError:
                    raise CallerError(f"what-if quorum: found {value!r:.60}, not a whole number") from None
        return cls(rules, frozenset(without))

    def of(self, rules: Rules) -> Rules:
        """The changed rules. Raises CallerError if they contradict each other."""
        try:
            return replace(rules, **self.rules)
        except ValueError as error:
            raise CallerError(f"what-if: {error}") from None


def what_if(kept: Iterable[StoredRecord], change: WhatIfChange) -> WhatIfResult:
    """The result of the records under the change.

    Raises ReplayDiverged if the unchanged replay differs from the record. Raises CallerError if the change
    contradicts the rules, or names a seat that never existed.
    """
    replay, was, would = Replay(), _Course(), _Other(change)
    summaries: dict[str, str] = {}
    for each in kept:
        event = each.record.event
        was.note(replay.replay(each))
        would.step(event, each.record.moment)
        if isinstance(event, ev.ProposalSubmitted):
            summaries[event.what.proposal_id] = event.what.summary[:SUMMARY_CHARS_MAX]
    if nobody := sorted(change.without - would.seats):
        seats = ", ".join(sorted(would.seats))
        raise CallerError(
            f"what-if without={nobody[0]!r:.60}: it was never a seat there; these were: {seats}"
        )
    was.state = replay.state
    ends = [(each, was.end(each), would.unknown(each, was) or would.end(each)) for each in summaries]
    otherwise = [
        Otherwise(each, summaries[each], one, two) for each, one, two in ends if one.word != two.word
    ]
    refounded = sum(one.word == two.word and one != two for _, one, two in ends)
    return WhatIfResult(replay.records, len(summaries), tuple(otherwise), refounded)


class _Course:
    """One course of events: who was asked, who answered, and the ends of proposals."""

    def __init__(self) -> None:
        self.state: CouncilState | None = None
        self.ended: dict[str, End] = {}
        # For each proposal, who was asked, and why: ("ruling", seat) and ("human", "").
        self.asked: defaultdict[str, dict[tuple[str, str], str]] = defaultdict(dict)
        self.answered: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)

    def note(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case do.RequestRuling(seat, proposal_id):
                    self.asked[proposal_id]["ruling", seat] = f"{seat} would have been asked to rule"
                case do.AnnounceRuling(ruling):
                    self.answered[ruling.proposal_id].add(("ruling", ruling.seat))
                case do.AnnounceEscalation(escalation):
                    self.asked[escalation.proposal_id][HUMAN] = escalation.detail
                case do.AnnounceDecision(decision):
                    end = End(str(decision.outcome), decision.reason, str(decision.tally))
                    self.ended[decision.proposal_id] = end
                    if decision.answer is not None:
                        self.answered[decision.proposal_id].add(HUMAN)

    def end(self, proposal_id: str) -> End:
        if proposal_id in self.ended:
            return self.ended[proposal_id]
        why = self.asked[proposal_id].get(HUMAN)
        where = ("human", why) if why else ("undecided", "open where the journal ends")
        return End(*where, self._tally(proposal_id))

    def unknown(self, proposal_id: str, recorded: _Course) -> End | None:
        """The first question without an answer here, unless it was asked and not answered in the record too."""
        there = recorded.asked[proposal_id].keys() - recorded.answered[proposal_id]
        for who, why in self.asked[proposal_id].items():
            if who not in self.answered[proposal_id] and who not in there:
                never = "; nobody was ever asked" if who == HUMAN else ", and never was"
                other = "; the answer in the record is to something else"
                what = other if who in recorded.asked[proposal_id] else never
                return End(who[0], why + what, self._tally(proposal_id))
        return None

    def _tally(self, proposal_id: str) -> str:
        if proposal_id in self.ended:
            return self.ended[proposal_id].tally
        assert self.state is not None
        return str(count(self.state.open[proposal_id].ballots))


class _Other(_Course):
    """The course of events under the change."""

    def __init__(self, change: WhatIfChange) -> None:
        super().__init__()
        self.seats: set[str] = set()
        self._change = change
        self._count = 0

    def step(self, event: ev.Event, now: Moment) -> None:
        """Takes the next recorded event. If it does not fit any more, nothing changes."""
        if isinstance(event, ev.CoordinatorStarted):
            self.seats.update(event.rules.seats)
            event = replace(event, rules=self._change.of(event.rules))
        else:
            while (due := self._due(now)) is not None and due[0] != event:
                self._hand(*due)
        if isinstance(event, ev.BallotCast) and event.ballot.seat in self._change.without:
            # As if its mind had failed: no seat waits for it, and it does not count.
            event = ev.WorkFailed(event.ballot.proposal_id, event.ballot.seat, "ballot", LEFT_OUT)
        self._hand(event, now)
        self._count += 1
        if self.state is not None:
            pack(self.state, self._count)

    def _due(self, now: Moment) -> tuple[ev.Event, Moment] | None:
        """The first deadline that is over, and when it passed. Seats fall silent as recorded."""
        assert self.state is not None
        timer, wall_timer = first_timer(self.state), first_wall_timer(self.state)
        if timer is not None and now.uptime_s > timer[0]:
            at_s = max(math.nextafter(timer[0], math.inf), self.state.uptime_s)
            proposal_id, then = timer[1], Moment(at_s, now.wall_s - (now.uptime_s - at_s), now.position)
        elif wall_timer is not None and now.wall_s > wall_timer[0]:
            proposal_id, then = wall_timer[1], now
        else:
            return None
        with_human = self.state.open[proposal_id].stage == "human"
        return (ev.EscalationExpired if with_human else ev.DeadlinePassed)(proposal_id), then

    def _hand(self, event: ev.Event, now: Moment) -> None:
        try:
            self.state, effects = stepped(self.state, event, now)
        except InternalError:
            raise
        except CouncilError as error:
            if isinstance(event, ev.ProposalSubmitted):
                self.ended[event.what.proposal_id] = End("refused", error.message)
        else:
            self.note(effects)
