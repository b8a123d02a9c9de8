"""PacketEnvelope 1.1.0: the document's own JSON, limits, freezing, lineage, one hash for one content."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.protocol.errors import EnvelopeError, EnvelopeTooLarge
from council.protocol.packet import (
    PACKET_BYTES_MAX,
    PacketEnvelope,
    PacketEnvelopeIn,
    PacketLineage,
    PacketWriteResult,
    StructuredReasoningBlock,
)
from tests.cases import each

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
A, B, C, D = (UUID(int=n) for n in range(1, 5))
DOCUMENTED: dict[str, Any] = {
    "packet_id": "a1b2c3d4-e5f6-7890-abcd-ef1234567890",
    "packet_type": "event",
    "timestamp": "2025-12-07T12:00:00Z",
    "payload": {"action": "user_query", "content": "Find HDPE suppliers"},
    "metadata": {
        "schema_version": "1.1.0",
        "reasoning_mode": "chain_of_thought",
        "agent": "plasticos_agent",
        "domain": "plastic_brokerage",
    },
    "provenance": {
        "parent_packet": "00000000-0000-0000-0000-000000000000",
        "source": "api_gateway",
        "tool": "search_tool",
    },
    "confidence": {"score": 0.95, "rationale": "High confidence based on source reliability"},
    "thread_id": "11111111-2222-3333-4444-555555555555",
    "lineage": {
        "parent_ids": [str(A), str(B)],
        "derivation_type": "inference",
        "generation": 2,
        "root_packet_id": str(C),
    },
    "tags": ["hdpe", "supplier_search", "california"],
    "ttl": "2025-12-14T12:00:00Z",
}
BLOCK: dict[str, Any] = {
    "block_id": str(A),
    "packet_id": str(B),
    "extracted_features": {"kind": "question"},
    "inference_steps": [{"because": ["x"]}],
    "reasoning_tokens": ["so"],
    "decision_tokens": ["yes"],
    "confidence_scores": {"overall": 0.5, "count": 2},
    "memory_write_ops": [{"op": "note"}],
    "timestamp": "2025-12-07T12:00:00Z",
}


def packet(number: int, *parents: PacketEnvelope, **more: Any) -> PacketEnvelope:
    lineage = {"parent_ids": [parent.packet_id for parent in parents]}
    given = PacketEnvelopeIn.build(packet_type="event", payload={"n": number}, lineage=lineage, **more)
    return given.completed(UUID(int=number), NOW, {parent.packet_id: parent.lineage for parent in parents})


def test_the_documents_packet_comes_through_unchanged() -> None:
    found = PacketEnvelope.from_json(json.dumps(DOCUMENTED))
    assert json.loads(found.canonical()) == DOCUMENTED
    assert PacketEnvelope.from_json(found.canonical()) == found


def test_a_reasoning_block_stands_inside() -> None:
    found = PacketEnvelope.build(**DOCUMENTED, reasoning_block=BLOCK)
    assert isinstance(found.reasoning_block, StructuredReasoningBlock)
    assert json.loads(found.canonical())["reasoning_block"] == BLOCK
    assert PacketEnvelope.from_json(found.canonical()) == found


def test_a_writer_needs_a_type_and_a_payload_alone() -> None:
    given = PacketEnvelopeIn.build(packet_type="insight", payload={"finding": "x"})
    kept = given.completed(A, NOW)
    assert (kept.packet_id, kept.timestamp, kept.lineage, kept.tags) == (A, NOW, None, ())
    named = PacketEnvelopeIn.build(packet_type="insight", payload={}, packet_id=B, timestamp=NOW)
    later = named.completed(A, NOW + timedelta(days=1))
    assert (later.packet_id, later.timestamp) == (B, NOW)


@each(
    ("field", "value", "named"),
    [
        ("packet_type", "", "packet_type"),
        ("packet_type", 3, "packet_type"),
        ("payload", [1], "payload"),
        ("payload", {"a": {"b": float("nan")}}, "payload.a.b"),
        ("payload", {"a": "x\0y"}, "payload.a"),
        ("packet_id", "a1b2c3d4", "packet_id"),
        ("packet_id", "{a1b2c3d4-e5f6-7890-abcd-ef1234567890}", "packet_id"),
        ("timestamp", "2025-12-07T12:00:00", "timestamp"),
        ("timestamp", "yesterday", "timestamp"),
        ("ttl", "2025-12-14", "ttl"),
        ("metadata", {"agents": "x"}, "metadata.agents"),
        ("confidence", {"score": 1.2}, "confidence.score"),
        ("confidence", {"score": float("nan")}, "confidence.score"),
        ("lineage", {"derivation_type": "copy"}, "lineage.derivation_type"),
        ("lineage", {"parent_ids": ["x"]}, "lineage.parent_ids"),
        ("lineage", {"generation": -1}, "lineage.generation"),
        ("tags", "hdpe", "tags"),
        ("tags", ["x"] * 101, "tags"),
        ("unknown", 1, "unknown"),
        (
            "reasoning_block",
            {**BLOCK, "confidence_scores": {"a": "high"}},
            "reasoning_block.confidence_scores.a",
        ),
        (
            "reasoning_block",
            {**BLOCK, "confidence_scores": {"a": True}},
            "reasoning_block.confidence_scores.a",
        ),
        ("reasoning_block", {**BLOCK, "inference_steps": ["x"]}, "reasoning_block.inference_steps"),
    ],
)
def test_a_fault_is_named_by_its_field(field: str, value: object, named: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        PacketEnvelope.build(**{**DOCUMENTED, field: value})
    assert caught.value.field.startswith(named)


@pytest.mark.parametrize("field", ["timestamp", "ttl"])
def test_what_is_no_time_is_told_once_under_its_own_name(field: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        PacketEnvelope.build(**{**DOCUMENTED, field: "2025-12-14"})
    assert str(caught.value) == f"{field}: '2025-12-14' is no time; expected one like 2025-07-11T19:22:00Z"


def test_a_list_past_its_limit_is_too_large() -> None:
    """As a text and an object are. Mutation: a plain EnvelopeError, without limit and found."""
    with pytest.raises(EnvelopeTooLarge) as caught:
        PacketEnvelope.build(**{**DOCUMENTED, "tags": ["x"] * 101})
    assert (caught.value.field, caught.value.limit, caught.value.found) == ("tags", 100, 101)
    assert str(caught.value) == "tags: has 101 entries; at most 100 are allowed"


@pytest.mark.parametrize("missing", ["packet_id", "packet_type", "timestamp", "payload"])
def test_what_is_required_is_missed(missing: str) -> None:
    with pytest.raises(EnvelopeError, match=f"{missing}: is missing"):
        PacketEnvelope.build(**{name: value for name, value in DOCUMENTED.items() if name != missing})


@pytest.mark.parametrize("text", ["", "[]", "{", '{"packet_type": "a", "packet_type": "b"}', "[" * 10_000])
def test_what_is_no_packet_is_refused(text: str) -> None:
    with pytest.raises(EnvelopeError):
        PacketEnvelope.from_json(text)


def test_a_packet_has_a_largest_size() -> None:
    """Mutation: without a limit one writer's packet fills the store's memory."""
    step = {"text": "\x01" * 700_000}
    block = {**BLOCK, "inference_steps": [step, step]}
    with pytest.raises(EnvelopeTooLarge) as caught:
        PacketEnvelope.build(**DOCUMENTED, reasoning_block=block).canonical()
    assert (caught.value.limit, caught.value.field) == (PACKET_BYTES_MAX, "packet")


def test_what_can_be_built_can_be_read_again() -> None:
    """Mutation: a limit on what one object holds, counted over the whole packet, makes it unreadable once kept."""
    many = {str(number): number for number in range(9_000)}
    found = PacketEnvelope.build(
        **{**DOCUMENTED, "payload": many, "reasoning_block": {**BLOCK, "extracted_features": many}}
    )
    assert PacketEnvelope.from_json(found.canonical()) == found


def test_nothing_in_it_can_be_changed() -> None:
    """Mutation: a payload kept by reference is changed by whoever still holds it, and its hash with it."""
    inside = {"deep": {"list": [1, {"x": 1}]}}
    found = PacketEnvelope.build(**{**DOCUMENTED, "payload": inside, "reasoning_block": BLOCK})
    before = found.canonical()
    inside["deep"]["list"].append(2)  # type: ignore[attr-defined]
    for change in (
        lambda: setattr(found, "packet_type", "x"),
        lambda: found.payload["deep"].update(y=1),
        lambda: found.payload["deep"]["list"].append(1),
        lambda: found.reasoning_block.inference_steps.append({}),  # type: ignore[union-attr]
        lambda: found.tags.append("x"),
    ):
        with pytest.raises((AttributeError, TypeError, ValueError)):
            change()
    assert found.canonical() == before


def test_one_content_has_one_hash_in_every_process() -> None:
    found = PacketEnvelope.build(**DOCUMENTED)
    turned = {name: DOCUMENTED[name] for name in reversed(DOCUMENTED)}
    turned["timestamp"] = "2025-12-07T14:00:00+02:00"
    turned["packet_id"] = turned["packet_id"].upper()
    assert PacketEnvelope.build(**turned).canonical() == found.canonical()
    assert PacketEnvelope.build(**{**DOCUMENTED, "tags": []}).canonical() != found.canonical()
    code = (
        "import hashlib, sys; from council.protocol.packet import PacketEnvelope as P;"
        "print(hashlib.sha256(P.from_json(sys.stdin.read()).canonical()).hexdigest())"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        input=found.canonical().decode(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == hashlib.sha256(found.canonical()).hexdigest()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text("abcé", max_size=4), JSON, max_size=5))
def test_any_payload_is_read_back_as_it_was(payload: dict[str, Any]) -> None:
    found = PacketEnvelope.build(**{**DOCUMENTED, "payload": payload})
    again = PacketEnvelope.from_json(found.canonical())
    assert again == found
    assert again.canonical() == found.canonical()


# Lineage (rules 4.3)


def test_lineage_is_completed_from_the_parents() -> None:
    root, other = packet(1), packet(2)
    assert root.lineage == PacketLineage(generation=0, root_packet_id=A)
    child = packet(3, root)
    assert child.lineage is not None
    assert (child.lineage.generation, child.lineage.root_packet_id) == (1, A)
    merged = packet(4, other, child)  # the highest parent's generation, the first one's root
    assert merged.lineage is not None
    assert (merged.lineage.generation, merged.lineage.root_packet_id) == (2, B)


def test_a_parent_without_lineage_is_a_root() -> None:
    plain = PacketEnvelopeIn.build(packet_type="event", payload={}).completed(A, NOW)
    child = packet(2, plain)
    assert child.lineage is not None
    assert (child.lineage.generation, child.lineage.root_packet_id) == (1, A)


def test_a_packet_that_was_completed_is_completed_to_the_same() -> None:
    """Mutation: what a store gave back could not be written to another."""
    root = packet(1)
    child = packet(2, root)
    again = PacketEnvelopeIn.from_json(child.canonical()).completed(C, NOW, {A: root.lineage})
    assert again == child


@pytest.mark.parametrize(
    ("lineage", "problem"),
    [
        ({"parent_ids": [D]}, "is not kept here"),
        ({"parent_ids": [A, A]}, "twice"),
        ({"parent_ids": [C]}, "its own parent"),
        ({"parent_ids": [A], "generation": 5}, "generation: '5' contradicts"),
        ({"parent_ids": [A], "root_packet_id": B}, "root_packet_id"),
        ({"generation": 1}, "generation"),
    ],
)
def test_a_lineage_that_is_not_true_is_refused(lineage: dict[str, Any], problem: str) -> None:
    root = packet(1)
    given = PacketEnvelopeIn.build(packet_type="event", payload={}, packet_id=C, lineage=lineage)
    with pytest.raises(EnvelopeError, match=problem) as caught:
        given.completed(D, NOW, {A: root.lineage})
    assert caught.value.field.startswith("lineage.")


# Beside it


def test_a_ttl_is_a_moment() -> None:
    found = PacketEnvelope.build(**{**DOCUMENTED, "ttl": NOW})
    assert not found.expired(NOW - timedelta(microseconds=1))
    assert found.expired(NOW)
    assert not PacketEnvelope.build(**{**DOCUMENTED, "ttl": None}).expired(NOW)


def test_a_write_says_what_it_came_to() -> None:
    result = PacketWriteResult(packet_id=A, written_tables=("packet_store",))
    assert (result.status, result.error_message) == ("ok", None)


def test_what_is_not_set_is_not_in_the_bytes() -> None:
    """Mutation: an empty list beside a list that is not there, and two bytes' forms of one packet."""
    packet = PacketEnvelope.build(
        packet_id=UUID(int=1),
        packet_type="event",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        payload={},
        lineage={},
    )
    text = (
        '{"lineage":{},"packet_id":"00000000-0000-0000-0000-000000000001","packet_type":"event","payload":{},'
    )
    assert packet.canonical().decode() == text + '"timestamp":"2026-01-01T00:00:00Z"}'
