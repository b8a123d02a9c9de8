"""Keeps the cognition packets that seats send, redacted, in the store beside the journal.

They change no state, so they are not journaled. A packet that can't be kept is logged, and costs nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from council.agents.messaging.logs import get_logger
from council.core.state import CouncilState
from council.journal.record import Journal
from council.kinds.incoming import Incoming
from council.protocol.envelope import Envelope, Info
from council.protocol.errors import CouncilError, EnvelopeError

if TYPE_CHECKING:
    from council.protocol.cognition import CognitionPacket

log = get_logger("council.packets")

ROUNDS_MAX = 10  # of one seat on one case: a ballot, a second try, a ruling, and some after restarts
WAITING_MAX = 1_000  # packets that wait to be redacted; one more is not kept
# The parts with texts that people, models and tools wrote. The others hold ids, names, figures and hashes.
_TEXTS = ("content", "context", "reasoning", "response", "metrics", "status")
_TEXTS += ("council", "tool_routing", "loop_state", "goal_state")


def is_packet(envelope: Envelope) -> bool:
    """Whether it is a seat's cognition packet, which changes nothing and is no event."""
    return isinstance(envelope.content, Info) and envelope.content.kind == "packet"


class PacketKeeper:
    """Takes packets on the coordinator's loop, redacts them on a thread, and hands them to the journal's store."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="packets")
        self._waiting: set[asyncio.Future[None]] = set()

    def keep(self, envelope: Envelope, state: CouncilState) -> None:
        """Keeps the packet of a seat about a known proposal."""
        said, why = Incoming(envelope), ""
        proposal_id = said.proposal_id
        try:
            task, text = (
                said.word("task", ("ballot", "ruling"), "'ballot' or 'ruling'"),
                said.fact("packet", str),
            )
            number = said.amount("round", ROUNDS_MAX)
        except EnvelopeError as error:
            why = error.message
        if envelope.sender not in state.seats:
            why = "its sender is no seat"
        elif proposal_id not in state.open and proposal_id not in state.closed:
            why = "its proposal is not known"
        elif len(self._waiting) >= WAITING_MAX:
            why = f"{WAITING_MAX:,} others wait already"
        if why:
            self._lost(proposal_id, envelope.sender, why)
        elif self._journal.durable:
            work = self._executor.submit(self._keep, proposal_id, envelope.sender, task, number, text)
            waiting = asyncio.wrap_future(work)
            self._waiting.add(waiting)
            waiting.add_done_callback(self._waiting.discard)

    def _keep(self, proposal_id: str, seat: str, task: str, number: int, text: str) -> None:
        from council.protocol.cognition import CognitionPacket

        try:
            packet = redacted(CognitionPacket.from_json(text))
            self._journal.keep_packet(proposal_id, seat, task, number, packet)
        except CouncilError as error:
            self._lost(proposal_id, seat, error.message)
        except Exception as error:  # noqa: BLE001 - nobody waits for its result
            self._lost(proposal_id, seat, repr(error))

    def _lost(self, proposal_id: str, seat: str, why: str) -> None:
        log.warning("packet not kept", seat=seat, proposal=proposal_id, why=why)

    async def until_kept(self) -> None:
        """Returns once all packets that were taken are with the journal."""
        if self._waiting:
            await asyncio.wait(list(self._waiting))

    async def end(self) -> None:
        """Like ``until_kept``. No packet can be taken after it."""
        await self.until_kept()
        self._executor.shutdown(wait=False)


def redacted(packet: CognitionPacket) -> CognitionPacket:
    """The packet without secrets and personal data in its texts (rules 3.4). ``privacy`` counts what was removed.

    The hash of its content is that of the redacted content.
    """
    from council.action.redact import redact
    from council.protocol.cognition import CognitionPacket
    from council.protocol.cognition.parts import Privacy

    counts: Counter[str] = Counter()

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            found = redact(value)
            counts.update(found.counts)
            return found.text
        if isinstance(value, dict):
            return {clean(key): clean(each) for key, each in value.items()}
        return [clean(each) for each in value] if isinstance(value, list) else value

    whole = packet.to_dict()
    whole |= {part: clean(whole[part]) for part in _TEXTS}
    found = CognitionPacket.from_json(json.dumps(whole))
    removed = [{"kind": kind, "count": count} for kind, count in sorted(counts.items())]
    privacy = Privacy(pii_detected=bool(counts), pii_redactions=tuple(removed))
    governance = found.governance.model_copy(update={"privacy": privacy})
    return found.model_copy(update={"governance": governance}).compute_hashes()
