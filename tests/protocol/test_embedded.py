"""JSON objects in foreign texts: which are found, which are part of another, and that the work is bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.protocol.answer import find_json
from council.protocol.answer.find_json import STEPS_MAX, Search, find_objects
from tests.cases import each

MIB = 2**20
DEPTH_MAX = 20


def search(text: str) -> Search:
    return find_objects(text, lambda value: "x" in value, DEPTH_MAX)


def values(text: str) -> list[Any]:
    return [found.value["x"] for found in search(text).found]


@each(
    ("text", "found"),
    [
        ("", []),
        ("no object", []),
        ('{"x": 1}', [1]),
        ('say {"x": 1} and {"x": 2}', [1, 2]),
        ('a {brace}, {"y": 0}, then\n{\n  "x": {"y": [1, {"z": "}{"}]}\n}', [{"y": [1, {"z": "}{"}]}]),
        ('{"x": "{\\"x\\": 2}"}', ['{"x": 2}']),
        ('{"x": "two\nlines"}', ["two\nlines"]),
        ('it begins {"x": 0, and again {"x": 1}', [1]),
        ('[{"x": 1}, {"x": 2}]', [1, 2]),
        ('{"x": 1', []),
        ('{"x": [1}', []),
        ('{"x": 1]', []),
        ('{"x": "never ends}', []),
        ("{'x': 1}", []),
        ('"{"x": 1}', [1]),
    ],
)
def test_objects_are_found_where_they_stand(text: str, found: list[Any]) -> None:
    assert values(text) == found


@pytest.mark.parametrize(
    "text",
    [
        '{"y": {"x": 1}}',  # what wraps it says what it is: a quotation, for one
        '{"y": {"x": 1},}',
        '{"y": {"x": 1} "z"}',
        '{"y": [{"x": 1}}}',
        '{"y":' * DEPTH_MAX + '{"x": 1}' + "}" * DEPTH_MAX,
    ],
)
def test_what_stands_in_another_object_is_none_by_itself(text: str) -> None:
    """Mutation: to look into an object that can't be read finds the answer that it quotes."""
    assert values(text) == []


def test_why_there_is_none_is_told() -> None:
    assert "not JSON" in search('{"x": 1,}').problem
    assert "nested 21 deep; at most 20" in search('{"x":' * 21 + "1" + "}" * 21).problem
    assert search('{"x":' * 20 + "1" + "}" * 20).problem == ""


FENCED = [
    '```json\n{"x": 1}\n```',
    '~~~\n{"x": 1}\n~~~ there',
    'see\n\n  ````JSON5  \n\n {"x": 1}````',
    '```{"x": 1}```',
    '```json\n{"x": 1}',  # cut off, as by a limit on what a model may say
]


@pytest.mark.parametrize("text", FENCED)
def test_an_object_that_fills_a_fence_is_fenced(text: str) -> None:
    (found,) = search(text).found
    assert found.fenced
    assert json.loads(text[found.start : found.end]) == {"x": 1}


@pytest.mark.parametrize(
    "text", ['{"x": 1}', 'a ```json\n{"x": 1}\n```', '```\nso: {"x": 1}\n```', '```\n{"x": 1}\nmore']
)
def test_any_other_is_not(text: str) -> None:
    assert [found.fenced for found in search(text).found] == [False]


HOSTILE = [
    '{"',
    '{"a":',
    '{"a":[1,',
    '{"a":"b",',
    '{"x":1}',
    '```json\n{"a":',
    '```json\n{"x":1}\n```\n',
    "{ ",
    '"',
    "{}",
    '{"x":[],"y":]',
    '{"x":' * 19 + "1" + "}" * 19,
    "`",
    "\\",
    '{"a":"\\"',
    "\n" + " " * 150 + '{"x":1}',
]


@pytest.mark.parametrize("head", ["", '{"x":"', '{"x":[', '{"a",' * 300 + '"'])
@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_takes_more_than_its_steps(piece: str, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is a piece of structure or 64 characters. Mutation: to begin again at each brace, uncounted."""
    monkeypatch.setattr(find_json, "STEPS_MAX", 10_000)
    text = head + (piece * (MIB // 20 // len(piece)))
    found = search(text)
    assert found.steps <= 10_000 + len(text) // 64 + 11
    assert found.steps <= 10_000 or "steps" in found.problem


def test_a_text_that_begins_again_and_again_is_left_unread() -> None:
    found = search('{"a":' * (MIB // 5) + '{"x": 1}')
    assert found.found == ()
    assert "more than 500,000 steps" in found.problem


@pytest.mark.parametrize("piece", ['{"a",', '{"a": 1, ', '{"a": ['])
@pytest.mark.parametrize("end", ['"', ""])
def test_characters_count_too(piece: str, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: fifty beginnings, each of which scans a hundred kilobytes, are as many steps as marks."""
    monkeypatch.setattr(find_json, "STEPS_MAX", 10_000)
    assert "steps" in search(piece * 50 + end + "x" * (MIB // 10)).problem


def test_a_large_answer_is_far_from_the_limit() -> None:
    entries = [{"op": "note", "key": f"a:{n}", "value": "word " * 200} for n in range(500)]
    text = json.dumps({"x": entries, "y": "so " * (MIB // 3 * 3)})
    found = search(text)
    assert len(found.found) == 1
    assert found.steps * 4 < STEPS_MAX


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
PROSE = st.text(st.characters(exclude_characters='{"'), max_size=20)


@given(st.lists(st.tuples(PROSE, JSON), max_size=4), PROSE)
def test_whatever_is_written_into_prose_is_found_again(parts: list[tuple[str, Any]], end: str) -> None:
    text = "".join(prose + json.dumps({"x": value}) for prose, value in parts) + end
    assert values(text) == [value for _, value in parts]
