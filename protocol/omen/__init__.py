"""The packets of OMEN v0.7, the protocol that describes a decision and its action: their types, reader and writer.

The package reads no clock, makes no ids, and does no I/O. ``packets`` has the ten packet types, ``payloads`` and
``mcp`` their parts, ``vocabulary`` the enumerations.
"""

from council.protocol.omen.mcp import MCP, PacketHeader, Stakes, stakes_level
from council.protocol.omen.packets import (
    CONSEQUENTIAL,
    PACKETS,
    BeliefUpdatePacket,
    DecisionPacket,
    EscalationPacket,
    IntegrityAlertPacket,
    ObservationPacket,
    Packet,
    QueueUpdatePacket,
    TaskDirectivePacket,
    TaskResultPacket,
    ToolAuthorizationToken,
    VerificationPlanPacket,
    read_packet,
    to_dict,
    to_json,
)

__all__ = [
    "CONSEQUENTIAL",
    "MCP",
    "PACKETS",
    "BeliefUpdatePacket",
    "DecisionPacket",
    "EscalationPacket",
    "IntegrityAlertPacket",
    "ObservationPacket",
    "Packet",
    "PacketHeader",
    "QueueUpdatePacket",
    "Stakes",
    "TaskDirectivePacket",
    "TaskResultPacket",
    "ToolAuthorizationToken",
    "VerificationPlanPacket",
    "read_packet",
    "stakes_level",
    "to_dict",
    "to_json",
]
