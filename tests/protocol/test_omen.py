"""OMEN packets: the models and the exported JSON Schemas give the same verdict; reading, writing and errors."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from council.protocol.errors import EnvelopeError, EnvelopeTooLarge
from council.protocol.omen import CONSEQUENTIAL, PACKETS, Stakes, read_packet, stakes_level, to_dict, to_json
from council.protocol.omen.schema import schemas
from tests.omen_samples import PAYLOADS, sample

TYPES = tuple(PACKETS)


@cache
def validator(packet_type: str) -> Any:
    found = schemas()
    registry: Any = Registry().with_resources(
        (schema["$id"], Resource.from_contents(schema)) for schema in found.values()
    )
    return Draft202012Validator(found[f"omen/v0.7/packets/{packet_type}.schema.json"], registry=registry)


def accepts(packet: dict[str, Any]) -> bool:
    try:
        read_packet(packet)
    except EnvelopeError:
        return False
    return True


def same_verdict(packet_type: str, packet: dict[str, Any], what: object) -> bool:
    ours, theirs = accepts(packet), bool(validator(packet_type).is_valid(packet))
    assert ours == theirs, f"{what}: the model says {ours}, the schema {theirs}"
    return ours


# Any JSON value may stand there. No schema can refuse a NUL inside it, as the models do.
FREE = ("_note", "new_value", "prior_value", "result_data", "threshold_violated")
OPEN = (
    *FREE, "data", "query_params", "scope", "metrics", "tool_params", "code_params", "resource_constraints",
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in a sample, outside free JSON."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*path, step)
        if step not in OPEN:
            yield from places(inner, (*path, step))


WRONG = (
    None, True, False, 0, 1, -1, 1.0, 1.5, 2**63 - 1, 2**63, 1e300, "", "x", "0.9", "pkt_x", "pkt_", "xpkt_1",
    "pkt_a b", "pkt_ä", "corr_1", "camp_1", "task_1", "token_1", "token_a\0", "READ", "WRITE", "Integrity", "LOW",
    "2026-03-01", "2026-03-01T12:00:00", "2026-03-01t12:00:00.5-05:30", "2026-13-01T12:00:00Z", "a\0b", "x" * 201,
    "x" * 100_001, [], {}, [1], ["x"], ["x"] * 1001, {"x": 1},
)  # fmt: skip


def mutations(packet: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The changes to make by ``changed``: each part missing, each wrong value in its place, and unknown keys."""
    for path in places(packet):
        yield (path,)
        old = packet
        for step in path:
            old = old[step]
        lists = [old * 2, old * 4] if isinstance(old, list) else []
        unknown = [{**old, "unknown": 1}, {**old, "_hidden": 1}] if isinstance(old, dict) else []
        for wrong in (*WRONG, *lists, *unknown):
            if not (path[-1] in FREE and isinstance(wrong, str) and "\0" in wrong):
                yield path, wrong
    yield ("unknown",), 1
    yield ("_hidden",), [1]


def changed(packet: dict[str, Any], path: tuple[Any, ...], *value: Any) -> dict[str, Any]:
    """A copy of the packet with a value at the path, or with nothing there."""
    found = place = copy.deepcopy(packet)
    for step in path[:-1]:
        place = place[step]
    if value:
        place[path[-1]] = copy.deepcopy(value[0])
    else:
        del place[path[-1]]
    return found


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long), 47])
@pytest.mark.parametrize("packet_type", TYPES)
def test_model_and_schema_agree_on_each_change_of_a_full_sample(packet_type: str, every: int) -> None:
    """Each change is tried in make test-all, each 47th in make test."""
    assert same_verdict(packet_type, sample(packet_type), "the sample")
    verdicts = []
    for path, *value in itertools.islice(mutations(sample(packet_type)), 0, None, every):
        is_alike_in_all = len(path) > 1 and path[0] in ("mcp", "header")
        packet = changed(sample(packet_type), path, *value)
        if isinstance(packet.get("header"), dict) and (packet_type == TYPES[0] or not is_alike_in_all):
            what = f"{path} = {value[0]!r:.60}" if value else f"{path} is missing"
            verdicts.append(same_verdict(packet_type, packet, what))
    assert verdicts.count(False) > 200 // every
    assert verdicts.count(True) > 20 // every


@pytest.mark.parametrize("packet_type", TYPES)
def test_only_consequential_packets_need_an_mcp(packet_type: str) -> None:
    packet = sample(packet_type)
    del packet["mcp"]
    assert same_verdict(packet_type, packet, "no mcp") is (PACKETS[packet_type] not in CONSEQUENTIAL)


CONTEXT = {
    "WRITE without a token": (
        "TaskDirectivePacket",
        {"tool_safety_class": "WRITE"},
        ["authorization_token_id"],
    ),
    "MIXED without a token": (
        "TaskDirectivePacket",
        {"tool_safety_class": "MIXED"},
        ["authorization_token_id"],
    ),
    "FAILURE without details": ("TaskResultPacket", {"result_status": "FAILURE"}, ["error_details"]),
    "a contradiction without details": (
        "BeliefUpdatePacket",
        {"update_type": "contradiction_resolved"},
        ["contradiction_details"],
    ),
    "a tool without its id": ("TaskDirectivePacket", {"execution_method": {"method": "tool"}}, []),
    "code without its reference": ("TaskDirectivePacket", {"execution_method": {"method": "code"}}, []),
}
FINE = {
    "READ without a token": (
        "TaskDirectivePacket",
        {"tool_safety_class": "READ"},
        ["authorization_token_id"],
    ),
    "no class, no token": ("TaskDirectivePacket", {}, ["tool_safety_class", "authorization_token_id"]),
    "SUCCESS without details": ("TaskResultPacket", {"result_status": "SUCCESS"}, ["error_details"]),
    "CANCELLED without details": ("TaskResultPacket", {"result_status": "CANCELLED"}, ["error_details"]),
    "a revision": ("BeliefUpdatePacket", {"update_type": "revision"}, ["contradiction_details"]),
    "a model call": ("TaskDirectivePacket", {"execution_method": {"method": "llm_call"}}, []),
}


@pytest.mark.parametrize(("name", "fine"), [*((n, False) for n in CONTEXT), *((n, True) for n in FINE)])
def test_context_dependent_rules(name: str, fine: bool) -> None:
    packet_type, changes, gone = (FINE if fine else CONTEXT)[name]
    packet = sample(packet_type)
    packet["payload"] = {**PAYLOADS[packet_type], **changes}
    for absent in (False, True):
        for key in gone:
            if absent:
                del packet["payload"][key]
            else:
                packet["payload"][key] = None
        assert same_verdict(packet_type, packet, name) is fine


def test_evidence_or_the_reason_why_there_is_none() -> None:
    packet = sample("DecisionPacket")
    packet["mcp"]["evidence"] = {"evidence_refs": [], "evidence_absent_reason": "a greeting needs none"}
    assert same_verdict("DecisionPacket", packet, "a reason")
    for wrong in ({}, {"evidence_absent_reason": None}, {"evidence_absent_reason": ""}):
        packet["mcp"]["evidence"] = {"evidence_refs": [], **wrong}
        assert not same_verdict("DecisionPacket", packet, wrong)
    with pytest.raises(EnvelopeError) as caught:
        read_packet(packet | {"mcp": {**packet["mcp"], "evidence": {"evidence_refs": []}}})
    assert str(caught.value) == (
        "mcp.evidence.evidence_absent_reason: is missing; it is required if evidence_refs is empty"
    )


@pytest.mark.parametrize("packet_type", TYPES)
def test_a_packet_is_written_as_it_was_read(packet_type: str) -> None:
    given = sample(packet_type)
    packet = read_packet(given)
    text = to_json(packet)
    again = read_packet(text)
    assert again == packet
    assert to_json(again) == text
    assert list(to_dict(packet)) == ["header", "mcp", "payload", "_note"]
    shuffled = json.loads(json.dumps(given, sort_keys=True))
    assert to_json(read_packet(shuffled)) == text
    if packet_type != "ToolAuthorizationToken":  # its expiry is written in UTC
        assert to_dict(packet) == given


def test_fields_that_were_not_given_are_not_written() -> None:
    packet = sample("ToolAuthorizationToken")
    for key in ("usage_count", "revoked", "rationale"):
        del packet["payload"][key]
    read = read_packet(packet)
    assert (read.payload.usage_count, read.payload.revoked) == (0, False)
    assert not {"usage_count", "revoked", "rationale"} & set(to_dict(read)["payload"])


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (b"\xff", "packet"),
        ("[1]", "packet"),
        ("{", "packet"),
        ("{}", "header"),
        ('{"header": 1}', "header"),
        ('{"header": {}}', "header.packet_type"),
        ('{"header": {"packet_type": "x"}}', "header.packet_type"),
        ('{"header": {}, "header": {}}', "packet"),
        ('{"header": {"packet_type": NaN}}', "packet"),
        ("[" * 100_000, "packet"),
        (" " * 2**21, "packet"),
        (7, "packet"),
    ],
)
def test_what_is_no_packet_is_refused(given: Any, field: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        read_packet(given)
    assert caught.value.field == field
    assert caught.value.problems


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("payload.data", {"a": float("nan")}, "payload.data.a: NaN and infinities are no JSON numbers"),
        (
            "mcp.epistemics.confidence",
            float("nan"),
            "mcp.epistemics.confidence: must be a finite number; found nan",
        ),
        ("mcp.epistemics.confidence", "0.9", "mcp.epistemics.confidence: must be a number; found '0.9'"),
        ("header.layer_source", True, "header.layer_source: must be one of 1, 2, 3, 4, 5, 6 or 'Integrity'"),
        (
            "header.packet_id",
            "pkt_a\n",
            "header.packet_id: must be an id: pkt_ and letters, digits, '_' or '-'",
        ),
        ("header.created_at", "2026-02-30T00:00:00Z", "header.created_at: must be a day that exists"),
        ("payload.surprise", 1, "payload.surprise: is not a known field; remove it"),
    ],
)
def test_an_error_names_the_path_and_what_was_expected(path: str, value: object, problem: str) -> None:
    packet = sample("ObservationPacket")
    *outside, last = path.split(".")
    inside: Any = packet
    for step in outside:
        inside = inside[step]
    inside[last] = value
    with pytest.raises(EnvelopeError) as caught:
        read_packet(packet)
    assert caught.value.problems[0].startswith(problem)


def test_deep_and_large_data_is_refused() -> None:
    packet = sample("ObservationPacket")
    deep: Any = {}
    for _ in range(50_000):
        deep = {"a": deep}
    for data in ({"a": deep}, {"a": [0] * 20_000}, {"a": "x" * 2**21}):
        packet["payload"]["data"] = data
        with pytest.raises(EnvelopeTooLarge):
            read_packet(packet)


@pytest.mark.parametrize(
    ("axes", "level"),
    [
        ("LOW REVERSIBLE LOW BENIGN", "LOW"),
        ("LOW PARTIAL LOW BENIGN", "LOW"),
        ("LOW PARTIAL MEDIUM BENIGN", "MEDIUM"),
        ("LOW REVERSIBLE HIGH BENIGN", "MEDIUM"),
        ("LOW IRREVERSIBLE HIGH HOSTILE", "MEDIUM"),
        ("MEDIUM IRREVERSIBLE LOW BENIGN", "MEDIUM"),
        ("HIGH REVERSIBLE LOW BENIGN", "MEDIUM"),
        ("HIGH REVERSIBLE HIGH BENIGN", "HIGH"),
        ("HIGH IRREVERSIBLE LOW BENIGN", "HIGH"),
        ("HIGH REVERSIBLE LOW CONTESTED", "HIGH"),
        ("CRITICAL REVERSIBLE LOW BENIGN", "CRITICAL"),
        ("CRITICAL IRREVERSIBLE HIGH HOSTILE", "CRITICAL"),
    ],
)
def test_the_level_of_stakes_follows_from_the_axes(axes: str, level: str) -> None:
    words: Any = axes.split()
    stakes = Stakes.of(*words)
    assert stakes.stakes_level == stakes_level(stakes) == level


def test_every_exported_schema_is_one_and_its_references_lead_somewhere() -> None:
    found = schemas()
    ids = {schema["$id"] for schema in found.values()}
    assert len(ids) == len(found) == 21
    for name, schema in found.items():
        Draft202012Validator.check_schema(schema)
        text = json.dumps(schema)
        for reference in (part.split('"')[0] for part in text.split('"$ref": "')[1:]):
            local = reference.removeprefix("#/$defs/")
            assert reference in ids or local in schema["$defs"], (name, reference)
