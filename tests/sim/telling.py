"""What a simulated coordinator tells, held against what is kept by then. Knows nothing of how it is written."""

from __future__ import annotations

from typing import Any

from council.core.effects import (
    AnnounceBallot,
    AnnounceDecision,
    AnnounceEscalation,
    AnnounceOutcome,
    AnnounceStart,
    IssueToken,
)
from council.core.proposals import how_it_stands
from council.core.state import Decision
from council.protocol.errors import StoreFull
from council.runtime.messages import Acknowledged, Failed, Told
from tests.sim import compare
from tests.sim.life import Life, Writing
from tests.sim.plan import pick
from tests.sim.truth import Violation


class Telling:
    """The part of the world that hears what coordinators say."""

    def _poll(self, life: Life) -> None:
        """Somebody asks, at the worst moment, how a proposal stands."""
        position = life.driver.position
        if not self.oracle.cases or not self.fires("poll", f"{life.number}/{position}"):
            return
        pid = pick(sorted(self.oracle.cases), self.plan.seed, "asks for", position)
        if (away := life.driver.away(pid)) is not None:
            self._take_back(life.driver, away)
        told = life.driver.decision(pid)
        self._none_hears_more(life, pid, told)
        if told is not None or life.driver.unsaved:  # rules 4.7: it is told once the newest record is kept
            life.asked.append((position, pid, told))
            life.commit.hurry(position)

    def _none_hears_more(self, life: Life, pid: str, now: Decision | None) -> None:
        """While nothing can be kept, whoever asks hears what the journal on disk makes of it, or why not."""
        kept, stalled = life.driver.kept, StoreFull("no room")
        on_disk = self.shadow.state
        here = kept.position, kept.open, kept.counts, kept.ways
        there = (
            self.disk.position,
            on_disk.open,
            self.shadow.announcements.counts,
            self.shadow.announcements.ways,
        )
        compare.hold("4.7", here == there, f"what is kept is told as {here}, and is {there}")
        is_known = pid in on_disk.open or pid in on_disk.closed
        then = how_it_stands(on_disk, pid) if is_known else None
        same = is_known and (then is None) == (now is None) and (now is None or now.final == then.final)
        try:
            told = kept.decision(pid, now, stalled)
        except StoreFull:
            compare.hold("4.7", not same, f"who asks for {pid} is not told what is kept")
        else:
            compare.hold("4.7", same and told == then, f"{pid} is told as {told}; kept is {then}, now {now}")

    def _tell_who_asked(self, life: Life) -> None:
        """Who asked is told what is kept by now."""
        waiting, life.asked = life.asked, []
        for position, pid, told in waiting:
            if position > life.commit.kept_position:
                life.asked.append((position, pid, told))
            elif told is not None:
                compare.words(self.oracle, told, how_it_stands(self.shadow.state, pid), "who asked was")

    def _check_stall(self, life: Life) -> None:
        """Who waits hears that nothing can be kept, and that it can be again, by turns."""
        owed = {
            name for name in (*self.plan.clients, *self.plan.humans) if life.driver.announcements.owes(name)
        }
        told = life.commit.looked(self.t, owed, stalls=life.troubled)
        expected = owed - life.stalled if life.troubled else life.stalled
        compare.hold("4.7", told == expected, f"of a stall {told} hear, {expected} should")
        life.stalled = life.stalled | told if life.troubled else set()
        if told:
            self.oracle.reached.add("stalled" if life.troubled else "stalled no more")

    def _told(self, life: Life, writing: Writing, session: str, message: Any) -> None:
        if isinstance(message, Told):
            decision = message.decision
            pid = decision.proposal_id
            self.tell("{} is told: {} is {}", session, pid, decision.outcome or "escalated")
            compare.words(self.oracle, decision, how_it_stands(self.shadow.state, pid), session)
            if decision.final:
                life.answered.add((session, pid))
                for key, said in list(self.unanswered.items()):
                    if key[0] == session and said.kind == "proposal" and said.pid == pid:
                        del self.unanswered[key]
            else:
                end_known = (session, pid) in life.answered
                compare.hold("1.9", not end_known, f"{session} was told the end of it before")
            return
        assert isinstance(message, (Acknowledged, Failed))
        due = life.due_reply.get(message.ref)
        compare.hold("4.7", due is not None, f"{session} is answered what it never asked")
        assert due is not None
        kept = life.commit.kept_position
        compare.hold("4.7", kept >= due, f"{session} is told of record {due}, kept are {kept}")
        waited_s = writing.begun_s - max(writing.idle_s, life.arrived_s[message.ref])
        compare.hold("hurry", waited_s <= 0.0, f"{session} waited {waited_s} s for a write that lingered")
        said = self.unanswered.pop((session, message.ref), None)
        if said is not None and self._heard_of(said, session, message):
            return
        if said is not None and isinstance(message, Acknowledged):
            self.acknowledged.append(said)

    def _read_feed(self, life: Life) -> None:
        feed = life.driver.announcements.feed
        new = feed.position - life.feed_seen
        for position, (_, effect) in enumerate(feed.newest(new), life.feed_seen + 1):
            told = self.feed_told.setdefault(position, effect)
            if told != effect:
                raise Violation("1.12", f"event {position} was told as {told}, and as {effect}")
            if isinstance(effect, AnnounceDecision):
                pid = effect.decision.proposal_id
                compare.words(self.oracle, effect.decision, how_it_stands(self.shadow.state, pid), "the feed")
                self.tell("decided: {} {} ({})", pid, effect.decision.outcome, effect.decision.reason)
                self._act_on(pid)
            elif isinstance(effect, IssueToken):
                self._race(effect.token)
            elif isinstance(effect, AnnounceOutcome):
                closed = self.shadow.state.closed.get(effect.report.proposal_id)
                told = [digest for _, _, digest in closed.reports] if closed is not None else []
                is_kept = effect.report.digest in told
                compare.hold("4.7", is_kept, f"the feed shows {effect.report}, which is not kept")
            elif isinstance(effect, AnnounceStart):
                known = 1 < effect.epoch <= self.disk.epoch
                compare.hold("4.6", known, f"a start of epoch {effect.epoch} is told")
            elif isinstance(effect, AnnounceEscalation):
                self._ask_humans(effect.escalation)
            elif isinstance(effect, AnnounceBallot):
                kept = self.shadow.state.open.get(effect.ballot.proposal_id)
                ballots = kept.ballots + kept.late if kept is not None else None
                is_kept = ballots is None or effect.ballot in ballots
                compare.hold("4.7", is_kept, f"the feed shows {effect.ballot.msg_id}, which is not kept")
        life.feed_seen = feed.position
