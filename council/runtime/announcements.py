"""A council's announcements: the feed for watchers, and messages for the sessions that wait.

Effects and replies that announce an event are held until the event's record is kept (rules 4.7).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterator

from msgspec.structs import replace

from council.core import effects as do
from council.core.state import Value
from council.protocol.metadata import Metadata
from council.runtime.feed import Feed, Flood, ways_of
from council.runtime.messages import Message, Told
from council.runtime.outbox import TO_ONE

# A caller waits for these, or a human should look at them; all others are for watchers.
_URGENT = (do.AnnounceDecision, do.AnnounceEscalation, do.RaiseAlert, *TO_ONE)
# The newest proposals whose trace may still be asked for: as many as are announced between two readings of
# ``telemetry/decision_spans``, which has one at least for each half of the feed.
TRACED_MAX = 10_000


class _Held(Value, frozen=True):
    """An effect, or a reply to a session, that waits until the record at ``position`` is kept."""

    position: int
    now: tuple[float, float]
    effect: do.Effect | None
    reply: tuple[str, Message] | None = None


class Announcements:
    """The announcements of one council, and who waits for them.

    ``counts`` are decisions by outcome, ``ways`` the other counts of announcements, ``announced`` their number.
    ``to_sessions`` are messages to be sent now, ``traced`` the metadata of proposals by id.
    """

    def __init__(self, events_kept: int, uptime_s: float) -> None:
        self.feed = Feed(events_kept)
        self.to_sessions: deque[tuple[str, Message]] = deque()
        self.counts, self.ways = Counter[str](), Counter[str]()
        self.traced: OrderedDict[str, Metadata] = OrderedDict()
        self.announced = 0
        self.refusals = Flood(uptime_s)
        self._held: deque[_Held] = deque()
        self._urgent_at = -1
        self._watchers = Watchers()
        self._owed: Counter[str] = Counter()

    def restore(self, announced: int, refusals: Flood, counts: Counter[str], ways: Counter[str]) -> None:
        """Continues after a snapshot. Earlier announcements can't be read from the feed any more."""
        self.feed.position = self.announced = announced
        self.refusals, self.counts, self.ways = refusals, counts, ways

    def count(self, effect: do.Effect, uptime_s: float) -> do.Effect | None:
        """The effect as it will be announced, counted at once so that a snapshot includes it.

        None if there are too many refusals within a minute.
        """
        if isinstance(effect, TO_ONE):
            return effect  # it goes to one seat only
        for way in ways_of(effect):
            self.ways[way] += 1
        if isinstance(effect, do.AnnounceDecision):
            self.counts[effect.decision.outcome or ""] += 1
        elif isinstance(effect, do.AnnounceRefusal):
            why = self.refusals.admit(effect.why, uptime_s)
            if why is None:
                return None
            effect = replace(effect, why=why)
        self.announced += 1
        return effect

    # Until the record is kept

    def hold(self, effect: do.Effect, position: int, now: tuple[float, float]) -> None:
        """Holds an effect until the record at ``position`` is kept."""
        self._held.append(_Held(position, now, effect))
        if isinstance(effect, _URGENT):
            self._urgent_at = position

    def reply(self, session: str, message: Message, position: int, now: tuple[float, float]) -> None:
        """Holds a reply to a session until the record at ``position`` is kept."""
        self._owed[session] += 1
        self._held.append(_Held(position, now, None, (session, message)))
        self._urgent_at = position

    def release(self, position: int) -> Iterator[tuple[do.Effect, tuple[float, float], int]]:
        """Records up to ``position`` are kept: sends the replies, and gives each effect in order.

        With each come its moment and the position of its record.
        """
        while self._held and self._held[0].position <= position:
            held = self._held.popleft()
            if held.effect is not None:
                yield held.effect, held.now, held.position
            if held.reply is not None:
                self._send_reply(*held.reply)

    def _send_reply(self, session: str, message: Message) -> None:
        self._owed[session] -= 1
        if not self._owed[session]:
            del self._owed[session]
        self.to_sessions.append((session, message))

    @property
    def waiting(self) -> bool:
        """Whether anything is held."""
        return bool(self._held)

    @property
    def urgent(self) -> bool:
        """Whether somebody waits for what is held: a client for an answer, a human, or Prime."""
        return bool(self._held) and self._held[0].position <= self._urgent_at

    def untold(self) -> list[do.Effect]:
        """The effects that are held."""
        return [held.effect for held in self._held if held.effect is not None]

    # Once it is kept

    def publish(self, effect: do.Effect, wall_s: float, position: int) -> None:
        """Appends an effect of the record at ``position`` to the feed.

        Sends a decision or a standing to the sessions that wait for it.
        """
        match effect:
            case do.AnnounceDecision(decision):
                self._tell_watchers(Told(decision))
                self._watchers.end(decision.proposal_id)
            case do.AnnounceEscalation(_, standing):
                self._tell_watchers(Told(standing))
        self.feed.append(wall_s, effect, position)

    def _tell_watchers(self, told: Told) -> None:
        for session in self._watchers.of(told.decision.proposal_id):
            self.to_sessions.append((session, told))

    # Who waits

    def watch(self, proposal_id: str, session: str) -> None:
        """The session waits for the decision on an open proposal."""
        self._watchers.add(proposal_id, session)

    def owes(self, session: str) -> bool:
        """Whether a message will still be sent to this session."""
        return self._watchers.waits(session) or session in self._owed

    def forget(self, session: str) -> None:
        """The session is closed: nothing is kept for it. What it proposed stays open."""
        self._watchers.forget(session)

    def trace(self, proposal_id: str, metadata: Metadata) -> None:
        """Remembers which trace a proposal belongs to."""
        self.traced[proposal_id] = metadata
        if len(self.traced) > TRACED_MAX:
            self.traced.popitem(last=False)


class Watchers:
    """The sessions that wait for proposals, indexed both ways."""

    def __init__(self) -> None:
        self._sessions: dict[str, set[str]] = {}
        self._proposals: dict[str, set[str]] = {}

    def add(self, proposal_id: str, session: str) -> None:
        self._sessions.setdefault(proposal_id, set()).add(session)
        self._proposals.setdefault(session, set()).add(proposal_id)

    def of(self, proposal_id: str) -> Collection[str]:
        return self._sessions.get(proposal_id, ())

    def waits(self, session: str) -> bool:
        return session in self._proposals

    def end(self, proposal_id: str) -> None:
        """Removes a decided proposal."""
        for session in self._sessions.pop(proposal_id, ()):
            self._drop(self._proposals, session, proposal_id)

    def forget(self, session: str) -> None:
        """Removes a closed session."""
        for proposal_id in self._proposals.pop(session, ()):
            self._drop(self._sessions, proposal_id, session)

    @staticmethod
    def _drop(where: dict[str, set[str]], name: str, one: str) -> None:
        where[name].discard(one)
        if not where[name]:
            del where[name]
