"""Keeps the roll: which seats are active. Knows nothing of proposals and ballots."""

from __future__ import annotations

from msgspec.structs import replace

from council.core.state import Moment, Rules, Seat
from council.protocol.errors import Refused


def silent_from(seat: Seat, rules: Rules) -> float:
    """The last moment, in seconds of uptime, at which the seat still counts as active (rules 1.10)."""
    return seat.last_beat_s + rules.inactivity_limit_s


def heartbeat(seat: Seat, boot: int, beat: int, now: Moment) -> Seat | None:
    """The seat after a heartbeat; None if the heartbeat is old and changes nothing.

    ``boot`` is the run that the coordinator told the seat it is in; one from before a restart, or a number
    heard already, is a replay or came out of order. Raises Refused for a run that was never begun.
    """
    if boot > seat.boot:
        raise Refused(
            f"{seat.name} sent a heartbeat of run {boot}, but its current run is {seat.boot}",
            code="unknown_boot",
            seat=seat.name,
            boot=boot,
        )
    if boot < seat.boot or beat <= seat.beat:
        return None
    why = seat.why if seat.active else "its heartbeat is back"
    since_s = seat.since_s if seat.active else now.uptime_s
    return replace(seat, active=True, last_beat_s=now.uptime_s, beat=beat, why=why, since_s=since_s)


def silence(seat: Seat, rules: Rules) -> Seat:
    """The seat once its silence has made it inactive."""
    # Not how long exactly: heartbeats are not journaled, and a replay must say the same (rules 1.10).
    return replace(seat, active=False, why=f"no heartbeat for more than {rules.inactivity_limit_s:g} s")


def anew(seat: Seat | None, name: str, now: Moment, *, first: bool) -> Seat:
    """A seat as a coordinator that starts finds it: as if it had beaten just now (rules 1.10).

    Unless it is the first, a new run begins: the numbers of heartbeats are not journaled, so that only the run
    tells an old one.
    """
    if seat is None or first:
        return Seat(name, active=True, last_beat_s=now.uptime_s, since_s=now.uptime_s)
    why = seat.why if seat.active else "the coordinator started anew"
    # rules 7.2: whether it was online while there was no coordinator, nobody can say.
    began = {"last_beat_s": now.uptime_s, "boot": seat.boot + 1, "beat": -1, "since_s": now.uptime_s}
    return replace(seat, active=True, why=why, handed_on=seat.handed_on + 1, **began)


def bury(seat: Seat, why: str) -> Seat:
    """The seat once its actor is known dead: inactive at once, and a new run begins."""
    return replace(seat, active=False, boot=seat.boot + 1, beat=-1, why=why)
