"""Opens envelopes, steps the core, and says what to keep and what to send. Moves no bytes and has no clock.

A shell calls ``receive`` with each sealed envelope and ``wake`` when a deadline is due, has the journal keep what
it may ``drain``, calls ``saved``, and carries away ``to_seats`` and ``to_sessions``. The order is receive → step →
journal → tell: what tells somebody of an event is held until ``saved`` says that the event's record is kept (rules
4.7); what only makes seats think leaves at once. When to write is for ``runtime.commit`` to say.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType

from msgspec.structs import replace

from council.core import effects as do
from council.core import events as ev
from council.core.proposals import how_it_stands
from council.core.state import CouncilState, Decision, Escalation, Moment, Rules, Value, new_council
from council.core.step import next_due, step
from council.journal.record import Record, Snapshot, diverged, leaves_one, mark_of
from council.kinds.identity import judged
from council.protocol import signing
from council.protocol.envelope import Envelope
from council.protocol.errors import CouncilError, EnvelopeError, InternalError, Refused, StoreCorrupt
from council.protocol.metadata import Metadata
from council.runtime.archive import Archive, Away, named_in
from council.runtime.durable_state import DurableState, escalations
from council.runtime.event_reader import digest, event_of, is_piece, piece_of, reserved_for, unreadable
from council.runtime.feed import Feed, Flood, ways_of
from council.runtime.messages import Acknowledged, Message, Told, failure, printable, reference
from council.runtime.outbox import TO_ONE, Outbox
from council.runtime.senders import Senders, Watchers
from council.runtime.snapshot import base_of, based, more_of, newer, packed, state_of
from council.runtime.streams import Relay
from council.runtime.used_ids import UsedIds

# Of what waits for its record, that which somebody waits for or should look at; the rest is for those who watch.
_URGENT = (do.AnnounceDecision, do.AnnounceEscalation, do.RaiseAlert, *TO_ONE)
# Proposals whose trace nobody has asked for yet (``runtime/spans``); where nobody ever does, the last ones.
TRACED_MAX = 10_000
# Effects that tell nobody of the event; all others wait until its record is kept.
_AT_ONCE = (*do.THINK, do.NoteIgnored, do.AnswerAgain)


class _Held(Value, frozen=True):
    """What waits for the record at ``position`` to be kept: an effect, or a reply to a session."""

    position: int
    now: tuple[float, float]
    effect: do.Effect | None
    reply: tuple[str, Message] | None = None


class Driver:
    """One council's core with its keys, its feed of events, and what waits to be kept or sent.

    ``now`` arguments are ``(uptime_s, wall_s)``. ``keys`` are the seats', ``humans`` those of all who may
    answer; ``new_id`` gives message ids. ``decided`` and ``decisions_kept`` are those of ``Archive``.
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
        events_kept: int = 20_000,
        decided: Callable[[int], bytes] | None = None,
        decisions_kept: int | None = None,
    ) -> None:
        self.council_id = council_id
        self.state: CouncilState = new_council(rules, Moment(*now, 0))
        self.archive = self.state.closed = Archive(decided, decisions_kept)
        self.senders = Senders(council_id, keys, humans)
        self.keyring, self.roles = self.senders.keyring, self.senders.roles
        self.feed = Feed(events_kept)
        self.to_sessions: deque[tuple[str, Message]] = deque()
        self.unsaved: list[Record] = []
        self.counts, self.ways = Counter[str](), Counter[str]()
        self.refused: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()
        self.traced: OrderedDict[str, Metadata] = OrderedDict()
        self._position = self._announced = 0
        self._woken_at = now
        self._held: deque[_Held] = deque()
        self._urgent_at = -1
        self._payloads: dict[str, bytes] = {}
        self.kept = self._taken = self._newest_state()
        self._outbox = Outbox(new_id, self._payloads)
        self.to_seats, self.perishable = self._outbox.to_seats, self._outbox.perishable
        self._relay = Relay()
        self._ids = UsedIds(snapshots=decided is not None)
        self._in_snapshots = 0
        self._refusals = Flood(now[0])
        self._watchers = Watchers()
        self._owed: Counter[str] = Counter()
        self._leaving: set[str] = set()

    @property
    def rules(self) -> Rules:
        """The rules that the council is governed by."""
        return self.state.rules

    def _newest_state(self) -> DurableState:
        """How the council stands by the newest record."""
        return DurableState(
            self.position,
            dict(self.state.open),
            self.archive.frozen(),
            dict(self.counts),
            dict(self.ways),
            self.state.identity_change,
        )

    def begin(self, epoch: int, rules: Rules, now: tuple[float, float]) -> None:
        """Begins as the coordinator of ``epoch``: the first thing done, or after ``replay`` (rules 1.10)."""
        self._woken_at, self.kept = now, self._newest_state()
        self._step(ev.CoordinatorStarted(self.council_id, epoch, rules), now)
        self.wake(now)

    def replay(self, record: Record) -> None:
        """Handles what the journal kept of an earlier run, in order; nothing is sent, and nothing kept again.

        Raises ReplayDiverged where this version of the rules makes something else of it.
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
            self._ids.add(record.msg_id, digest(record.sealed))
        for effect in effects:
            if not isinstance(effect, (*_AT_ONCE, *TO_ONE)) and (told := self._numbered(effect, now)):
                self._announce_effect(told, now)

    def snapshot(self) -> Snapshot:
        """What this council is, all records handed out; see ``restore``."""
        assert not self.unsaved
        proposers = self.senders.proposers
        base = based(
            self.state,
            council_id=self.council_id,
            announced=self._announced,
            refusals=self._refusals.now(),
            decided=dict(self.counts),
            ways=dict(self.ways),
            refused=dict(self.refused),
        )
        parts = self.archive.new_parts(self._position)
        seen, self._in_snapshots = self._in_snapshots, len(proposers)
        return packed(self._position, base, parts, self._ids.take_new(), newer(proposers, seen))

    def restore(
        self,
        position: int,
        base: bytes,
        mores: Iterable[tuple[int, bytes]],
        envelopes: Callable[[Collection[str]], Mapping[str, bytes]],
    ) -> None:
        """Goes on from snapshots: the newest's ``base``, and what each of them adds, with its position, in order.

        ``envelopes`` gives those of messages by id. What was announced before can't be read from the feed any
        more. Raises StoreCorrupt where a part can't be read, and is then as before.
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
        for name, mark in proposers.items():
            self.senders.proposed(name, mark)
        self._in_snapshots = len(self.senders.proposers)
        self.state, self.archive, self._ids = state_of(now, archive), archive, ids
        self._position = position
        self._payloads |= {each: signing.payload_of(of) for each, of in sealed.items()}
        self.feed.position = self._announced = now.announced
        self._refusals = Flood(*now.refusals)
        self.counts, self.refused, self.ways = Counter(now.decided), Counter(now.refused), Counter(now.ways)

    # Who may speak

    def join(self, name: str, role: str, key: bytes) -> None:
        """Admits a client, or recognises a human: see ``Senders.join``."""
        self.senders.join(name, role, key)
        self._leaving.discard(name)

    def retire(self, name: str) -> None:
        """A sender without a session any more makes room, at the latest when the last of its own is decided.

        Humans keep their names: whoever answered must stay who they were.
        """
        if self.roles.get(name) != "proposer":
            return
        if any(proposal.what.proposer == name for proposal in self.state.open.values()):
            self._leaving.add(name)
            return
        self._leaving.discard(name)
        self.senders.remove(name)

    # What arrives

    def receive(
        self,
        sealed: bytes,
        now: tuple[float, float],
        session: str | None = None,
        unfit: CouncilError | None = None,
    ) -> Away | None:
        """Handles one sealed envelope; whatever is wrong with it is journaled, counted and answered.

        ``unfit``: why no seat could be shown the proposal that it is, were it a new one (rules 2.2). Gives a decided
        proposal that it names and that is away: then nothing was done, and it is to be taken back first.
        """
        if now != self._woken_at:  # the envelopes of one call share a moment
            self.wake(now)
        sender, msg_id, envelope = "?", "?", None
        try:
            envelope = self.keyring.open(sealed, self.council_id)
            sender, msg_id = envelope.sender, envelope.msg_id
            if is_piece(envelope, self.roles.get(sender)):
                self._pass_on(envelope)
                return None
            identity = digest(sealed)
            event = event_of(envelope, len(sealed), identity, self.roles.get(sender))
            self._refuse_early(event, sender, msg_id, identity, unfit)
            if (away := self._first_away(event)) is not None:
                return away
            before = self._position
            if isinstance(event, ev.IdentityChanged) and msg_id in self._ids:  # whatever has come since
                self.ignored["the same change of the identity again"] += 1
            else:
                event = judged(self.state, event, now[0]) if isinstance(event, ev.IdentityChanged) else event
                self._step(event, now, sealed, session, msg_id)
            if self._position > before:  # what leaves no record uses up no id; a replay knows the same ones
                self._ids.add(msg_id, identity)
                if envelope.metadata is not None and isinstance(event, ev.ProposalSubmitted):
                    self._trace(msg_id, envelope.metadata)
        except InternalError:
            raise  # our own fault, not the sender's
        except CouncilError as error:
            if (ballot := unreadable(error, sealed)) is not None:  # its seat is asked once more (rules 1.2)
                with suppress(Refused):
                    if (away := self._first_away(ballot)) is None:
                        self._step(ballot, now, sealed)
                    return away
            if isinstance(error, EnvelopeError):
                sender, msg_id = error.facts.get("sender") or sender, error.facts.get("msg_id") or msg_id
            self._refuse(error, sender, msg_id, now, sealed, session)
            if envelope is not None and sender in self.state.seats and (about := reserved_for(envelope)):
                denied = do.DenyCall(sender, about, msg_id, printable(error.message), again=True)
                self._held.append(_Held(self._position, now, denied))  # its seat waits for an answer
                self._urgent_at = self._position
            return None
        if session is not None:
            self._acknowledge(event, sealed, session)
        return None

    def _acknowledge(self, event: ev.Event, sealed: bytes, session: str) -> None:
        if not isinstance(event, ev.ProposalSubmitted):
            self._reply(session, Acknowledged(reference(sealed)))
        elif event.what.proposal_id in self.state.open:  # its answer is the decision
            self._watchers.add(event.what.proposal_id, session)

    def _first_away(self, event: ev.Event) -> Away | None:
        """A decided proposal to take back before this event. Raises Refused for one that is forgotten."""
        return next(filter(None, map(self.away, named_in(event))), None)

    def away(self, proposal_id: str) -> Away | None:
        """Where a decided proposal is that is to be taken back before it is looked up; see ``Archive.away``."""
        return None if proposal_id in self.state.open else self.archive.away(proposal_id)

    def take_back(self, away: Away, closed: bytes) -> None:
        """Has a decided proposal in memory again: ``closed`` is what ``Archive.fetch`` gave."""
        self.archive.take_back(away, closed, self.state.calls.values())

    def _pass_on(self, envelope: Envelope) -> None:
        """A piece of a seat's stream goes to the seat that observes, or comes to nothing: no record either way."""
        try:
            piece = piece_of(envelope)
            why = self._relay.why_not(piece, self.state)
        except EnvelopeError:
            why = "it can't be read"
        if why:
            self.ignored[f"a piece of a stream: {why}"] += 1
        else:
            self._outbox.relay(piece, self.rules.observer, self.state, self._woken_at)

    def _trace(self, proposal_id: str, metadata: Metadata) -> None:
        self.traced[proposal_id] = metadata
        if len(self.traced) > TRACED_MAX:
            self.traced.popitem(last=False)

    def _refuse_early(
        self, event: ev.Event, sender: str, msg_id: str, identity: str, unfit: CouncilError | None
    ) -> None:
        """For what the core can't know: an id is used once (rules 1.15), and a proposal fits some seat (rules 2.2).

        Of a proposal that was taken in, by other settings perhaps, the core tells what is to be said (rules 1.12).
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
        """Handles whatever time has brought by ``now``."""
        self._woken_at = now
        while (event := next_due(self.state, Moment(*now, self._position + 1))) is not None:
            self._step(event, now)

    def seat_died(self, name: str, boot: int, why: str, now: tuple[float, float]) -> None:
        """The shell knows that a seat's actor died in its run ``boot``, or can't be reached."""
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
            record = Record(moment, event, sealed, tuple(effects), msg_id, mark)
            self.unsaved.append(record)
            self._note(record)
        for effect in effects:
            if not isinstance(effect, _AT_ONCE):
                if told := self._numbered(effect, now):
                    self._held.append(_Held(self._position, now, told))
                if isinstance(effect, _URGENT):
                    self._urgent_at = self._position
            elif isinstance(effect, do.THINK):
                self._outbox.make_think(effect, self.state, self._woken_at)
            elif isinstance(effect, do.NoteIgnored):
                self.ignored[effect.what] += 1
            elif effect.decision is not None:
                self._reply(session, Told(effect.decision))

    def _numbered(self, effect: do.Effect, now: tuple[float, float]) -> do.Effect | None:
        """The effect as it will be told, counted at once, so that a snapshot has it; None where too many were."""
        if isinstance(effect, TO_ONE):
            return effect  # no watcher hears of it
        for way in ways_of(effect):
            self.ways[way] += 1
        if isinstance(effect, do.AnnounceDecision):
            self.counts[effect.decision.outcome or ""] += 1
        elif isinstance(effect, do.AnnounceRefusal):
            why = self._refusals.admit(effect.why, now[0])
            if why is None:
                return None
            effect = replace(effect, why=why)
        self._announced += 1
        return effect

    def _note(self, record: Record) -> None:
        """Remembers of a new record, or of one that is replayed, what later ones are compared with."""
        event = record.event
        self.archive.advance(record.position)
        if isinstance(event, ev.ProposalSubmitted):
            assert record.sealed is not None
            assert record.key_mark is not None
            self._payloads[event.what.proposal_id] = signing.payload_of(record.sealed)
            self.senders.proposed(event.what.proposer, record.key_mark)
        elif isinstance(event, ev.CoordinatorStarted) and record.position == 1:
            self._refusals = Flood(record.moment.uptime_s)
        elif isinstance(event, ev.EnvelopeRefused):
            self.refused[event.code] += 1
            if event.code == "identity_refused":  # for good, also once it has what it lacked
                self._ids.add(event.msg_id, "")
        elif isinstance(event, ev.BallotUnreadable):
            self.refused["unreadable_ballot"] += 1

    def _refuse(
        self,
        error: CouncilError,
        sender: str,
        msg_id: str,
        now: tuple[float, float],
        sealed: bytes,
        session: str | None,
    ) -> None:
        self._step(
            ev.EnvelopeRefused(printable(sender), printable(msg_id), error.code, printable(error.message)),
            now,
        )
        if session is not None:
            self._reply(session, failure(sealed, error))

    # What leaves

    @property
    def position(self) -> int:
        """The position of the newest record."""
        return self._position

    @property
    def hurries(self) -> bool:
        """Whether somebody waits for what is not kept yet: a client for an answer, a human, or Prime."""
        return bool(self._held) and self._held[0].position <= self._urgent_at

    def untold(self) -> list[do.Effect]:
        return [held.effect for held in self._held if held.effect is not None]

    @property
    def awaits_saving(self) -> bool:
        """Whether there is something to keep, or to tell once it is kept."""
        return bool(self.unsaved or self._held)

    @property
    def deliberates(self) -> bool:
        """Whether a proposal waits for seats, and not for a human."""
        return len(self.state.open) > self.state.with_human

    def drain(self) -> list[Record]:
        """The records to be kept now. Once they are, ``kept`` is how the council stands as of now."""
        records, self.unsaved = self.unsaved, []
        self._taken = self._newest_state()
        return records

    def saved(self, position: int) -> None:
        """Records up to ``position`` are kept: performs the effects that waited for it."""
        if self._taken.position <= position:
            self.kept = self._taken
        while self._held and self._held[0].position <= position:
            held = self._held.popleft()
            if held.effect is not None:
                self._announce_effect(held.effect, held.now)
            if held.reply is not None:
                self._pay(*held.reply)
        self.archive.forget(position, self.state.calls.values())

    def let_go(self, kept_to: int) -> None:
        """The snapshot at ``kept_to`` is in the store, and all up to there is told; see ``Archive.let_go``."""
        self.archive.let_go(kept_to, self.state.calls.values())

    def _announce_effect(self, effect: do.Effect, now: tuple[float, float]) -> None:
        """Performs an effect that somebody outside hears of."""
        match effect:
            case do.RequestRuling() | do.InterruptSeat() | do.GrantCall() | do.DenyCall():
                self._outbox.notify(effect, self.state, self._woken_at)
                return
            case do.AnnounceDecision(decision):
                self._announce(decision)
                self._payloads.pop(decision.proposal_id, None)
                self._relay.end(decision.proposal_id)
                self._watchers.end(decision.proposal_id)
                proposer = self.archive[decision.proposal_id].proposer
                if proposer in self._leaving:
                    self.retire(proposer)
            case do.AnnounceEscalation(_, standing):
                self._announce(standing)
        self.feed.append(now[1], effect)

    def _announce(self, decision: Decision) -> None:
        for session in self._watchers.of(decision.proposal_id):
            self.to_sessions.append((session, Told(decision)))

    # Who waits for what

    def owes(self, session: str) -> bool:
        """Whether something will still be told to this session."""
        return self._watchers.waits(session) or session in self._owed

    def forget(self, session: str) -> None:
        """The session is gone: nothing is kept for it. What it proposed stays open."""
        self._watchers.forget(session)

    def _reply(self, session: str | None, message: Message) -> None:
        if session is not None:
            self._owed[session] += 1
            self._held.append(_Held(self._position, self._woken_at, None, (session, message)))
            self._urgent_at = self._position

    def _pay(self, session: str, message: Message) -> None:
        self._owed[session] -= 1
        if not self._owed[session]:
            del self._owed[session]
        self.to_sessions.append((session, message))

    # What can be asked

    def decision(self, proposal_id: str) -> Decision | None:
        """The decision on a proposal or how it stands with a human; None while it is deliberated.

        As the newest record has it: may be told once that is kept, as may ``escalations`` and ``status``. One that is
        away is to be taken back first (``away``).
        """
        return how_it_stands(self.state, proposal_id)

    def payload(self, proposal_id: str) -> bytes | None:
        """The bytes of an open proposal's envelope."""
        return self._payloads.get(proposal_id)

    def escalations(self) -> list[Escalation]:
        """The proposals that wait for a human, oldest first."""
        return escalations(self.state.open)
