"""The roll: which seats are active, what a change of it does to open proposals, and how a coordinator starts."""

from __future__ import annotations

from msgspec.structs import replace

from council.core import budget, conclusion
from council.core import effects as do
from council.core import events as ev
from council.core.identity import rules_in_force
from council.core.state import CouncilState, Moment, Proposal, Rules, Seat
from council.core.state_store import Effects, seat_of, store
from council.protocol.errors import PoolMismatch, Refused


@ev.handles(ev.CoordinatorStarted)
def _started(state: CouncilState, event: ev.CoordinatorStarted, now: Moment) -> Effects:
    """A coordinator starts, or takes over. The time before it counts for no seat's silence (rules 1.10)."""
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
    rules, creator = rules_in_force(state, event.rules), state.rules.creator
    state.epoch = event.epoch
    if first or rules != state.rules:
        state.rules, state.ruled_from = rules, now.position
    state.seats = {name: _at_start(before.get(name), name, now, first=first) for name in state.rules.seats}
    if first:
        return []
    effects: Effects = [do.AnnounceStart(event.epoch, len(state.open)), *budget.abandoned(state, now)]
    if creator and rules.creator != creator:  # settings may name another creator, but not unseen
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


@ev.handles(ev.SeatBeat)
def _beat(state: CouncilState, event: ev.SeatBeat, now: Moment) -> Effects:
    """A heartbeat of an earlier run, or with a number that is not above the last, is a replay or out of order."""
    seat = seat_of(state, event.seat)
    if event.boot > seat.boot:
        raise Refused(
            f"{seat.name} sent a heartbeat of run {event.boot}, but its current run is {seat.boot}",
            code="unknown_boot",
            seat=seat.name,
            boot=event.boot,
        )
    if event.boot < seat.boot or event.beat <= seat.beat:
        return [do.NoteIgnored(event.seat, "an old heartbeat")]
    beat = replace(seat, last_beat_s=now.uptime_s, beat=event.beat)
    if seat.active:
        state.seats[seat.name] = beat
        return []
    back = replace(beat, active=True, why="its heartbeat is back", since_s=now.uptime_s)
    return _roll_changed(state, back, now)


@ev.handles(ev.SeatDied)
def _died(state: CouncilState, event: ev.SeatDied, now: Moment) -> Effects:
    seat = seat_of(state, event.seat)
    if event.boot != seat.boot:
        return [do.NoteIgnored(event.seat, "the death of an earlier run")]
    effects = budget.abandoned(state, now, event.seat)
    dead = replace(seat, active=False, boot=seat.boot + 1, beat=-1, why=event.why)
    return effects + _roll_changed(state, dead, now)


@ev.handles(ev.SeatFellSilent)
def _fell_silent(state: CouncilState, event: ev.SeatFellSilent, now: Moment) -> Effects:
    seat = seat_of(state, event.seat)
    if not seat.active or not now.uptime_s > silent_from(seat, state.rules):
        raise Refused(f"{event.seat} has not been silent for too long", code="not_silent", seat=event.seat)
    # The text does not say for how long: heartbeats are not journaled, and a replay must give the same (rules 1.10).
    why = f"no heartbeat for more than {state.rules.inactivity_limit_s:g} s"
    return _roll_changed(state, replace(seat, active=False, why=why), now)


def _roll_changed(state: CouncilState, seat: Seat, now: Moment) -> Effects:
    """Stores the seat, and concludes the proposals that the new roll decides."""
    was_active = state.seats[seat.name].active
    state.seats[seat.name] = seat
    effects: Effects = []
    if seat.active != was_active:
        effects.append(do.AnnounceRoll(seat.name, seat.active, seat.why))
    for proposal_id in list(state.open):
        if seat.active:
            effects += _announce_open(state, state.open[proposal_id], seat.name)
        # A lost seat is not awaited any more. A seat that is back, alone, may have voted before (rules 1.11).
        proposal = state.open[proposal_id]
        effects += store(state, proposal, conclusion.conclude(state, proposal, now))
    return effects


def _announce_open(state: CouncilState, proposal: Proposal, name: str) -> Effects:
    """Hands a seat that is back what still waits for it (rules 1.10)."""
    if proposal.stage == "ruling" and name == state.rules.prime:
        return [conclusion.ruling_request(state.rules, proposal)]
    if proposal.stage != "deliberating":
        return []
    if name in proposal.done():
        # Other seats may still publish streams on it, and this one may have forgotten the proposal.
        return [do.LetObserve(name, proposal.what.proposal_id)] if name == state.rules.observer else []
    asked = replace(proposal, asked=proposal.asked | {name})
    return [do.DeliverProposal(name, proposal.what.proposal_id), *store(state, proposal, (asked, []))]


# One seat


def silent_from(seat: Seat, rules: Rules) -> float:
    """The last moment, in seconds of uptime, at which the seat still counts as active (rules 1.10)."""
    return seat.last_beat_s + rules.inactivity_limit_s


def _at_start(seat: Seat | None, name: str, now: Moment, *, first: bool) -> Seat:
    """A seat when a coordinator starts: as if its heartbeat had come just now (rules 1.10).

    Under a later coordinator a new run begins. The numbers of heartbeats are not journaled, so only the run shows
    that a heartbeat is old.
    """
    if seat is None or first:
        return Seat(name, True, now.uptime_s, since_s=now.uptime_s)
    return replace(
        seat,
        active=True,
        last_beat_s=now.uptime_s,
        boot=seat.boot + 1,
        beat=-1,
        why=seat.why if seat.active else "the coordinator started anew",
        handed_on=seat.handed_on + 1,
        # rules 7.2: without a coordinator no one knows whether the seat was online, so its time online starts again.
        since_s=now.uptime_s,
    )


def online_s(state: CouncilState, name: str, uptime_s: float) -> float | None:
    """For how many seconds a seat has been online without a gap; None if it is inactive or unknown."""
    seat = state.seats.get(name)
    return uptime_s - seat.since_s if seat is not None and seat.active else None
