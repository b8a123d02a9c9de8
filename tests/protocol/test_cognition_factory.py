"""build_packet: each source's defaults, what it always sets, and what can be asked for instead."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.protocol.cognition import SOURCES, CognitionPacket, build_packet
from council.protocol.cognition.parts import DataField
from council.protocol.cognition.vocabulary import TargetEngine
from council.protocol.errors import EnvelopeError
from tests.protocol.cognition import tables
from tests.protocol.cognition.tables import ID, NOW

# destination, engine, priority, tone, tokens, time, safety, dry run, window, history, session when omitted
USUAL: dict[str, tuple[Any, ...]] = {
    "web": ("web", "Prime", 5, "neutral", 2048, 30000, "strict", True, 8192, "web_session", "web_ui_session"),
    "cli": ("cli", "Prime", 5, "neutral", 2048, 30000, "strict", True, 8192, "web_session", "web_ui_session"),
    "api": ("api", "Prime", 5, "neutral", 2048, 30000, "strict", True, 8192, "web_session", "web_ui_session"),
    "discord": (
        *("discord", "Prime", 5, "conversational", 2048, 30000, "strict", True, 8192),
        *("discord_channel", "discord_channel_c7"),
    ),
    "audio_gateway": (
        "audio",
        "Prime",
        5,
        None,
        2048,
        30000,
        "standard",
        False,
        8192,
        "ref",
        "voice_session",
    ),
    "voice_prime": (
        *("audio", "Prime", 5, "conversational", 512, 15000, "strict", True, 8192),
        *("discord_voice", "discord_voice_u7"),
    ),
    "voice_lite": (
        *("audio", "Lite", 8, "conversational", 128, 5000, "strict", True, 4096),
        *("discord_voice", "discord_voice_u7"),
    ),
}


def built(source: str = "web", said: str = "hello", **more: Any) -> dict[str, Any]:
    return build_packet(source, said, now=NOW, new_id=lambda: ID, **more).to_dict()  # type: ignore[arg-type]


def test_the_sources_are_those_of_the_table() -> None:
    assert set(SOURCES) == set(USUAL)


@pytest.mark.parametrize("source", USUAL)
def test_a_source_has_its_defaults(source: str) -> None:
    found = built(source, user_id="u7", channel_id="c7")
    header, context = found["header"], found["context"]
    assert (
        header["output_routing"]["primary"]["destination"],
        header["routing"]["target_engine"],
        header["routing"]["priority"],
        header["persona"]["tone_hint"],
        context["constraints"]["max_tokens"],
        context["constraints"]["time_budget_ms"],
        context["constraints"]["safety_mode"],
        found["governance"]["safety"]["dry_run"],
        header["model"]["context_window_tokens"],
        context["session_history_ref"]["type"],
        header["session_id"],
    ) == USUAL[source]


@pytest.mark.parametrize("source", USUAL)
def test_what_is_always_set_is_set(source: str) -> None:
    found = built(source, "ça va?", user_id="u7", channel_id="c7", system_hint="be brief")
    header = found["header"]
    assert (found["version"], header["packet_id"], header["sub_id"]) == ("0.3", ID[:8], "0")
    assert header["datetime"] == "2026-11-21T12:00:00.000250+00:00"
    routing = header["output_routing"]
    assert routing["source_destination"] == routing["primary"]["destination"]
    assert routing["addressed_to_gaia"] is True
    assert header["operational_status"]["status"] == "initialized"
    assert found["intent"] == {
        "user_intent": "chat",
        "system_task": "GenerateDraft",
        "confidence": 0.0,
        "tags": [],
    }
    assert found["content"]["original_prompt"] == "ça va?"
    said = [(field["key"], field["value"]) for field in found["content"]["data_fields"]]
    assert said == [("user_message", "ça va?"), ("system_hint", "be brief")]
    assert (found["status"]["state"], found["status"]["finalized"]) == ("initialized", False)
    assert found["tool_routing"] == json.loads(tables.factory())["tool_routing"]
    assert found["context"]["session_history_ref"]["value"] == header["session_id"]
    packet = CognitionPacket.from_dict(found)
    assert packet.governance.signatures.header_hash
    assert packet.compute_hashes() == packet


def test_it_is_the_fields_own_factorys_packet() -> None:
    """But for the names that this program gives its persona and its model, and its version."""
    theirs = json.loads(tables.factory())
    ours = built("web", theirs["content"]["original_prompt"], user_id="web_user", compute_hashes=False)
    theirs["version"] = "0.3"
    theirs["header"] |= {"packet_id": ID[:8], "datetime": ours["header"]["datetime"]}
    theirs["header"]["persona"] |= {"identity_id": "gaia", "persona_id": "gaia"}
    theirs["header"]["model"] |= {"name": "thinker", "provider": "vllm"}
    theirs["governance"]["signatures"] |= {"header_hash": None, "content_hash": None}
    assert ours == theirs


def test_what_is_asked_for_stands_in_place_of_the_default() -> None:
    """Mutation: ``priority or usual`` takes 0 for nothing, and ``dry_run or usual`` a False."""
    extra = DataField(key="place", value={"x": 1})
    found = built(
        "voice_lite",
        session_id="s",
        user_id="u",
        channel_id="c",
        reply_to_message_id="m",
        author_name="Ann",
        target_engine=TargetEngine.COUNCIL,
        priority=0,
        max_tokens=1,
        time_budget_ms=2,
        safety_mode="permissive",
        tone_hint="",
        dry_run=False,
        extra_data_fields=[extra],
        identity_hash="ab12",
        compute_hashes=False,
    )
    header, context = found["header"], found["context"]
    assert (header["session_id"], header["routing"]["target_engine"]) == ("s", "Council")
    assert (header["routing"]["priority"], header["persona"]["tone_hint"]) == (0, "")
    target = header["output_routing"]["primary"]
    assert (target["channel_id"], target["user_id"], target["reply_to_message_id"]) == ("c", "u", "m")
    assert target["metadata"] == {"author_name": "Ann"}
    assert context["constraints"] | {"policies": None} == {
        "max_tokens": 1,
        "time_budget_ms": 2,
        "safety_mode": "permissive",
        "policies": None,
    }
    assert found["governance"]["safety"]["dry_run"] is False
    assert found["governance"]["identity_hash"] == "ab12"  # rules 7.1
    assert found["governance"]["signatures"]["header_hash"] is None
    assert [field["key"] for field in found["content"]["data_fields"]] == ["user_message", "place"]


def test_a_direct_message_is_a_session_of_its_own() -> None:
    found = built("discord", user_id="u7", channel_id="c7", is_dm=True)
    assert found["header"]["session_id"] == "discord_dm_u7"
    assert found["header"]["output_routing"]["primary"]["metadata"] == {"is_dm": True}


@pytest.mark.parametrize(
    ("source", "more", "missing"),
    [
        ("discord", {}, "channel_id"),
        ("discord", {"is_dm": True, "channel_id": "c"}, "user_id"),
        ("voice_lite", {}, "user_id"),
    ],
)
def test_two_users_do_not_share_a_session_for_want_of_a_name(
    source: str, more: dict[str, Any], missing: str
) -> None:
    with pytest.raises(EnvelopeError, match=missing) as caught:
        built(source, **more)
    assert caught.value.field == "session_id"


def test_a_name_is_put_in_as_it_is() -> None:
    """Mutation: filled in one after the other, a user called {channel} has the channel's session."""
    found = built("voice_lite", user_id="{channel}", channel_id="c7")
    assert found["header"]["session_id"] == "discord_voice_{channel}"


@pytest.mark.parametrize("made", ["", "0123456", "ABCDEF01", "xyzxyzxy"])
def test_an_id_is_eight_hex_digits(made: str) -> None:
    with pytest.raises(EnvelopeError, match="packet_id"):
        build_packet("web", "x", now=NOW, new_id=lambda: made)


def test_what_can_be_no_packet_is_refused() -> None:
    with pytest.raises(EnvelopeError, match="known are web"):
        built("telepathy")
    with pytest.raises(EnvelopeError, match="aware"):
        build_packet("web", "x", now=NOW.replace(tzinfo=None), new_id=lambda: ID)
    with pytest.raises(EnvelopeError) as caught:
        built(priority="high")
    assert caught.value.field == "header.routing.priority"
    with pytest.raises(EnvelopeError) as caught:
        built(said="a\0b")
    assert caught.value.field == "content.original_prompt"


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50))
def test_the_prompt_is_kept_word_for_word(said: str) -> None:
    found = CognitionPacket.from_json(build_packet("cli", said, now=NOW, new_id=lambda: ID).to_json())
    assert found.content.original_prompt == said
    assert found.content.data_fields[0].value == said
