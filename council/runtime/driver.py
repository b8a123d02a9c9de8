"""Opens envelopes, steps the core, and says what to keep and what to send. Moves no bytes and has no clock.

The shell calls ``open`` once for each sealed envelope and then ``receive``, and ``wake`` when a deadline is due. If
``receive`` returns an ``Away``, nothing was done: the shell takes the proposal back and calls again. It writes the
records of ``drain`` to the journal, then calls ``saved``. It sends the messages of ``outbox.to_seats`` and
``announcements.to_sessions``. The order is receive → step → journal → announce. An effect that announces an event is
held until ``saved`` says that its record is kept (rules 4.7). An effect that only makes seats think is sent at once.
``runtime.commit`` decides when to write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

from council.core import effects as do
from council.core import events as ev
from council.core.proposals import how_it_stands, stands
from council.core.state import (
    CouncilState,
    Decision,
    Escalation,
    IdentityChange,
    Moment,
    Proposal,
    Rules,
    new_council,
)
from council.core.step import next_due, step
from council.journal.record import Record, Snapshot, diverged, leaves_one, mark_of
from council.kinds.identity import judged
from council.protocol import signing
from council.protocol.envelope import Envelope
from council.protocol.errors import (
    CouncilError,
    EnvelopeError,
    InternalError,
    Refused,
    StoreCorrupt,
    StoreError,
)
from council.runtime.announcements import Announcements
from council.runtime.archive import Archive, Away, Earlier, named_in
from council.runtime.event_reader import event_of, reserved_for, unreadable
from council.runtime.feed import Flood
from council.runtime.messages import Acknowledged, Message, Told, failure, printable, reference
from council.runtime.outbox import TO_ONE, Outbox
from council.runtime.senders import Senders
from council.runtime.snapshot import base_of, based, more_of, packed, state_of
from council.runtime.streams import Relay, is_piece, piece_of
from council.runtime.used_ids import UsedIds

# Effects that do not announce the event; all others wait until its record is kept.
_AT_ONCE = (*do.THINK, do.NoteIgnored, do.AnswerAgain)


class Opened(NamedTuple):
    """A sealed envelope that has arrived: its ``envelope``, or the ``error`` if it can't be opened.

    ``key`` is the key that verified it. ``unfit`` is the reason why no seat can be shown this proposal, if it is a
    new one (rules 2.2).
    """

    sealed: bytes
    envelope: Envelope | None = None
    key: bytes = b""
    error: CouncilError | None = None
    unfit: CouncilError | None = None


class DurableState(NamedTuple):
    """The council as of ``position``. ``counts`` are decisions by outcome; ``ways`` are the other counters.

    ``asked`` are the questions about unknown outcomes that wait for a human.
    """

    position: int
    open: Mapping[str, Proposal]
    closed: Earlier
    counts: Mapping[str, int]
    ways: Mapping[str, int]
    identity_change: IdentityChange | None
    asked: tuple[Escalation, ...] = ()

    def escalations(self) -> list[Escalation]:
        """The escalations that wait for a human, oldest first."""
        return escalations(self.open, self.asked)

    def decision(self, proposal_id: str, newest: Decision | None, stalled: StoreError) -> Decision | None:
        """The decision or standing of a proposal on disk. ``newest`` includes the records that are not saved yet.

        Raises ``stalled`` if the two differ: the new one can't be announced yet, and the old one is no longer true.
        """
        closed, proposal = self.closed.get(proposal_id), self.open.get(proposal_id)
        if closed is None and proposal is None:
            raise stalled
        then = stands(proposal_id, closed, proposal)
        before, after = (None if each is None else each.standing for each in (then, newest))
        if before != after:
            raise stalled
        return then


def escalations(opened: Mapping[str, Proposal], asked: Sequence[Escalation]) -> list[Escalation]:
    """The escalations of proposals that wait for a human, and the questions ``asked`` of outcomes, oldest first."""
    found = [each.escalation for each in opened.values() if each.escalation is not None]
    return sorted([*found, *asked], key=lambda each: each.asked_wall_s) if asked else found


class Driver:
    """One council's core with its keys, its feed of events, and what waits to be kept or sent.

    ``now`` arguments are ``(uptime_s, wall_s)``. ``keys`` are those of the seats, ``humans`` those of all who may
    answer, ``executors`` those of the executors that are known from the launch. ``new_id`` makes message ids.
    ``decided`` and ``decisions_kept`` are ``read`` and ``kept_max`` of ``Archive``.
    """

    def __init__(
        self,
        rules: Rules,
        council_id: str,
        keys: Mapping[str, bytes],
        now: tuple[float, float],
        *,
        new_id: Callable[[], str],
        humans: Mapping[str, bytes] = MappingProxyType({}),
        executors: Mapping[str, bytes] = MappingProxyType({}),
        events_kept: int = 20_000,
        decided: Callable[[int], bytes] | None = None,
        decisions_kept: int | None = None,
    ) -> None:
        self.council_id = council_id
        self.state: CouncilState = new_council(rules, Moment(*now, 0))
        self.archive = self.state.closed = Archive(decided, decisions_kept)
        self.senders = Senders(council_id, keys, humans, executors)
        self.announcements = Announcements(events_kept, now[0])
        self.outbox = Outbox(new_id)
        self.unsaved: list[Record] = []
        self.refused: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()
        self._position = 0
        self._woken_at = now
        self.relay = Relay()
        self._ids = UsedIds(snapshots=decided is not None)
        self.kept = self._taken = self._newest_state()

    @property
    def rules(self) -> Rules:
        """The rules that the council is governed by."""
        return self.state.rules

    def _newest_state(self) -> DurableState:
        """The council's state by the newest record."""
        return DurableState(
            self.position,
            dict(self.state.open),
            self.archive.frozen(),
            dict(self.announcements.counts),
            dict(self.announcements.ways),
            self.state.identity_change,
            tuple(self.state.governance.asked.values()),
        )

    def begin(self, epoch: int, rules: Rules, now: tuple[float, float]) -> None:
        """Begins as the coordinator of ``epoch``, first of all or after ``replay`` (rules 1.10)."""
        self._woken_at, self.kept = now, self._newest_state()
        self._step(ev.CoordinatorStarted(self.council_id, epoch, rules), now)
        self.wake(now)

    def replay(self, record: Record) -> None:
        """Handles the records of an earlier run, in order. Nothing is sent, and nothing is kept again.

        Raises ReplayDiverged if this version of the rules has other effects.
        """
        moment, event = record.moment, record.event
        if moment.position == 1 and isinstance(event, ev.CoordinatorStarted):
            self.state = new_council(event.rules, moment)
            self.state.closed = self.archive
        while (away := self._first_away(event)) is not None:
            self.take_back(away, self.archive.fetch(away))
        self._woken_at = now = moment.uptime_s, moment.wall_s
        try:
            self.state, effects = step(self.state, event, moment)
        except CouncilError as error:
            raise diverged(record, f"it is refused now: {error.message}") from error
        if mark_of(effects) != (record.mark or mark_of(record.effects)):
            names = ", ".join(type(effect).__name__ for effect in effects) or "nothing"
            raise diverged(record, f"what follows from it now, {names}, is not what followed then")
        self._position = moment.position
        self._note(record)
        if record.msg_id is not None and record.sealed is not None:
            submitted = event.what if isinstance(event, ev.ProposalSubmitted) else None
            self._ids.add(record.msg_id, submitted.digest if submitted else signing.digest(record.sealed))
        for effect in effects:
            if not isinstance(effect, (*_AT_ONCE, *TO_ONE)) and (
                told := self.announcements.count(effect, now[0])
            ):
                self._announce_effect(told, now, self._position)

    def snapshot(self) -> Snapshot:
        """The council's state, for ``restore``. All records must have been drained."""
        assert not self.unsaved
        base = based(
            self.state,
            council_id=self.council_id,
            announced=self.announcements.announced,
            refusals=self.announcements.refusals.now(),
            decided=dict(self.announcements.counts),
            ways=dict(self.announcements.ways),
            refused=dict(self.refused),
        )
        parts = self.archive.new_parts(self._position)
        return packed(self._position, base, parts, self._ids.take_new(), self.senders.take_new())

    def restore(
        self,
        position: int,
        base: bytes,
        mores: Iterable[tuple[int, bytes]],
        envelopes: Callable[[Collection[str]], Mapping[str, bytes]],
    ) -> None:
        """Continues from snapshots: the newest ``base``, and the addition of each, with its position, in order.

        ``envelopes`` returns those of messages by id. Earlier announcements can't be read from the feed any more.
        Raises StoreCorrupt if a part can't be read; the driver is then unchanged.
        """
        now, archive, ids = base_of(base), self.archive.empty(), UsedIds(snapshots=True)
        sealed = envelopes([proposal.what.proposal_id for proposal in now.open])
        if len(sealed) < len(now.open):
            raise StoreCorrupt(f"of {len(now.open)} open proposals, the envelopes of {len(sealed)} are kept")
        proposers: dict[str, bytes] = {}
        for at, packed_more in mores:
            more = more_of(packed_more)
            archive.restore(at, more.decided)
            ids.restore(more.ids)
            proposers |= more.proposers
        for granted in now.calls:
            if (away := archive.away(granted.call.proposal_id)) is not None:
                archive.take_back(away, archive.fetch(away), now.calls)
        self.senders.restore(proposers)
        self.state, self.archive, self._ids = state_of(now, archive), archive, ids
        self._position = position
        self.outbox.payloads |= {each: signing.payload_of(of) for each, of in sealed.items()}
        self.refused = Counter(now.refused)
        refusals, decided = Flood(*now.refusals), Counter(now.decided)
        self.announcements.restore(now.announced, refusals, decided, Counter(now.ways))

    # Senders

    def join(self, name: str, role: str, key: bytes) -> None:
        """Admits a client or a human: see ``Senders.join``."""
        self.senders.join(name, role, key)

    def retire(self, name: str) -> None:
        """Removes a sender without a session, now or when the last of its proposals is decided.

        Humans keep their names, because an answer must stay theirs.
        """
        has_open = any(proposal.what.proposer == name for proposal in self.state.open.values())
        self.senders.retire(name, has_open=has_open)

    # Arriving messages

    def open(self, sealed: bytes) -> Opened:
        """Verifies, decodes and validates an envelope, once, for ``receive``."""
        try:
            envelope = self.senders.keyring.open(sealed, self.council_id)
        except InternalError:
            raise  # our own fault, not the sender's
        except CouncilError as error:
            return Opened(sealed, error=error)
        return Opened(sealed, envelope, self.senders.keyring.key(envelope.sender))

    def receive(self, opened: Opened, now: tuple[float, float], session: str | None = None) -> Away | None:
        """Handles an envelope of ``open``; if it can't be accepted, that is journaled, counted and answered.

        Returns the place of a decided proposal that must be read back from the store first. Then nothing has changed:
        the shell reads the proposal back, and calls again.
        """
        if now != self._woken_at:  # the envelopes of one call share a moment
            self.wake(now)
        envelope = opened.envelope
        if envelope is not None and not self.senders.keyring.matches(envelope.sender, opened.key):
            # While it waited its sender left; another may have the name now.
            opened = self.open(opened.sealed)
            envelope = opened.envelope
        try:
            if envelope is None:
                assert opened.error is not None
                raise opened.error
            if is_piece(envelope, self.senders.roles.get(envelope.sender)):
                self._pass_on(envelope)
                return None
            return self._accept(opened, envelope, now, session)
        except InternalError:
            raise
        except CouncilError as error:
            # The seat of an unreadable ballot is asked once more (rules 1.2).
            if (ballot := unreadable(error, opened.sealed)) is not None:
                with suppress(Refused):
                    if (away := self._first_away(ballot)) is None:
                        self._step(ballot, now, opened.sealed)
                    return away
            self._refuse(error, opened, now, session)
            return None

    def _accept(
        self, opened: Opened, envelope: Envelope, now: tuple[float, float], session: str | None
    ) -> Away | None:
        """Steps the core by an authentic envelope. Raises the reason if it is refused."""
        sealed, msg_id = opened.sealed, envelope.msg_id
        identity = signing.identity_of(envelope, sealed)
        event = event_of(envelope, len(sealed), identity, self.senders.roles.get(envelope.sender))
        self._refuse_early(event, envelope.sender, msg_id, identity, opened.unfit)
        if (away := self._first_away(event)) is not None:
            return away
        before = self._position
        if not isinstance(event, ev.IdentityChanged):
            self._step(event, now, sealed, session, msg_id)
        elif msg_id in self._ids:  # whatever has come since
            self.ignored["the same change of the identity again"] += 1
        else:
            self._step(judged(self.state, event, now[0]), now, sealed, session, msg_id)
        if self._position > before:  # only what is journaled uses up its id, as in a replay
            self._ids.add(msg_id, identity)
            if envelope.metadata is not None and isinstance(event, ev.ProposalSubmitted):
                self.announcements.trace(msg_id, envelope.metadata)
        if session is not None:
            self._acknowledge(event, sealed, session)
        return None

    def _acknowledge(self, event: ev.Event, sealed: bytes, session: str) -> None:
        if not isinstance(event, ev.ProposalSubmitted):
            self._reply(session, Acknowledged(reference(sealed)))
        elif event.what.proposal_id in self.state.open:  # its answer is the decision
            self.announcements.watch(event.what.proposal_id, session)

    def _first_away(self, event: ev.Event) -> Away | None:
        """A decided proposal to take back before this event. Raises Refused for one that is forgotten."""
        return next(filter(None, map(self.away, named_in(event))), None)

    def away(self, proposal_id: str) -> Away | None:
        """The place of a decided proposal that must be taken back before it is looked up; see ``Archive.away``."""
        return None if proposal_id in self.state.open else self.archive.away(proposal_id)

    def knows(self, proposal_id: str) -> bool:
        """Whether a proposal of this id is open or decided."""
        return proposal_id in self.state.open or proposal_id in self.state.closed

    def take_back(self, away: Away, closed: bytes) -> None:
        """Puts a decided proposal back into memory: ``closed`` is the result of ``Archive.fetch``."""
        self.archive.take_back(away, closed, self.state.calls.values())

    def _pass_on(self, envelope: Envelope) -> None:
        """Relays a piece of a seat's stream to the observer, or drops it. Either way there is no record."""
        try:
            piece = piece_of(envelope)
            why = self.relay.take(piece, self.state)
        except EnvelopeError:
            why = "it can't be read"
        if why:
            self.ignored[f"a piece of a stream: {why}"] += 1
        else:
            self.outbox.relay(piece, self.rules.observer, self.state, self._woken_at)

    def _refuse_early(
        self, event: ev.Event, sender: str, msg_id: str, identity: str, unfit: CouncilError | None
    ) -> None:
        """Refuses what the core can't check: an id is used once (rules 1.15), a proposal fits some seat (rules 2.2).

        The core answers a proposal that was accepted before, maybe by other settings (rules 1.12).
        """
        submitted = isinstance(event, ev.ProposalSubmitted)
        if submitted and (msg_id in self.state.open or msg_id in self.state.closed):
            return
        if self._ids.differs(msg_id, identity):
            raise Refused(
                f"{sender} used the id {msg_id}, which another message of this council has, or one that was "
                "refused: give each message an id of its own",
                code="id_reused",
                sender=sender,
            )
        if submitted and unfit is not None:
            raise unfit

    def wake(self, now: tuple[float, float]) -> None:
        """Handles all deadlines that have passed by ``now``."""
        self._woken_at = now
        while (event := next_due(self.state, Moment(*now, self._position + 1))) is not None:
            self._step(event, now)

    def seat_died(self, name: str, boot: int, why: str, now: tuple[float, float]) -> None:
        """Handles the death of a seat's actor in its run ``boot``, or that it can't be reached."""
        self.wake(now)
        self._step(ev.SeatDied(name, boot, printable(why[:500])), now)

    def boot(self, name: str) -> int:
        """The number of the run that a seat is in, for its heartbeats to name."""
        return self.state.seats[name].boot

    def _step(
        self,
        event: ev.Event,
        now: tuple[float, float],
        sealed: bytes | None = None,
        session: str | None = None,
        msg_id: str | None = None,
    ) -> None:
        moment = Moment(*now, self._position + 1)
        self.state, effects = step(self.state, event, moment)
        if leaves_one(event, effects):
            self._position += 1
            mark = None
            if isinstance(event, ev.ProposalSubmitted):
                mark = self.senders.mark(event.what.proposer)
            elif isinstance(event, ev.ExecutorStarted):
                mark = self.senders.mark(event.executor)
            record = Record(moment, event, sealed, tuple(effects), msg_id, mark)
            self.unsaved.append(record)
            self._note(record)
        for effect in effects:
            if not isinstance(effect, _AT_ONCE):
                if told := self.announcements.count(effect, now[0]):
                    self.announcements.hold(told, self._position, now)
            elif isinstance(effect, do.THINK):
                self.outbox.write(effect, self.state, self._woken_at)
            elif isinstance(effect, do.NoteIgnored):
                self.ignored[effect.what] += 1
            elif effect.decision is not None:
                self._reply(session, Told(effect.decision))

    def _note(self, record: Record) -> None:
        """Remembers the parts of a new or replayed record that later ones are compared with."""
        event = record.event
        self.archive.advance(record.position)
        if isinstance(event, ev.ProposalSubmitted):
            assert record.sealed is not None
            assert record.key_mark is not None
            self.outbox.payloads[event.what.proposal_id] = signing.payload_of(record.sealed)
            self.senders.proposed(event.what.proposer, record.key_mark)
        elif isinstance(event, ev.ExecutorStarted):
            assert record.key_mark is not None
            self.senders.proposed(event.executor, record.key_mark)
        elif isinstance(event, ev.CoordinatorStarted) and record.position == 1:
            self.announcements.refusals = Flood(record.moment.uptime_s)
        elif isinstance(event, ev.EnvelopeRefused):
            self.refused[event.code] += 1
            if event.code == "identity_refused":  # for good, even if it would be accepted later
                self._ids.add(event.msg_id, "")
        elif isinstance(event, ev.BallotUnreadable):
            self.refused["unreadable_ballot"] += 1

    def _refuse(
        self, error: CouncilError, opened: Opened, now: tuple[float, float], session: str | None
    ) -> None:
        """Journals that an envelope was refused, and tells its sender why."""
        envelope, sender, msg_id = opened.envelope, "?", "?"
        if envelope is not None:
            sender, msg_id = envelope.sender, envelope.msg_id
        if isinstance(error, EnvelopeError):
            sender, msg_id = error.facts.get("sender") or sender, error.facts.get("msg_id") or msg_id
        why = printable(error.message)
        self._step(ev.EnvelopeRefused(printable(sender), printable(msg_id), error.code, why), now)
        if session is not None:
            self._reply(session, failure(opened.sealed, error))
        if envelope is not None and sender in self.state.seats and (about := reserved_for(envelope)):
            denied = do.DenyCall(sender, about, msg_id, why, again=True)
            self.announcements.hold(denied, self._position, now)  # its seat waits for an answer

    # Records and effects to be sent

    @property
    def position(self) -> int:
        """The position of the newest record."""
        return self._position

    @property
    def hurries(self) -> bool:
        """Whether a client, a human or Prime waits for a record that is not kept yet."""
        return self.announcements.urgent

    @property
    def awaits_saving(self) -> bool:
        """Whether there is something to keep, or to announce once it is kept."""
        return bool(self.unsaved) or self.announcements.waiting

    @property
    def deliberates(self) -> bool:
        """Whether a proposal waits for seats, and not for a human."""
        return len(self.state.open) > self.state.with_human

    def drain(self) -> list[Record]:
        """The records to be kept now. Once they are, ``kept`` is the council's present state."""
        records, self.unsaved = self.unsaved, []
        self._taken = self._newest_state()
        return records

    def saved(self, position: int) -> None:
        """Records up to ``position`` are kept: performs the effects that waited for it."""
        if self._taken.position <= position:
            self.kept = self._taken
        for effect, now, at in self.announcements.release(position):
            self._announce_effect(effect, now, at)
        self.archive.forget(position, self.state.calls.values())

    def let_go(self, kept_to: int) -> None:
        """The snapshot at ``kept_to`` is in the store, and all up to it is announced; see ``Archive.let_go``."""
        self.archive.let_go(kept_to, self.state.calls.values())

    def _announce_effect(self, effect: do.Effect, now: tuple[float, float], position: int) -> None:
        """Performs an effect of the record at ``position`` that announces it."""
        if isinstance(effect, TO_ONE):
            self.outbox.write(effect, self.state, self._woken_at)
            return
        self.announcements.publish(effect, now[1], position)
        if isinstance(effect, do.AnnounceDecision):
            proposal_id = effect.decision.proposal_id
            self.outbox.payloads.pop(proposal_id, None)
            self.relay.end(proposal_id)
            if (proposer := self.archive[proposal_id].proposer) in self.senders.leaving:
                self.retire(proposer)

    def _reply(self, session: str | None, message: Message) -> None:
        if session is not None:
            self.announcements.reply(session, message, self._position, self._woken_at)

    # Questions

    def decision(self, proposal_id: str) -> Decision | None:
        """The decision on a proposal, or its standing with a human; None while it is deliberated.

        It is as of the newest record, like ``escalations`` and ``status``, and may be announced once that is kept. If
        the proposal is ``away``, it must be taken back first.
        """
        return how_it_stands(self.state, proposal_id)

    def escalations(self) -> list[Escalation]:
        """What waits for a human, oldest first."""
        return escalations(self.state.open, tuple(self.state.governance.asked.values()))
