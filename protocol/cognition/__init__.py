"""CognitionPacket v0.3, the work unit that a seat gets: its parts, construction, life cycle.

What to read first: ``packet`` (reading, writing, hashes), ``parts`` (every field), ``factory`` (``build_packet``),
``states`` and ``tools`` (the two machines), ``lifecycle`` (intent, knowledge, dispatch).
"""

from __future__ import annotations

from council.protocol.cognition.factory import SOURCES, build_packet
from council.protocol.cognition.lifecycle import add_knowledge, detect_intent, dispatch
from council.protocol.cognition.packet import READ_ONLY_ACTIONS, CognitionPacket
from council.protocol.cognition.states import advance, complete
from council.protocol.cognition.tools import (
    answer_tool,
    record_result,
    reinject,
    request_tool,
    review_tool,
    select_tool,
    skip_tool,
)
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
    "advance",
    "answer_tool",
    "build_packet",
    "complete",
    "detect_intent",
    "dispatch",
    "record_result",
    "reinject",
    "request_tool",
    "review_tool",
    "schema_id",
    "select_tool",
    "skip_tool",
]
