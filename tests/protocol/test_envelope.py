"""The envelope and its bodies: what is taken, what is refused, and which field each fault names."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from pydantic import ValidationError

from council.protocol.envelope import (
    BODY_CHARS_MAX,
    HISTORY_CHARS_MAX,
    HISTORY_TURNS_MAX,
    NAME_CHARS_MAX,
    REASON_CHARS_MAX,
    REQUESTER_CHARS_MAX,
    SUMMARY_CHARS_MAX,
    Action,
    Envelope,
    Escalation,
    Heartbeat,
    Info,
    Proposal,
    Requester,
    Vote,
)
from council.protocol.errors import EnvelopeError, EnvelopeTooLarge
from council.protocol.values import CHARS_MAX, JSON_BYTES_MAX, plain
from tests.cases import each

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, UTC)
PROPOSED = "b6a9f42e00112233"
CONTENTS: dict[str, dict[str, Any]] = {
    "PROPOSAL": {
        "summary": "Delete the old logs",
        "body": "All of *May*.",
        "action": {"tool": "rm", "args": {}},
    },
    "VOTE": {"proposal_id": PROPOSED, "vote": "yes", "reason": "they are old"},
    "INFO": {"kind": "note", "text": "hello", "data": {"a": [1, {"b": None}]}},
    "ESCALATION": {"proposal_id": PROPOSED, "reason": "too much at once"},
    "HEARTBEAT": {"beat": 3, "busy_with": PROPOSED, "uptime_s": 90.5},
}
TYPES = list(CONTENTS)


def fields(word: str = "VOTE", **changes: Any) -> dict[str, Any]:
    """The fields of a good envelope; ``content__vote=...`` changes one of its content."""
    content = dict(CONTENTS[word])
    for name in list(changes):
        if name.startswith("content__"):
            content[name.removeprefix("content__")] = changes.pop(name)
    made = {
        "msg_id": "00ff00ff00ff00ff",
        "parent_id": PROPOSED if word == "VOTE" else None,
        "timestamp": NOON,
        "sender": "lite",
        "role": "voter",
        "type": word,
        "confidence": 0.87,
        "risk_level": "low",
        "content": content,
    }
    return {**made, **changes}


def refused(given: dict[str, Any]) -> EnvelopeError:
    with pytest.raises(EnvelopeError) as caught:
        Envelope.build(**given)
    with pytest.raises(EnvelopeError) as again:
        Envelope.checked(given)
    assert str(again.value) == str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).field == caught.value.field
    return caught.value


# What is taken


@pytest.mark.parametrize("word", TYPES)
def test_each_type_has_its_body(word: str) -> None:
    bodies = {
        "PROPOSAL": Proposal,
        "VOTE": Vote,
        "INFO": Info,
        "ESCALATION": Escalation,
        "HEARTBEAT": Heartbeat,
    }
    envelope = Envelope.build(**fields(word))
    assert type(envelope.content) is bodies[word]
    for name, value in CONTENTS[word].items():
        shown = getattr(envelope.content, name)
        assert (shown.model_dump() if isinstance(shown, Action) else shown) == value


def test_defaults_are_the_rules() -> None:
    given = fields("PROPOSAL", content={"summary": "x"})
    for name in ("parent_id", "confidence", "risk_level"):
        del given[name]
    envelope = Envelope.build(**given)
    assert (envelope.parent_id, envelope.confidence, envelope.risk_level) == (None, 1.0, "low")
    assert envelope.content == Proposal(
        summary="x", body="", action=None, wait_for="decisive", time_budget_s=60.0, supersedes=None
    )


def test_with_an_action_every_ballot_is_waited_for_unless_told_otherwise() -> None:
    """rules 1.5."""
    action = Action(tool="rm", args={})
    assert Proposal(summary="x", action=action).wait_for == "all"
    assert Proposal(summary="x", action=action, wait_for="decisive").wait_for == "decisive"
    assert Proposal(summary="x").wait_for == "decisive"


def test_a_body_may_be_given_as_such() -> None:
    content = Vote(proposal_id=PROPOSED, vote="no", reason="")
    assert Envelope.build(**fields(content=content)).content == content


def test_ids_and_names_that_are_taken() -> None:
    for size in (8, 9, 16, 31, 32):
        assert Envelope.build(**fields(msg_id="a" * size)).msg_id == "a" * size
    for sender in ("prime", "0", "a.b_c-d", "a" * 64):
        assert Envelope.build(**fields(sender=sender)).sender == sender


def test_other_offsets_become_utc() -> None:
    for hours in (-12, 2, 14):
        there = NOON.astimezone(timezone(timedelta(hours=hours)))
        envelope = Envelope.build(**fields(timestamp=there))
        assert envelope.timestamp == NOON
        assert envelope.timestamp.tzinfo is UTC
        assert envelope == Envelope.build(**fields())


def test_whole_numbers_become_floats_and_zero_has_one_sign() -> None:
    assert repr(Envelope.build(**fields(confidence=1)).confidence) == "1.0"
    assert repr(Envelope.build(**fields(confidence=-0.0)).confidence) == "0.0"
    assert repr(Heartbeat(beat=0, uptime_s=-0.0).uptime_s) == "0.0"


# What is refused, and where


class Nowhere(tzinfo):
    """A zone that does not know its offset: aware by type, naive by meaning."""

    def utcoffset(self, moment: datetime | None) -> None:
        return None


BAD_FIELDS: list[tuple[str, Any]] = [
    ("msg_id", "a" * 7),
    ("msg_id", "a" * 33),
    ("msg_id", "ABCDEF01"),
    ("msg_id", "a" * 8 + "\n"),
    ("msg_id", "\u0661" * 8),
    ("msg_id", b"aaaaaaaa"),
    ("msg_id", None),
    ("parent_id", "x"),
    ("parent_id", 7),
    ("parent_id", None),
    ("parent_id", "ffffffffffffffff"),
    ("timestamp", datetime(2026, 3, 1)),
    ("timestamp", datetime(2026, 3, 1, tzinfo=Nowhere())),
    ("timestamp", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))),
    ("timestamp", "2026-03-01T00:00:00Z"),
    ("timestamp", 1_772_000_000),
    ("sender", ""),
    ("sender", "Prime"),
    ("sender", ".hidden"),
    ("sender", "a" * 65),
    ("sender", "prime\n"),
    ("sender", "pr\u0456me"),
    ("role", "seat"),
    ("role", ["voter"]),
    ("type", "PROPOSAL|VOTE"),
    ("type", "vote"),
    ("type", {}),
    ("confidence", float("nan")),
    ("confidence", float("inf")),
    ("confidence", 1.0000001),
    ("confidence", -0.1),
    ("confidence", "0.9"),
    ("confidence", True),
    ("confidence", None),
    ("confidence", 10**400),
    ("risk_level", "medium"),
    ("risk_level", 1),
    ("content", "yes"),
    ("content", None),
    ("content", []),
    ("content", Info(kind="note")),
    ("content", Escalation(proposal_id=PROPOSED, reason="")),
]


@each(("name", "value"), BAD_FIELDS)
def test_a_fault_names_its_field(name: str, value: object) -> None:
    error = refused(fields(**{name: value}))
    assert error.field == name
    assert error.problems[0].startswith(f"{name}: ")
    assert str(error).startswith(f"{name}: ")


BAD_CONTENT: list[tuple[str, str, Any]] = [
    ("PROPOSAL", "summary", ""),
    ("PROPOSAL", "summary", None),
    ("PROPOSAL", "summary", "a\0b"),
    ("PROPOSAL", "body", "\ud800"),
    ("PROPOSAL", "body", 5),
    ("PROPOSAL", "action", "rm"),
    ("PROPOSAL", "wait_for", "any"),
    ("PROPOSAL", "time_budget_s", 0),
    ("PROPOSAL", "time_budget_s", -0.0),
    ("PROPOSAL", "time_budget_s", 86_400.1),
    ("PROPOSAL", "time_budget_s", float("nan")),
    ("PROPOSAL", "supersedes", "no id"),
    ("PROPOSAL", "history", None),
    ("PROPOSAL", "history", "user: please"),
    ("PROPOSAL", "history", {"role": "user", "text": "please"}),
    ("VOTE", "proposal_id", "no id"),
    ("VOTE", "vote", "maybe"),
    ("VOTE", "vote", True),
    ("VOTE", "reason", None),
    ("VOTE", "reason", "\0"),
    ("VOTE", "reason", "\udc00"),
    ("VOTE", "control_packet", []),
    ("INFO", "kind", ""),
    ("INFO", "text", b""),
    ("INFO", "data", None),
    ("INFO", "data", [1]),
    ("ESCALATION", "proposal_id", None),
    ("ESCALATION", "reason", "x\0"),
    ("HEARTBEAT", "beat", -1),
    ("HEARTBEAT", "beat", 2**63),
    ("HEARTBEAT", "beat", 1.0),
    ("HEARTBEAT", "beat", True),
    ("HEARTBEAT", "busy_with", "\ud834"),
    ("HEARTBEAT", "uptime_s", -1.0),
    ("HEARTBEAT", "uptime_s", float("inf")),
]


@each(("word", "name", "value"), BAD_CONTENT)
def test_a_fault_of_the_content_names_its_field(word: str, name: str, value: object) -> None:
    assert refused(fields(word, **{f"content__{name}": value})).field == f"content.{name}"


def test_faults_within_an_action_have_their_path() -> None:
    for action, path in (
        ({"tool": "rm", "args": {"files": [1, {"deep": float("nan")}]}}, "args.files[1].deep"),
        ({"tool": "rm", "args": {"\0": 1}}, "args.'\\x00'"),
        ({"tool": "rm", "args": {"n": 2**64}}, "args.n"),
        ({"tool": "", "args": {}}, "tool"),
        ({"tool": "rm"}, "args"),
        ({"tool": "rm", "args": {}, "sudo": True}, "sudo"),
    ):
        assert refused(fields("PROPOSAL", content__action=action)).field == f"content.action.{path}"


def test_faults_within_a_history_have_their_path() -> None:
    for turn, path in (
        ({"role": "user"}, "text"),
        ({"text": "please"}, "role"),
        ({"role": "User", "text": "please"}, "role"),
        ({"role": "user\nvote", "text": "please"}, "role"),
        ({"role": "u" * 33, "text": "please"}, "role"),
        ({"role": "user", "text": "a\0b"}, "text"),
        ({"role": "user", "text": "\ud800"}, "text"),
        ({"role": "user", "text": None}, "text"),
        ({"role": "user", "text": "please", "vote": "yes"}, "vote"),
    ):
        given = [{"role": "user", "text": "hello"}, turn]
        assert refused(fields("PROPOSAL", content__history=given)).field == f"content.history[1].{path}"


def test_a_requester_is_short_text_on_one_line() -> None:
    for requester, path in (
        ("ada", ""),
        ({"name": "ada"}, ".name"),
        ({"user": ""}, ".user"),
        ({"user": "x" * (REQUESTER_CHARS_MAX + 1)}, ".user"),
        ({"user": "ada\nrisk low"}, ".user"),
        ({"host": "\x1b[2J"}, ".host"),
        ({"host": "\x9b2J"}, ".host"),
        ({"folder": "a\0b"}, ".folder"),
        ({"agent": "\ud800"}, ".agent"),
        ({"repository": 5}, ".repository"),
    ):
        assert refused(fields("PROPOSAL", content__requester=requester)).field == f"content.requester{path}"


def test_a_requester_reads_as_one_name() -> None:
    whole = {
        "agent": "deploy-bot",
        "user": "ada",
        "host": "web-3",
        "folder": "~/shop",
        "repository": "shop.git",
    }
    for left_out, said in (
        ((), "deploy-bot for ada@web-3 in ~/shop (shop.git)"),
        (("agent",), "ada@web-3 in ~/shop (shop.git)"),
        (("user", "folder"), "deploy-bot for @web-3 (shop.git)"),
        (("host", "repository"), "deploy-bot for ada in ~/shop"),
        (("user", "host", "folder", "repository"), "deploy-bot"),
        (tuple(whole), ""),
    ):
        assert str(Requester(**{name: text for name, text in whole.items() if name not in left_out})) == said


def test_a_history_has_limits_that_say_what_to_do() -> None:
    def session(turns: int, characters: int) -> dict[str, Any]:
        return fields("PROPOSAL", content__history=[{"role": "tool", "text": "x" * characters}] * turns)

    Envelope.build(**session(HISTORY_TURNS_MAX, HISTORY_CHARS_MAX // HISTORY_TURNS_MAX))
    for turns, characters, unit, limit in (
        (HISTORY_TURNS_MAX + 1, 0, "turns", HISTORY_TURNS_MAX),
        (2, HISTORY_CHARS_MAX // 2 + 1, "characters", HISTORY_CHARS_MAX),
    ):
        error = refused(session(turns, characters))
        assert isinstance(error, EnvelopeTooLarge)
        assert (error.field, error.limit) == ("content.history", limit)
        assert error.found > limit
        assert f"at most {limit:,} {unit}" in str(error)
        assert "leave out the oldest" in str(error)


@each(("word", "name"), [(word, name) for word in TYPES for name in CONTENTS[word]])
def test_missing_and_unknown_fields_are_named(word: str, name: str) -> None:
    given = fields(word)
    del given["content"][name]
    if name in ("body", "action", "text", "data", "busy_with"):
        Envelope.build(**given)
    else:
        assert refused(given).field == f"content.{name}"
    assert refused(fields(word, **{f"content__{name}s": 1})).field == f"content.{name}s"


def test_unknown_fields_of_the_envelope_are_named_and_quoted() -> None:
    assert refused(fields(ttl=5)).field == "ttl"
    assert refused(fields(cls=5, self=6)).field == "cls"
    error = refused(fields(**{"x" * 10_000 + "\n": 5}))
    assert len(error.field) < 100
    assert "\n" not in str(error)


def test_all_faults_are_listed_and_the_first_is_named() -> None:
    error = refused(fields(msg_id="x", confidence=7.0, content__vote="maybe"))
    assert error.field == "msg_id"
    assert [problem.split(":")[0] for problem in error.problems] == ["msg_id", "confidence", "content.vote"]
    assert "2 more" in str(error)


def test_a_ballot_s_parent_is_the_proposal() -> None:
    """rules 1.2."""
    error = refused(fields(parent_id="ffffffff"))
    assert (error.field, "content.proposal_id" in str(error)) == ("parent_id", True)


def test_texts_have_limits_in_characters() -> None:
    for word, name, limit in (
        ("PROPOSAL", "summary", SUMMARY_CHARS_MAX),
        ("PROPOSAL", "body", BODY_CHARS_MAX),
        ("VOTE", "reason", REASON_CHARS_MAX),
        ("INFO", "text", REASON_CHARS_MAX),
        ("INFO", "kind", NAME_CHARS_MAX),
        ("ESCALATION", "reason", REASON_CHARS_MAX),
        ("HEARTBEAT", "busy_with", NAME_CHARS_MAX),
    ):
        Envelope.build(**fields(word, **{f"content__{name}": "ä" * limit}))
        error = refused(fields(word, **{f"content__{name}": "ä" * (limit + 1)}))
        assert isinstance(error, EnvelopeTooLarge)
        assert (error.field, error.limit, error.found) == (f"content.{name}", limit, limit + 1)
        assert len(str(error)) < 300


@pytest.mark.parametrize(
    ("word", "name", "field"),
    [
        ("PROPOSAL", "content__summary", "content.summary"),
        ("PROPOSAL", "content__body", "content.body"),
        ("PROPOSAL", "content__supersedes", "content.supersedes"),
        ("VOTE", "content__reason", "content.reason"),
        ("INFO", "content__kind", "content.kind"),
        ("INFO", "content__text", "content.text"),
        ("VOTE", "msg_id", "msg_id"),
        ("VOTE", "parent_id", "parent_id"),
        ("VOTE", "sender", "sender"),
    ],
)
def test_a_text_that_is_too_long_is_refused_unread(word: str, name: str, field: str) -> None:
    refused_unread(lambda text: fields(word, **{name: text}), field)


def test_texts_inside_a_proposal_that_are_too_long_are_refused_unread() -> None:
    def turn(role: str, text: str) -> dict[str, Any]:
        return fields("PROPOSAL", content__history=[{"role": role, "text": text}])

    def trace(parent: str, state: str) -> dict[str, Any]:
        return fields(metadata={"traceparent": parent, "tracestate": state})

    parent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    refused_unread(lambda text: turn("user", text), "content.history[0].text")
    refused_unread(lambda text: turn(text, "hello"), "content.history[0].role")
    refused_unread(
        lambda text: fields("PROPOSAL", content__action={"tool": text, "args": {}}), "content.action.tool"
    )
    refused_unread(lambda text: fields("INFO", content__data={"a": text}), "content.data.a")
    refused_unread(lambda text: trace(text, ""), "metadata.traceparent")
    refused_unread(lambda text: trace(parent, text), "metadata.tracestate")


def refused_unread(envelope: Callable[[str], dict[str, Any]], field: str) -> None:
    """A text that was read has its bytes in UTF-8 kept inside it by Python, which makes it larger."""
    text = "é" * (CHARS_MAX + 1)
    unread = sys.getsizeof(text)
    error = refused(envelope(text))
    assert isinstance(error, EnvelopeTooLarge)
    assert (error.field, error.found > CHARS_MAX) == (field, True)
    assert sys.getsizeof(text) == unread


@pytest.mark.parametrize("depth", [33, 1_000, 50_000])
def test_bottomless_data_is_too_large(depth: int) -> None:
    value: object = 0
    for _ in range(depth):
        value = {"x": value}
    error = refused(fields("INFO", content__data=value))
    assert isinstance(error, EnvelopeTooLarge)
    assert error.field.startswith("content.data.x.x")
    for name in ("sender", "timestamp", "confidence", "type"):
        assert refused(fields(**{name: value})).field == name
    assert refused(fields(content__vote=value)).field == "content.vote"


def test_errors_never_show_long_or_deep_input() -> None:
    error = refused(fields(content__vote="secret " * 5_000))
    assert len(str(error)) < 300
    with pytest.raises(ValidationError) as caught:
        Envelope(**fields(content__vote="hunter2"))
    assert "hunter2" not in str(caught.value)


# Frozen


def test_nothing_of_an_envelope_can_be_changed() -> None:
    data: dict[str, Any] = {"list": [1], "deep": {"a": 1}}
    envelope = Envelope.build(**fields("INFO", content__data=data))
    data["list"].append(2)
    assert isinstance(envelope.content, Info)
    assert plain(envelope.content.data) == {"list": [1], "deep": {"a": 1}}
    with pytest.raises(ValidationError):
        envelope.sender = "prime"
    with pytest.raises(ValidationError):
        envelope.content.kind = "other"
    with pytest.raises(TypeError):
        envelope.content.data["deep"]["a"] = 2


def test_copies_are_validated_too() -> None:
    """A NaN that slips in here would skip escalation: ``NaN < 0.3`` is false."""
    envelope = Envelope.build(**fields())
    assert envelope.model_copy(update={"confidence": 0.1}).confidence == 0.1
    assert envelope.model_copy() == envelope
    with pytest.raises(ValidationError):
        envelope.model_copy(update={"confidence": float("nan")})
    unchecked = Vote.model_construct(proposal_id=PROPOSED, vote="maybe", reason="", control_packet=None)
    assert refused(fields(content=unchecked)).field == "content.vote"


@pytest.mark.parametrize("word", TYPES)
def test_envelopes_pickle_and_hash(word: str) -> None:
    envelope = Envelope.build(**fields(word))
    again = pickle.loads(pickle.dumps(envelope))
    assert again == envelope
    assert hash(again) == hash(envelope)
    assert again.model_dump() == envelope.model_dump()
    assert json.loads(envelope.model_dump_json())["content"] == json.loads(
        json.dumps(again.model_dump()["content"])
    )


def test_the_schema_tells_each_body() -> None:
    schema = Envelope.model_json_schema()
    bodies = {"Proposal", "Vote", "Info", "Escalation", "Heartbeat"}
    assert bodies | {"Action", "Authorization", "Turn", "Requester", "Metadata"} == set(schema["$defs"])


# JSON


DOCUMENT = {
    "msg_id": "b6a9f42e",
    "parent_id": None,
    "timestamp": "2025-07-11T19:22:00Z",
    "sender": "lite",
    "role": "observer",
    "type": "INFO",
    "confidence": 0.87,
    "risk_level": "low",
    "content": "<markdown or json payload>",
}


def test_the_document_s_example_is_read_and_written_alike() -> None:
    envelope = Envelope.from_json(json.dumps(DOCUMENT))
    assert envelope.timestamp == datetime(2025, 7, 11, 19, 22, tzinfo=UTC)
    assert envelope.content == Info(kind="note", text="<markdown or json payload>")
    written = json.loads(envelope.to_json())
    assert list(written) == list(DOCUMENT)
    assert {**written, "content": DOCUMENT["content"]} == DOCUMENT


@pytest.mark.parametrize("word", TYPES)
def test_content_is_an_object_or_a_text_that_holds_one(word: str) -> None:
    envelope = Envelope.build(**fields(word))
    shown = json.loads(envelope.to_json())
    as_text = {**shown, "content": "\n " + json.dumps(shown["content"])}
    assert isinstance(shown["content"], dict)
    for document in (shown, as_text):
        assert Envelope.from_json(json.dumps(document)) == envelope
        assert Envelope.from_json(json.dumps(document).encode()) == envelope


def test_what_a_message_does_not_have_is_not_shown() -> None:
    assert "control_packet" not in Envelope.build(**fields()).to_json()
    assert "control_packet" in Envelope.build(**fields(content__control_packet={})).to_json()
    assert "history" not in Envelope.build(**fields("PROPOSAL")).to_json()
    assert "requester" not in Envelope.build(**fields("PROPOSAL")).to_json()
    given = fields("PROPOSAL", content__history=[{"role": "user", "text": "Please."}])
    assert json.loads(Envelope.build(**given).to_json())["content"]["history"] == given["content"]["history"]


def test_a_proposal_in_markdown() -> None:
    for markdown, summary, body in (
        ("Drop it", "Drop it", ""),
        ("\n\n## Drop it ##\n\nIt is *old*.\n", "Drop it ##", "It is *old*."),
        ("#Drop it\r\nbecause\r\n", "Drop it", "because"),
        ("  Drop it  \n\n    code\n", "Drop it", "    code"),
    ):
        envelope = Envelope.from_json(json.dumps({**DOCUMENT, "type": "PROPOSAL", "content": markdown}))
        assert envelope.content == Proposal(summary=summary, body=body)


@pytest.mark.parametrize("word", TYPES)
def test_half_an_object_is_no_markdown(word: str) -> None:
    """Else a truncated proposal would stand for vote without its action."""
    text = json.dumps(CONTENTS[word])[:-1]
    with pytest.raises(EnvelopeError) as caught:
        Envelope.from_json(json.dumps({**DOCUMENT, "type": word, "content": text}))
    assert caught.value.field == "content"


@pytest.mark.parametrize("before", ["\ufeff", "\u200b", "\u2060 "])
def test_an_object_behind_what_nobody_sees_is_no_markdown(before: str) -> None:
    """Mutation: only blanks are passed over, and the proposal is put to the vote without its action."""
    text = before + json.dumps(CONTENTS["PROPOSAL"])
    with pytest.raises(EnvelopeError, match="content: not JSON"):
        Envelope.from_json(json.dumps({**DOCUMENT, "type": "PROPOSAL", "content": text}))


def test_a_ballot_in_prose_is_no_ballot() -> None:
    for word in ("VOTE", "ESCALATION", "HEARTBEAT"):
        with pytest.raises(EnvelopeError) as caught:
            Envelope.from_json(json.dumps({**DOCUMENT, "type": word, "content": "yes, by all means"}))
        assert caught.value.field == "content"


def test_a_proposal_must_say_something() -> None:
    for markdown in ("", "  \n ", "###"):
        with pytest.raises(EnvelopeError) as caught:
            Envelope.from_json(json.dumps({**DOCUMENT, "type": "PROPOSAL", "content": markdown}))
        assert caught.value.field == "content.summary"


def test_times_that_are_read() -> None:
    for text, moment in (
        ("2025-07-11T21:22:00+02:00", datetime(2025, 7, 11, 19, 22, tzinfo=UTC)),
        ("2025-07-11t19:22:00.5z", datetime(2025, 7, 11, 19, 22, 0, 500_000, UTC)),
        ("2025-07-11 19:22:00.123456789Z", datetime(2025, 7, 11, 19, 22, 0, 123_456, UTC)),
    ):
        assert Envelope.from_json(json.dumps({**DOCUMENT, "timestamp": text})).timestamp == moment


@each(
    "value",
    [
        "2025-07-11T19:22:00",
        "2025-07-11",
        "2025-13-11T19:22:00Z",
        "2025-07-11T19:22:60Z",
        "2025-07-11T19:22:00+99:00",
        "20250711T192200Z",
        "２０２５-07-11T19:22:00Z",
        "0001-01-01T00:00:00+10:00",
        "now",
        "2" * 100_000,
        1_752_261_720,
        None,
    ],
)
def test_times_that_are_not(value: object) -> None:
    with pytest.raises(EnvelopeError) as caught:
        Envelope.from_json(json.dumps({**DOCUMENT, "timestamp": value}))
    assert caught.value.field == "timestamp"
    assert caught.value.problems
    assert len(str(caught.value)) < 300


@each(
    ("text", "field"),
    [
        ('{"msg_id":"b6a9f42e","msg_id":"b6a9f42f"}', "envelope"),
        ('{"confidence":NaN}', "envelope"),
        ('["x"]', "envelope"),
        ("7", "envelope"),
        ("nonsense", "envelope"),
        (b"\xff\xfe", "envelope"),
        ("{}", "msg_id"),
        (
            json.dumps({**DOCUMENT, "confidence": 0}).replace('"confidence": 0', '"confidence": 1e999'),
            "confidence",
        ),
        (json.dumps({**DOCUMENT, "content": '{"kind":"a","kind":"b"}'}), "content"),
        (json.dumps({**DOCUMENT, "content": '{"kind":NaN}'}), "content"),
        (json.dumps({**DOCUMENT, "content": "a\0"}), "content.text"),
        (json.dumps({**DOCUMENT, "content": "\ud800"}), "content.text"),
        (json.dumps({**DOCUMENT, "content": {"kind": "x", "data": {"a": {"b": 2**64}}}}), "content.data.a.b"),
        (json.dumps({**DOCUMENT, "cls": 1}), "cls"),
    ],
)
def test_json_that_is_refused(text: str | bytes, field: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        Envelope.from_json(text)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "content",
    ['{"data":' * 2_000, {"kind": "x", "data": {"a": json.loads("[" * 40 + "]" * 40)}}],
    ids=["text", "object"],
)
def test_deep_json_is_too_large(content: object) -> None:
    with pytest.raises(EnvelopeTooLarge):
        Envelope.from_json(json.dumps({**DOCUMENT, "content": content}))
    with pytest.raises(EnvelopeTooLarge):
        Envelope.from_json('{"content":' + "[" * 5_000)


def test_json_has_a_size() -> None:
    with pytest.raises(EnvelopeTooLarge) as caught:
        Envelope.from_json(b" " * (JSON_BYTES_MAX + 1))
    assert (caught.value.limit, caught.value.found) == (JSON_BYTES_MAX, JSON_BYTES_MAX + 1)


def test_the_largest_body_goes_through_json_at_its_worst() -> None:
    envelope = Envelope.build(**fields("PROPOSAL", content__body="\x01" * BODY_CHARS_MAX))
    assert Envelope.from_json(envelope.to_json()) == envelope
