"""What was really said in a simulated council, whatever the network makes of it. Knows nothing of rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class Violation(AssertionError):
    """The council broke a rule. ``rule`` names it."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


@dataclass(slots=True, eq=False)
class Said:
    """One sealed envelope and what it truly is.

    ``kind``: proposal, vote, unreadable, fault, observation, escalation, ruling, answer, cancel, beat,
    reservation, settlement, piece, report; or ``forged`` (not its sender's words) or ``illegal`` (its sender's words,
    but not its to say). ``label`` is its identity, by which faults that befall it are chosen and can be taken away.
    """

    kind: str
    sender: str
    pid: str
    sealed: bytes
    label: str
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def msg_id(self) -> str:
        return str(self.facts["msg_id"])

    @property
    def grave(self) -> bool:
        """High risk, or a confidence that is not at least 0.3 (rules 1.8)."""
        return self.facts["risk"] == "high" or not self.facts["confidence"] >= 0.3
