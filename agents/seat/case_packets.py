"""The cognition packets of a seat: one for each case, from its first prompt to its last answer.

A mind that makes prompts takes its packets from here, so that a plan, a ballot and a ruling are rounds of one packet.
If packets are kept, each round that ends is sent to the council as an INFO of kind ``packet``.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from council.agents.messaging.logs import get_logger
from council.agents.mind import CHECK_ROLE, Case, Cost, Mind, Opinion, ShownBallot
from council.agents.seat.plan_stream import sayable
from council.agents.seat.workload import WorkItem
from council.protocol.packet import canonical_json
from council.protocol.values import plain, too_large

if TYPE_CHECKING:
    from council.protocol.cognition import CognitionPacket
    from council.protocol.cognition.session import Session

log = get_logger("council.seat")

PACKETS_MAX = 500  # that a seat holds for later rounds; an older one is built anew
SESSIONS_MAX = 1_000
# What is sent of a packet. The journal has the whole texts of proposals and ballots.
TEXT_CHARS_MAX, ENTRIES_MAX, PACKET_CHARS_MAX = 2_000, 100, 256 * 2**10
WORD_CHARS_MAX = 500  # a longer last word is cut within
CUT = " [cut]"


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
        self.model: Mapping[str, Any] = {"name": type(mind).__name__, "provider": "council"}
        self._seat = seat
        self._wall = wall
        self._uptime = uptime
        self._new_id = new_id
        self._keeps = keeps
        self._send = send
        self._packets: OrderedDict[str, CognitionPacket] = OrderedDict()
        self._sessions: OrderedDict[tuple[str, ...], Session] = OrderedDict()
        self._began_s: dict[tuple[str, str], float] = {}  # by proposal and task
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """The number of packets that are still to be sent."""
        return len(self._ending)

    # What the mind calls (``mind.PacketSource``)

    async def of(self, case: Case, make: Callable[[], Awaitable[CognitionPacket]]) -> CognitionPacket:
        """The packet of a case. If there is none yet, it is the one that ``make`` builds.

        After a check, the packet gets the history of a newly built one, which has the result of the check.
        """
        held = self._packets.get(case.proposal_id)
        if held is None or _checks_in(held) < len(case.checks):
            made = await make()
            held = self._packets.get(case.proposal_id)
            if held is not None:
                self._put(case.proposal_id, _with_history_of(held, made))
            else:
                self._put(case.proposal_id, self._begun(case, made) if self._keeps else made)
        return self._packets[case.proposal_id]

    def note(self, proposal_id: str, step: str, text: str) -> None:
        """Adds a step of reasoning to the packet of a case."""
        from council.protocol.cognition.lifecycle import reflected

        if self._keeps and (packet := self._packets.get(proposal_id)) is not None:
            self._packets[proposal_id] = reflected(packet, step, text)

    # What the seat calls

    def begin(self, proposal_id: str, task: str) -> None:
        """A task of the mind on a case begins."""
        if self._keeps:
            self._began_s.setdefault((proposal_id, task), self._uptime())

    def interrupt(self, proposal_id: str, reason: str) -> None:
        """An observer halts the work on a case."""
        from council.protocol.cognition.lifecycle import traced

        if self._keeps and (packet := self._packets.get(proposal_id)) is not None:
            self._packets[proposal_id] = traced(packet, f"INTERRUPT: {reason}")

    def finish(self, item: WorkItem, costs: Sequence[Cost], thought: Any = None, why: str = "") -> None:
        """A task has ended: with the mind's ``thought``, or because of ``why``. Only the first end counts."""
        if (began_s := self._began_s.pop((item.proposal_id, item.task_name), None)) is not None:
            ending = self._end(item, costs, round((self._uptime() - began_s) * 1_000), thought, why)
            done = asyncio.get_running_loop().create_task(self._logged(item, ending))
            self._ending.add(done)
            done.add_done_callback(self._ending.discard)

    def close(self) -> None:
        """Forgets the work under way. Nothing more is sent."""
        self._keeps = False
        self._began_s.clear()
        for each in self._ending:
            each.cancel()

    # The life of a packet

    def _begun(self, case: Case, packet: CognitionPacket) -> CognitionPacket:
        """The packet when the mind begins: with its model, its tool, and what the session shows."""
        from council.protocol.cognition.lifecycle import began, selected
        from council.protocol.cognition.session import Session

        key = case.proposer, *case.requester  # a session is what one proposer asks for one requester
        session = self._sessions.pop(key, None) or Session()
        said = next((turn.text for turn in reversed(case.history) if turn.role == "user"), "")
        session.asked(_call_of(case), said or case.summary, packet.header.datetime, by_user=bool(said))
        self._sessions[key] = session
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        packet = began(packet, self._seat, self.model)
        packet = packet.model_copy(update={"goal_state": session.goal, "loop_state": session.loop})
        if case.action is None:
            return packet
        params = plain(dict(case.action.args))
        return selected(packet, case.action.tool, params, case.summary, case.confidence)

    async def _end(
        self, item: WorkItem, costs: Sequence[Cost], latency_ms: int, thought: Any, why: str
    ) -> None:
        """Completes or aborts the packet, and sends it."""
        from council.agents.prompting.builder import built
        from council.protocol.cognition.lifecycle import answered, ended, voted

        case = item.case
        packet = await self.of(case, lambda: built(case, now=self._wall(), new_id=self._new_id))
        shown: Sequence[ShownBallot] = ()
        if isinstance(thought, Opinion):
            own = ShownBallot(
                self._seat, thought.vote, thought.reason, thought.confidence, thought.risk_level
            )
            shown = (own,)
        elif thought is not None:  # a ruling, with the ballots that it was shown
            (shown,) = item.more
        if thought is not None:
            packet = answered(packet, thought.reason, thought.confidence)
        votes = [(each.seat, each.vote, each.reason, each.confidence) for each in shown]
        packet = voted(packet, votes, "consensus" if item.task_name == "ruling" else "solo")
        if (session := self._sessions.get((case.proposer, *case.requester))) is not None:
            answer = f"{_call_of(case) or case.summary}: {packet.response.candidate}"
            session.ended(answer, why, packet.header.datetime)
            packet = packet.model_copy(update={"loop_state": session.loop})
        packet = ended(
            packet,
            error=why,
            latency_ms=latency_ms,
            tokens=sum(each.tokens for each in costs),
            output_tokens=sum(each.output_tokens for each in costs),
            dollars=sum(each.microusd for each in costs) / 1e6,
        )
        self._put(case.proposal_id, packet)
        assert packet.council is not None
        number = packet.council.iteration_count
        self._send(case.proposal_id, {"task": item.task_name, "round": number, "packet": _text_of(packet)})

    async def _logged(self, item: WorkItem, ending: Coroutine[Any, Any, None]) -> None:
        """Awaits ``ending``. If it fails, that costs the packet only."""
        try:
            await ending
        except Exception as error:  # noqa: BLE001 - nobody waits for its result
            log.warning("packet not kept", seat=self._seat, proposal=item.proposal_id, why=str(error))

    def _put(self, proposal_id: str, packet: CognitionPacket) -> None:
        self._packets[proposal_id] = packet
        self._packets.move_to_end(proposal_id)
        if len(self._packets) > PACKETS_MAX:
            self._packets.popitem(last=False)


def _checks_in(packet: CognitionPacket) -> int:
    """The number of checks whose results are in the packet's history."""
    return sum(turn.role == CHECK_ROLE for turn in packet.context.relevant_history_snippet)


def _with_history_of(packet: CognitionPacket, other: CognitionPacket) -> CognitionPacket:
    """The packet with the history of ``other``, if that one has more checks; else another prompt was faster."""
    if _checks_in(other) <= _checks_in(packet):
        return packet
    shown = other.context.relevant_history_snippet
    context = packet.context.model_copy(update={"relevant_history_snippet": shown})
    return packet.model_copy(update={"context": context})


def _call_of(case: Case) -> str:
    """The call that is asked for, the same for the same tool and arguments; "" if there is none."""
    if case.action is None:
        return ""
    return f"{case.action.tool} {canonical_json(plain(dict(case.action.args)))}"


def _text_of(packet: CognitionPacket) -> str:
    """The packet as JSON, with long texts and lists cut. Raises EnvelopeTooLarge if it is too large all the same."""
    text = sayable(json.dumps(_cut(packet.to_dict()), ensure_ascii=False))
    if len(text) > PACKET_CHARS_MAX:
        raise too_large("packet", "characters of JSON", PACKET_CHARS_MAX, len(text))
    return text


def _beginning(text: str) -> str:
    """The first characters of a long text, up to the end of a word: half a secret would not be redacted."""
    text = text[:TEXT_CHARS_MAX]
    words, _, rest = text.rpartition(" ")
    return words if words and len(rest) <= WORD_CHARS_MAX else text


def _cut(value: Any) -> Any:
    """A JSON value with the beginning of each text, and the last entries of each list and object."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARS_MAX else _beginning(value) + CUT
    if isinstance(value, dict):
        return {key: _cut(value[key]) for key in list(value)[-ENTRIES_MAX:]}
    return [_cut(each) for each in value[-ENTRIES_MAX:]] if isinstance(value, list) else value
