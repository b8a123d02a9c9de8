"""Whether ``verify`` finds what was done to the words that SQLite finds packets by, and else nothing."""

from __future__ import annotations

import io
import re
import shutil
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from council.journal import search_words
from council.journal.chain import Head
from council.journal.store import PacketStore
from council.journal.verify import verify
from council.protocol.errors import JournalCorrupt, StoreCorrupt

from .conftest import raw
from .packets import HOUR, NOW, PAST, append, given, whole

Open = Callable[..., PacketStore]
pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
THREAD = UUID(int=77)
FOURTH = "record 4 of journal 'council', packet 00000000-0000-0000-0000-000000000004,"
USERS = "packet 00000000-0000-0000-0000-000000000064"


@pytest.fixture(autouse=True)
def in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_words, "COMPARED_AT_ONCE", 2)


def filled(store: PacketStore) -> None:
    """Six records of a council, packet 4 with a word of each kind; one of another's, and two packets of users."""
    epoch, head = store.begin_epoch("council", "me")
    more = {"tags": ["a", "b", "a"], "thread_id": THREAD}  # a tag that is told twice is one word
    packets = [*map(whole, range(1, 4)), whole(4, UUID(int=1), UUID(int=2), **more), whole(5), whole(6)]
    append(store, "council", epoch, packets, head)
    append(store, "other", store.begin_epoch("other", "me")[0], [whole(50)], Head())
    store.write([given(100, tags=["a"]), given(101, UUID(int=100), ttl=PAST + HOUR)], PAST)


@pytest.fixture
def kept(store: PacketStore) -> PacketStore:
    """All of it entered, and after it two records that are not."""
    filled(store)
    epoch, head = store.begin_epoch("council", "me")
    append(store, "council", epoch, [whole(7, tags=["a"]), whole(8, UUID(int=4))], head)
    return store


def misled(store: PacketStore) -> str:
    """What verify finds; of the words alone, for the journals hold."""
    with pytest.raises(StoreCorrupt, match="holds, but searches of this store") as caught:
        verify(store, "council")
    assert not isinstance(caught.value, JournalCorrupt)
    assert caught.value.where == store.where
    assert "council store import" in caught.value.message
    assert caught.value.what in caught.value.message
    return str(caught.value.what)


def tampered(address: str, *statements: str) -> None:
    """What somebody does who can write the file."""
    connection = raw(address)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        assert connection.execute(statement).rowcount == 1
    connection.close()


def test_a_sound_store_holds_in_each_state(store: PacketStore, address: str) -> None:
    """None entered, all but the newest, all; numbers left out and given again. Mutation: what waits is missed."""
    epoch, head = store.begin_epoch("council", "me")
    head = append(store, "council", epoch, [whole(1, tags=["a", "a"]), whole(2, UUID(int=1))], head)
    connection = raw(address)

    def standing() -> tuple[int, int]:
        asked = "SELECT (SELECT upto FROM words_entered), max(sequence) FROM packet_store"
        assert verify(store, "council").rows == head.position
        upto, newest = connection.execute(asked).fetchone()
        return upto, newest

    assert standing() == (0, 2)
    store.enter_words()
    head = append(store, "council", epoch, [whole(3, tags=["a"]), whole(4, UUID(int=3))], head)
    assert standing() == (2, 4)
    lapsed = {"ttl": PAST + HOUR, "tags": ["c"]}
    store.write([given(5, **lapsed), given(6, tags=["c"]), given(7, **lapsed)], PAST)
    assert standing() == (7, 7)
    assert store.collect_garbage(NOW) == 2
    assert standing() == (6, 6)
    head = append(store, "council", epoch, [whole(8, UUID(int=1))], head)
    assert standing() == (6, 7)
    store.enter_words()
    assert standing() == (7, 7)
    connection.close()


HIDDEN = "is not entered under each of its words: it is hidden there"
FOREIGN = "is entered under a word that is not its own"
LATER = (NOW + timedelta(days=1)).isoformat()
MARK = "the mark of how far packets are entered is missing, or lies beyond"
ODD = "z" * 36
# What somebody does to the store, and what verify says of it.
TAMPERED = [
    *(
        ([f"DELETE FROM packet_words WHERE packet = 4 AND word = '{word}'"], f"{FOURTH} {HIDDEN}")
        for word in ("time", "type event", f"thread {THREAD}", "tag b", f"parent {UUID(int=2)}")
    ),
    # Of another journal, or of users.
    (
        ["DELETE FROM packet_words WHERE packet = 7 AND word = 'type event'"],
        f"record 1 of journal 'other', packet {UUID(int=50)}, {HIDDEN}",
    ),
    (["DELETE FROM packet_words WHERE packet = 8 AND word = 'type event'"], f"{USERS} {HIDDEN}"),
    # Too many; also of a packet that is not entered yet, though it will be.
    ([f"INSERT INTO packet_words VALUES ('tag x', '{LATER}', 4)"], f"{FOURTH} {FOREIGN}"),
    ([f"INSERT INTO packet_words VALUES ('thread b', '{LATER}', 4)"], f"{FOURTH} {FOREIGN}"),
    ([f"INSERT INTO packet_words VALUES ('time', '{LATER}', 9)"], f"packet {UUID(int=101)} {FOREIGN}"),
    (
        [f"INSERT INTO packet_words VALUES ('tag a', '{LATER}', 99)"],
        f"a packet that is not there, number 99, {FOREIGN}",
    ),
    (
        [f"INSERT INTO packet_words VALUES ('tag a', '{LATER}', 10)"],
        f"record 7 of journal 'council', packet {UUID(int=7)}, {FOREIGN}",
    ),
    (
        [
            "INSERT INTO packet_words SELECT CAST(x'ff' AS TEXT), moment, 4 FROM packet_words "
            "WHERE packet = 4 AND word = 'time'"
        ],
        f"{FOURTH} {FOREIGN}",
    ),
    # As many as there must be, but one under another word, or at another time.
    (["UPDATE packet_words SET word = 'tag x' WHERE packet = 4 AND word = 'tag b'"], f"{FOURTH} {HIDDEN}"),
    (
        [f"UPDATE packet_words SET moment = '{PAST.isoformat()}' WHERE packet = 4 AND word = 'time'"],
        f"{FOURTH} {HIDDEN}",
    ),
    # A packet before all others is not compared: its words are not taken for its own.
    (
        [
            "UPDATE packet_store SET sequence = -5 WHERE sequence = 8",
            "DELETE FROM packet_words WHERE packet = 8 AND word = 'tag a'",
            "DELETE FROM packet_words WHERE packet = 8 AND word = 'time'",
            "UPDATE packet_words SET packet = -5 WHERE packet = 8",
        ],
        f"{USERS} {FOREIGN}",
    ),
    # The mark: each of these hides what is not entered yet, or will not be.
    (["UPDATE words_entered SET upto = 12"], MARK),
    (["UPDATE words_entered SET upto = 9223372036854775807"], MARK),
    (["DELETE FROM words_entered"], MARK),
    (["UPDATE words_entered SET upto = 3"], f"{FOURTH} {FOREIGN}"),
    (
        ["UPDATE words_entered SET upto = 11"],
        f"record 7 of journal 'council', packet {UUID(int=7)}, {HIDDEN}",
    ),
    # A packet whose id or list is invalid is named as it stands.
    (
        [
            f"UPDATE packet_store SET packet_id = '{ODD}' WHERE sequence = 8",
            "DELETE FROM packet_words WHERE word = 'tag a' AND packet = 8",
        ],
        f"packet {ODD} {HIDDEN}",
    ),
    (["UPDATE packet_store SET tags = '[' WHERE sequence = 8"], "the words of a packet in rows 7 to 8"),
    (["UPDATE packet_store SET parent_ids = '[' WHERE sequence = 8"], "the words of a packet in rows 7 to 8"),
]


def test_whatever_is_done_to_the_words_is_found(
    kept: PacketStore, address: str, opened: Open, tmp_path: Path
) -> None:
    """Mutation: of a comparison that is left out, a packet can be hidden from every search."""
    kept.close()
    for number, (statements, what) in enumerate(TAMPERED):
        copy = shutil.copy(address, tmp_path / f"{number}.db")
        tampered(str(copy), *statements)
        with opened(str(copy), read_only=True) as store:
            assert misled(store).startswith(what), statements


def test_what_is_wrong_with_a_record_goes_first(kept: PacketStore, address: str) -> None:
    """Mutation: a column that was changed is told as a word that is missing, and the record as sound."""
    tampered(address, """UPDATE packet_store SET tags = '["x"]' WHERE position = 4""")
    with pytest.raises(JournalCorrupt, match=re.escape("record 4 is the first bad one: its column tags")):
        verify(kept, "council")
    tampered(address, "UPDATE packet_store SET tags = 'x' WHERE position = 4")
    with pytest.raises(JournalCorrupt, match="record 4 is the first bad one"):
        verify(kept, "council")


def test_words_are_made_anew_by_export_and_import(
    kept: PacketStore, address: str, opened: Open, new_address: Callable[[], str]
) -> None:
    """As the error says."""
    tampered(address, "DELETE FROM packet_words WHERE packet = 4 AND word = 'tag b'")
    assert kept.find(NOW, tags_any=["b"]).packets == (), "hidden"
    written = io.BytesIO()
    kept.export(written)
    anew = opened(new_address())
    written.seek(0)
    anew.import_(written)
    assert verify(anew, "council").head == Head(8, kept.records("council")[-1].row_hash)
    assert [each.packet_id for each in anew.find(NOW, tags_any=["b"]).packets] == [UUID(int=4)]


def test_a_store_without_the_table(kept: PacketStore, address: str) -> None:
    connection = sqlite3.connect(address, isolation_level=None)
    connection.execute("DROP TABLE packet_words")
    connection.close()
    with pytest.raises(StoreCorrupt, match="go back to a copy"):
        verify(kept, "council")


@pytest.mark.parametrize(
    "made",
    ["VIEW packet_words AS SELECT * FROM kept_words", "TABLE packet_words AS SELECT * FROM kept_words"],
    ids=["view", "keyless"],
)
def test_a_table_that_is_another_is_told(kept: PacketStore, address: str, made: str) -> None:
    """Mutation: a view may answer otherwise at other times; without a key a million packets take hours."""
    tampered(address)
    connection = raw(address)
    connection.execute("ALTER TABLE packet_words RENAME TO kept_words")
    connection.execute(f"CREATE {made}")
    connection.close()
    assert misled(kept) == "packet_words is not the table that it was made as"
    assert verify(kept, "council", searches=False).rows == 8
