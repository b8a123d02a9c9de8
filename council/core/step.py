"""Moves the council: one event in, effects out. Knows nothing of clocks, bytes, Ray or the journal.

READ FIRST. A shell feeds ``step`` the events that it received, each with its moment, and performs the
effects in order. Before every event it asks ``next_due`` for what time itself has brought, until there is
nothing; in between it sleeps until ``next_deadline``. Replaying the same events with the same moments
gives the same state and effects, byte for byte.

A duplicate, a late message and an old heartbeat are cases of their own, each with a reason. What the rules do not
allow raises ``Refused`` and leaves the state as it was: every handler (``handles``) first decides, then changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from msgspec.structs import replace

from council.core import ballots, budget, conclusion, identity, outcomes, proposals, roll  # noqa: F401 - handlers
from council.core import effects as do
from council.core import events as ev
from council.core.handlers import HANDLERS, handles
from council.core.state import CouncilState, Moment, Proposal, Seat
from council.core.state_store import Effects, first_timer, first_wall_timer, open_proposal, seat_of, store
from council.protocol.errors import InternalError, PoolMismatch, Refused

# Wall time may jump, so a human's deadline is looked at again at least this often.
WALL_CHECK_S = 60.0


@dataclass(frozen=True, slots=True)
class Deadlines:
    """When time will next bring something: seconds of uptime, and Unix seconds; None for never."""

    uptime_s: float | None
    wall_s: float | None

    def wake_at(self, uptime_s: float, wall_s: float) -> float:
        """At which uptime to look what time has brought, by these clocks; infinite for never."""
        at_s = self.uptime_s if self.uptime_s is not None else math.inf
        if self.wall_s is None:
            return at_s
        return min(at_s, uptime_s + min(max(self.wall_s - wall_s, 0.0), WALL_CHECK_S))


def step(state: CouncilState, event: ev.Event, now: Moment) -> tuple[CouncilState, Effects]:
    """The state after ``event``, and what to do. Raises Refused, and TooManyOpen for back-pressure.

    Raises InternalError when the shell breaks the contract: uptime that falls, or a deadline overslept.
    """
    if now.uptime_s < state.uptime_s:
        raise InternalError(
            f"time ran backwards: {now.uptime_s} s after {state.uptime_s} s of uptime", now=now.uptime_s
        )
    timers, wall_timers = state.timers, state.wall_timers
    maybe_late = (timers and now.uptime_s > timers[0][0]) or (wall_timers and now.wall_s > wall_timers[0][0])
    if maybe_late and not _is_due_event(event):
        for timer, time in ((first_timer(state), now.uptime_s), (first_wall_timer(state), now.wall_s)):
            if timer is not None and time > timer[0]:
                raise InternalError(f"the deadline of {timer[1]} passed at {timer[0]} s, but was not handled")
    effects = HANDLERS[type(event)](state, event, now)
    state.uptime_s = now.uptime_s
    return state, effects


# Time


def next_due(state: CouncilState, now: Moment) -> ev.Event | None:
    """The first thing that time has brought by ``now`` and that is not handled yet."""
    found: tuple[float, ev.Event] | None = None
    timer = first_timer(state)
    if timer is not None and now.uptime_s > timer[0]:  # rules 1.5: at exactly the deadline a ballot counts
        found = timer[0], _passed(state, timer[1])
    for seat in state.seats.values():
        since = roll.silent_from(seat, state.rules)
        if seat.active and now.uptime_s > since and (found is None or since < found[0]):
            found = since, ev.SeatFellSilent(seat.name)
    if found is not None:
        return found[1]
    wall_timer = first_wall_timer(state)
    if wall_timer is not None and now.wall_s > wall_timer[0]:
        return ev.EscalationExpired(wall_timer[1])
    return None


def _passed(state: CouncilState, proposal_id: str) -> ev.Event:
    if state.open[proposal_id].stage == "human":
        return ev.EscalationExpired(proposal_id)
    return ev.DeadlinePassed(proposal_id)


def next_deadline(state: CouncilState) -> Deadlines:
    """The first moment at which ``next_due`` may have something, so that a shell needs one timer only."""
    silent = [roll.silent_from(seat, state.rules) for seat in state.seats.values() if seat.active]
    timer = first_timer(state)
    if timer is not None:
        silent.append(timer[0])
    wall_timer = first_wall_timer(state)
    return Deadlines(
        uptime_s=math.nextafter(min(silent), math.inf) if silent else None,
        wall_s=math.nextafter(wall_timer[0], math.inf) if wall_timer else None,
    )


def _is_due_event(event: ev.Event) -> bool:
    """Whether an event may find a deadline passed: those that passing brings, and the first after a time down."""
    return isinstance(
        event, (ev.DeadlinePassed, ev.SeatFellSilent, ev.EscalationExpired, ev.CoordinatorStarted)
    )


@handles(ev.EscalationExpired)
def _expired(state: CouncilState, event: ev.EscalationExpired, now: Moment) -> Effects:
    proposal = open_proposal(state, event.proposal_id, "the clock")
    asked = proposal.escalation
    # Wall time, which runs on while everything is down (rules 1.9); a jump back does not lengthen it.
    over = asked is not None and (now.wall_s > asked.expires_wall_s or now.uptime_s > proposal.deadline_s)
    if not over:
        raise Refused(f"the escalation of {event.proposal_id} has not expired", code="not_expired")
    reason = "no human answered in time"
    return store(state, proposal, conclusion.decided(state, proposal, "deferred", reason, now))


@handles(ev.DeadlinePassed)
def _deadline_passed(state: CouncilState, event: ev.DeadlinePassed, now: Moment) -> Effects:
    proposal = open_proposal(state, event.proposal_id, "the clock")
    if proposal.stage == "human" or not now.uptime_s > proposal.deadline_s:
        raise Refused(f"the deadline of {event.proposal_id} has not passed", code="not_expired")
    if proposal.stage == "ruling":  # rules 1.8: no ruling within the time budget
        why = f"it did not come within {proposal.what.time_budget_s:g} s"
        concluded = conclusion.to_human(state, proposal, "no_ruling", now, why)
    else:
        concluded = conclusion.conclude(state, proposal, now, expired=True)
    return store(state, proposal, concluded)


# The roll


@handles(ev.CoordinatorStarted)
def _started(state: CouncilState, event: ev.CoordinatorStarted, now: Moment) -> Effects:
    """A coordinator begins, or goes on where its predecessor ended; time in between is nobody's (rules 1.10)."""
    if event.epoch <= state.epoch:
        raise Refused(
            f"a coordinator of epoch {event.epoch} started, but the newest is {state.epoch}: it was replaced",
            code="fenced",
            epoch=event.epoch,
        )
    before, first = state.seats, state.epoch == 0
    if not first and event.rules.pool != state.rules.pool:  # ids would lead to other councils than before
        raise PoolMismatch(
            f"this journal is {_place(state.rules.pool)}, and was opened as {_place(event.rules.pool)}: open it as "
            "what it is, or begin with another name or store",
            journal_of=state.rules.pool,
            opened_as=event.rules.pool,
        )
    rules, creator = identity.rules_in_force(state, event.rules), state.rules.creator
    state.epoch = event.epoch
    if first or rules != state.rules:
        state.rules, state.ruled_from = rules, now.position
    state.seats = {name: roll.anew(before.get(name), name, now, first=first) for name in state.rules.seats}
    if first:
        return []
    effects: Effects = [do.AnnounceStart(event.epoch, len(state.open)), *budget.abandoned(state, now)]
    if creator and rules.creator != creator:  # whoever writes the settings names it, but never unseen
        effects.append(do.AnnounceCreator(creator, rules.creator))
    for name, seat in state.seats.items():
        if name not in before or not before[name].active:
            effects.append(do.AnnounceRoll(name, True, seat.why))
    for proposal_id in list(state.open):
        for name in state.seats:  # what was under way to a seat may have been lost
            effects += _announce_open(state, state.open[proposal_id], name)
        proposal = state.open[proposal_id]
        effects += store(state, proposal, conclusion.conclude(state, proposal, now))
    return effects


def _place(pool: tuple[int, int] | None) -> str:
    return "of a council by itself" if pool is None else f"number {pool[0]} of a pool of {pool[1]}"


@handles(ev.SeatBeat)
def _beat(state: CouncilState, event: ev.SeatBeat, now: Moment) -> Effects:
    seat = seat_of(state, event.seat)
    heard = roll.heartbeat(seat, event.boot, event.beat, now)
    if heard is None:
        return [do.NoteIgnored(event.seat, "an old heartbeat")]
    if seat.active:
        state.seats[seat.name] = heard
        return []
    return _roll_changed(state, heard, was_active=False, now=now)


@handles(ev.SeatDied)
def _died(state: CouncilState, event: ev.SeatDied, now: Moment) -> Effects:
    seat = seat_of(state, event.seat)
    if event.boot != seat.boot:
        return [do.NoteIgnored(event.seat, "the death of an earlier run")]
    effects = budget.abandoned(state, now, event.seat)
    return effects + _roll_changed(state, roll.bury(seat, event.why), was_active=seat.active, now=now)


@handles(ev.SeatFellSilent)
def _fell_silent(state: CouncilState, event: ev.SeatFellSilent, now: Moment) -> Effects:
    seat = seat_of(state, event.seat)
    if not seat.active or not now.uptime_s > roll.silent_from(seat, state.rules):
        raise Refused(f"{event.seat} has not been silent for too long", code="not_silent", seat=event.seat)
    return _roll_changed(state, roll.silence(seat, state.rules), was_active=True, now=now)


def _roll_changed(state: CouncilState, seat: Seat, *, was_active: bool, now: Moment) -> Effects:
    """Stores the seat and lets every open proposal see the new roll."""
    state.seats[seat.name] = seat
    effects: Effects = []
    if seat.active != was_active:
        effects.append(do.AnnounceRoll(seat.name, seat.active, seat.why))
    for proposal_id in list(state.open):
        if seat.active:
            effects += _announce_open(state, state.open[proposal_id], seat.name)
        # Who is gone is waited for no more; who is back, alone, may have voted before (rules 1.11).
        proposal = state.open[proposal_id]
        effects += store(state, proposal, conclusion.conclude(state, proposal, now))
    return effects


def _announce_open(state: CouncilState, proposal: Proposal, name: str) -> Effects:
    """A seat that is back is handed what still waits for it (rules 1.10)."""
    if proposal.stage == "ruling" and name == state.rules.prime:
        return [conclusion.ruling_request(state.rules, proposal)]
    if proposal.stage != "deliberating":
        return []
    if name in proposal.done():
        # Others may still speak of it, and it may know nothing of the proposal any more.
        return [do.LetObserve(name, proposal.what.proposal_id)] if name == state.rules.observer else []
    asked = replace(proposal, asked=proposal.asked | {name})
    return [do.DeliverProposal(name, proposal.what.proposal_id), *store(state, proposal, (asked, []))]


@handles(ev.EnvelopeRefused)
def _refused(state: CouncilState, event: ev.EnvelopeRefused, now: Moment) -> Effects:
    return [do.AnnounceRefusal(event.sender, event.msg_id, event.code, event.why)]
