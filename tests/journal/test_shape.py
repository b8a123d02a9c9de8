"""The fast reading of packets, against the packets themselves: it takes nothing for canonical that they do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from council.journal.chain import content_hash
from council.journal.rows import Prepared, prepared, same_object, values, wrong_column
from council.protocol.errors import EnvelopeError
from council.protocol.packet import PacketEnvelope, read_packet

from .packets import NOW

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
words = texts.filter(bool)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
objects = st.dictionaries(
    texts,
    st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_size=4,
)
moments = st.datetimes(min_value=NOW.replace(tzinfo=None, year=1900), timezones=st.just(NOW.tzinfo))


def some(**fields: Any) -> st.SearchStrategy[Any]:
    return st.none() | st.fixed_dictionaries({}, optional=fields)


@st.composite
def packets(draw: st.DrawFn) -> PacketEnvelope:
    fields: dict[str, Any] = {
        "packet_id": draw(st.uuids()),
        "packet_type": draw(words),
        "timestamp": draw(moments),
        "payload": draw(objects),
        "metadata": draw(some(agent=words, domain=words, reasoning_mode=words, schema_version=words)),
        "provenance": draw(some(source=words, tool=words, parent_packet=st.uuids())),
        "confidence": draw(
            st.none() | st.fixed_dictionaries({"score": st.floats(0, 1)}, optional={"rationale": texts})
        ),
        "thread_id": draw(st.none() | st.uuids()),
        "lineage": draw(
            some(
                parent_ids=st.lists(st.uuids(), max_size=3),
                generation=st.integers(0, 9),
                root_packet_id=st.uuids(),
            )
        ),
        "tags": draw(st.lists(words, max_size=3)),
        "ttl": draw(st.none() | moments),
    }
    if draw(st.booleans()):
        block = {"block_id": draw(st.uuids()), "packet_id": draw(st.uuids()), "timestamp": draw(moments)}
        block |= {"extracted_features": draw(objects), "confidence_scores": {"a": draw(st.floats(0, 1))}}
        fields["reasoning_block"] = block
    return PacketEnvelope.build(**fields)


def columns_of(row: Prepared) -> tuple[Any, ...]:
    """As SQLite keeps them."""
    return values("sqlite", row, content_hash(row.content))[: len(Prepared._fields) - 1]


@for_all(packets())
def test_what_a_packet_writes_is_canonical_and_fits_its_columns(packet: PacketEnvelope) -> None:
    content = packet.canonical()
    read = read_packet(content)
    assert read.canonical() == content
    row = prepared(read, content)
    assert wrong_column("sqlite", row, columns_of(row)) is None
    for at in range(len(columns_of(row))):
        columns = list(columns_of(row))
        columns[at] = '["other"]'
        assert wrong_column("sqlite", row, columns) == Prepared._fields[at]
    assert same_object(content, content)
    assert same_object(json.dumps(json.loads(content), indent=1), content)


SWAPS = [
    (b":", b": "), (b",", b" ,"), (b"true", b"1"), (b"0", b"-0.0"), (b"1", b"1.0"), (b".0", b""), (b".0", b".00"),
    (b"e+", b"e"), (b"e-0", b"e-"), (b"e", b"E"), (b"}", b',"x":null}'), (b"}", b',"tags":[]}'), (b'"', b'"\\u0061'),
    (b"a", b"\\u0061"), (b"a", b"A"), (b"Z", b"+00:00"), (b"-", b""), (b"T", b" "), (b"T", b"t"), (b"[", b"[null,"),
    (b'"metadata"', b'"metadatum"'), (b"/", b"\\/"), (b"\n", b" "),
]  # fmt: skip


@for_all(packets(), st.sampled_from(SWAPS), st.integers(0, 40))
def test_what_it_takes_for_canonical_is(packet: PacketEnvelope, swap: tuple[bytes, bytes], at: int) -> None:
    """Mutation: any shortcut of the fast reading that is more lenient than the slow one."""
    old, new = swap
    parts = packet.canonical().split(old)
    if len(parts) < 2:
        return
    at %= len(parts) - 1
    content = old.join(parts[: at + 1]) + new + old.join(parts[at + 1 :])
    try:
        read_packet(content)
    except EnvelopeError:
        return
    assert PacketEnvelope.from_json(content).canonical() == content


@for_all(packets(), st.binary(min_size=1, max_size=3), st.integers(0))
def test_bytes_that_are_put_in(packet: PacketEnvelope, more: bytes, at: int) -> None:
    content = packet.canonical()
    at %= len(content)
    wrong = content[:at] + more + content[at:]
    try:
        read_packet(wrong)
    except EnvelopeError:
        return
    assert PacketEnvelope.from_json(wrong).canonical() == wrong


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a": 1e20}', b'{"a":100000000000000000000}', True),
        ('{"a": [1, {"b": null}]}', b'{"a":[1,{"b":null}]}', True),
        ('{"a": 1}', b'{"a":true}', False),
        ('{"a": false}', b'{"a":0}', False),
        ('{"a": 1}', b'{"a":1,"b":null}', False),
        ('{"a": [1]}', b'{"a":[1,1]}', False),
        ('{"a": "1"}', b'{"a":1}', False),
        ('{"a": {}}', b'{"a":[]}', False),
        (None, b"{}", False),
        ("{", b"{}", False),
    ],
)
def test_when_two_objects_are_the_same(one: str | None, other: bytes, same: bool) -> None:
    assert same_object(one, other) is same
