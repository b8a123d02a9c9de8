"""Letters: what was written is read, and whatever else there may be in its place is refused."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from council.agents.messaging import seat_messages
from council.agents.messaging.seat_messages import Letter
from council.protocol import codec
from council.protocol.envelope import Envelope
from council.protocol.errors import EnvelopeError


def envelope(type: str, content: dict[str, Any], **fields: Any) -> Envelope:
    return Envelope.build(timestamp=datetime(2026, 1, 2, tzinfo=UTC), type=type, content=content, **fields)


PROPOSAL = envelope("PROPOSAL", {"summary": "do it"}, msg_id="aaaaaaaa", sender="client", role="proposer")
INFO = envelope(
    "INFO",
    {"kind": "ask_again", "text": "it could not be read"},
    msg_id="bbbbbbbb",
    parent_id="aaaaaaaa",
    sender="coordinator",
    role="coordinator",
)
PROPOSAL_BYTES, INFO_BYTES = codec.encode(PROPOSAL), codec.encode(INFO)


def head(time_left_s: float, beside: int) -> bytes:
    """As it is documented: a big-endian double and how many bytes are beside."""
    return struct.pack(">dI", time_left_s, beside)


@given(st.floats(min_value=0, max_value=1e9))
@example(0.0)
def test_what_was_written_is_read(left_s: float) -> None:
    assert seat_messages.read(seat_messages.write(PROPOSAL_BYTES, b"", left_s)) == Letter(
        PROPOSAL, None, left_s
    )
    assert seat_messages.read(seat_messages.write(INFO_BYTES, PROPOSAL_BYTES, left_s)) == Letter(
        INFO, PROPOSAL, left_s
    )


def test_the_proposal_beside_costs_the_envelope_no_room() -> None:
    """Each has an envelope's limits of its own: what could be proposed can be asked about, whatever is said."""
    large = envelope(
        "PROPOSAL",
        {"summary": "x", "body": "x" * 900_000},
        msg_id="aaaaaaaa",
        sender="client",
        role="proposer",
    )
    said = envelope(
        "INFO",
        {"kind": "ruling_request", "text": "", "data": {"ballots": ["y" * 900_000]}},
        msg_id="bbbbbbbb",
        parent_id="aaaaaaaa",
        sender="coordinator",
        role="coordinator",
    )
    assert seat_messages.read(seat_messages.write(codec.encode(said), codec.encode(large), 1.0)) == Letter(
        said, large, 1.0
    )


@pytest.mark.parametrize("about", [b"", PROPOSAL_BYTES], ids=["alone", "with one beside"])
def test_a_letter_cut_short_is_refused_wherever_it_is_cut(about: bytes) -> None:
    whole = seat_messages.write(INFO_BYTES, about, 1.0)
    for length in range(len(whole)):
        with pytest.raises(EnvelopeError):
            seat_messages.read(whole[:length])
    with pytest.raises(EnvelopeError):
        seat_messages.read(whole + b"\0")


@pytest.mark.parametrize("left_s", [math.nan, -math.nan, -1.0, -1e-9, -math.inf])
def test_a_time_that_is_none_is_refused(left_s: float) -> None:
    """Mutation: ``time_left_s < 0`` lets NaN pass, and with it a timer that never comes."""
    with pytest.raises(EnvelopeError) as caught:
        seat_messages.read(head(left_s, 0) + PROPOSAL_BYTES)
    assert caught.value.field == "letter"


@pytest.mark.parametrize("beside", [len(PROPOSAL_BYTES) + d for d in (-1, 1, len(INFO_BYTES))] + [2**32 - 1])
def test_a_head_that_does_not_fit_is_refused(beside: int) -> None:
    with pytest.raises(EnvelopeError):
        seat_messages.read(head(1.0, beside) + PROPOSAL_BYTES + INFO_BYTES)


@given(st.binary(max_size=200))
def test_junk_is_refused_by_one_error_alone(junk: bytes) -> None:
    with pytest.raises(EnvelopeError):
        seat_messages.read(junk)


@given(
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(0, 2**32 - 1) | st.integers(0, 300),
    st.binary(max_size=120) | st.sampled_from([PROPOSAL_BYTES, INFO_BYTES, PROPOSAL_BYTES + INFO_BYTES]),
)
def test_junk_behind_a_head_is_a_letter_or_refused(left_s: float, beside: int, rest: bytes) -> None:
    try:
        letter = seat_messages.read(head(left_s, beside) + rest)
    except EnvelopeError:
        return
    assert letter.time_left_s == left_s >= 0
    assert letter.envelope == codec.decode(rest[beside:])


@given(st.data())
def test_an_altered_letter_is_still_a_letter_or_refused(data: st.DataObject) -> None:
    whole = seat_messages.write(INFO_BYTES, PROPOSAL_BYTES, 1.0)
    at = data.draw(st.integers(0, len(whole) - 1))
    altered = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    try:
        letter = seat_messages.read(altered)
    except EnvelopeError:
        return
    assert letter.time_left_s >= 0
    assert letter.envelope.type == "INFO"
