"""What a journal would have come to by other rules, or without a seat's ballots; says what nobody can know.

Two courses run beside each other: the one that was recorded, and the other. Deadlines pass by themselves in the
other one, as its own rules have it, and beyond the last record for what the record has settled. What Prime or a
human said is taken as it was said; where they would have been asked, and never were, nobody knows what they would
have said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, NamedTuple, get_args

from msgspec.structs import replace

from council.core import effects as do
from council.core import events as ev
from council.core.keeping import Effects, first_timer, first_wall_timer
from council.core.state import CouncilState, Decision, Moment, Rules, SoleSeat
from council.core.tally import count
from council.journal.packets import Kept
from council.protocol.errors import CallerError, CouncilError, InternalError
from council.runtime.replay import Replay, pack, stepped
from council.settings import did_you_mean

# What of the rules can be asked otherwise, named as in the settings.
RULES: Mapping[str, Callable[[str], Any]] = {
    "quorum": int,
    "prime": str,
    "sole_seat": str,
    "escalation_ttl_s": float,
    "open_max": int,
    "escalations_max": int,
}
WITHOUT = "without"
UNKNOWABLE = {
    "inactivity_s": "heartbeats are not journaled, so that nobody can tell who would have been silent for how long",
    "seats": "what another seat would have said is not known; without=SEAT leaves one's ballots out",
    "time_budget_s": "each proposal has its own",
}
LEFT_OUT = "its ballot is left out"
SUMMARY_CHARS_MAX = 200

Act = ev.RulingGiven | ev.HumanAnswered | ev.WorkFailed


class End(NamedTuple):
    """How a proposal ends: an outcome, or ``ruling``, ``human``, ``undecided``, ``refused``; and why."""

    word: str
    why: str
    tally: str = ""


class Otherwise(NamedTuple):
    """A proposal that would have ended otherwise."""

    proposal_id: str
    summary: str
    was: End
    would: End


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it: of ``proposals`` these end otherwise; ``refounded`` more the same, on other ballots."""

    records: int
    proposals: int
    otherwise: tuple[Otherwise, ...]
    refounded: int


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be otherwise: rules, and the seats whose ballots are left out."""

    rules: Mapping[str, Any]
    without: frozenset[str]

    @classmethod
    def read(cls, given: Iterable[str]) -> Change:
        """Reads ``quorum=3``, ``without=lite`` and the like. Raises CallerError, which says what can be set."""
        rules: dict[str, Any] = {}
        without: set[str] = set()
        for each in given:
            key, _, value = each.partition("=")
            if key == WITHOUT and value:
                without.add(value)
            elif key not in RULES or not value:
                raise _not_to_be_set(key, value, each)
            elif key in rules:
                raise CallerError(f"what-if {key}: given twice; compare one with the record at a time")
            else:
                rules[key] = _value(key, value)
        return cls(rules, frozenset(without))

    def of(self, rules: Rules) -> Rules:
        """The rules as they would have been. Raises CallerError where they contradict each other."""
        try:
            return replace(rules, **self.rules)
        except ValueError as error:
            raise CallerError(f"what-if: {error}") from None


def _not_to_be_set(key: str, value: str, given: str) -> CallerError:
    choice = f"{', '.join(RULES)} and {WITHOUT}"
    if key in UNKNOWABLE:
        return CallerError(f"what-if {key}: {UNKNOWABLE[key]}; {choice} can be set")
    if key in (*RULES, WITHOUT):
        return CallerError(f"what-if {given!r:.60}: give it a value, as in quorum=3 or without=lite")
    hint = did_you_mean(key, [*RULES, WITHOUT])
    return CallerError(f"what-if: {choice} can be set, but not {key!r:.60}{hint}")


def _value(key: str, given: str) -> Any:
    try:
        value = RULES[key](given)
    except ValueError:
        kind = "a whole number" if RULES[key] is int else "a number"
        raise CallerError(f"what-if {key}: found {given!r:.60}, expected {kind}") from None
    if key == "sole_seat" and value not in get_args(SoleSeat):
        raise CallerError(
            f"what-if sole_seat: found {given!r:.60}, expected {' or '.join(get_args(SoleSeat))}"
        )
    return value


def what_if(kept: Iterable[Kept], change: Change) -> Found:
    """What the records would have come to.

    Raises ReplayDiverged where they do not even come to what they came to, and CallerError for a change that
    contradicts the rules, or names a seat that never was.
    """
    recorded, other = Replay(), _Other(change)
    was, would = _Course(), other.course
    summaries: dict[str, str] = {}
    for each in kept:
        event, now = each.record.event, each.record.moment
        was.take(event, recorded.take(each))
        other.take(event, now)
        if isinstance(event, ev.ProposalSubmitted):
            summaries[event.what.proposal_id] = event.what.summary[:SUMMARY_CHARS_MAX]
    nobody = sorted(change.without - other.seats)
    if nobody:
        seats = ", ".join(sorted(other.seats))
        raise CallerError(
            f"what-if without={nobody[0]!r:.60}: it was never a seat there; these were: {seats}"
        )
    if summaries:
        other.run_out(was.decided, now)
    otherwise, refounded = [], 0
    for proposal_id, summary in summaries.items():
        one = was.end(proposal_id, recorded.state)
        two = would.end(proposal_id, other.state, was)
        if one.word != two.word:
            otherwise.append(Otherwise(proposal_id, summary, one, two))
        elif one != two:
            refounded += 1
    return Found(recorded.records, len(summaries), tuple(otherwise), refounded)


class _Course:
    """One course of events: what was asked of Prime and of humans, what they said, and what came of it."""

    def __init__(self) -> None:
        self.decided: dict[str, End] = {}
        self.refused: dict[str, str] = {}
        self.asked: dict[str, set[str]] = {}  # a ruling, of which seats
        self.ruled: set[str] = set()
        self.with_human: dict[str, str] = {}
        self.answered: set[str] = set()

    def take(self, event: ev.Event, effects: Effects) -> None:
        if isinstance(event, ev.WorkFailed) and event.task == "ruling" and effects:
            self.ruled.add(event.proposal_id)  # it said that it could not
        for effect in effects:
            match effect:
                case do.RequestRuling(seat, proposal_id):
                    self.asked.setdefault(proposal_id, set()).add(seat)
                case do.AnnounceRuling(ruling):
                    self.ruled.add(ruling.proposal_id)
                case do.AnnounceEscalation(escalation):
                    self.with_human[escalation.proposal_id] = escalation.detail
                case do.AnnounceDecision(decision):
                    if decision.answer is not None:
                        self.answered.add(decision.proposal_id)
                    self.decided[decision.proposal_id] = _end(decision)

    def end(self, proposal_id: str, state: CouncilState | None, recorded: _Course | None = None) -> End:
        """How a proposal ends in it, as of ``state``. Beside a ``recorded`` course, it can hold questions that nobody
        answered.
        """
        if proposal_id in self.refused:
            return End("refused", self.refused[proposal_id])
        detail, found = self.with_human.get(proposal_id), self.decided.get(proposal_id)
        waits = None if state is None else state.open.get(proposal_id)
        tally = str(count(waits.ballots)) if waits is not None else found.tally if found is not None else ""
        if recorded is not None:
            never = self.asked.get(proposal_id, set()) - recorded.asked.get(proposal_id, set())
            if never and proposal_id not in self.ruled:
                return End("ruling", f"{min(never)} would have been asked to rule, and never was", tally)
            if detail and proposal_id not in self.answered and proposal_id not in recorded.with_human:
                return End("human", f"{detail}; nobody was ever asked", tally)
        if found is None:
            where = ("human", detail) if detail else ("undecided", "open where the journal ends")
            return End(*where, tally)
        then = found if recorded is None else recorded.decided.get(proposal_id)
        said = proposal_id in self.ruled or proposal_id in self.answered
        if said and (then is None or then.tally != found.tally):
            return found._replace(why=f"{found.why} (as was said on other ballots)")
        return found


def _end(decision: Decision) -> End:
    return End(str(decision.outcome), decision.reason, str(decision.tally))


class _Other:
    """The course that things would have taken."""

    def __init__(self, change: Change) -> None:
        self.course = _Course()
        self.seats: set[str] = set()
        self.state: CouncilState | None = None
        self._change = change
        self._held: dict[str, list[Act]] = {}
        self._count = 0

    def take(self, event: ev.Event, now: Moment) -> None:
        """The next event that was recorded; what does not fit any more changes nothing."""
        if isinstance(event, ev.CoordinatorStarted):
            self.seats.update(event.rules.seats)
            event = replace(event, rules=self._change.of(event.rules))
        else:
            self._let_time_pass(event, now)
        if isinstance(event, ev.BallotCast) and event.ballot.seat in self._change.without:
            # As if its mind had failed: nobody waits for it, and it counts for nothing.
            event = ev.WorkFailed(event.ballot.proposal_id, event.ballot.seat, "ballot", LEFT_OUT)
        self._hand(event, now)
        self._count += 1
        if self.state is not None:
            pack(self.state, self._count)

    def _let_time_pass(self, event: ev.Event, now: Moment) -> None:
        """Has deadlines pass that are due by now, each at its own moment, but for one whose passing was recorded."""
        state = self.state
        if state is None:
            return
        while True:
            timer, wall_timer = first_timer(state), first_wall_timer(state)
            if timer is not None and now.uptime_s > timer[0]:
                proposal_id = timer[1]
                at_s = max(math.nextafter(timer[0], math.inf), state.uptime_s)
                then = Moment(at_s, now.wall_s - (now.uptime_s - at_s), now.position)
            elif wall_timer is not None and now.wall_s > wall_timer[0]:
                proposal_id, then = wall_timer[1], now
            else:
                return
            with_human = state.open[proposal_id].stage == "human"
            due = ev.EscalationExpired(proposal_id) if with_human else ev.DeadlinePassed(proposal_id)
            if due == event:
                return
            self._hand(due, then)

    def run_out(self, settled: Iterable[str], last: Moment) -> None:
        """Has the deadlines pass that lie behind the ``last`` moment, of proposals that were ``settled`` by then."""
        assert self.state is not None
        due: list[tuple[float, str]] = []

        def wait_for(proposal_id: str, beyond_s: float = -math.inf) -> None:
            waits = self.state and self.state.open.get(proposal_id)
            # What a human would have said is not known.
            if waits and waits.stage != "human" and waits.deadline_s > beyond_s:
                heappush(due, (waits.deadline_s, proposal_id))

        for proposal_id in settled:
            wait_for(proposal_id)
        while due:
            deadline_s, proposal_id = heappop(due)
            at_s = max(math.nextafter(deadline_s, math.inf), self.state.uptime_s)
            then = Moment(at_s, last.wall_s + (at_s - last.uptime_s), last.position)
            self._hand(ev.DeadlinePassed(proposal_id), then)
            wait_for(proposal_id, deadline_s)

    def _hand(self, event: ev.Event, now: Moment) -> None:
        try:
            self.state, effects = stepped(self.state, event, now)
        except InternalError:
            raise
        except CouncilError as error:
            if isinstance(event, ev.ProposalSubmitted):
                self.course.refused[event.what.proposal_id] = error.message
            else:
                self._hold(event)
            return
        self.course.take(event, effects)
        for effect in effects:  # what was said before it was asked for here is said now
            if isinstance(effect, do.RequestRuling):
                self._say_what_was_held(effect.proposal_id, now)
            elif isinstance(effect, do.AnnounceEscalation):
                self._say_what_was_held(effect.escalation.proposal_id, now)

    def _hold(self, event: ev.Event) -> None:
        """Keeps a ruling or an answer that nobody has asked for yet: here it may be asked for later."""
        match event:
            case ev.RulingGiven(act) | ev.HumanAnswered(act):
                proposal_id = act.proposal_id
            case ev.WorkFailed(task="ruling"):
                proposal_id = event.proposal_id
            case _:
                return
        if self.state is not None and proposal_id in self.state.open:
            self._held.setdefault(proposal_id, []).append(event)

    def _say_what_was_held(self, proposal_id: str, now: Moment) -> None:
        for event in self._held.pop(proposal_id, ()):
            self._hand(event, now)
