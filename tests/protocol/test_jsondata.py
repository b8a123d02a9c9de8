"""JSON values: what is frozen stays as it was, equality is that of bytes, and every limit holds."""

from __future__ import annotations

import copy
import enum
import json
import pickle
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.protocol.errors import EnvelopeError, EnvelopeTooLarge
from council.protocol.values import (
    CHARS_MAX,
    DEPTH_MAX,
    ITEMS_MAX,
    JSON_BYTES_MAX,
    freeze,
    freeze_value,
    plain,
    read_json,
    read_parts,
)
from tests.cases import each

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4)


def nested(depth: int) -> dict[str, object]:
    """An object with ``depth`` levels, itself the first."""
    value: object = 0
    for _ in range(depth - 1):
        value = [value]
    return {"x": value}


@given(OBJECTS)
def test_plain_gives_back_what_was_frozen(value: dict[str, object]) -> None:
    frozen = freeze(value)
    assert plain(frozen) == value
    assert frozen == value
    assert pickle.loads(pickle.dumps(frozen)) == frozen
    assert hash(pickle.loads(pickle.dumps(frozen))) == hash(frozen)
    assert copy.deepcopy(frozen) == frozen


@given(OBJECTS, OBJECTS)
def test_equal_exactly_when_their_json_is(one: dict[str, object], other: dict[str, object]) -> None:
    texts = [json.dumps(plain(freeze(value)), sort_keys=True) for value in (one, other)]
    assert (freeze(one) == freeze(other)) == (texts[0] == texts[1])


def test_python_calls_these_equal_and_bytes_do_not() -> None:
    for one, other in ((1, 1.0), (1, True), (0, False), (0.0, False), ([1], [True]), ("1", 1)):
        assert freeze({"x": one}) != freeze({"x": other})
        assert freeze({"x": {"y": one}}) != freeze({"x": {"y": other}})


def test_keys_stand_in_order_of_code_points() -> None:
    assert list(freeze({"b": 1, "\U0001f600": 2, "a": 3, "\uffff": 4})) == ["a", "b", "\uffff", "\U0001f600"]


def test_nothing_can_be_changed() -> None:
    source = {"list": [1, {"deep": [2]}], "object": {"a": 1}}
    frozen = freeze(source)
    source["list"][1]["deep"].append(3)
    source["object"]["b"] = 2
    assert plain(frozen) == {"list": [1, {"deep": [2]}], "object": {"a": 1}}
    with pytest.raises(TypeError):
        frozen["object"]["a"] = 2
    with pytest.raises(TypeError):
        del frozen["object"]["a"]
    with pytest.raises(AttributeError):
        frozen["list"].append(1)
    with pytest.raises(AttributeError):
        frozen.update({"x": 1})  # type: ignore[attr-defined]
    taken = plain(frozen)
    taken["list"][1]["deep"].append(9)
    assert frozen["list"][1]["deep"] == (2,)


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


class Celsius(float):
    pass


def test_subclasses_become_what_they_hold() -> None:
    frozen = freeze(types.MappingProxyType({Colour.RED: Colour.RED, "n": Size.BIG, "f": Celsius(1.5)}))
    assert {type(key) for key in frozen} == {str}
    assert [type(value) for value in frozen.values()] == [float, int, str]
    assert plain(frozen) == {"red": "red", "n": 3, "f": 1.5}


@each(
    ("value", "path"),
    [
        ({"a": [1, {"b": "x\0"}]}, "a[1].b"),
        ({"a": {"b": "\ud800"}}, "a.b"),
        ({"a\0": 1}, "'a\\x00'"),
        ({"\udfff": 1}, "'\\udfff'"),
        ({"a": float("nan")}, "a"),
        ({"a": [0, float("-inf")]}, "a[1]"),
        ({"a": 2**64}, "a"),
        ({"a": -(2**63) - 1}, "a"),
        ({"a": 10**5000}, "a"),
        ({"a": {1: 2}}, "a.'an integer'"),
        ({"a": b"raw"}, "a"),
        ({"a": {1, 2}}, "a"),
        ({"a": object()}, "a"),
        ({"a b": {"c.d": [[], [None, 1j]]}}, "'a b'.'c.d'[1][1]"),
    ],
)
def test_what_is_no_json_is_named_by_its_path(value: dict[str, object], path: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        freeze(value)
    assert caught.value.field == path
    assert len(str(caught.value)) < 300


def test_depth_has_a_limit() -> None:
    freeze(nested(DEPTH_MAX))
    with pytest.raises(EnvelopeTooLarge) as caught:
        freeze(nested(DEPTH_MAX + 1))
    assert (caught.value.limit, caught.value.found) == (DEPTH_MAX, DEPTH_MAX + 1)


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_bottomless_values_are_too_large(depth: int) -> None:
    with pytest.raises(EnvelopeTooLarge):
        freeze(nested(depth))
    round_and_round: dict[str, object] = {}
    round_and_round["self"] = round_and_round
    with pytest.raises(EnvelopeTooLarge):
        freeze(round_and_round)


def test_items_have_a_limit_altogether() -> None:
    freeze({"x": [[0] * (ITEMS_MAX - 4), [0]]})  # and x, and the two lists
    with pytest.raises(EnvelopeTooLarge) as caught:
        freeze({"x": [[0] * (ITEMS_MAX - 4), [0, 0]]})
    assert caught.value.limit == ITEMS_MAX
    shared: object = [0] * 100
    for _ in range(5):
        shared = [shared] * 100  # ten thousand million elements in five small lists
    with pytest.raises(EnvelopeTooLarge):
        freeze({"x": shared})


def test_characters_have_a_limit_altogether() -> None:
    freeze({"x": "a" * (CHARS_MAX - 1)})
    with pytest.raises(EnvelopeTooLarge) as caught:
        freeze({"x": "a" * (CHARS_MAX // 2), "y": ["a" * (CHARS_MAX // 2)]})
    assert caught.value.field == "y[0]"
    assert caught.value.limit == CHARS_MAX


@pytest.mark.parametrize(("text", "unit"), [("[1, 2]", "characters"), (b"[1, 2]", "bytes")])
def test_a_text_above_its_limit_is_measured_in_its_own_unit(text: str | bytes, unit: str) -> None:
    with pytest.raises(EnvelopeTooLarge, match=f"6 {unit} of JSON; at most 5 are read"):
        read_json(text, field="x", bytes_max=5)


def test_only_a_mapping_is_an_object() -> None:
    for value in ([], "x", None, 1, [("a", 1)]):
        with pytest.raises(EnvelopeError, match="expected an object"):
            freeze(value)


# Reading text


@given(OBJECTS)
def test_json_is_read_as_the_standard_library_reads_it(value: dict[str, object]) -> None:
    text = json.dumps(value)
    assert read_json(text, field="x") == json.loads(text)
    assert read_json(text.encode(), field="x") == value


@given(st.text(max_size=60) | st.text(alphabet='[]{},:"\\ 1a', max_size=60) | st.binary(max_size=60))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    fault = None
    try:
        read_json(text, field="here")
    except EnvelopeError as error:
        fault = error
    assert fault is None or fault.field == "here"


def test_json_that_other_readers_let_through_is_refused() -> None:
    texts: list[tuple[str | bytes, str]] = [
        ('{"a":1,"a":1}', "stands twice"),
        ('{"a":{"b":1,"b":2}}', "stands twice"),
        ("[NaN]", "NaN"),
        ("[-Infinity]", "-Infinity"),
        ("[1] x", "not JSON"),
        ("", "not JSON"),
        (b"\xff", "not UTF-8"),
        ("[" + "9" * 5000 + "]", "5,000 digits"),
    ]
    for text, told in texts:
        with pytest.raises(EnvelopeError, match=told):
            read_json(text, field="x")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000,
        '{"a":' * 100_000,
        "[" * 500 + "]" * 500,
        "[" + "0," * 100_000 + "0]",
        '"' + "a" * JSON_BYTES_MAX,
        b'"' + b"a" * JSON_BYTES_MAX,
    ],
    ids=["open", "objects", "closed", "wide", "text", "bytes"],
)
def test_bombs_are_refused_before_they_are_parsed(text: str | bytes) -> None:
    with pytest.raises(EnvelopeTooLarge) as caught:
        read_json(text, field="x")
    assert caught.value.found > caught.value.limit


def test_brackets_within_strings_do_not_count() -> None:
    text = json.dumps({"a": '[{"\\' * 1000 + "," * 50_000})
    assert read_json(text, field="x") == json.loads(text)


def test_a_string_without_end_costs_one_scan() -> None:
    """A scan from each escaped quote would take minutes here; pytest's time limit is the judge."""
    with pytest.raises(EnvelopeError, match="not JSON"):
        read_json('"' + '\\"' * 2_000_000, field="x")


def test_a_signed_zero_stays_where_it_is_asked_for() -> None:
    value = {"x": [-0.0, {"y": -0.0}]}
    assert json.dumps(plain(freeze(value))) == '{"x": [0.0, {"y": 0.0}]}'
    kept = freeze_value(value, signed_zero=True)
    assert json.dumps(plain(kept)) == json.dumps(value)
    assert json.dumps(plain(pickle.loads(pickle.dumps(kept)))) == json.dumps(value)


def test_an_object_of_larger_limits_comes_out_of_a_pickle() -> None:
    """Mutation: frozen again by the default limits, what a packet may hold can't cross a process border."""
    many = freeze({"x": [0] * (ITEMS_MAX + 1)}, ITEMS_MAX + 2)
    assert pickle.loads(pickle.dumps(many)) == many


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ("NaN", "NaN is no JSON number"),
        ("[1, -Infinity]", "-Infinity is no JSON number"),
        ("1e999", "NaN and infinities"),
        ('{"x": 1, "y": 2, "x": 3}', "stands twice"),
        ("9" * 301, "an integer of 301 digits"),
        ("9" * 30, "64 bits"),
        ('"a\\u0000"', "NUL"),
    ],
)
def test_what_has_no_value_costs_the_part_it_stands_in(part: str, problem: str) -> None:
    """Mutation: an answer of a model is lost for one NaN in it."""
    found = read_parts(f'{{"good": [1, "two\nlines"], "bad": {part}}}')
    assert freeze_value(found["good"]) == (1, "two\nlines")
    with pytest.raises(EnvelopeError, match=problem):
        freeze({"bad": found["bad"]})


def test_parts_of_what_is_no_json_are_none() -> None:
    for text in ("", "{", "{'a': 1}", '{"a": 1,}', "nul", '{"a": 1} {}'):
        with pytest.raises(EnvelopeError, match="not JSON"):
            read_parts(text)
