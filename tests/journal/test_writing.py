"""What users write: ids, times and lineage completed, once, for good (rules 4.2-4.4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest

from council.journal.store import GARBAGE_AT_ONCE, PacketStore, new_id
from council.protocol.errors import CallerError
from council.protocol.packet import PacketEnvelopeIn, PacketLineage
from tests.patience import HANG_S

from .conftest import on_both
from .packets import HOUR, NOW, PAST, append, given, whole

A, B, C, D = (UUID(int=n) for n in range(1, 5))


def test_ids_and_times_are_filled_in(store: PacketStore) -> None:
    first, second = store.write([given(payload={"x": "ü"}), given()], NOW)
    assert (first.status, first.written_tables, first.error_message) == ("ok", ("packet_store",), None)
    kept = store.get(first.packet_id, NOW)
    assert kept is not None
    assert (kept.packet_id, kept.timestamp, kept.payload["x"]) == (first.packet_id, NOW, "ü")
    assert first.packet_id != second.packet_id


def test_new_ids_sort_by_their_moment() -> None:
    ids = [new_id(NOW + timedelta(milliseconds=n)) for n in range(50)]
    assert ids == sorted(ids)
    assert {(each.version, each.variant) for each in ids} == {(7, "specified in RFC 4122")}
    assert len({new_id(NOW) for _ in range(1_000)}) == 1_000


def test_the_same_again_is_ok_and_written_once(store: PacketStore) -> None:
    packet = given(1, tags=["a"])
    store.write([packet], NOW)
    (again,) = store.write([packet], NOW + HOUR)  # without a timestamp: the kept one stands
    assert (again.status, again.written_tables) == ("ok", ())
    kept = store.get(A, NOW)
    assert kept is not None
    assert kept.timestamp == NOW
    (whole_again,) = store.write([PacketEnvelopeIn.from_json(kept.canonical())], NOW + HOUR)
    assert whole_again.status == "ok"
    assert store.info().packets == 1


@pytest.mark.parametrize(
    "other",
    [
        given(1, payload={"n": 2}),
        given(1, tags=["a", "b"]),
        given(1, timestamp=NOW + HOUR),
        given(1, thread_id=B),
        given(1, lineage={}),
    ],
)
def test_other_content_under_an_id_is_a_conflict_and_changes_nothing(
    store: PacketStore, other: PacketEnvelopeIn
) -> None:
    store.write([given(1, tags=["a"])], NOW)
    before = store.get(A, NOW)
    (result,) = store.write([other], NOW)
    assert result.status == "error"
    assert (result.error_message or "").startswith(f"conflict: another packet is kept under the id {A}")
    assert store.get(A, NOW) == before


def test_what_is_wrong_with_one_stops_no_other(store: PacketStore) -> None:
    results = store.write([given(1), given(2, D), given(3), given(3, payload={}), given(4, A)], NOW)
    assert [result.status for result in results] == ["ok", "error", "ok", "error", "ok"]
    assert store.info().packets == 3
    assert store.get(B, NOW) is None


@on_both
def test_lineage_is_completed_within_a_call_and_across(store: PacketStore) -> None:
    store.write([given(1), given(2, A)], NOW)
    (result,) = store.write([given(3, A, B)], NOW)
    assert result.status == "ok"
    kept = store.get(C, NOW)
    assert kept is not None
    expected = PacketLineage(parent_ids=(A, B), derivation_type="inference", generation=2, root_packet_id=A)
    assert kept.lineage == expected
    (again,) = store.write([given(3, A, B)], NOW)
    assert (again.status, again.written_tables) == ("ok", ())


@pytest.mark.parametrize(
    ("lineage", "said"),
    [
        ({"parent_ids": [D]}, f"{D} is not kept here"),
        ({"parent_ids": [C]}, "can't be its own parent"),
        ({"parent_ids": [A, A]}, "is listed twice"),
        ({"parent_ids": [A], "generation": 7}, "contradicts its parents"),
        ({"parent_ids": [A], "root_packet_id": B}, "contradicts its parents"),
    ],
)
def test_a_lineage_that_is_not_true_is_refused(
    store: PacketStore, lineage: dict[str, object], said: str
) -> None:
    store.write([given(1), given(2)], NOW)
    (result,) = store.write([given(3, lineage=lineage)], NOW)
    assert result.status == "error"
    assert said in (result.error_message or "")
    assert store.get(C, NOW) is None


def test_a_cycle_cannot_be_written(store: PacketStore) -> None:
    """The second of two that name each other would have to be there before the first."""
    results = store.write([given(1, B), given(2, A)], NOW)
    assert [result.status for result in results] == ["error", "error"]


def test_a_parent_that_has_expired_is_none(store: PacketStore) -> None:
    """Mutation: whether it still is would hang on when hygiene last ran."""
    store.write([given(1, ttl=PAST + HOUR)], PAST)
    assert store.write([given(2, A)], PAST)[0].status == "ok"
    assert "is not kept here" in (store.write([given(3, A)], PAST + HOUR)[0].error_message or "")


@pytest.mark.parametrize("late", [timedelta(0), HOUR])
def test_a_ttl_that_is_not_ahead_is_an_error(store: PacketStore, late: timedelta) -> None:
    (result,) = store.write([given(1, ttl=NOW)], NOW + late)
    assert result.status == "error"
    assert (result.error_message or "").startswith("malformed: ttl: ")
    assert store.write([given(1, ttl=NOW)], NOW - timedelta(microseconds=1))[0].status == "ok"


@on_both
def test_an_expired_packet_is_read_only_when_asked_for(store: PacketStore) -> None:
    store.write([given(1, ttl=NOW + HOUR), given(2)], NOW)
    just_before = NOW + HOUR - timedelta(microseconds=1)
    assert store.get(A, just_before) is not None
    assert store.get(A, NOW + HOUR) is None
    assert store.get(A, NOW + HOUR, expired=True) is not None
    assert len(store.find(just_before).packets) == 2
    assert len(store.find(NOW + HOUR).packets) == 1
    assert len(store.find(NOW + HOUR, expired=True).packets) == 2


def test_hygiene_removes_what_has_expired_and_nothing_else(store: PacketStore) -> None:
    count = GARBAGE_AT_ONCE + 3
    lapsing = [given(n, ttl=PAST + HOUR, tags=["old"]) for n in range(10, 10 + count)]
    store.write([*lapsing, given(1), given(2, ttl=PAST + 2 * HOUR)], PAST)
    epoch, head = store.begin_epoch("council", "test")
    append(store, "council", epoch, [whole(3)], head)
    assert store.collect_garbage(PAST + HOUR - timedelta(microseconds=1)) == 0
    assert store.collect_garbage(PAST + HOUR) == count
    left = store.find(PAST, expired=True, newest_first=False).packets
    assert {packet.packet_id for packet in left} == {A, B, C}
    assert store.find(PAST, expired=True, tags_any=["old"]).packets == ()
    assert store.write([given(10, payload={"new": 1})], NOW)[0].status == "ok"


def test_a_clock_that_is_ahead_removes_nothing_before_its_time(store: PacketStore) -> None:
    """Mutation: the caller's word for the time alone, and one wrong clock empties the store."""
    far = NOW.replace(year=9000)
    store.write([given(1, ttl=far)], NOW)
    assert store.collect_garbage(far + HOUR) == 0
    assert store.get(A, NOW) is not None


def test_a_time_without_an_offset_is_refused(store: PacketStore) -> None:
    naive = NOW.replace(tzinfo=None)
    for call in (
        lambda: store.write([given(1)], naive),
        lambda: store.get(A, naive),
        lambda: store.find(naive),
        lambda: store.find(NOW, since=naive),
        lambda: store.find(NOW, until=naive),
        lambda: store.collect_garbage(naive),
        lambda: store.ancestors(A, naive),
    ):
        with pytest.raises(CallerError, match="offset from UTC"):
            call()


def test_many_writers_of_the_same_packets_write_each_once(
    address: str, opened: Callable[..., PacketStore]
) -> None:
    """Each thread has a store of its own, as processes have; what one loses to another is looked at again."""
    stores = [opened(address, timeout_s=HANG_S) for _ in range(4)]
    statuses: list[str] = []

    def write(store: PacketStore, start: int) -> None:
        for number in range(start, 41):
            statuses.extend(
                result.status for result in store.write([given(number), given(number + 100)], NOW)
            )

    threads = [threading.Thread(target=write, args=(store, 1)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert statuses == ["ok"] * (4 * 2 * 40)
    assert stores[0].info().packets == 80
