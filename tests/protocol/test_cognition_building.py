"""build_packet: what a new packet holds, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.protocol.cognition import CognitionPacket, build_packet
from council.protocol.cognition.parts import DataField
from council.protocol.errors import EnvelopeError
from tests.protocol.cognition import tables
from tests.protocol.cognition.tables import ID, NOW


def built(prompt: str = "hello", **more: Any) -> CognitionPacket:
    given_fields = {"now": NOW, "new_id": lambda: ID, "session_id": "s", "time_budget_ms": 30_000}
    return build_packet(prompt, **(given_fields | more))


def test_it_is_the_packet_of_the_fields_own_factory_for_a_decision() -> None:
    """But for the names that this program gives its persona and its model, and its version."""
    theirs = json.loads(tables.factory())
    session = theirs["header"]["session_id"]
    ours = built(theirs["content"]["original_prompt"], session_id=session)
    assert ours.compute_hashes() == ours
    theirs["version"] = "0.3"
    theirs["header"] |= {"packet_id": ID[:8], "datetime": "2026-11-21T12:00:00.000250+00:00"}
    theirs["header"]["persona"] |= {"identity_id": "gaia", "persona_id": "gaia"}
    theirs["header"]["model"] |= {"name": "thinker", "provider": "vllm"}
    routing = theirs["header"]["output_routing"]
    routing["source_destination"] = routing["primary"]["destination"] = "api"
    routing["primary"]["user_id"] = None
    theirs["intent"] |= {"user_intent": "decide", "system_task": "Decision", "confidence": 1.0}
    signatures = ours.governance.signatures
    theirs["governance"]["signatures"] |= {
        "header_hash": signatures.header_hash,
        "content_hash": signatures.content_hash,
    }
    assert ours.to_dict() == theirs


def test_it_holds_what_is_given() -> None:
    field = DataField(key="place", value={"x": 1})
    found = built(time_budget_ms=0, data_fields=[field], identity_hash="ab12")
    assert (found.header.session_id, found.context.constraints.time_budget_ms) == ("s", 0)
    assert found.content.data_fields[1] == field
    assert found.governance.model_extra["identity_hash"] == "ab12"  # rules 7.1


@pytest.mark.parametrize("made", ["", "0123456", "ABCDEF01", "xyzxyzxy"])
def test_an_id_is_eight_hex_digits(made: str) -> None:
    with pytest.raises(EnvelopeError, match="packet_id"):
        built(new_id=lambda: made)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"now": NOW.replace(tzinfo=None)}, "now"),
        ({"time_budget_ms": "high"}, "context.constraints.time_budget_ms"),
        ({"prompt": "a\0b"}, "content.original_prompt"),
    ],
)
def test_what_can_be_no_packet_is_refused(more: dict[str, Any], field: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        built(**more)
    assert caught.value.field == field


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50))
def test_the_prompt_is_kept_word_for_word(prompt: str) -> None:
    found = CognitionPacket.from_json(built(prompt).to_json())
    assert found.content.original_prompt == prompt
    assert found.content.data_fields[0].value == prompt
