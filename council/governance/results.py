"""What a check found: a result names the packet, the layer of the check, the rule, the place, and the values."""

from __future__ import annotations

from typing import Literal

import msgspec

Layer = Literal["schema", "machine", "invariants", "ledger"]
Severity = Literal["ERROR", "WARNING"]


class Result(msgspec.Struct, frozen=True):
    """A fault of a packet. An ERROR rejects the packet, a WARNING is for the log.

    ``path`` is the dotted path of the value in the packet, for example ``payload.task_id``; empty for the whole
    packet.
    """

    packet_id: str
    layer: Layer
    rule: str
    severity: Severity
    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        place = f" {self.path}:" if self.path else ""
        return (
            f"{self.packet_id}: {self.layer} {self.rule}:{place} expected {self.expected}, found {self.found}"
        )


def is_rejected(results: tuple[Result, ...]) -> bool:
    """Whether one of the results is an ERROR."""
    return any(each.severity == "ERROR" for each in results)
