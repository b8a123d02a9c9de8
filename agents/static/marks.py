"""The words by which a reason is known to come from static checks, and not from a model."""

from __future__ import annotations

import re

CORE_RULES = "static checks of the core rules, no model: "
POLICY = "static policy checks, no model: "
CODE = "(static checks: syntax, ruff)"
_FORMER_CODE = "(static checks: syntax, ruff, bandit)"  # in the journals of version 0.2
# What such checks can say at most in favour of a proposal.
NO_OBJECTION = "no objection found (static checks only)"

_IN_FRONT = re.compile(f"{re.escape(CORE_RULES)}|{re.escape(POLICY)}")


def without_marks(text: str) -> str:
    """A reason, or a text that quotes some, without what stands in front of each reason of static checks."""
    return _IN_FRONT.sub("", text)


def is_static(reason: str) -> bool:
    """Whether static checks gave the reason; a ruling's reason quotes theirs."""
    return any(mark in reason for mark in (CORE_RULES, POLICY, CODE, _FORMER_CODE))
