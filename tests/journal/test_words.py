"""Whether ``verify`` finds what was done to the words that SQLite finds packets by, and else nothing."""

from __future__ import annotations

import io
import re
import sqlite3
from collections.abc import Callable
from datetime import timedelta
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


@pytest.mark.parametrize("word", ["time", "type event", f"thread {THREAD}", "tag b", f"parent {UUID(int=2)}"])
def test_a_word_that_is_missing(kept: PacketStore, address: str, opened: Open, word: str) -> None:
    tampered(address, f"DELETE FROM packet_words WHERE packet = 4 AND word = '{word}'")
    assert misled(kept) == f"{FOURTH} is not entered under '{word}': it is hidden there"
    kept.close()
    assert FOURTH in misled(opened(address, read_only=True))


@pytest.mark.parametrize(
    ("packet", "named"),
    [(4, FOURTH), (7, f"record 1 of journal 'other', packet {UUID(int=50)},"), (8, USERS)],
)
def test_whosever_packet_it_is(kept: PacketStore, address: str, packet: int, named: str) -> None:
    """Mutation: only the words of the journal that is verified are looked at."""
    tampered(address, f"DELETE FROM packet_words WHERE packet = {packet} AND word = 'type event'")
    assert misled(kept) == f"{named} is not entered under 'type event': it is hidden there"


@pytest.mark.parametrize(
    ("word", "packet", "told"),
    [
        ("tag x", 4, f"{FOURTH} is entered under 'tag x', and must not be"),
        ("thread b", 4, f"{FOURTH} is entered under 'thread b', and must not be"),
        ("time", 9, f"packet {UUID(int=101)} is entered under 'time', and must not be"),
        ("tag a", 99, "a packet that is not there, number 99, is entered under 'tag a', and must not be"),
        ("tag a", -1, "a packet that is not there, number -1, is entered under 'tag a', and must not be"),
        ("tag a", 10, f"record 7 of journal 'council', packet {UUID(int=7)}, is entered under 'tag a'"),
    ],
)
def test_a_word_that_is_too_many(kept: PacketStore, address: str, word: str, packet: int, told: str) -> None:
    """Also of a packet that is not entered yet, though it will be."""
    moment = (NOW + timedelta(days=1)).isoformat()
    tampered(address, f"INSERT INTO packet_words VALUES ('{word}', '{moment}', {packet})")
    assert misled(kept).startswith(told)


def test_a_word_that_took_the_place_of_another(kept: PacketStore, address: str) -> None:
    """Mutation: there are as many as there must be, and they are taken for the same."""
    tampered(address, "UPDATE packet_words SET word = 'tag x' WHERE packet = 4 AND word = 'tag b'")
    assert misled(kept) == f"{FOURTH} is not entered under 'tag b': it is hidden there"


def test_a_word_at_another_time(kept: PacketStore, address: str) -> None:
    """By which a packet comes elsewhere among the others, or outside of the time that was asked for."""
    moment = PAST.isoformat()
    tampered(address, f"UPDATE packet_words SET moment = '{moment}' WHERE packet = 4 AND word = 'time'")
    assert "is not entered under 'time'" in misled(kept)


def test_a_packet_before_all_others(kept: PacketStore, address: str) -> None:
    """Mutation: it is not compared, and its words are taken for its own: what is too many is not to be found."""
    tampered(
        address,
        "UPDATE packet_store SET sequence = -5 WHERE sequence = 8",
        "DELETE FROM packet_words WHERE packet = 8 AND word = 'tag a'",
        "DELETE FROM packet_words WHERE packet = 8 AND word = 'time'",
        "UPDATE packet_words SET packet = -5 WHERE packet = 8",
    )
    assert misled(kept) == f"{USERS} is entered under 'type event', and must not be"


def test_a_word_that_is_no_text(kept: PacketStore, address: str) -> None:
    tampered(
        address,
        "INSERT INTO packet_words SELECT CAST(x'ff' AS TEXT), moment, 4 FROM packet_words "
        "WHERE packet = 4 AND word = 'time'",
    )
    assert misled(kept) == rf"{FOURTH} is entered under '\udcff', and must not be"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE words_entered SET upto = 12",
        "UPDATE words_entered SET upto = 9223372036854775807",
        "DELETE FROM words_entered",
    ],
)
def test_a_mark_beyond_what_there_is(kept: PacketStore, address: str, statement: str) -> None:
    """Each of these hides what is not entered yet, or will not be."""
    tampered(address, statement)
    assert misled(kept).startswith("the mark of how far packets are entered is missing, or lies beyond")


def test_a_mark_that_was_moved_back_or_on(kept: PacketStore, address: str) -> None:
    """With the trigger gone it enters nothing."""
    tampered(address, "UPDATE words_entered SET upto = 3")
    assert misled(kept) == f"{FOURTH} is entered under {f'parent {UUID(int=1)}'!r}, and must not be"
    tampered(address, "UPDATE words_entered SET upto = 11")
    assert misled(kept).startswith(f"record 7 of journal 'council', packet {UUID(int=7)}, is not entered")


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


def test_a_packet_whose_id_is_none_is_named_as_it_stands(kept: PacketStore, address: str) -> None:
    """Mutation: read as an id it ends verify in an error of the council's own."""
    odd = "z" * 36
    tampered(
        address,
        f"UPDATE packet_store SET packet_id = '{odd}' WHERE packet_id = '{USERS.split()[1]}'",
        "DELETE FROM packet_words WHERE word = 'tag a' AND packet > 6",
    )
    assert misled(kept) == f"packet {odd} is not entered under 'tag a': it is hidden there"


@pytest.mark.parametrize("column", ["tags", "parent_ids"])
def test_a_list_that_is_none_is_named(kept: PacketStore, address: str, column: str) -> None:
    """Mutation: all that is said is that the store is damaged."""
    tampered(address, f"UPDATE packet_store SET {column} = '[' WHERE packet_id = '{USERS.split()[1]}'")
    assert misled(kept) == f"the tags or parents of {USERS} are no list"


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
