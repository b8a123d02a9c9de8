"""What a hostile user, file or machine tries with a store: each is refused in words, and nothing is lost."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from council.journal import store as store_module
from council.journal.chain import Head, content_hash, row_hash
from council.journal.store import PacketStore
from council.protocol.errors import (
    CallerError,
    ImportRefused,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreUnreachable,
)
from council.protocol.packet import GENERATION_MAX, TAGS_MAX
from tests.patience import HANG_S

from .conftest import on_both, only_postgresql, only_sqlite, raw
from .packets import HOUR, NOW, PAST, append, given, row_of, several, whole
from .writing import unguarded

Open = Callable[..., PacketStore]
# Moments that have an offset, and no place among the years of UTC.
TOO_EARLY = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
TOO_LATE = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12)))


def by_id(number: int) -> UUID:
    return UUID(int=number)


@on_both
def test_a_row_that_does_not_fit_is_no_conflict(store: PacketStore) -> None:
    """Mutation: told as an id that is taken, it sent whoever reads it after the wrong thing."""
    epoch, head = store.begin_epoch("council", "me")
    row = row_of(whole(1).canonical())
    for wrong in (row._replace(ttl=NOW + HOUR), row._replace(packet_type=None)):  # type: ignore[arg-type]
        with pytest.raises(StoreError, match="refuses these rows"):
            store.append_rows("council", epoch, [wrong], head)
    assert store.records("council") == []


# Who derives from whom


def test_an_id_that_comes_back_does_not_close_a_circle(store: PacketStore) -> None:
    """Hygiene frees the id of a parent; under it nothing may derive from that parent's child."""
    store.write([given(1, ttl=PAST + HOUR), given(2, by_id(1)), given(3, by_id(2))], PAST)
    assert store.collect_garbage(NOW) == 1
    for child in (2, 3):
        (result,) = store.write([given(1, by_id(child))], NOW)
        assert "may derive from it" in (result.error_message or "")
    assert store.write([given(1)], NOW)[0].status == "ok"  # without parents it may come back
    assert [each.packet.packet_id.int for each in store.ancestors(by_id(3), NOW)] == [2, 1]


def lines(*packets: dict[str, Any], epochs: int = 0, end: bool = True) -> io.BytesIO:
    begun = [
        {"epoch": {"journal": "council", "epoch": n, "begun_at": NOW.isoformat(), "by": "x"}}
        for n in range(1, epochs + 1)
    ]
    found: list[Any] = [{"format": "council-store", "version": 1}, *begun, *packets]
    found += [{"end": len(packets)}] if end else []
    return io.BytesIO(b"".join(json.dumps(each).encode() + b"\n" for each in found))


def derived(number: int, generation: int, *parents: int, root: int = 99) -> dict[str, Any]:
    lineage = {"parent_ids": [str(by_id(each)) for each in parents], "generation": generation}
    lineage["root_packet_id"] = str(by_id(root))
    return {"packet": json.loads(whole(number).canonical()) | {"lineage": lineage}}


@pytest.mark.parametrize(
    ("packets", "said"),
    [
        ([derived(50, 3, 50)], "line 2: .* its own parent"),
        ([derived(50, 3, 60, 60)], "line 2: .* is listed twice"),
        ([derived(50, 3, 60), derived(51, 3, 50, 61)], "line 3: lineage.generation"),
        ([derived(50, 3, 60), derived(51, 9, 50, 61, root=98)], "line 3: lineage.root_packet_id"),
        ([derived(51, 3, 52), derived(52, 4, 51)], "line 3: .* may derive from it"),
        ([derived(51, 3, 52), derived(53, 4, 51), derived(52, 5, 53)], "line 4: .* may derive from it"),
    ],
)
@only_sqlite
def test_a_lineage_is_not_forged_behind_a_parent_that_is_gone(
    store: PacketStore, packets: list[dict[str, Any]], said: str
) -> None:
    """Mutation: one missing parent, and all else that the packet claims was believed."""
    with pytest.raises(ImportRefused, match=said):
        store.import_(lines(*packets))
    assert store.info().packets == 0


@only_sqlite
def test_a_circle_is_not_imported_in_two_files(store: PacketStore) -> None:
    assert store.import_(lines(derived(51, 3, 52))).orphans == 1
    with pytest.raises(ImportRefused, match="may derive from it"):
        store.import_(lines(derived(52, 4, 51)))
    assert store.import_(lines(derived(52, 2, 70))).packets == 1  # it was there before its child


@only_sqlite
def test_a_generation_past_the_last_is_an_error_of_one_packet(store: PacketStore) -> None:
    """Mutation: pydantic's own error, and with it the whole call."""
    store.import_(lines(derived(50, GENERATION_MAX, 60)))
    results = store.write([given(1, by_id(50)), given(2)], NOW)
    assert [each.status for each in results] == ["error", "ok"]


# Files of packets


@only_sqlite
def test_an_epoch_that_cannot_be_kept_is_refused_at_its_line(store: PacketStore) -> None:
    for change in (
        {"epoch": 2**70},
        {"epoch": 0},
        {"begun_at": TOO_EARLY.isoformat()},
        {"journal": "\ud800"},
        {"by": "\ud800"},
        {"journal": "x" * 201},
        {"by": ""},
    ):
        epoch = {"journal": "council", "epoch": 1, "begun_at": NOW.isoformat(), "by": "x"} | change
        found = [{"format": "council-store", "version": 1}, {"epoch": epoch}]
        with pytest.raises(ImportRefused, match="line 2: epoch: expected"):
            store.import_(io.BytesIO("\n".join(map(json.dumps, found)).encode()))
    assert store.info().journals == ()


@only_sqlite
def test_a_row_of_an_epoch_that_the_file_lacks_is_refused_in_words(
    store: PacketStore, new_address: Callable[[], str], opened: Open
) -> None:
    """Mutation: the foreign key alone found it, and the advice was to try again."""
    for _ in range(2):
        epoch, head = store.begin_epoch("council", "me")
    append(store, "council", epoch, several(1, 1), head)
    stream = io.BytesIO()
    store.export(stream)
    cut = [line for line in stream.getvalue().splitlines(keepends=True) if b'"epoch": 2' not in line]
    cut = [line for line in cut if not line.startswith(b'{"epoch":{') or b'"epoch":1' in line]
    with pytest.raises(ImportRefused, match="epoch 2, which the file does not have"):
        opened(new_address()).import_(io.BytesIO(b"".join(cut)))


@only_sqlite
def test_an_older_epoch_does_not_write_on_in_a_file_either(store: PacketStore) -> None:
    """Its hashes are right: whoever forged it has made them anew."""
    rows: list[dict[str, Any]] = []
    head = Head()
    for number, epoch in ((1, 2), (2, 1)):
        packet = whole(number)
        own = row_hash(head.row_hash, number, epoch, content_hash(packet.canonical()))
        place = {"journal": "council", "position": number, "epoch": epoch}
        hashes = {"previous_hash": head.row_hash.hex(), "row_hash": own.hex()}
        rows.append({**place, **hashes, "packet": json.loads(packet.canonical())})
        head = Head(number, own)
    with pytest.raises(
        ImportRefused, match="line 5: journal council, position 2: epoch 1 follows a newer one"
    ):
        store.import_(lines(*rows, epochs=2))


def test_what_was_changed_behind_the_stores_back_is_not_copied(
    store: PacketStore, address: str, engine: str
) -> None:
    """Mutation: the copy that is to replace a damaged store holds the damage, and nobody was told."""
    store.write([given(1), given(2)], NOW)
    changed = whole(1, payload={"n": 9}).canonical().hex()
    value = f"X'{changed}'" if engine == "sqlite" else f"'\\x{changed}'::bytea"
    unguarded(address, f"UPDATE packet_store SET content = {value} WHERE sequence = 1")
    with pytest.raises(StoreCorrupt, match=str(by_id(1))):
        store.export(io.BytesIO())
    with pytest.raises(StoreCorrupt, match=str(by_id(1))):
        store.write([given(1)], NOW)


# Calls


@only_sqlite
def test_a_moment_outside_the_years_of_utc_is_a_callers_fault(store: PacketStore) -> None:
    store.write([given(1), given(2)], NOW)
    for moment in (TOO_EARLY, TOO_LATE):
        for call in (
            lambda moment=moment: store.write([given(9)], moment),
            lambda moment=moment: store.get(by_id(1), moment),
            lambda moment=moment: store.find(moment),
            lambda moment=moment: store.find(NOW, since=moment),
            lambda moment=moment: store.find(NOW, until=moment),
            lambda moment=moment: store.ancestors(by_id(1), moment),
            lambda moment=moment: store.collect_garbage(moment),
        ):
            with pytest.raises(CallerError, match="years 1 to 9999"):
                call()


@only_postgresql
def test_the_first_and_last_moments_can_be_read_in_every_zone(address: str, opened: Open) -> None:
    """Mutation: one packet of year 9999 that anybody may write, and no page that holds it can be read."""
    opened(address).close()
    for zone in ("Pacific/Kiritimati", "America/Adak"):
        connection = raw(address)
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET timezone = '{zone}'")
        connection.close()
        store = opened(address)
        first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
        store.write([given(1, timestamp=first), given(2, timestamp=last)], NOW)
        assert [packet.timestamp for packet in store.find(NOW).packets] == [last, first]
        page = store.find(NOW, limit=1)
        assert store.find(NOW, limit=1, cursor=page.cursor).packets[0].timestamp == first


@only_sqlite
def test_more_tags_than_a_packet_has_are_a_callers_fault(store: PacketStore) -> None:
    tags = [str(n) for n in range(TAGS_MAX + 1)]
    store.write([given(1, tags=tags[:-1])], NOW)
    for name in ("tags_any", "tags_all"):
        assert len(store.find(NOW, **{name: tags[:-1]}).packets) == 1
        with pytest.raises(CallerError, match="at most 100"):
            store.find(NOW, **{name: tags})


@only_sqlite
def test_one_call_does_not_hold_the_store_for_long(
    store: PacketStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "WRITTEN_MAX", 10)
    assert len(store.write([given() for _ in range(10)], NOW)) == 10
    with pytest.raises(CallerError, match="more than 10"):
        store.write((given() for _ in iter(int, 1)), NOW)  # without end
    assert store.info().packets == 10


def test_what_was_closed_stays_closed(store: PacketStore) -> None:
    """Mutation: the pool connects anew, and nobody closes that."""
    epoch, head = store.begin_epoch("council", "me")
    store.close()
    for call in (
        lambda: store.get(by_id(1), NOW),
        lambda: store.write([given(1)], NOW),
        lambda: append(store, "council", epoch, several(1, 1), head),
        store.info,
    ):
        with pytest.raises(CallerError, match="was closed"):
            call()
    store.close()


# Where it is kept


@only_postgresql
def test_an_option_that_postgresql_does_not_know_is_named(address: str, opened: Open) -> None:
    with pytest.raises(StoreUnreachable, match=r'does not know: remove it .*"colour"'):
        opened(f"{address}&colour=blue")


@only_postgresql
def test_a_server_whose_host_is_gone_is_asked_for(address: str, opened: Open) -> None:
    with opened(address, timeout_s=3.0).database.read() as connection:
        info = connection.connection.driver_connection.info
        assert info.get_parameters()["keepalives_idle"] == "3"
        assert connection.exec_driver_sql("SHOW timezone").scalar_one() == "UTC"


@only_sqlite
def test_a_path_that_holds_no_file_is_told(address: str, opened: Open, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        for read_only in (True, False):
            with pytest.raises(StoreForeign, match="is not a file"):
                opened(str(path), read_only=read_only)
    for path in (tmp_path / ("x" * 300), tmp_path / "nowhere" / "x.db"):
        for read_only in (True, False):
            with pytest.raises(StoreUnreachable):
                opened(str(path), read_only=read_only)


@only_sqlite
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without rights")
def test_a_folder_without_rights_is_told(address: str, opened: Open) -> None:
    """Mutation: a traceback from looking whether the file is there."""
    opened(address).close()
    code = (
        "import os, sys; from council.journal.store import PacketStore; from council.protocol import errors;"
        "os.setgid(65534); os.setuid(65534)\n"
        "try: PacketStore.open(sys.argv[1], read_only=True)\n"
        "except errors.StoreUnreachable as error: print(error)"
    )
    hidden = Path(address).parent / "hidden"
    hidden.mkdir(mode=0o700)
    found = shutil.copy(address, hidden / "store.db")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(found)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        cwd=root,
        check=False,
    )
    assert "your rights" in done.stdout, done.stderr


@only_sqlite
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_goes_away_under_a_writer_is_told(address: str, opened: Open, how: str) -> None:
    """Mutation: SQLite writes on into what no longer has a name, and acknowledges what nobody will find."""
    store = opened(address)
    epoch, head = store.begin_epoch("council", "me")
    head = append(store, "council", epoch, several(1, 2), head)
    away = Path(address).rename(f"{address}.away")
    if how == "replaced":
        shutil.copy(away, address)
    for call in (
        lambda: append(store, "council", epoch, several(3, 2), head),
        lambda: store.write([given(9)], NOW),
        lambda: store.get(by_id(1), NOW),
    ):
        with pytest.raises(StoreUnreachable, match="removed, or replaced"):
            call()
    away.rename(address)
    assert append(store, "council", epoch, several(3, 2), head).position == 4


@only_sqlite
def test_a_file_that_can_not_be_looked_at_any_more_says_why(address: str, opened: Open) -> None:
    """Mutation: told as one that was removed, it sent whoever reads it after the wrong thing."""
    store = opened(address)
    Path(address).rename(f"{address}.away")
    Path(address).symlink_to(address)  # round in a circle
    with pytest.raises(StoreUnreachable, match=r"can't be looked at any more: Too many levels"):
        store.write([given(1)], NOW)


# Whom the triggers let pass


def lapse_of(engine: str, offset_s: int) -> str:
    """A ttl so many seconds from the database's own now, in its own words."""
    if engine == "sqlite":
        return f"strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '{offset_s} seconds')"
    return f"(clock_timestamp() AT TIME ZONE 'UTC') + interval '{offset_s} seconds'"


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Adak"])
@pytest.mark.parametrize(("offset_s", "kept"), [(-5, False), (30, True)])
def test_a_ttl_is_compared_with_the_databases_clock_to_the_second(
    store: PacketStore, address: str, engine: str, offset_s: int, kept: bool, zone: str
) -> None:
    """Mutation: a comparison by days, or by a session's zone: what has not expired yet could be removed."""
    store.write([given(1)], NOW)
    connection = raw(address)
    if engine == "postgresql":
        connection.execute(f"SET TIME ZONE '{zone}'")
    new = "'00000000-0000-0000-0000-000000000002'" + ("" if engine == "sqlite" else "::uuid")
    connection.execute(
        "INSERT INTO packet_store (packet_id, packet_type, timestamp, parent_ids, tags, content, content_hash, ttl) "
        f"SELECT {new}, packet_type, timestamp, parent_ids, tags, content, content_hash, "
        f"{lapse_of(engine, offset_s)} FROM packet_store"
    )
    removal = "DELETE FROM packet_store WHERE ttl IS NOT NULL"
    if kept:
        with pytest.raises(Exception, match="whose ttl has passed"):
            connection.execute(removal)
    else:
        assert connection.execute(removal).rowcount == 1
    connection.close()
    assert store.info().packets == 1 + kept


@only_sqlite
def test_what_finds_a_packet_goes_with_it_and_never_alone(store: PacketStore, address: str) -> None:
    """Of each packet, and of users' with a ttl that has passed as well: these two ways a search would miss it."""
    lapsed = {"ttl": PAST + HOUR, "tags": ["b", "c"]}
    store.write(
        [given(1, tags=["a"]), given(2, by_id(1), tags=["a"]), given(3, by_id(1), by_id(2), **lapsed)], PAST
    )
    connection = raw(address)

    def words() -> list[tuple[str, str, int]]:
        return connection.execute("SELECT * FROM packet_words").fetchall()

    rows = words()
    assert Counter(word.split()[0] for word, _, _ in rows) == {"time": 3, "type": 3, "tag": 4, "parent": 3}
    for row in rows:
        with pytest.raises(Exception, match="a row goes with its packet"):
            connection.execute("DELETE FROM packet_words WHERE (word, moment, packet) = (?, ?, ?)", row)
    assert words() == rows
    assert store.collect_garbage(NOW) == 1
    assert words() == [row for row in rows if row[2] != 3]
    connection.close()


@only_sqlite
def test_a_packet_that_has_the_number_of_a_removed_one_is_found(store: PacketStore, address: str) -> None:
    """SQLite gives the last number again. Mutation: the mark stays where it was, and the new one has no words."""
    store.write([given(1), given(2, ttl=PAST + HOUR)], PAST)
    assert store.collect_garbage(NOW) == 1
    epoch, head = store.begin_epoch("council", "me")
    append(store, "council", epoch, [whole(3, by_id(1), tags=["a"])], head)
    for _ in range(2):
        assert [each.packet_id for each in store.find(NOW, tags_any=["a"]).packets] == [by_id(3)]
        assert [each.packet.packet_id for each in store.descendants(by_id(1), NOW)] == [by_id(3)]
        store.enter_words()
    connection = raw(address)
    assert connection.execute("SELECT max(sequence) FROM packet_store").fetchone() == (2,)
    connection.close()
