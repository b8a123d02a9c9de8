"""Queries against a list in memory, pages, lineage (rules 4.9)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from council.journal import lineage, queries
from council.journal.store import PacketStore
from council.protocol.errors import CallerError, StoreCorrupt, UnknownPacket
from council.protocol.packet import PacketEnvelope, PacketEnvelopeIn
from tests.examples import tried

from .conftest import on_both, only_sqlite, raw
from .packets import HOUR, NOW
from .packets import given as packet
from .writing import unguarded

THREADS = [None, UUID(int=1 << 100), UUID(int=2 << 100)]
TYPES = ["event", "insight", "réflexion"]
TAGS = ["a", "b", "c", "d'", 'e"', "{f}", "Ä"]
LATER = NOW + HOUR


def random_packets(count: int) -> list[PacketEnvelopeIn]:
    """Packets of few moments, so that many share one."""
    chance = random.Random(4)
    return [
        packet(
            number,
            packet_type=chance.choice(TYPES),
            thread_id=chance.choice(THREADS),
            tags=chance.sample(TAGS, chance.randrange(4)),
            timestamp=NOW + timedelta(seconds=chance.randrange(-9, 9)),
            ttl=chance.choice([None, None, NOW + HOUR / 2, NOW + 2 * HOUR]),
        )
        for number in range(1, count + 1)
    ]


@pytest.fixture
def filled(store: PacketStore) -> PacketStore:
    assert {result.status for result in store.write(random_packets(120), NOW)} == {"ok"}
    return store


def expected(now: datetime, **asked: Any) -> list[UUID]:
    """The answer by hand, from the list."""
    found = []
    for number, each in enumerate(random_packets(120)):
        assert each.timestamp is not None
        tags = set(each.tags)
        if (
            asked["thread_id"] in (None, each.thread_id)
            and asked["packet_type"] in (None, each.packet_type)
            and (not asked["tags_any"] or tags & set(asked["tags_any"]))
            and tags >= set(asked["tags_all"])
            and (asked["since"] is None or each.timestamp >= asked["since"])
            and (asked["until"] is None or each.timestamp < asked["until"])
            and (asked["expired"] or each.ttl is None or each.ttl > now)
        ):
            found.append((each.timestamp, number, each.packet_id))
    found.sort(reverse=asked["newest_first"])
    return [packet_id for _, _, packet_id in found if packet_id is not None]


def paged(
    store: PacketStore, now: datetime, limit: int, **asked: Any
) -> Iterator[tuple[PacketEnvelope, ...]]:
    page = store.find(now, limit=limit, **asked)
    for _ in range(200):
        yield page.packets
        if page.cursor is None:
            return
        page = store.find(now, limit=limit, cursor=page.cursor, **asked)
    pytest.fail("the pages have no end")


moments = st.none() | st.integers(-11, 11).map(lambda seconds: NOW + timedelta(seconds=seconds))
questions = st.fixed_dictionaries(
    {
        "thread_id": st.sampled_from([None, None, *THREADS, UUID(int=3)]),
        "packet_type": st.sampled_from([None, None, *TYPES, "none"]),
        "tags_any": st.lists(st.sampled_from([*TAGS, "none"]), max_size=3),
        "tags_all": st.lists(st.sampled_from(TAGS), max_size=2),
        "since": moments,
        "until": moments,
        "newest_first": st.booleans(),
        "expired": st.booleans(),
    }
)


# The store is only read, so that every example may have the same.
@settings(max_examples=tried(120), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=questions, limit=st.integers(1, 60))
def test_every_question_has_the_answer_of_the_list(
    filled: PacketStore, asked: dict[str, Any], limit: int
) -> None:
    pages = list(paged(filled, LATER, limit, **asked))
    assert [each.packet_id for page in pages for each in page] == expected(LATER, **asked)
    assert {len(page) for page in pages[:-1]} <= {limit}


def half_entered(store: PacketStore, address: str, words: int) -> None:
    """Takes the words of all but the first packets away, as if these had just been appended."""
    connection = raw(address)
    connection.execute("DROP TRIGGER packet_words_kept")
    connection.execute("DELETE FROM packet_words WHERE packet > ?", (words,))
    connection.execute("UPDATE words_entered SET upto = ?", (words,))
    connection.close()


@only_sqlite
@pytest.mark.parametrize("words", [0, 60])
@settings(max_examples=tried(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=questions, limit=st.integers(1, 60))
def test_what_has_no_words_yet_is_found_as_well(
    filled: PacketStore, address: str, words: int, asked: dict[str, Any], limit: int
) -> None:
    """Mutation: only what is entered is asked for, and a packet is not found until then."""
    if not getattr(filled, "halved", False):
        half_entered(filled, address, words)
        filled.halved = True  # type: ignore[attr-defined]  # once for all examples
    pages = list(paged(filled, LATER, limit, **asked))
    assert [each.packet_id for page in pages for each in page] == expected(LATER, **asked)


@on_both
def test_packets_come_back_whole(filled: PacketStore) -> None:
    for each in random_packets(120):
        assert each.packet_id is not None
        assert filled.get(each.packet_id, NOW) == each.completed(each.packet_id, NOW)
    assert filled.get(UUID(int=999), NOW) is None


@pytest.mark.parametrize("newest_first", [True, False])
def test_pages_are_stable_while_rows_are_added(filled: PacketStore, newest_first: bool) -> None:
    """Mutation: pages by offset show packets twice, or never, once others come in before them."""
    everything: dict[str, Any] = dict.fromkeys(("thread_id", "packet_type", "since", "until"))
    everything |= {"tags_any": [], "tags_all": [], "newest_first": newest_first, "expired": True}
    before = expected(NOW, **everything)
    seen: list[UUID] = []
    for number, page in enumerate(paged(filled, NOW, 7, newest_first=newest_first, expired=True)):
        seen += [each.packet_id for each in page]
        for shift in (-20, -5, 0, 5, 20):
            moment = NOW + timedelta(seconds=shift, milliseconds=number)
            filled.write([packet(None, timestamp=moment)], NOW)
        if newest_first is False and set(before) <= set(seen):
            break  # what is added behind the last would be followed for ever
    assert len(set(seen)) == len(seen)
    assert [each for each in seen if each in set(before)] == before


@only_sqlite
def test_a_cursor_that_is_none_or_of_another_query_is_refused(filled: PacketStore) -> None:
    for cursor in ("", "x", "e30", "W10", "WzEsMiwzXQ", "é", "A" * 300, "bnVsbA", "W1tbW1tb"):
        with pytest.raises(CallerError, match="cursor: this is no cursor"):
            filled.find(NOW, cursor=cursor)
    cursor = filled.find(NOW, limit=5).cursor
    assert filled.find(NOW, limit=9, cursor=cursor).packets
    for other in ({"newest_first": False}, {"packet_type": "event"}, {"expired": True}, {"tags_any": ["a"]}):
        with pytest.raises(CallerError, match="another question"):
            filled.find(NOW, cursor=cursor, **other)


@only_sqlite
def test_a_limit_is_kept_within_bounds(store: PacketStore) -> None:
    for limit in (0, -1, queries.PAGE_MAX + 1):
        with pytest.raises(CallerError, match="limit"):
            store.find(NOW, limit=limit)
        with pytest.raises(CallerError, match="limit"):
            store.records("council", limit=limit * 100)


@only_sqlite
def test_a_text_that_no_packet_has_is_refused(store: PacketStore) -> None:
    for text in ("", "a\0b", "\ud800", "x" * 201):
        for asked in ({"packet_type": text}, {"tags_any": [text]}, {"tags_all": [text]}):
            with pytest.raises(CallerError, match="1 to 200"):
                store.find(NOW, **asked)  # type: ignore[arg-type]
        with pytest.raises(CallerError, match="1 to 200"):
            store.records(text)
    with pytest.raises(CallerError, match="expected a list"):
        store.find(NOW, tags_any="abc")
    for after in (-1, 2**63):
        with pytest.raises(CallerError, match="after"):
            store.records("council", after=after)


# Lineage


def family(store: PacketStore) -> None:
    """1 ← 2 ← 4, 1 ← 3 ← 4, 4 ← 5; 6 stands alone."""
    lines = [packet(1), packet(2, UUID(int=1)), packet(3, UUID(int=1))]
    lines += [packet(4, UUID(int=2), UUID(int=3)), packet(5, UUID(int=4), ttl=NOW + HOUR), packet(6)]
    assert {result.status for result in store.write(lines, NOW)} == {"ok"}


def numbers(found: list[lineage.Relative]) -> list[tuple[int, int]]:
    return [(each.distance, each.packet.packet_id.int) for each in found]


def test_ancestors_and_descendants(store: PacketStore) -> None:
    family(store)
    one, four, five, six = (UUID(int=n) for n in (1, 4, 5, 6))
    assert numbers(store.ancestors(five, NOW)) == [(1, 4), (2, 2), (2, 3), (3, 1)]
    assert numbers(store.ancestors(five, NOW, depth=2)) == [(1, 4), (2, 2), (2, 3)]
    assert numbers(store.descendants(one, NOW)) == [(1, 2), (1, 3), (2, 4), (3, 5)]
    assert numbers(store.descendants(one, NOW, depth=1)) == [(1, 2), (1, 3)]
    assert numbers(store.descendants(four, NOW + HOUR)) == []
    assert numbers(store.descendants(four, NOW + HOUR, expired=True)) == [(1, 5)]
    assert store.ancestors(six, NOW) == store.descendants(six, NOW) == []


def test_what_has_expired_has_no_relatives_unless_asked_for(store: PacketStore) -> None:
    family(store)
    five = UUID(int=5)
    for unknown in (UUID(int=9), five):
        with pytest.raises(UnknownPacket):
            store.ancestors(unknown, NOW + HOUR)
    assert len(store.ancestors(five, NOW + HOUR, expired=True)) == 4


def test_a_long_line_is_followed_to_its_end(store: PacketStore, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 600
    store.write([packet(1), *(packet(n, UUID(int=n - 1)) for n in range(2, count + 1))], NOW)
    found = store.descendants(UUID(int=1), NOW)
    assert numbers(found) == [(n - 1, n) for n in range(2, count + 1)]
    last = found[-1].packet.lineage
    assert last is not None
    assert (last.generation, last.root_packet_id) == (count - 1, UUID(int=1))
    monkeypatch.setattr(lineage, "RELATIVES_MAX", 100)
    with pytest.raises(CallerError, match="smaller depth"):
        store.descendants(UUID(int=1), NOW)
    assert len(store.descendants(UUID(int=1), NOW, depth=99)) == 99


@only_sqlite
def test_a_depth_of_nothing_is_refused(store: PacketStore) -> None:
    with pytest.raises(CallerError, match="depth"):
        store.ancestors(UUID(int=1), NOW, depth=0)


# What was changed behind the store's back


@pytest.mark.parametrize("change", ["content", "hash"])
def test_a_packet_that_was_changed_is_an_error_and_no_answer(
    store: PacketStore, address: str, engine: str, change: str
) -> None:
    """With the triggers out of the way, as somebody with the rights could do it."""
    store.write([packet(1, payload={"n": "true"})], NOW)
    if engine == "sqlite":
        content, flipped = "CAST(replace(CAST(content AS TEXT), 'true', 'fake') AS BLOB)", "zeroblob(32)"
    else:
        content = "convert_to(replace(convert_from(content, 'UTF8'), 'true', 'fake'), 'UTF8')"
        flipped = r"decode(repeat('00', 32), 'hex')"
    what = f"content = {content}" if change == "content" else f"content_hash = {flipped}"
    unguarded(address, f"UPDATE packet_store SET {what}")
    for call in (
        lambda: store.get(UUID(int=1), NOW),
        lambda: store.find(NOW),
        lambda: store.descendants(UUID(int=1), NOW),
    ):
        with pytest.raises(StoreCorrupt, match=str(UUID(int=1))) as caught:
            call()
        assert caught.value.packet_id == UUID(int=1)
