"""Drives the pure core as a shell would, without one: time by hand, a check after every step, a journal.

Knows the events and how to feed them. Knows nothing of what the rules make of them: what a test expects
it builds from its own figures (``Hand.decision``), never from the core's.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable
from typing import Any

import pytest

from council.core import events as ev
from council.core.effects import AnnounceEscalation, Effect
from council.core.state import (
    ActionReport,
    Answer,
    Ballot,
    CouncilState,
    Decision,
    Moment,
    Proposal,
    Rules,
    Ruling,
    Submission,
    Tally,
    Terms,
    UseRequest,
    UseResult,
    new_council,
    token_id_of,
)
from council.core.step import next_deadline, next_due, step
from council.protocol.errors import CouncilError, Refused
from tests.core.invariants import check

THREE = ("prime", "lite", "codemind")
# Wall time at launch. The tests' uptime starts at 0, so wall and uptime are never mistaken for each other.
WALL_0 = 1_700_000_000.0
# A seat's own rhythm (rules 1.10).
BEAT_S = 30.0
DAY_S = 86_400.0
# More than fall due at once in any test: each proposal and seat brings a few events.
DUE_MAX = 1_000


def digest_of(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _with_digest(given: dict[str, Any]) -> dict[str, Any]:
    """These fields, and a digest of them where none is given."""
    return {"digest": digest_of(sorted(given.items(), key=lambda item: item[0])), **given}


def proposal(proposal_id: str = "p1", **fields: Any) -> Submission:
    given: dict[str, Any] = {
        "proposal_id": proposal_id,
        "proposer": "client",
        "summary": f"summary of {proposal_id}",
        "time_budget_s": 60.0,
        **fields,
    }
    return Submission(**_with_digest(given))


def ballot(seat: str, vote: str, proposal_id: str = "p1", **fields: Any) -> Ballot:
    given: dict[str, Any] = {
        "proposal_id": proposal_id,
        "seat": seat,
        "vote": vote,
        "reason": f"{seat} says {vote}",
        "confidence": 0.9,
        "risk_level": "low",
        "msg_id": f"vote-{seat}-{proposal_id}",
        **fields,
    }
    return Ballot(**_with_digest(given))


def report(stage: Any = "act", proposal_id: str = "p1", **fields: Any) -> ActionReport:
    given: dict[str, Any] = {
        "proposal_id": proposal_id,
        "sender": "client",
        "stage": stage,
        "ok": True,
        "text": "",
        **fields,
    }
    return ActionReport(**_with_digest(given))


def terms(**fields: Any) -> Terms:
    """What an approval allows; by default one write of one file."""
    given: dict[str, Any] = {
        "executor": "exec",
        "operations": ("write",),
        "resources": ("file:/srv/x",),
        "digest": "d1",
        "uses": 1,
        "ttl_s": 600.0,
        "timeout_s": 50.0,
        **fields,
    }
    return Terms(**given)


def use(use_id: str = "u1", proposal_id: str = "p1", **fields: Any) -> UseRequest:
    """An executor's request that fits ``terms``."""
    given: dict[str, Any] = {
        "proposal_id": proposal_id,
        "use_id": use_id,
        "executor": "exec",
        "run": "r1",
        "token_id": token_id_of(proposal_id),
        "tool": "write",
        "operations": ("write",),
        "resources": ("file:/srv/x",),
        "arguments": "d1",
        **fields,
    }
    return UseRequest(**given)


def use_result(outcome: Any = "ok", use_id: str = "u1", proposal_id: str = "p1", **fields: Any) -> UseResult:
    given: dict[str, Any] = {
        "proposal_id": proposal_id,
        "use_id": use_id,
        "executor": "exec",
        "outcome": outcome,
        **fields,
    }
    return UseResult(**_with_digest(given))


def yes(seat: str, proposal_id: str = "p1", **fields: Any) -> Ballot:
    return ballot(seat, "yes", proposal_id, **fields)


def no(seat: str, proposal_id: str = "p1", **fields: Any) -> Ballot:
    return ballot(seat, "no", proposal_id, **fields)


def abstain(seat: str, proposal_id: str = "p1", **fields: Any) -> Ballot:
    return ballot(seat, "abstain", proposal_id, **fields)


def ruling(word: str, proposal_id: str = "p1", **fields: Any) -> Ruling:
    given: dict[str, Any] = {
        "proposal_id": proposal_id,
        "seat": "prime",
        "ruling": word,
        "reason": f"prime rules {word}",
        "confidence": 0.9,
        "risk_level": "low",
        "msg_id": f"ruling-{proposal_id}",
        **fields,
    }
    return Ruling(**_with_digest(given))


def answer(approve: bool, proposal_id: str = "p1", **fields: Any) -> Answer:
    given: dict[str, Any] = {
        "proposal_id": proposal_id,
        "human": "ada",
        "approve": approve,
        "reason": "seen in person",
        "msg_id": f"answer-{proposal_id}",
        **fields,
    }
    return Answer(**_with_digest(given))


def interrupt(observer: str, stream: str, n: int, proposal_id: str = "p1") -> ev.StreamObserved:
    return ev.StreamObserved(proposal_id, observer, stream, True, f"halt {n}", f"obs-{observer}-{stream}-{n}")


def clean(observer: str, stream: str, n: int, proposal_id: str = "p1") -> ev.StreamObserved:
    return ev.StreamObserved(
        proposal_id, observer, stream, False, f"fine {n}", f"obs-{observer}-{stream}-{n}"
    )


def unreadable(
    seat: str, why: str = "prose", proposal_id: str = "p1", *, digest: str | None = None
) -> ev.BallotUnreadable:
    """A vote that can't be read; other words are other bytes."""
    return ev.BallotUnreadable(proposal_id, seat, why, digest or digest_of(proposal_id, seat, why))


def tally(ballots: Iterable[Ballot]) -> Tally:
    votes = [cast.vote for cast in ballots]
    return Tally(votes.count("yes"), votes.count("no"), votes.count("abstain"))


class Hand:
    """A council in hand. ``do`` feeds one event, ``wait`` lets time pass as a shell with one timer would."""

    def __init__(self, seats: Iterable[str] = THREE, *, start_s: float = 0.0, **rules: Any) -> None:
        rules.setdefault("prime", "prime")
        rules.setdefault("lost_at_once", True)
        rules.setdefault("asks_outcome", True)
        rules.setdefault("keeps_escalation", True)
        self.rules = Rules(seats=tuple(seats), **rules)
        self.t = start_s
        self.wall = WALL_0
        self.position = 0
        self.state: CouncilState = new_council(self.rules, self.moment())
        self.journal: list[tuple[ev.Event, Moment, list[Effect]]] = []
        self.opened: dict[str, float] = {}
        self.beats: dict[str, int] = dict.fromkeys(self.rules.seats, -1)

    # Feeding

    def moment(self) -> Moment:
        """The moment of the next event."""
        return Moment(self.t, self.wall, self.position + 1)

    def _step(self, event: ev.Event) -> list[Effect]:
        now = self.moment()
        state, effects = step(self.state, event, now)
        assert state is self.state
        check(self.state)
        self.position += 1
        self.journal.append((event, now, list(effects)))
        if isinstance(event, ev.ProposalSubmitted):
            self.opened.setdefault(event.what.proposal_id, self.t)
        return effects

    def drain(self) -> list[Effect]:
        """Handles what time has brought by now, as the shell does before every event."""
        effects: list[Effect] = []
        before = len(self.journal)
        while (due := next_due(self.state, self.moment())) is not None:
            assert len(self.journal) - before < DUE_MAX, f"time does not stop bringing {due}"
            effects += self._step(due)
        deadlines = next_deadline(self.state)
        uptime_s, wall_s = deadlines.uptime_s, deadlines.wall_s
        assert uptime_s is None or uptime_s > self.t, "next_deadline lies in the past after draining"
        assert wall_s is None or wall_s > self.wall, "the wall deadline lies in the past"
        return effects

    def do(self, event: ev.Event) -> list[Effect]:
        """Drains, then feeds ``event``; gives back the effects of ``event`` alone."""
        self.drain()
        return self._step(event)

    def refused(self, event: ev.Event, code: str, kind: type[CouncilError] = Refused) -> CouncilError:
        """Feeds an illegal event: it must raise ``code`` and leave the state as it was."""
        self.drain()
        before = copy.deepcopy(self.state)
        with pytest.raises(kind) as caught:
            step(self.state, event, self.moment())
        error = caught.value
        assert error.code == code, f"expected {code}, found {error.code}: {error}"
        assert error.message
        assert self.state == before, "an illegal event changed the state"
        check(self.state)
        return error

    def move_to(self, uptime_s: float) -> None:
        """Sets the clocks on, without handling anything: a shell that overslept."""
        self.wall += uptime_s - self.t
        self.t = uptime_s

    def wait(self, seconds: float, *, silent: Iterable[str] = ()) -> list[Effect]:
        """Lets time pass; all active seats but ``silent`` beat. Wakes at every deadline, like a shell."""
        until, quiet = self.t + seconds, set(silent)
        next_beat = self.t + BEAT_S
        effects = self.drain()
        while self.t < until:
            deadlines = next_deadline(self.state)
            wake = min(until, next_beat)
            if deadlines.uptime_s is not None:
                wake = min(wake, deadlines.uptime_s)
            if deadlines.wall_s is not None and self.t + (deadlines.wall_s - self.wall) <= wake:
                self.t, self.wall = self.t + (deadlines.wall_s - self.wall), deadlines.wall_s
            else:
                self.move_to(wake)
            effects += self.drain()
            if self.t >= next_beat:
                next_beat += BEAT_S
                for name in self.rules.seats:
                    if self.state.seats[name].active and name not in quiet:
                        self.beat(name)
        return effects

    def beat(self, seat: str, *, boot: int | None = None) -> list[Effect]:
        """The seat's next heartbeat, of the run that the coordinator told it."""
        self.beats[seat] += 1
        run = self.state.seats[seat].boot if boot is None else boot
        return self.do(ev.SeatBeat(seat, run, self.beats[seat]))

    def died(self, seat: str, why: str = "killed") -> list[Effect]:
        """The death of the seat in its present run."""
        return self.do(ev.SeatDied(seat, self.state.seats[seat].boot, why))

    # Shorthands

    def submit(self, what: Submission | None = None, **fields: Any) -> Submission:
        given = what if what is not None else proposal(**fields)
        self.do(ev.ProposalSubmitted(given))
        return given

    def vote(self, *ballots: Ballot) -> list[Effect]:
        """Casts ballots; gives back the effects of the last."""
        effects: list[Effect] = []
        for cast in ballots:
            effects = self.do(ev.BallotCast(cast))
        return effects

    def open(self, proposal_id: str = "p1") -> Proposal:
        return self.state.open[proposal_id]

    def closed(self, proposal_id: str = "p1") -> Decision:
        return self.state.closed[proposal_id].decision

    # What a test expects

    def decision(
        self, what: Submission, outcome: str | None, reason: str, *ballots: Ballot, **fields: Any
    ) -> Decision:
        """The decision that the event just handled should have made, all other fields at their rest."""
        given: dict[str, Any] = {
            "proposal_id": what.proposal_id,
            "summary": what.summary,
            "standing": "decided" if outcome else "escalated",
            "outcome": outcome,
            "final": outcome is not None,
            "reason": reason,
            "tally": tally(ballots),
            "quorum": self.rules.quorum,
            "ballots": ballots,
            "shared": self.rules.shared,
            "seconds": self.t - self.opened[what.proposal_id],
            "position": self.position,
            **fields,
        }
        return Decision(**given)

    def escalation(self, what: Submission, reason: str, *ballots: Ballot, **fields: Any) -> Effect:
        """The announcement that ``what`` waits for a human for ``reason``; its texts are checked apart."""
        asked = self.open(what.proposal_id).escalation
        assert asked is not None
        assert asked.reason == reason
        assert asked.ballots == ballots
        assert asked.escalation_id == f"esc-{what.proposal_id}"
        assert 2 <= len(asked.options) <= 3
        assert all(option.pros and option.cons for option in asked.options)
        assert asked.gaps
        assert asked.next_step
        assert asked.expires_wall_s - asked.asked_wall_s == self.rules.escalation_ttl_s
        given = {"escalation_id": asked.escalation_id, **fields}
        return AnnounceEscalation(asked, self.decision(what, None, asked.detail, *ballots, **given))
