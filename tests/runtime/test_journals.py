"""Which journal a configuration has: where it is, whose it is, and that no launch harms another."""

from __future__ import annotations

from pathlib import Path

import pytest

from council.api.inline import start
from council.config.human_keys import state_dir
from council.config.settings import MEMORY, CouncilConfig
from council.journal.memory import MemoryJournal
from council.journal.store import PacketStore
from council.journal.writer import DurableJournal
from council.protocol.errors import JournalHeld, OperatorError, Refused
from council.runtime.journals import (
    checkpoint_file,
    council_id_of,
    journal_key,
    open_journal,
    store_address,
    with_store_paths,
)
from tests.journal.journals import begun
from tests.journal.writing import write
from tests.runtime.harness import COUNCIL_ID, run

KEY = bytes(32)


def config(store: str | None = None, **more: str) -> CouncilConfig:
    return CouncilConfig(store=store, name="test", **more)


def test_a_store_is_in_the_state_folder_or_where_it_is_said(tmp_path: Path) -> None:
    assert store_address(config()) == str(state_dir() / "store.db")
    assert not state_dir().exists()
    store_address(config(), make=True)
    assert state_dir().stat().st_mode & 0o777 == 0o700
    for said in (str(tmp_path / "a.db"), "postgresql://me@host/base"):
        assert store_address(config(said)) == said


def test_a_state_folder_that_can_not_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(OperatorError, match="set XDG_STATE_HOME to a folder of yours, or set store"):
        store_address(config(), make=True)


def test_a_settled_configuration_names_both_and_says_the_same_again(tmp_path: Path) -> None:
    once = with_store_paths(config())
    assert once.store == str(state_dir() / "store.db")
    assert once.checkpoint == str(checkpoint_file(config(), once.store))
    assert with_store_paths(once) == once
    assert with_store_paths(config(MEMORY)) == config(MEMORY)
    own = config(str(tmp_path / "a.db"), checkpoint="~/a.checkpoint")
    assert checkpoint_file(own, "x") == Path("~/a.checkpoint").expanduser()
    assert checkpoint_file(config(), "/one") != checkpoint_file(config(), "/other")
    spelled = {
        checkpoint_file(config(), each) for each in ("~/a.db", "sqlite:///~/a.db", f"{Path.home()}/a.db")
    }
    assert len(spelled) == 1
    servers = ("postgresql://u@h/d", "postgres://u@h/d", "postgresql+psycopg://u@h/d")
    assert len({checkpoint_file(config(), each) for each in servers}) == 1


def test_an_id_is_the_journals_own_from_its_first_record_on(tmp_path: Path) -> None:
    here = config(str(tmp_path / "a.db"))
    assert council_id_of(here, "new.1") == "new.1"
    assert not (tmp_path / "a.db").exists(), "asking makes nothing"
    assert council_id_of(config(MEMORY), "new.1") == "new.1"
    hand = begun()
    journal = open_journal(here, COUNCIL_ID, KEY)
    assert council_id_of(here, "new.1") == "new.1", "an epoch alone says nothing"
    write(journal, hand.records)  # type: ignore[arg-type]
    assert council_id_of(here, "new.1") == COUNCIL_ID
    journal.close_now()
    assert council_id_of(here, "new.1") == COUNCIL_ID


def test_in_memory_nothing_is_opened() -> None:
    assert isinstance(open_journal(config(MEMORY), "new.1", b""), MemoryJournal)
    assert not state_dir().exists()


def test_of_two_that_are_launched_at_once_one_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    """Both found an empty store, and chose an id. Mutation: the second begins an epoch, and so ends the first."""
    here = config(str(tmp_path / "a.db"))
    assert {council_id_of(here, each) for each in (COUNCIL_ID, "second.1")} == {COUNCIL_ID, "second.1"}
    hand = begun()
    hand.propose()
    first = open_journal(here, COUNCIL_ID, KEY)
    with pytest.raises(JournalHeld):
        open_journal(here, "second.1", KEY)
    write(first, hand.records[:1])  # type: ignore[arg-type]
    for takeover in (False, True):  # a coordinator that is restarted takes over from its like alone
        with pytest.raises(
            OperatorError, match=r"is of council .*, begun just now by somebody else: launch again"
        ):
            open_journal(here, "second.1", KEY, takeover=takeover)
    write(first, hand.records[1:])  # type: ignore[arg-type]
    first.close_now()
    with PacketStore.open(str(tmp_path / "a.db"), read_only=True) as store:
        assert store.info().journals[0].epoch == 1
    with pytest.raises(OperatorError, match="launch again"):
        open_journal(here, "second.1", KEY)
    again = open_journal(here, COUNCIL_ID, KEY)
    assert isinstance(again, DurableJournal)
    assert again.epoch == 2
    again.close_now()


def test_each_name_has_a_key_and_a_journal_of_its_own(tmp_path: Path) -> None:
    assert journal_key("one") == journal_key("one") != journal_key("two")
    address = str(tmp_path / "a.db")
    one = open_journal(CouncilConfig(store=address, name="one"), "one.1", journal_key("one"))
    two = open_journal(CouncilConfig(store=address, name="two"), "two.1", journal_key("two"))
    assert (one.epoch, two.epoch) == (1, 1)
    one.close_now()
    two.close_now()


def test_a_council_that_can_not_begin_lets_go_of_its_journal(tmp_path: Path) -> None:
    """Here its epochs were lost, so that a new one would be older than what stands in it. Mutation: still held."""
    here = config(str(tmp_path / "a.db"))
    council_id = council_id_of(here, COUNCIL_ID)
    hand = begun()
    hand.driver.begin(7, hand.rules, hand.now)
    hand.save()
    journal = open_journal(here, council_id, KEY)
    write(journal, hand.records)  # type: ignore[arg-type]
    journal.close_now()
    errors = []  # which hold what raised them, as a caller's own handler may
    for _ in range(2):
        with pytest.raises(Refused, match="it was replaced") as caught:
            run(start(config(str(tmp_path / "a.db"), checkpoint=str(tmp_path / "own.checkpoint"))))
        errors.append(caught.value)
