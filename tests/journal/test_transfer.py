"""Out of one store and into another: all of it, checked, and again without harm."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from council.journal import transfer
from council.journal.store import PacketStore
from council.protocol.errors import EpochFenced, ImportRefused
from tests.patience import HANG_S

from .conftest import on_both, only_sqlite
from .packets import HOUR, NOW, PAST, append, given, several, whole

Open = Callable[..., PacketStore]


@pytest.fixture
def other(new_address: Callable[[], str], opened: Open) -> PacketStore:
    return opened(new_address())


def fill(store: PacketStore) -> None:
    """Two epochs of a journal, one of another, users' packets, lineage across them, one parent removed."""
    store.write(
        [given(100, payload={"text": "ü\u2028\n\\ \ud7ff 𝄞", "n": [1, 1.0, True, 2**63, 1e300]})], NOW
    )
    epoch, head = store.begin_epoch("council", "me")
    head = append(store, "council", epoch, [*several(1, 3), whole(4, UUID(int=100), UUID(int=3))], head)
    lapsing = given(101, UUID(int=4), ttl=PAST + HOUR)
    assert store.write([lapsing, given(102, UUID(int=101), tags=["a", "a"])], PAST)[1].status == "ok"
    store.write([given(103, UUID(int=102), ttl=NOW.replace(year=9000), thread_id=UUID(int=7))], NOW)
    epoch, head = store.begin_epoch("council", "me too")
    append(store, "council", epoch, [whole(5, UUID(int=103))], head)
    append(store, "other", *_begun(store, "other"))
    assert store.collect_garbage(NOW) == 1


def _begun(store: PacketStore, journal: str) -> Any:
    epoch, head = store.begin_epoch(journal, "somebody")
    return epoch, several(50, 1), head


def exported(store: PacketStore) -> bytes:
    stream = io.BytesIO()
    store.export(stream)
    return stream.getvalue()


def lines_of(text: bytes) -> list[Any]:
    return [json.loads(line) for line in text.splitlines(keepends=False) if line]


def as_file(lines: list[Any]) -> io.BytesIO:
    return io.BytesIO(b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines))


@on_both
def test_all_of_it_arrives(store: PacketStore, other: PacketStore) -> None:
    fill(store)
    text = exported(store)
    assert other.import_(io.BytesIO(text)) == (9, 0, 1)  # 102 was derived from what hygiene removed
    assert exported(other) == text
    for name in ("council", "other"):
        assert other.records(name) == store.records(name)
    assert [each.head for each in other.info().journals] == [each.head for each in store.info().journals]
    assert other.find(NOW, tags_all=["a"]).packets == store.find(NOW, tags_all=["a"]).packets != ()
    assert other.import_(io.BytesIO(text)) == (0, 9, 0)
    assert exported(other) == text


def test_it_goes_on_where_it_was_cut(store: PacketStore, other: PacketStore) -> None:
    fill(store)
    lines = lines_of(exported(store))
    with pytest.raises(ImportRefused, match="cut"):
        other.import_(as_file(lines[:7]))
    assert other.info().packets == 3
    assert other.import_(as_file(lines)) == (6, 3, 1)
    assert exported(other) == exported(store)


def test_what_was_taken_in_is_written_on(store: PacketStore, other: PacketStore) -> None:
    fill(store)
    other.import_(io.BytesIO(exported(store)))
    epoch, head = other.begin_epoch("council", "the next")
    assert epoch == 3
    assert append(other, "council", epoch, several(60, 2), head).position == 7


def test_a_live_coordinator_is_not_written_past(store: PacketStore, other: PacketStore) -> None:
    """Mutation: an older copy's rows, put behind a journal that somebody writes here."""
    epoch, head = store.begin_epoch("council", "me")
    head = append(store, "council", epoch, several(1, 2), head)
    other.import_(io.BytesIO(exported(store)))
    append(store, "council", epoch, several(3, 1), head)
    newer, here = other.begin_epoch("council", "live")
    with pytest.raises(ImportRefused, match="a newer epoch"):
        other.import_(io.BytesIO(exported(store)))
    assert append(other, "council", newer, several(9, 1), here).position == 3


def test_a_longer_history_fences_whom_it_overtakes(store: PacketStore, other: PacketStore) -> None:
    epoch, head = store.begin_epoch("council", "me")
    head = append(store, "council", epoch, several(1, 2), head)
    other.import_(io.BytesIO(exported(store)))
    newer, _ = store.begin_epoch("council", "me too")
    append(store, "council", newer, several(3, 1), head)
    assert other.import_(io.BytesIO(exported(store))) == (1, 2, 0)
    with pytest.raises(EpochFenced):
        append(other, "council", epoch, several(9, 1), head)


def change(number: int, **fields: Any) -> Callable[[list[Any]], None]:
    def apply(lines: list[Any]) -> None:
        lines[number - 1] |= fields

    return apply


def in_packet(number: int, **fields: Any) -> Callable[[list[Any]], None]:
    def apply(lines: list[Any]) -> None:
        lines[number - 1]["packet"] |= fields

    return apply


def drop(*numbers: int) -> Callable[[list[Any]], None]:
    def apply(lines: list[Any]) -> None:
        for number in sorted(numbers, reverse=True):
            del lines[number - 1]

    return apply


def swap(one: int, two: int) -> Callable[[list[Any]], None]:
    def apply(lines: list[Any]) -> None:
        lines[one - 1], lines[two - 1] = lines[two - 1], lines[one - 1]

    return apply


# Of fill's file: 1 format, 2-4 epochs, 5 packet 100, 6-9 packets 1-4 of the journal, 10 packet 102, 11 packet
# 103, 12 packet 5 of the journal, 13 packet 50 of the other, 14 the end.
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (change(1, version=2), "line 1: expected"),
        (drop(1), "line 1: expected"),
        (change(2, epoch={"journal": "council"}), "line 2: epoch: expected"),
        (drop(2), "line 2: epoch 2 of journal council does not follow"),
        (change(2, epoch={"journal": "a\0", "epoch": 1, "begun_at": NOW.isoformat(), "by": "x"}), "line 2: "),
        (change(5, extra=1), "line 5: expected journal"),
        (in_packet(5, unknown=1), "line 5: unknown"),
        (in_packet(5, tags=[]), "line 5: the packet is not in its canonical form"),
        (in_packet(7, payload={"n": 9}), "line 7: journal council, position 2: its row_hash does not fit"),
        (change(7, epoch=2), "line 7: journal council, position 2: its row_hash does not fit"),
        (change(7, row_hash="00" * 32), "line 7: journal council, position 2: its row_hash does not fit"),
        (change(7, previous_hash="00" * 32), "line 7: journal council, position 2: its previous_hash is not"),
        (change(7, position=True), "line 7: expected journal"),
        (change(7, position=2**64), "line 7: expected journal"),
        (change(7, row_hash="xx"), "line 7: expected journal"),
        (drop(7), "line 7: journal council, position 3: the journal ends at 1"),
        (swap(7, 8), "line 7: journal council, position 3: the journal ends at 1"),
        (change(8, journal="another"), "line 8: journal another, position 3: "),
        (in_packet(6, ttl="2100-01-01T00:00:00Z"), "line 6: a packet of a journal has no ttl"),
        (in_packet(10, lineage={"generation": 0}), "line 10: lineage: it is not complete"),
        (
            in_packet(
                11,
                lineage={
                    "parent_ids": [str(UUID(int=102))],
                    "derivation_type": "inference",
                    "generation": 9,
                    "root_packet_id": str(UUID(int=100)),
                },
            ),
            "line 11: lineage.generation",
        ),
        (drop(13), "line 13: 8 packets came"),
        (change(14, end=True), "line 14: "),
        (drop(14), "the file is cut"),
        (lambda lines: lines.append(lines[4]), "line 15: something follows"),
        (lambda lines: lines.insert(4, [1]), "line 5: expected a JSON object"),
        (lambda lines: lines.insert(4, {"x": 1}), "line 5: it is neither"),
        (lambda lines: lines.insert(9, {"packet": lines[5]["packet"]}), "line 10: packet .* is kept already"),
        (lambda lines: lines.insert(4, {"packet": 3}), "line 5: packet: expected an object"),
    ],
)
@only_sqlite
def test_a_damaged_file_is_refused_at_its_line(
    store: PacketStore, other: PacketStore, damage: Callable[[list[Any]], None], said: str
) -> None:
    fill(store)
    lines = lines_of(exported(store))
    assert len(lines) == 14
    damage(lines)
    with pytest.raises(ImportRefused, match=said):
        other.import_(as_file(lines))
    # What was taken is true, and the whole file mends the rest.
    other.import_(io.BytesIO(exported(store))) if "line 2" not in said else None
    taken = {row.row_hash for row in other.records("council")}
    assert taken <= {row.row_hash for row in store.records("council")}


@pytest.mark.parametrize("text", [b"", b"\n", b"not json\n", b'{"a":1,"a":2}\n', b"[" * 100_000, b"\xff\n"])
@only_sqlite
def test_what_is_no_file_of_packets_is_refused(store: PacketStore, text: bytes) -> None:
    with pytest.raises(ImportRefused):
        store.import_(io.BytesIO(text))
    assert store.info().packets == 0


@only_sqlite
def test_a_line_without_end_is_not_read_to_its_end(store: PacketStore) -> None:
    class Endless(io.RawIOBase):
        asked = 0

        def readline(self, size: int | None = -1) -> bytes:
            assert size is not None
            assert 0 < size <= transfer.LINE_BYTES_MAX + 1
            self.asked += 1
            return b'"' * size if self.asked == 1 else b""

    with pytest.raises(ImportRefused, match="at most"):
        store.import_(Endless())  # type: ignore[arg-type]


@only_sqlite
def test_another_history_of_the_same_name_is_refused(store: PacketStore, other: PacketStore) -> None:
    fill(store)
    other.begin_epoch("council", "a stranger")
    with pytest.raises(ImportRefused, match="parted ways"):
        other.import_(io.BytesIO(exported(store)))
    assert other.info().packets == 0


def test_an_export_is_of_one_moment(store: PacketStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody writes while it is read: none of that is in it, and the writer does not wait."""
    monkeypatch.setattr(transfer, "AT_ONCE", 10)
    epoch, head = store.begin_epoch("council", "me")
    head = append(store, "council", epoch, several(1, 100), head)

    def meanwhile() -> None:
        """A run after this one; mutation: rows of an epoch that the file does not have."""
        nonlocal head
        newer, head = store.begin_epoch("council", "the next")
        append(store, "council", newer, several(101, 50), head)

    class Slow(io.BytesIO):
        wrote = 0

        def write(self, text: Any) -> int:
            self.wrote += 1
            if self.wrote == 2:
                thread = threading.Thread(target=meanwhile)
                thread.start()
                thread.join(HANG_S)
                assert not thread.is_alive()
            return super().write(text)

    stream = Slow()
    assert store.export(stream) == 100
    assert len(store.records("council")) == 150
    assert lines_of(stream.getvalue())[-1] == {"end": 100}


def test_a_large_file_comes_in_parts(
    store: PacketStore, other: PacketStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "AT_ONCE", 7)
    epoch, head = store.begin_epoch("council", "me")
    append(store, "council", epoch, several(1, 100), head)
    store.write([given(n, UUID(int=n - 1)) for n in range(1001, 1050)], NOW)
    store.write([given(2000), *(given(n, UUID(int=n - 1)) for n in range(2001, 2030))], NOW)
    assert other.import_(io.BytesIO(exported(store))) == (130, 0, 0)
    assert exported(other) == exported(store)
