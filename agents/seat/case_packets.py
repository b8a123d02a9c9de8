"""The cognition packets of a seat: one for each case, from its first prompt to its last answer.

A mind that makes prompts takes its packets from here, so that a plan, a ballot and a ruling are rounds of one packet.
If packets are kept, each round that ends is sent to the council as an INFO of kind ``packet``.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from council.agents.messaging.logs import get_logger
from council.agents.mind import READS_TOKENS, Case, Cost, Mind, Opinion, Ruling, ShownBallot
from council.agents.seat.plan_stream import sayable
from council.protocol.packet import canonical_json
from council.protocol.values import plain, too_large

if TYPE_CHECKING:
    from council.protocol.cognition import CognitionPacket
    from council.protocol.cognition.parts import Vote
    from council.protocol.cognition.session import Session

log = get_logger("council.seat")

# The packets, and the characters of their cases, that a seat holds for later rounds; older ones are built anew.
PACKETS_MAX, PACKETS_CHARS_MAX = 500, 8 * 2**20
SESSIONS_MAX = 1_000
# The size of a packet that is sent. A larger one is sent with its texts and lists cut, first to the first limit.
PACKET_CHARS_MAX = 64 * 2**10
TEXT_CHARS_MAX = (10_000, 1_000, 100)
ENTRIES_MAX = 100
CUT = " [cut]"

Make = Callable[[], Awaitable["CognitionPacket"]]


@dataclass(slots=True)
class _Round:
    """The mind's work on one case since the packet was last sent. Calls under way count as reserved."""

    began_s: float
    tokens: int = 0
    output_tokens: int = 0
    microusd: int = 0
    reserved: int = 0  # by all calls
    open_tokens: int = 0  # by calls under way
    open_microusd: int = 0


class CasePackets:
    """The packets of one seat. ``wall`` gives aware UTC, ``uptime`` monotonic seconds, ``new_id`` hex digits.

    If it ``keeps`` packets, ``send`` gets a proposal's id and the data of an INFO for each round that ends.
    """

    def __init__(
        self,
        seat: str,
        mind: Mind,
        *,
        wall: Callable[[], datetime],
        uptime: Callable[[], float],
        new_id: Callable[[], str],
        keeps: bool,
        send: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        if keeps:  # now, so that no case has to wait until these modules are loaded
            from council.agents.prompting import builder  # noqa: F401
        self.model: Mapping[str, Any] = {
            "name": type(mind).__name__,
            "provider": "council",
            "context_window_tokens": getattr(mind, "reads_tokens", None) or READS_TOKENS,
        }
        self._seat = seat
        self._wall = wall
        self._uptime = uptime
        self._new_id = new_id
        self._keeps = keeps
        self._send = send
        self._packets: OrderedDict[str, tuple[CognitionPacket, int]] = OrderedDict()
        self._chars = 0
        self._sessions: OrderedDict[tuple[str, ...], Session] = OrderedDict()
        self._rounds: dict[tuple[str, str], _Round] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """The number of packets that are still to be sent."""
        return len(self._ending)

    # What the mind calls (``mind.PacketSource``)

    async def of(self, case: Case, make: Make) -> CognitionPacket:
        """The packet of a case. If there is none yet, it is the one that ``make`` builds."""
        if (known := self._packets.get(case.proposal_id)) is not None:
            return known[0]
        made = await make()
        if (known := self._packets.get(case.proposal_id)) is not None:  # another prompt was faster
            return known[0]
        begun = self._begun(case, made) if self._keeps else made
        return self._put(case.proposal_id, begun, case.chars)

    def note(self, proposal_id: str, step: str, text: str) -> None:
        """Adds a step of reasoning to the packet of a case."""
        from council.protocol.cognition.lifecycle import reflected

        self._change(proposal_id, lambda packet: reflected(packet, step, text))

    # What the seat calls

    def begin(self, proposal_id: str, task: str) -> None:
        """A task of the mind on a case begins."""
        if self._keeps:
            self._rounds.setdefault((proposal_id, task), _Round(self._uptime()))

    def interrupt(self, proposal_id: str, reason: str) -> None:
        """An observer halts the work on a case."""
        from council.protocol.cognition.lifecycle import traced

        self._change(proposal_id, lambda packet: traced(packet, f"INTERRUPT: {reason}"))

    def reserve(self, proposal_id: str, task: str, worst: Cost) -> None:
        """A reservation for a call of a model is asked for."""
        if (work := self._rounds.get((proposal_id, task))) is not None:
            work.reserved += worst.tokens
            work.open_tokens += worst.tokens
            work.open_microusd += worst.microusd

    def spend(self, proposal_id: str, task: str, worst: Cost, used: Cost) -> None:
        """A call is settled, or denied, for which ``worst`` was reserved."""
        if (work := self._rounds.get((proposal_id, task))) is not None:
            work.open_tokens -= worst.tokens
            work.open_microusd -= worst.microusd
            work.tokens += used.tokens
            work.output_tokens += used.output_tokens
            work.microusd += used.microusd

    def finish(
        self, case: Case, task: str, more: Sequence[Any] = (), thought: Any = None, why: str = ""
    ) -> None:
        """A task on a case has ended: with the mind's ``thought``, or because of ``why``. Only the first counts."""
        if (work := self._rounds.pop((case.proposal_id, task), None)) is None:
            return
        latency_ms = round((self._uptime() - work.began_s) * 1_000)
        ending = self._end(case, task, work, latency_ms, more, thought, why)
        done = asyncio.get_running_loop().create_task(self._logged(case.proposal_id, ending))
        self._ending.add(done)
        done.add_done_callback(self._ending.discard)

    def close(self) -> None:
        """Forgets the work under way. Nothing more is sent."""
        self._keeps = False
        self._rounds.clear()
        for each in self._ending:
            each.cancel()

    # The life of a packet

    def _begun(self, case: Case, packet: CognitionPacket) -> CognitionPacket:
        """The packet when the mind begins: with its model, its tool, and what the session shows."""
        from council.protocol.cognition.lifecycle import began, selected
        from council.protocol.cognition.parts import Model
        from council.protocol.cognition.session import Session
        from council.protocol.cognition.vocabulary import TargetEngine

        key, at = _session_of(case), packet.header.datetime
        call = _call_of(case)
        said = next((turn.text for turn in reversed(case.history) if turn.role == "user"), "")
        session = self._sessions.pop(key, None) or Session()
        session = session.asked(call, said or case.summary, at, by_user=bool(said))
        self._sessions[key] = session
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        fields: dict[str, Any] = {"goal_state": session.goal, "loop_state": session.loop}
        engine = next((each for each in TargetEngine if each.casefold() == self._seat), TargetEngine.COUNCIL)
        routing = packet.header.routing.model_copy(update={"target_engine": engine})
        model = Model.from_dict(self.model)
        fields["header"] = packet.header.model_copy(update={"model": model, "routing": routing})
        if case.action is not None:
            params = plain(dict(case.action.args))
            fields["tool_routing"] = selected(
                packet.tool_routing, case.action.tool, params, case.summary, case.confidence
            )
        return began(packet.model_copy(update=fields))

    async def _end(
        self,
        case: Case,
        task: str,
        work: _Round,
        latency_ms: int,
        more: Sequence[Any],
        thought: Any,
        why: str,
    ) -> None:
        from council.agents.prompting.builder import built
        from council.protocol.cognition.lifecycle import DECISIONS, answered, ended, voted
        from council.protocol.cognition.parts import TokenUsage, Vote

        packet = await self.of(case, lambda: built(case, now=self._wall(), new_id=self._new_id))
        votes: list[Vote] = []
        if isinstance(thought, Opinion):
            decision = DECISIONS[thought.vote]
            votes = [
                Vote(
                    agent=self._seat, decision=decision, reason=thought.reason, confidence=thought.confidence
                )
            ]
        elif isinstance(thought, Ruling):
            votes = [_shown(each) for each in more[0]]
        if thought is not None:
            packet = answered(packet, thought.reason, thought.confidence)
        packet = self._watched(case, voted(packet, votes, "consensus" if task == "ruling" else "solo"), why)
        before, cost = packet.metrics.token_usage, packet.metrics.cost_estimate or 0.0
        usage = TokenUsage(
            prompt_tokens=before.prompt_tokens + (work.tokens - work.output_tokens),
            completion_tokens=before.completion_tokens + work.output_tokens,
            total_tokens=before.total_tokens + work.tokens + work.open_tokens,
            projected_tokens=(before.projected_tokens or 0) + work.reserved,
        )
        packet = ended(
            packet,
            error=why,
            latency_ms=latency_ms,
            usage=usage,
            cost_dollars=cost + (work.microusd + work.open_microusd) / 1e6,
        )
        self._put(case.proposal_id, packet, case.chars)
        assert packet.council is not None
        data = {"task": task, "round": packet.council.iteration_count, "packet": _text_of(packet)}
        self._send(case.proposal_id, data)

    async def _logged(self, proposal_id: str, ending: Coroutine[Any, Any, None]) -> None:
        """Awaits ``ending``. If it fails, that costs the packet only."""
        try:
            await ending
        except Exception as error:  # noqa: BLE001 - nobody waits for its result
            log.warning("packet not kept", seat=self._seat, proposal=proposal_id, why=str(error))

    def _watched(self, case: Case, packet: CognitionPacket, why: str) -> CognitionPacket:
        """The packet with what the session shows after this answer or error."""
        from council.protocol.cognition.lifecycle import traced
        from council.protocol.cognition.packet import moment

        key, at = _session_of(case), moment(self._wall())
        if (session := self._sessions.get(key)) is None:
            return packet
        if why:
            session = session.failed(why, at)
        else:
            session = session.answered(f"{_call_of(case) or case.summary}: {packet.response.candidate}", at)
        self._sessions[key] = session
        if session.loop is not None and not session.loop.in_recovery:
            packet = traced(packet, f"CAUTION: {session.loop.loop_type}")
        return packet.model_copy(update={"loop_state": session.loop})

    def _change(self, proposal_id: str, change: Callable[[CognitionPacket], CognitionPacket]) -> None:
        if self._keeps and (known := self._packets.get(proposal_id)) is not None:
            self._packets[proposal_id] = change(known[0]), known[1]

    def _put(self, proposal_id: str, packet: CognitionPacket, chars: int) -> CognitionPacket:
        _, before = self._packets.pop(proposal_id, (None, 0))
        self._packets[proposal_id] = packet, chars
        self._chars += chars - before
        while len(self._packets) > PACKETS_MAX or (
            self._chars > PACKETS_CHARS_MAX and len(self._packets) > 1
        ):
            _, (_, gone) = self._packets.popitem(last=False)
            self._chars -= gone
        return packet


def _session_of(case: Case) -> tuple[str, ...]:
    """A session is what one proposer asks for one requester."""
    return case.proposer, *case.requester


def _call_of(case: Case) -> str:
    """The call that is asked for, the same for the same tool and arguments; "" if there is none."""
    return (
        "" if case.action is None else f"{case.action.tool} {canonical_json(plain(dict(case.action.args)))}"
    )


def _shown(ballot: ShownBallot) -> Vote:
    from council.protocol.cognition.lifecycle import DECISIONS
    from council.protocol.cognition.parts import Vote

    return Vote(
        agent=ballot.seat,
        decision=DECISIONS[ballot.vote],
        reason=ballot.reason,
        confidence=ballot.confidence,
    )


def _text_of(packet: CognitionPacket) -> str:
    """The packet as JSON, with its texts and lists cut as far as it must. Raises EnvelopeTooLarge."""
    whole = packet.to_dict()
    for chars_max in TEXT_CHARS_MAX:
        text = json.dumps(_cut(whole, chars_max), ensure_ascii=False)
        if len(text) <= PACKET_CHARS_MAX:
            return sayable(text)
    raise too_large("packet", "characters of JSON", PACKET_CHARS_MAX, len(text))


def _cut(value: Any, chars_max: int) -> Any:
    """A JSON value with the beginning of each text, and the last entries of each list and object."""
    if isinstance(value, str):
        return value if len(value) <= chars_max else value[:chars_max] + CUT
    if isinstance(value, dict):
        return {key: _cut(value[key], chars_max) for key in list(value)[-ENTRIES_MAX:]}
    if isinstance(value, list):
        return [_cut(each, chars_max) for each in value[-ENTRIES_MAX:]]
    return value
