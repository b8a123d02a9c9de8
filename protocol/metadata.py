"""Data that travels with a message but is not part of its content: its trace (W3C Trace Context).

This module checks its form, and does no tracing. No mind and no model is shown it (rules 2.3).
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from council.protocol.models import Length, Model, refusal

# Every implementation must pass on this much. It travels with each proposal, and is kept with it.
TRACESTATE_CHARS_MAX = 512
TRACESTATE_MEMBERS_MAX = 32
TRACEPARENT_CHARS = 55

_TRACEPARENT = re.compile("00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_MEMBER = re.compile(
    r"([a-z0-9][a-z0-9_*/@-]{0,255})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_EXPECTED = (
    "expected 00-, 32 hex digits, -, 16 hex digits, -, 2 hex digits, in lower case, and no id of zeros"
)


def _is_traceparent(text: str) -> str:
    if _TRACEPARENT.fullmatch(text) is None:
        raise PydanticCustomError("traceparent", _EXPECTED)
    return text


def _is_tracestate(text: str) -> str:
    if not text:
        return text
    members = text.split(",")
    if len(members) > TRACESTATE_MEMBERS_MAX:
        raise refusal(f"has {len(members)} members, at most {TRACESTATE_MEMBERS_MAX} are allowed")
    keys = {found[1] for member in members if (found := _MEMBER.fullmatch(member)) is not None}
    if len(keys) < len(members):
        raise PydanticCustomError(
            "tracestate", "expected key=value, …, each key once, as W3C Trace Context has it"
        )
    return text


class Metadata(Model):
    """The span in which a message was sent: ``traceparent`` and ``tracestate`` in the form of W3C Trace Context.

    ``tracestate`` is empty if there is none. Unknown fields are refused.
    """

    traceparent: Annotated[str, Length(TRACEPARENT_CHARS), AfterValidator(_is_traceparent)]
    tracestate: Annotated[str, Length(TRACESTATE_CHARS_MAX), AfterValidator(_is_tracestate)] = ""

    @property
    def trace_id(self) -> str:
        """The trace's id, 32 hex digits."""
        return self.traceparent[3:35]
