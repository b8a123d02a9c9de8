"""CognitionPacket v0.3, the work unit that a seat gets.

What to read first: ``packet`` (reading, writing, hashes), ``parts`` (every field), ``factory`` (``build_packet``),
``knowledge`` (which turns of a history it needs).
"""

from __future__ import annotations

from council.protocol.cognition.factory import SOURCES, build_packet
from council.protocol.cognition.knowledge import add_knowledge
from council.protocol.cognition.packet import CognitionPacket
from council.protocol.cognition.vocabulary import PacketState, SystemTask

__all__ = [
    "SOURCES",
    "CognitionPacket",
    "PacketState",
    "SystemTask",
    "add_knowledge",
    "build_packet",
]
