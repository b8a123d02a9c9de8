"""CognitionPacket v0.3: every field of the tables, tolerant and strict reading, and the bytes that are hashed."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import subprocess
import sys
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council.protocol.cognition import CognitionPacket, fields, parts, vocabulary
from council.protocol.errors import EnvelopeError, EnvelopeTooLarge
from council.protocol.values import JSON_BYTES_MAX
from tests.cases import each
from tests.examples import tried
from tests.protocol.cognition import tables
from tests.protocol.cognition.tables import ENUMS, NOW, PARTS, SAMPLES

ROWS = [(name, *row) for name, rows in PARTS.items() for row in rows]


def part(name: str) -> type[fields.Part]:
    return CognitionPacket if name == "CognitionPacket" else getattr(parts, name)


def whole() -> dict[str, Any]:
    return CognitionPacket.from_dict({}, now=NOW).to_dict()


def same_bytes(ours: object, theirs: object) -> bool:
    """Equal down to 1 and 1.0, 0.0 and -0.0, as ``==`` does not tell."""
    return json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)


# The tables


def test_there_is_a_model_for_each_table_and_no_other() -> None:
    models = {
        name for name, kind in vars(parts).items() if isinstance(kind, type) and issubclass(kind, fields.Part)
    }
    assert models - {"Part"} == set(PARTS) - {"CognitionPacket"}


@pytest.mark.parametrize("name", ENUMS)
def test_an_enumeration_has_the_tables_members(name: str) -> None:
    assert {member.name: member.value for member in getattr(vocabulary, name)} == ENUMS[name]


@each("name", PARTS)
def test_a_part_has_the_tables_fields_in_their_order(name: str) -> None:
    assert list(part(name).model_fields) == [row[0] for row in PARTS[name]]


@each("name", PARTS)
def test_what_is_missing_takes_its_default(name: str) -> None:
    found = part(name).from_dict(tables.one(name) if name != "CognitionPacket" else whole()).to_dict()
    for field, kind, *default in PARTS[name]:
        if default not in ([], ["<made>"], ["<new>"]):
            assert same_bytes(found[field], default[0]), field
        elif default == ["<new>"] and name != "CognitionPacket":
            assert same_bytes(found[field], part(kind).from_dict({}).to_dict()), field
    assert list(found) == [row[0] for row in PARTS[name]]  # nothing is left out, null is written


@each("name", [name for name, rows in PARTS.items() if any(len(row) == 2 for row in rows)])
def test_what_is_required_is_missed(name: str) -> None:
    for field in tables.required(name):
        given_fields = {key: value for key, value in tables.one(name).items() if key != field}
        with pytest.raises(EnvelopeError, match="is missing") as caught:
            part(name).from_dict(given_fields)
        assert caught.value.field == field


@each(("name", "field", "kind"), [row[:3] for row in ROWS])
def test_a_value_of_another_type_is_an_error_that_names_its_field(name: str, field: str, kind: str) -> None:
    """Mutation: ``strict=False`` takes "false" for true and 5.0 for 5."""
    least = whole() if name == "CognitionPacket" else tables.one(name)
    assert part(name).from_dict(least | {field: tables.one(kind)})
    for value in tables.wrong(kind):
        with pytest.raises(EnvelopeError) as caught:
            part(name).from_dict(least | {field: value})
        assert caught.value.field.startswith(field), (value, caught.value.message)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("header.session_id", 5),
        ("header.persona.role", "DEFAULT"),
        ("header.routing.target_engine", "prime"),
        ("intent.system_task", "GENERATE_DRAFT"),
        ("context.cheatsheets[0].version", 0.3),
        ("content.data_fields[0].vector_refs", "abc"),
        ("governance.safety.execution_allowed", "false"),
        ("governance.privacy.pii_redactions[0]", "x"),
        ("status.state", "done"),
        ("tool_routing.execution_status", "Approved"),
    ],
)
def test_a_fault_deep_inside_is_named_by_its_path(path: str, value: object) -> None:
    data = whole()
    data["context"]["cheatsheets"] = [{}]
    data["content"]["data_fields"] = [{"key": "k", "value": None}]
    data["governance"]["privacy"]["pii_redactions"] = [{}]
    data["tool_routing"] = {}
    steps = path.replace("[0]", ".0").split(".")
    *way, last = [int(step) if step.isdigit() else step for step in steps]
    place: Any = data
    for step in way:
        place = place[step]
    place[last] = value
    with pytest.raises(EnvelopeError) as caught:
        CognitionPacket.from_dict(data)
    assert caught.value.field == path


# The whole packet


def test_nothing_is_a_whole_packet() -> None:
    found = CognitionPacket.from_dict({}, now=NOW)
    assert (found.header.session_id, found.header.packet_id) == ("default", "default")
    assert (found.version, found.content.original_prompt) == ("0.3", "")
    expected = json.loads((tables.HERE / "v03_default.json").read_text())
    expected["version"] = "0.3"
    expected["header"] |= {"datetime": found.header.datetime, "sub_id": found.header.sub_id}
    assert found.to_dict() == expected


@pytest.mark.parametrize("name", ["header", "content"])
def test_a_part_that_stands_there_needs_what_is_required(name: str) -> None:
    with pytest.raises(EnvelopeError, match="is missing"):
        CognitionPacket.from_dict({name: {}}, now=NOW)


def test_a_time_that_is_missing_is_handed_in() -> None:
    header = {"session_id": "s", "packet_id": "p"}
    found = CognitionPacket.from_dict(
        {"header": header}, now=NOW.astimezone(timezone(timedelta(hours=2)))
    ).header
    assert found.datetime == "2026-11-21T12:00:00.000250+00:00"
    assert found.sub_id == hashlib.md5(b"2026-11-21 14:00:00.000250").hexdigest()[:8]  # of the local time
    written = CognitionPacket.from_dict(
        {"header": header | {"datetime": "then", "sub_id": "0"}}, now=NOW
    ).header
    assert (written.datetime, written.sub_id) == ("then", "0")
    with pytest.raises(EnvelopeError, match=r"header\.datetime: is missing"):
        CognitionPacket.from_dict({"header": header})
    with pytest.raises(EnvelopeError, match="aware"):
        CognitionPacket.from_dict({}, now=NOW.replace(tzinfo=None))


@pytest.mark.parametrize(
    "version", ["0.2", "0.3", "v0.3", "v0.4", "v0.5", "0.3.0-smoke", "v0.3-upgraded", ""]
)
def test_a_packet_keeps_its_version(version: str) -> None:
    assert CognitionPacket.from_dict({"version": version}, now=NOW).to_dict()["version"] == version


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_what_is_no_object_is_no_packet(value: Any) -> None:
    with pytest.raises(EnvelopeError):
        CognitionPacket.from_dict(value, now=NOW)
    with pytest.raises(EnvelopeError):
        CognitionPacket.from_json(json.dumps(value), now=NOW)


@pytest.mark.parametrize(
    "text", ["", "{", '{"version": "1", "version": "2"}', '{"x": NaN}', "[" * 9_999, '{"x": "\\ud800"}']
)
def test_what_is_no_json_that_can_be_trusted_is_refused(text: str) -> None:
    with pytest.raises(EnvelopeError):
        CognitionPacket.from_json(text, now=NOW)


# Packets of other programs


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_packet_from_the_field_is_written_back_byte_for_byte(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = CognitionPacket.from_json(text)
    assert found.to_json() == text
    assert CognitionPacket.from_dict(found.to_dict()) == found


def test_the_hashes_of_the_field_are_ours() -> None:
    """Mutation: UTF-8 instead of ASCII escapes, or other separators, and no packet of the field verifies."""
    found = CognitionPacket.from_json(tables.factory())
    stored = found.governance.signatures
    assert stored.header_hash == "b4629a2afba66421ba5b8b7be948377ab050538d13ae9771a5174596e1eb6662"
    assert found.compute_hashes() == found
    bare = stored.model_copy(update={"header_hash": None, "content_hash": None})
    without = found.model_copy(
        update={"governance": found.governance.model_copy(update={"signatures": bare})}
    )
    assert without.compute_hashes() == found


@pytest.mark.parametrize(
    ("name", "change"), [("header", {"session_id": "other"}), ("content", {"original_prompt": "other"})]
)
def test_a_change_of_what_was_hashed_shows(name: str, change: dict[str, Any]) -> None:
    found = CognitionPacket.from_json(tables.factory())
    changed = found.model_copy(update={name: getattr(found, name).model_copy(update=change)})
    assert changed.compute_hashes() != changed


@settings(max_examples=tried(40))
@given(tables.parts("CognitionPacket"))
def test_any_packet_comes_through_unchanged(data: dict[str, Any]) -> None:
    """Also its unknown keys at every level, 1 that is not 1.0, and -0.0. Mutation: ``float`` for a number."""
    found = CognitionPacket.from_dict(data)
    assert same_bytes(found.to_dict(), data)
    assert same_bytes(json.loads(found.to_json()), data)
    assert CognitionPacket.from_json(found.to_json()).to_json() == found.to_json()
    signatures = found.compute_hashes().governance.signatures
    for stored, name in ((signatures.header_hash, "header"), (signatures.content_hash, "content")):
        theirs = json.dumps(data[name], sort_keys=True, separators=(", ", ": "), ensure_ascii=True)
        assert stored == hashlib.sha256(theirs.encode()).hexdigest()


@given(st.data())
@settings(max_examples=tried(60))
def test_any_part_comes_through_unchanged(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(PARTS)))
    given_part = data.draw(tables.parts(name))
    assert same_bytes(part(name).from_dict(given_part).to_dict(), given_part)


def test_words_that_nobody_here_knows_are_kept() -> None:
    data = whole()
    data["council"] = {"mode": "shouting", "votes": [{"agent": "a", "decision": "perhaps"}]}
    data["goal_state"] = {"current_goal": tables.one("DetectedGoal") | {"source": "dream"}}
    data["loop_state"] = {"loop_type": "moebius"}
    data["context"]["constraints"]["safety_mode"] = "normal"
    found = CognitionPacket.from_dict(data).to_dict()
    assert (found["council"]["mode"], found["council"]["votes"][0]["decision"]) == ("shouting", "perhaps")
    assert found["goal_state"]["current_goal"]["source"] == "dream"
    assert found["loop_state"]["loop_type"] == "moebius"
    assert found["context"]["constraints"]["safety_mode"] == "normal"


@pytest.mark.parametrize(
    "key", ["__class__", "__pydantic_extra__", "model_config", "to_dict", "", "a b", "self"]
)
def test_an_unknown_key_of_any_name_is_only_kept(key: str) -> None:
    data = whole()
    data[key] = data["header"]["persona"][key] = {"z": [1]}
    found = CognitionPacket.from_dict(data)
    assert found.to_dict() == data
    assert found.header.persona.model_extra == {key: {"z": (1,)}}
    moved = found.model_copy(update={"version": "9"})
    assert moved.to_dict() == data | {"version": "9"}
    assert found.compute_hashes() == found.compute_hashes().compute_hashes()


# Frozen, limited


def test_nothing_in_it_can_be_changed() -> None:
    """Mutation: unknown keys kept by reference are changed by whoever still holds them."""
    data = whole()
    data["later"] = {"deep": [1]}
    data["header"]["persona"]["traits"] = {"kind": {"x": 1}}
    found = CognitionPacket.from_dict(data)
    before = found.to_json()
    data["later"]["deep"].append(2)
    data["header"]["persona"]["traits"]["kind"]["x"] = 2
    for change in (
        lambda: setattr(found, "version", "9"),
        lambda: setattr(found, "later", 9),
        lambda: setattr(found.header.persona, "role", "Other"),
        lambda: found.header.persona.traits["kind"].update(x=3),
        lambda: found.header.lineage.append("x"),
        lambda: found.model_extra["later"].update(x=3),
    ):
        with pytest.raises((AttributeError, TypeError, ValueError)):
            change()
    found.model_extra["later"] = 3
    found.to_dict()["header"]["persona"]["traits"].clear()
    assert found.to_json() == before


def test_it_is_copied_and_pickled_as_it_is() -> None:
    found = CognitionPacket.from_dict(whole() | {"later": {"x": [-0.0]}})
    for again in (
        pickle.loads(pickle.dumps(found)),
        copy.deepcopy(found),
        CognitionPacket.model_validate(found),
    ):
        assert again == found
        assert hash(again) == hash(found)
        assert again.to_json() == found.to_json()


def test_what_is_too_large_is_not_written_and_not_read() -> None:
    half = "x" * (JSON_BYTES_MAX // 2)
    data = {"content": {"original_prompt": half, "data_fields": [{"key": "user_message", "value": half}]}}
    large = CognitionPacket.from_dict(data, now=NOW)
    with pytest.raises(EnvelopeTooLarge) as caught:
        large.to_json()
    assert (caught.value.limit, caught.value.field) == (JSON_BYTES_MAX, "packet")
    with pytest.raises(EnvelopeTooLarge):
        CognitionPacket.from_json(json.dumps(data), now=NOW)


def test_many_entries_are_read_again() -> None:
    """Mutation: a budget on entries that counts what is read, and not the defaults that are filled in."""
    targets = [{"destination": "cli"}] * 20_000
    routing = {"primary": {"destination": "cli"}, "secondary": targets}
    header = {"session_id": "s", "packet_id": "p", "output_routing": routing}
    found = CognitionPacket.from_dict({"header": header}, now=NOW)
    assert CognitionPacket.from_json(found.to_json()) == found


def test_one_packet_has_one_hash_in_every_process() -> None:
    data = json.loads(tables.factory())
    turned = {key: data[key] for key in reversed(data)}
    found = CognitionPacket.from_dict(data)
    assert CognitionPacket.from_dict(turned).compute_hashes() == found
    code = (
        "import sys; from council.protocol.cognition import CognitionPacket as P;"
        "p = P.from_json(sys.stdin.read()); print(p.compute_hashes() == p)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=found.to_json(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True"


def test_pydantic_shows_the_same() -> None:
    """Mutation: a value of any type that pydantic can't serialize, for it is frozen."""
    data = whole()
    data["later"] = {"y": [1, {"z": 2}]}
    data["content"]["data_fields"] = [tables.one("DataField") | {"value": {"a": {"b": [1]}}}]
    found = CognitionPacket.from_dict(data)
    assert json.loads(found.model_dump_json()) == found.to_dict()
    assert json.loads(json.dumps(found.model_dump())) == found.to_dict()
