"""CognitionPacket v0.3, the work unit that a seat gets.

Read first: ``packet`` (reading, writing, hashes, ``build_packet``), ``parts`` (every field), ``knowledge`` (chooses
the turns of a history that it needs).
"""

from __future__ import annotations

from council.protocol.cognition.knowledge import add_knowledge
from council.protocol.cognition.packet import CognitionPacket, build_packet

__all__ = ["CognitionPacket", "add_knowledge", "build_packet"]
