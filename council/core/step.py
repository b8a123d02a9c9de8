"""Applies one event to the council's state, and returns the effects. Uses no clock, no bytes, no Ray and no journal.

READ FIRST. A shell calls ``step`` with each event that it received and the moment of it, and performs the effects
in order. Before each event it performs what ``next_due`` gives, expired timers, until there is nothing. In
between it sleeps until ``next_deadline``. Replaying the same events with the same moments gives the same state and
effects, byte for byte.

An open proposal is in one of three stages. What an event does depends on the stage. A fourth is ``checking``, in
which an executor runs a check before the decision: its result begins the voting again, or sends it to a human.

    event                deliberating                   ruling              human
    BallotCast           counted; may conclude          late                late
    BallotUnreadable     asked again, then lost         ignored             ignored
    WorkFailed, ballot   lost; may conclude             ignored             ignored
    WorkFailed, ruling   refused                        to human            refused
    StreamObserved       third halt escalates it        noted               noted
    EscalationRaised     escalates it; may conclude     ignored             ignored
    RulingGiven          refused                        decided, to human   refused
    HumanAnswered        refused                        refused             decided
    ProposalCancelled    cancelled                      cancelled           cancelled
    DeadlinePassed       concludes                      to human            refused
    EscalationExpired    refused                        refused             deferred
    seat back            handed to it; may conclude     Prime asked again   -
    seat lost            may conclude                   -                   -

``conclusion.conclude`` says when voting concludes: decided, or on to Prime's ruling or to a human. A duplicate, a
late message and an old heartbeat are cases of their own, each with a reason. What the rules do not allow raises
``Refused`` and leaves the state as it was: every handler (``handles``) first decides, then changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from council.core import ballots, budget, conclusion, identity, proposals, roll, tokens  # noqa: F401 - handlers
from council.core import effects as do
from council.core import events as ev
from council.core.state import CouncilState, Moment
from council.core.state_store import Effects, first_timer, first_wall_timer, open_proposal, store
from council.protocol.errors import InternalError, Refused

# Wall time may jump, so a human's deadline is looked at again at least this often.
WALL_CHECK_S = 60.0
# Events that are allowed while a deadline is overdue: those that handle it, and the first after downtime.
_DUE_EVENTS = (
    ev.DeadlinePassed,
    ev.SeatFellSilent,
    ev.EscalationExpired,
    ev.UseTimedOut,
    ev.CoordinatorStarted,
)


def step(state: CouncilState, event: ev.Event, now: Moment) -> tuple[CouncilState, Effects]:
    """The state after ``event``, and the effects. Raises Refused, and TooManyOpen for back-pressure.

    Raises InternalError when the shell breaks the contract: uptime that went backwards, or a passed
    deadline that was not handled.
    """
    if now.uptime_s < state.uptime_s:
        raise InternalError(
            f"time ran backwards: {now.uptime_s} s after {state.uptime_s} s of uptime", now=now.uptime_s
        )
    if not isinstance(event, _DUE_EVENTS):
        for timer, time in ((first_timer(state), now.uptime_s), (first_wall_timer(state), now.wall_s)):
            if timer is not None and time > timer[0]:
                raise InternalError(f"the deadline of {timer[1]} passed at {timer[0]} s, but was not handled")
    effects = ev.HANDLERS[type(event)](state, event, now)
    state.uptime_s = now.uptime_s
    return state, effects


# Time


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The next expiry of a timer: seconds of uptime, and Unix seconds; None for never."""

    uptime_s: float | None
    wall_s: float | None

    def wake_at(self, uptime_s: float, wall_s: float) -> float:
        """The uptime at which to ask ``next_due`` again, by these clocks; infinite for never."""
        at_s = self.uptime_s if self.uptime_s is not None else math.inf
        if self.wall_s is None:
            return at_s
        return min(at_s, uptime_s + min(max(self.wall_s - wall_s, 0.0), WALL_CHECK_S))


def next_due(state: CouncilState, now: Moment) -> ev.Event | None:
    """The first event for a deadline that has passed by ``now`` and is not handled yet."""
    found: tuple[float, ev.Event] | None = None
    timer = first_timer(state)
    if timer is not None and now.uptime_s > timer[0]:  # rules 1.5: at exactly the deadline a ballot counts
        waits_for_human = state.open[timer[1]].stage == "human"
        found = timer[0], ev.EscalationExpired(timer[1]) if waits_for_human else ev.DeadlinePassed(timer[1])
    for seat in state.seats.values():
        since = roll.silent_from(seat, state.rules)
        if seat.active and now.uptime_s > since and (found is None or since < found[0]):
            found = since, ev.SeatFellSilent(seat.name)
    ends = tokens.next_timeout(state)
    if ends is not None and now.uptime_s > ends[0] and (found is None or ends[0] < found[0]):
        found = ends
    if found is not None:
        return found[1]
    wall_timer = first_wall_timer(state)
    if wall_timer is not None and now.wall_s > wall_timer[0]:
        return ev.EscalationExpired(wall_timer[1])
    question = tokens.next_expiry(state)
    if question is not None and now.wall_s > question[0]:
        return question[1]
    return None


def next_deadline(state: CouncilState) -> Deadlines:
    """The first moment at which ``next_due`` may have something, so that a shell needs one timer only."""
    ends = [roll.silent_from(seat, state.rules) for seat in state.seats.values() if seat.active]
    timer = first_timer(state)
    if timer is not None:
        ends.append(timer[0])
    if (use := tokens.next_timeout(state)) is not None:
        ends.append(use[0])
    wall_ends = [timer[0] for timer in (first_wall_timer(state), tokens.next_expiry(state)) if timer]
    return Deadlines(
        uptime_s=math.nextafter(min(ends), math.inf) if ends else None,
        wall_s=math.nextafter(min(wall_ends), math.inf) if wall_ends else None,
    )


@ev.handles(ev.DeadlinePassed)
def _deadline_passed(state: CouncilState, event: ev.DeadlinePassed, now: Moment) -> Effects:
    proposal = open_proposal(state, event.proposal_id, "the clock")
    if proposal.stage == "human" or not now.uptime_s > proposal.deadline_s:
        raise Refused(f"the deadline of {event.proposal_id} has not passed", code="not_expired")
    if proposal.stage == "checking":
        return tokens.check_overdue(state, proposal, now)
    if proposal.stage == "ruling":  # rules 1.8: no ruling within the time budget
        why = f"it did not come within {proposal.what.time_budget_s:g} s"
        concluded = conclusion.to_human(state, proposal, "no_ruling", now, why)
    else:
        concluded = conclusion.conclude(state, proposal, now, expired=True)
    return store(state, proposal, concluded)


@ev.handles(ev.EscalationExpired)
def _expired(state: CouncilState, event: ev.EscalationExpired, now: Moment) -> Effects:
    if isinstance(event.use, int):
        return tokens.unanswered(state, event, event.use, now)
    proposal = open_proposal(state, event.proposal_id, "the clock")
    asked = proposal.escalation
    # Wall time, which runs on while everything is down (rules 1.9); a jump back does not lengthen it.
    over = asked is not None and (now.wall_s > asked.expires_wall_s or now.uptime_s > proposal.deadline_s)
    if not over:
        raise Refused(f"the escalation of {event.proposal_id} has not expired", code="not_expired")
    reason = "no human answered in time"
    return store(state, proposal, conclusion.decided(state, proposal, "deferred", reason, now))


@ev.handles(ev.EnvelopeRefused)
def _refused(state: CouncilState, event: ev.EnvelopeRefused, now: Moment) -> Effects:
    return [do.AnnounceRefusal(event.sender, event.msg_id, event.code, event.why)]
