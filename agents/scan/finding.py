"""A finding of the static checks, and its place.

The weight says what becomes of a proposal with it. ``stop``: it is rejected, also if one mind alone sees it. ``ask``:
a human or a model decides. ``note``: it is named beside a yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Weight = Literal["stop", "ask", "note"]
# Faults in code, which CodeMind judges.
CodeFamily = Literal[
    "injection", "path", "xxe", "ssrf", "deserialization", "template", "crypto", "bug", "dos", "memory", "syntax",
    "web",
]  # fmt: skip
# Policy, which Lite judges.
PolicyFamily = Literal[
    "secret", "privacy", "command", "destructive", "licence", "supply", "permissions", "container", "cloud", "config",
]  # fmt: skip
# What a change takes away, and how far an action reaches, which Prime judges.
GuardFamily = Literal["guard", "auth", "tests", "ci", "audit", "reach"]
Family = Literal[CodeFamily, PolicyFamily, GuardFamily]

CODE: frozenset[Family] = frozenset(get_args(CodeFamily))
POLICY: frozenset[Family] = frozenset(get_args(PolicyFamily))
WEIGHTS: tuple[Weight, ...] = get_args(Weight)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found, and where.

    ``path`` is a file, or a place such as ``the action's 'command'``. ``line`` counts from 1 in the new file, or in
    the old file for what is gone; it is 0 if there is none. ``message`` says what it is and what to do, and never
    holds a secret. ``cwe`` is the number of the weakness in the CWE list, 0 if it has none.
    """

    rule: str
    family: Family
    weight: Weight
    path: str
    line: int
    message: str
    cwe: int = 0

    @property
    def place(self) -> str:
        """The path, with the line if there is one."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def __str__(self) -> str:
        return f"{self.place} {self.message} ({self.rule})"
