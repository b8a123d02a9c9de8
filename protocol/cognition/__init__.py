"""CognitionPacket v0.3, the work unit that a seat gets: its parts, construction, life cycle.

What to read first: ``packet`` (reading, writing, hashes), ``parts`` (every field), ``factory`` (``build_packet``),
``lifecycle`` (intent, knowledge).
"""

from __future__ import annotations

from council.protocol.cognition.factory import SOURCES, build_packet
from council.protocol.cognition.lifecycle import add_knowledge, detect_intent
from council.protocol.cognition.packet import READ_ONLY_ACTIONS, CognitionPacket
from council.protocol.cognition.vocabulary import DECISION_OF, VOTE_OF, PacketState, SystemTask, schema_id

__all__ = [
    "DECISION_OF",
    "READ_ONLY_ACTIONS",
    "SOURCES",
    "VOTE_OF",
    "CognitionPacket",
    "PacketState",
    "SystemTask",
    "add_knowledge",
    "build_packet",
    "detect_intent",
    "schema_id",
]
