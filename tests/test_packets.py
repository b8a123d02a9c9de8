"""``council.packets``: the documents' own calls, with the time and the ids filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from council.packets import (
    CognitionPacket,
    PacketEnvelope,
    PacketLineage,
    PacketStore,
    StructuredReasoningBlock,
    build_packet,
)
from council.protocol.errors import CallerError, EnvelopeError, StoreError

IDS: dict[str, Any] = {"user_id": "u", "channel_id": "c"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PacketStore]:
    with PacketStore.open(tmp_path / "packets.db") as opened:
        yield opened


def event(**fields: Any) -> PacketEnvelope:
    return PacketEnvelope(packet_type="event", payload={"action": "user_query"}, **fields)


def test_an_envelope_gets_an_id_and_a_time_of_its_own() -> None:
    before = datetime.now(UTC)
    one, other = event(), event()
    assert isinstance(one.packet_id, UUID)
    assert one.packet_id != other.packet_id
    assert before <= one.timestamp <= datetime.now(UTC)


def test_the_documents_second_example() -> None:
    parent, thread = uuid4(), uuid4()
    packet = PacketEnvelope(
        packet_type="insight",
        payload={"finding": "Market trend identified"},
        thread_id=thread,
        lineage=PacketLineage(parent_ids=[parent], derivation_type="inference"),  # type: ignore[arg-type]
        tags=["market_analysis", "auto_generated"],
        ttl=datetime(2030, 1, 1),  # the document's utcnow() has no offset either
    )
    assert packet.lineage is not None
    assert packet.lineage.parent_ids == (parent,)
    assert packet.thread_id == thread
    assert packet.ttl == datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"payload": {}}, "packet_type"),
        ({"packet_type": "event", "payload": {}, "color": 1}, "color"),
        ({"packet_type": "event", "payload": {}, "packet_id": "1"}, "packet_id"),
    ],
)
def test_an_invalid_envelope_names_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        PacketEnvelope(**fields)
    assert caught.value.field == field


def test_a_reasoning_block_is_kept_with_its_packet(store: PacketStore) -> None:
    own = uuid4()
    block = StructuredReasoningBlock(packet_id=own, reasoning_tokens=["because"])
    packet = event(packet_id=own, reasoning_block=block)
    assert [each.status for each in store.write(packet)] == ["ok"]
    kept = store.get(own)
    assert kept == packet
    assert kept is not None
    assert kept.reasoning_block is not None
    assert (kept.reasoning_block.block_id, kept.reasoning_block.timestamp) == (
        block.block_id,
        block.timestamp,
    )


def test_an_empty_cognition_packet_is_complete() -> None:
    for packet in (CognitionPacket(), CognitionPacket.from_dict({})):
        assert packet.version == "0.3"
        assert (packet.header.session_id, packet.header.packet_id) == ("default", "default")
        assert packet.content.original_prompt == ""
        assert datetime.fromisoformat(packet.header.datetime).utcoffset() == timedelta(0)
        assert re.fullmatch("[0-9a-f]{8}", packet.header.sub_id)
        assert CognitionPacket.from_dict(packet.to_dict()) == packet


def test_a_packet_that_was_read_keeps_its_time_and_its_unknown_keys() -> None:
    header = {"session_id": "s", "packet_id": "p", "datetime": "then", "sub_id": "7", "mood": "calm"}
    data = CognitionPacket.from_dict({"header": header, "extra": [1]}).to_dict()
    assert (data["header"]["datetime"], data["header"]["sub_id"]) == ("then", "7")
    assert (data["header"]["mood"], data["extra"]) == ("calm", [1])


def test_an_invalid_cognition_packet_names_the_path() -> None:
    with pytest.raises(EnvelopeError) as caught:
        CognitionPacket(response={"confidence": "high"})
    assert caught.value.field == "response.confidence"


# From the table of the document: destination, engine, priority, tone, tokens, ms, safety, dry run, window, history
TABLE = {
    "web": ("web", "Prime", 5, "neutral", 2048, 30000, "strict", True, 8192, "web_session"),
    "discord": (
        "discord",
        "Prime",
        5,
        "conversational",
        2048,
        30000,
        "strict",
        True,
        8192,
        "discord_channel",
    ),
    "audio_gateway": ("audio", "Prime", 5, None, 2048, 30000, "standard", False, 8192, "ref"),
    "voice_prime": ("audio", "Prime", 5, "conversational", 512, 15000, "strict", True, 8192, "discord_voice"),
    "voice_lite": ("audio", "Lite", 8, "conversational", 128, 5000, "strict", True, 4096, "discord_voice"),
    "cli": ("cli", "Prime", 5, "neutral", 2048, 30000, "strict", True, 8192, "web_session"),
    "api": ("api", "Prime", 5, "neutral", 2048, 30000, "strict", True, 8192, "web_session"),
}


@pytest.mark.parametrize("source", TABLE)
def test_each_source_has_the_values_of_the_table(source: Any) -> None:
    data = build_packet(source, "Hello", **IDS).to_dict()
    header, context = data["header"], data["context"]
    routing, limits = header["output_routing"], context["constraints"]
    assert (
        routing["primary"]["destination"],
        header["routing"]["target_engine"],
        header["routing"]["priority"],
        header["persona"]["tone_hint"],
        limits["max_tokens"],
        limits["time_budget_ms"],
        limits["safety_mode"],
        data["governance"]["safety"]["dry_run"],
        header["model"]["context_window_tokens"],
        context["session_history_ref"]["type"],
    ) == TABLE[source]
    assert routing["source_destination"] == routing["primary"]["destination"]
    assert routing["addressed_to_gaia"] is True
    assert re.fullmatch("[0-9a-f]{8}", header["packet_id"])
    assert (header["sub_id"], header["operational_status"]["status"]) == ("0", "initialized")
    intent = data["intent"]
    assert (intent["user_intent"], intent["system_task"], intent["confidence"]) == (
        "chat",
        "GenerateDraft",
        0,
    )
    assert (data["status"]["state"], data["status"]["finalized"]) == ("initialized", False)
    assert data["tool_routing"]["execution_status"] == "pending"


@pytest.mark.parametrize(
    ("source", "ids", "session"),
    [
        ("web", {}, "web_ui_session"),
        ("audio_gateway", {}, "voice_session"),
        ("discord", {"user_id": "7", "is_dm": True}, "discord_dm_7"),
        ("discord", {"channel_id": "9"}, "discord_channel_9"),
        ("voice_lite", {"user_id": "7"}, "discord_voice_7"),
        ("web", {"session_id": "mine"}, "mine"),
    ],
)
def test_a_session_without_an_id_is_named_by_its_source(
    source: Any, ids: dict[str, Any], session: str
) -> None:
    packet = build_packet(source, "Hello", **ids)
    assert packet.header.session_id == packet.context.session_history_ref.value == session


@pytest.mark.parametrize(
    ("source", "ids", "missing"),
    [
        ("discord", {"user_id": "7"}, "channel_id"),
        ("discord", {"channel_id": "9", "is_dm": True}, "user_id"),
        ("voice_prime", {}, "user_id"),
        ("fax", {}, "source"),
    ],
)
def test_a_missing_id_or_unknown_source_is_named(source: Any, ids: dict[str, Any], missing: str) -> None:
    with pytest.raises(CallerError, match=f"^{missing} is "):
        build_packet(source, "Hello", **ids)


def test_arguments_replace_the_values_of_the_source() -> None:
    packet = build_packet(
        "web",
        "Hello",
        target_engine="Lite",
        priority=0,
        max_tokens=0,
        dry_run=False,
        tone_hint="",
        system_hint="Be brief",
        extra_data_fields=[{"key": "page", "value": 3}],
    )
    assert (packet.header.routing.target_engine, packet.header.routing.priority) == ("Lite", 0)
    assert (packet.context.constraints.max_tokens, packet.governance.safety.dry_run) == (0, False)
    assert packet.header.persona.tone_hint == ""
    fields = [(each.key, each.value) for each in packet.content.data_fields]
    assert fields == [("user_message", "Hello"), ("system_hint", "Be brief"), ("page", 3)]


def test_the_hashes_are_those_of_the_packet_and_can_be_left_out() -> None:
    packet = build_packet("api", "Hello")
    assert packet.governance.signatures.header_hash is not None
    assert packet.compute_hashes() == packet
    assert build_packet("api", "Hello", compute_hashes=False).governance.signatures.content_hash is None


def test_packets_are_kept_found_and_related(store: PacketStore) -> None:
    thread = uuid4()
    parent = event(thread_id=thread, tags=["a"])
    child = event(lineage=PacketLineage(parent_ids=(parent.packet_id,), derivation_type="inference"))
    assert [each.status for each in store.write(parent, child)] == ["ok", "ok"]
    assert store.get(parent.packet_id) == parent
    assert store.find(thread_id=thread, tags_all=["a"]).packets == (parent,)
    assert [(each.distance, each.packet) for each in store.ancestors(child.packet_id)] == [(1, parent)]
    below = store.descendants(parent.packet_id)
    assert [each.packet.packet_id for each in below] == [child.packet_id]
    assert below[0].packet.lineage is not None
    assert (below[0].packet.lineage.generation, below[0].packet.lineage.root_packet_id) == (
        1,
        parent.packet_id,
    )
    assert store.get(uuid4()) is None


def test_pages_follow_each_other(store: PacketStore) -> None:
    packets = [event() for _ in range(3)]
    store.write(*packets)
    first = store.find(limit=2)
    rest = store.find(limit=2, cursor=first.cursor)
    found = [each.packet_id for each in (*first.packets, *rest.packets)]
    assert sorted(found) == sorted(each.packet_id for each in packets)
    assert rest.cursor is None


def test_a_packet_is_written_once(store: PacketStore) -> None:
    packet = event()
    store.write(packet)
    other = PacketEnvelope(packet_type="other", payload={}, packet_id=packet.packet_id)
    again, conflict = store.write(packet, other)
    assert (again.status, conflict.status) == ("ok", "error")
    assert store.get(packet.packet_id) == packet


def test_only_an_expired_packet_is_garbage(store: PacketStore) -> None:
    lasting = event(ttl=datetime.now(UTC) + timedelta(days=7))
    passed = event(ttl=datetime.now(UTC) - timedelta(days=7))
    assert [each.status for each in store.write(lasting, passed)] == ["ok", "error"]
    assert store.collect_garbage() == 0
    assert store.get(lasting.packet_id) == lasting


def test_a_store_that_is_only_read_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        PacketStore.open(tmp_path / "none.db", read_only=True)
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(("name", "value"), [("confidence", 0.87), ("risk_level", "low"), ("retry_count", 0)])
def test_a_meta_field_is_in_the_header_only_if_it_is_set(name: str, value: object) -> None:
    """GCP 4.1.1. A header without them has the hash that other programs compute."""
    plain = CognitionPacket()
    assert name not in plain.to_dict()["header"]
    header = plain.header.to_dict() | {name: value}
    packet = CognitionPacket(header=header)
    assert packet.to_dict()["header"][name] == value
    signatures = [each.compute_hashes().governance.signatures for each in (plain, packet)]
    assert signatures[0].header_hash != signatures[1].header_hash
