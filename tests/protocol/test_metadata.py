"""Metadata: W3C Trace Context and nothing else, small, signed like all the rest, and read from JSON too."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from council.protocol import signing
from council.protocol.codec import decode, encode
from council.protocol.envelope import Envelope
from council.protocol.errors import EnvelopeError, SignatureError
from council.protocol.metadata import TRACESTATE_CHARS_MAX, Metadata
from tests.cases import each

KEY = b"k" * 32
COUNCIL_ID = "test.0123456789abcdef"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def proposal(metadata: Any = None) -> Envelope:
    return Envelope.build(
        msg_id="00ff00ff00ff00ff",
        timestamp=datetime(2026, 3, 1, 12, tzinfo=UTC),
        sender="client",
        role="proposer",
        type="PROPOSAL",
        content={"summary": "Delete the old index"},
        metadata=metadata,
    )


@pytest.mark.parametrize(
    "state",
    [
        "",
        "a=1",
        "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7",
        "0tenant@system=a b",
        "a=" + "x" * 256,
        "a*/-_=!~",
    ],
)
def test_what_the_document_allows_is_taken(state: str) -> None:
    envelope = proposal({"traceparent": PARENT, "tracestate": state})
    assert envelope.metadata == Metadata(traceparent=PARENT, tracestate=state)
    assert decode(encode(envelope)) == envelope
    assert Envelope.from_json(envelope.to_json()) == envelope
    assert envelope.metadata is not None
    assert envelope.metadata.trace_id == TRACE


def test_json_has_it_only_where_there_is_any() -> None:
    assert "metadata" not in json.loads(proposal().to_json())
    told = json.loads(proposal({"traceparent": PARENT}).to_json())
    assert told["metadata"] == {"traceparent": PARENT}


@each(
    ("given", "field"),
    [
        (PARENT, "metadata"),
        ([PARENT, ""], "metadata"),
        ({}, "metadata.traceparent"),
        ({"traceparent": None}, "metadata.traceparent"),
        ({"traceparent": ""}, "metadata.traceparent"),
        ({"traceparent": PARENT.upper()}, "metadata.traceparent"),
        ({"traceparent": f"{PARENT}-more"}, "metadata.traceparent"),
        ({"traceparent": f"{PARENT}\n"}, "metadata.traceparent"),
        ({"traceparent": "01" + PARENT[2:]}, "metadata.traceparent"),
        ({"traceparent": "ff" + PARENT[2:]}, "metadata.traceparent"),
        ({"traceparent": f"00-{'0' * 32}-b7ad6b7169203331-01"}, "metadata.traceparent"),
        ({"traceparent": f"00-{TRACE}-{'0' * 16}-01"}, "metadata.traceparent"),
        ({"traceparent": "٠٠-" + PARENT[3:]}, "metadata.traceparent"),
        ({"traceparent": PARENT, "tracestate": "a"}, "metadata.tracestate"),
        ({"traceparent": PARENT, "tracestate": "a=1,"}, "metadata.tracestate"),
        ({"traceparent": PARENT, "tracestate": "a=1, b=2"}, "metadata.tracestate"),
        ({"traceparent": PARENT, "tracestate": "a=1,b=2,a=3"}, "metadata.tracestate"),
        ({"traceparent": PARENT, "tracestate": "A=1"}, "metadata.tracestate"),
        ({"traceparent": PARENT, "tracestate": "a=1\r\nx-evil: 1"}, "metadata.tracestate"),
        ({"traceparent": PARENT, "tracestate": "a=ü"}, "metadata.tracestate"),
        (
            {"traceparent": PARENT, "tracestate": ",".join(f"k{n}=1" for n in range(33))},
            "metadata.tracestate",
        ),
        ({"traceparent": PARENT, "tracestate": "a=" + "x" * TRACESTATE_CHARS_MAX}, "metadata.tracestate"),
        ({"traceparent": PARENT, "baggage": "user=ada"}, "metadata.baggage"),
    ],
)
def test_all_else_is_refused_by_its_name(given: Any, field: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        proposal(given)
    assert caught.value.field == field
    text = json.dumps({**json.loads(proposal().to_json()), "metadata": given})
    with pytest.raises(EnvelopeError) as caught:
        Envelope.from_json(text)
    assert caught.value.field == field


def test_it_is_signed_like_the_rest() -> None:
    """Whoever could change it would hang a decision into somebody else's trace."""
    sealed = signing.sign(proposal({"traceparent": PARENT}), KEY, COUNCIL_ID)
    keyring = signing.Keyring()
    keyring.add("client", KEY)
    assert keyring.open(sealed, COUNCIL_ID).metadata == Metadata(traceparent=PARENT)
    at = sealed.index(TRACE.encode())
    forged = sealed[:at] + b"1" + sealed[at + 1 :]
    with pytest.raises(SignatureError):
        keyring.open(forged, COUNCIL_ID)
