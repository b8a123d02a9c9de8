"""Stores that were damaged, by hand or by a disk: each command says so in words, and none fails by itself."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from council.agents.mind import Case, Opinion, Ruling, ShownBallot
from council.api.client import Council
from council.config.settings import SeatConfig
from council.journal.store import PacketStore
from council.protocol.errors import StoreCorrupt

from .conftest import Cli

NAME = "council"
EXPORT = "export.jsonl"  # what the intact store has, beside it
DAMAGED = 1
# Done, damaged, a proposal that can't be found, one that waits for a human, a store that can't be used.
CODES = {0, DAMAGED, 2, 3, 4}
# Wrong types, none at all, empty, of another length, no time, no list, what a terminal obeys, far too long.
VALUES = [
    *(None, "", b"", 7, -1, 2**63 - 1, 1.5, "abc", b"abc", bytes(32), "a" * 36, "a" * 27),
    *("2026-02-30T00:00:00.000000Z", "0001-01-01T00:00:00.0+14:00", "[" * 5_000, '["abc", 7, null]'),
    *("\N{RIGHT-TO-LEFT OVERRIDE}\x1b[31m[red]", "x" * 2**17),
]
NO_TEXT = ["ff80fe41", "eda080", "00ff"]  # not UTF-8, half a character, with a NUL
COLUMNS = {
    "packet_store": (
        "packet_id packet_type timestamp routing provenance thread_id parent_ids tags ttl content content_hash "
        "journal position epoch previous_hash row_hash sequence"
    ),
    "epochs": "journal epoch begun_at by",
    "packet_words": "word moment packet",
    "words_entered": "upto",
    "council_version": "version_num",
}
ROWS = {"packet_store": "sequence = 4", "packet_words": "packet = 4 AND word LIKE 'type%'"}
PLACES = [(table, column) for table, names in COLUMNS.items() for column in names.split()]
# When an epoch was begun, and by whom, is in no hash: another text or time is not found.
UNHASHED = {("epochs", "begun_at"), ("epochs", "by")}
# Every command on every damage takes minutes. In turn, a column meets every fifth value, a value every fifth column,
# and each damage meets verify and one other command. In make test-all, a column meets every value, and each damage
# meets verify and every third other command.
THIRD, FIFTH = 3, 5
WHOLE = pytest.mark.parametrize(
    "whole", [pytest.param(False, id="in turn"), pytest.param(True, id="all", marks=pytest.mark.long)]
)


class Chair:
    """Prime, that has a human asked."""

    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("chair agrees")

    async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        return Ruling("human" if "human" in case.summary else "confirm", "as it says", confidence=0.9)


async def agrees(case: Case) -> Opinion:
    return Opinion.yes("fine")


def seats() -> list[SeatConfig]:
    minds = {"prime": Chair, "lite": agrees, "codemind": agrees}
    return [SeatConfig(name=name, mind=mind) for name, mind in minds.items()]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store, and the id of a proposal that was decided in it."""
    folder = tmp_path_factory.mktemp("lived")
    path = folder / "s.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        with Council.inline(name=NAME, seats=seats(), store=str(path)) as council:
            first = council.propose("Rotate the key")
            council.propose("Rotate it again", risk="high", supersedes=first.proposal_id)
            council.propose("Ask a human", risk="high")
    with PacketStore.open(str(path), read_only=True) as store, (folder / EXPORT).open("wb") as stream:
        store.export(stream)
    return path, first.proposal_id


def loosen(path: Path) -> None:
    """Takes away what keeps the rows of a store: types, checks and triggers."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("PRAGMA writable_schema = ON")
        for name, sql in connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
        ).fetchall():
            loose = re.sub(
                r'(?m)^(\s*"?\w+"?) (TEXT|INTEGER|BLOB|VARCHAR\(32\))(?! (PRIMARY|GENERATED))', r"\1", sql
            )
            loose = re.sub("(?<!IS )NOT NULL", "", loose)
            loose = loose.replace(") STRICT, ", ") ").replace(") STRICT", ")")
            connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (loose, name))
        connection.execute("PRAGMA writable_schema = RESET")


@pytest.fixture(scope="module")
def loose(lived: tuple[Path, str]) -> Path:
    """The same store, in which anything may be written anywhere."""
    path = lived[0].with_name("loose.db")
    shutil.copy(lived[0], path)
    loosen(path)
    return path


def commands(path: Path, proposal: str, intact: Path) -> list[list[str]]:
    url = ["--url", str(path)]
    journal = [*url, "--name", NAME]
    return [
        ["log", *journal],
        ["log", "--json", "--type", "decision", "--seat", "lite", "--since", "2000-01-01", *journal],
        ["show", proposal[:8], *journal],
        ["show", "#4", "--json", *journal],
        ["replay", *journal],
        ["verify", *journal],
        ["checkpoint", "checkpoint", *journal],
        ["store", "info", *url],
        ["store", "export", "export", *url],
        ["prove", proposal, "proof", *journal],
        # Last, for they write.
        ["store", "import", str(intact), *url],
        ["store", "gc", *url],
    ]


def told(
    cli: Cli, path: Path, lived: tuple[Path, str], damage: object, turn: int, whole: bool
) -> dict[str, int]:
    """The exit codes of verify and of the commands whose turn it is. Each must be documented."""
    codes = {}
    given = commands(path, lived[1], lived[0].with_name(EXPORT))
    others = [command for command in given if command[0] != "verify"]
    chosen = others[turn % THIRD :: THIRD] if whole else [others[turn % len(others)]]
    given = [command for command in given if command not in others] + chosen
    for command in given:
        said = cli(*command)
        assert said.code in CODES, (damage, command, said)
        assert "Traceback" not in said.err, (damage, command, said)
        codes[" ".join(command[:2]) if command[0] == "store" else command[0]] = said.code
    return codes


@WHOLE
@pytest.mark.parametrize(("table", "column"), PLACES)
def test_any_value_in_any_column_is_told(
    cli: Cli, home: Path, lived: tuple[Path, str], loose: Path, table: str, column: str, whole: bool
) -> None:
    """Mutation: an id that is no UUID, a time that is none and text that is not UTF-8 end a command with 70."""
    path = home / "s.db"
    tried = 0
    values = [*(("?", (each,)) for each in VALUES), *((f"CAST(x'{each}' AS TEXT)", ()) for each in NO_TEXT)]
    for turn, (value, bound) in enumerate(values, PLACES.index((table, column))):
        if turn % FIFTH and not whole:
            continue
        shutil.copy(loose, path)
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript("PRAGMA ignore_check_constraints = ON; PRAGMA synchronous = OFF")
            row = f'{ROWS.get(table, "1")} AND "{column}" IS NOT {value}'
            try:
                found = connection.execute(f'UPDATE {table} SET "{column}" = {value} WHERE {row}', 2 * bound)
            except sqlite3.Error:
                continue  # what a key can't be: SQLite itself keeps these
            connection.commit()
            if not found.rowcount:
                continue  # it was so before
        tried += 1
        codes = told(cli, path, lived, (table, column, value, bound), turn, whole)
        found = codes["verify"] == DAMAGED
        assert found or (table, column) in UNHASHED, (table, column, value, bound)
        # It is decided, and may be proved where it is not its decision that is damaged: nothing else is true.
        assert codes.get("prove", 0) in ((0, DAMAGED, 4) if found else (0,)), (table, column, value, bound)
    assert tried


@pytest.mark.parametrize("part", ["base", "more"])
@pytest.mark.parametrize("column", ["journal", "position", "part", "content"])
def test_a_snapshot_that_is_none_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, home: Path, lived: tuple[Path, str], loose: Path, column: str, part: str
) -> None:
    """Mutation: a start takes the length of a number, or compares a text with a position."""
    for number, value in enumerate((7, "abc", b"abc", "x" * 2**17)):
        path = home / f"{number}.db"
        shutil.copy(loose, path)
        shutil.copytree(lived[0].with_name("state"), home / f"{number}")
        monkeypatch.setenv("XDG_STATE_HOME", str(home / f"{number}"))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute(f"UPDATE snapshots SET {column} = ? WHERE part = ?", (value, part))
            connection.commit()
        with Council.inline(name=NAME, seats=seats(), store=str(path)) as council:
            assert council.decision(lived[1]).outcome == "approved"


@pytest.mark.parametrize("epoch", ["abc", b"abc", 1.5])
def test_a_start_and_an_import_tell_an_epoch_that_is_no_number(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, home: Path, lived: tuple[Path, str], loose: Path, epoch: object
) -> None:
    """Mutation: both add one to it."""
    path = home / "s.db"
    shutil.copy(loose, path)
    shutil.copytree(lived[0].with_name("state"), home / "state")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE epochs SET epoch = ?", (epoch,))
        connection.commit()
    said = cli("store", "import", str(lived[0].with_name(EXPORT)), "--url", str(path))
    assert said.code == DAMAGED
    assert f"the newest epoch of journal 'council' is '{epoch}'" in said.err.replace('"', "'")
    with pytest.raises(StoreCorrupt, match="the newest epoch of journal"):
        Council.inline(name=NAME, seats=seats(), store=str(path))


@WHOLE
@pytest.mark.parametrize("place", ["anywhere", "schema"])
def test_any_byte_is_told(cli: Cli, home: Path, lived: tuple[Path, str], place: str, whole: bool) -> None:
    """Mutation: SQLite quotes a byte of its schema that is no text, and the driver fails to read what it says."""
    chance = random.Random(7)
    intact = lived[0].read_bytes()
    schema = [each.start() for each in re.finditer(b"CREATE ", intact)]
    for turn in range(150 if whole else 22):  # each of the eleven that take turns twice or more
        at = (
            chance.randrange(len(intact))
            if place == "anywhere"
            else chance.choice(schema) + chance.randrange(300)
        )
        changed = bytearray(intact)
        changed[at] ^= chance.randrange(1, 256)
        path = home / "s.db"
        path.write_bytes(changed)
        told(cli, path, lived, (at, changed[at]), turn, whole)


@pytest.mark.parametrize(("column", "value"), [("packet_id", "abc"), ("timestamp", "yesterday")])
def test_what_is_no_id_and_no_time_is_named(
    cli: Cli, lived: tuple[Path, str], loose: Path, home: Path, column: str, value: str
) -> None:
    path = home / "s.db"
    shutil.copy(loose, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE packet_store SET {column} = ? WHERE position = 4", (value,))
        connection.commit()
    journal = ["--url", str(path), "--name", NAME]
    intact = ["--url", str(lived[0]), "--name", NAME]
    why = f"record 4 is damaged: its column {column} does not say what its content says; run council verify"
    for command in (["log"], ["show", lived[1], "--json"], ["show", "#4", "--json"], ["replay"]):
        said = cli(*command, *journal)
        assert said.code == DAMAGED
        assert why in said.out + said.err
        assert command != ["log"] or len(said.out.splitlines()) == len(cli("log", *intact).out.splitlines())
    said = cli("verify", *journal)
    assert said.code == DAMAGED
    assert f"record 4 is the first bad one: its column {column} does not say" in said.err


@pytest.mark.parametrize("ttl", ["x" * 27, "", 7, "2026-11-23"])
def test_an_import_names_the_packet_whose_ttl_is_none(
    cli: Cli, lived: tuple[Path, str], loose: Path, home: Path, ttl: object
) -> None:
    """Mutation: ended with 70, for a text that is no time and for a number."""
    path = home / "s.db"
    shutil.copy(loose, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("UPDATE packet_store SET ttl = ? WHERE position = 2", (ttl,))
        connection.execute("DELETE FROM packet_store WHERE position > 8")
        connection.commit()
        damaged = connection.execute("SELECT packet_id FROM packet_store WHERE position = 2").fetchone()[0]
    said = cli("store", "import", str(lived[0].with_name(EXPORT)), "--url", str(path))
    assert said.code == DAMAGED
    assert f"the ttl of packet {damaged} is damaged" in said.err
    with PacketStore.open(str(path)) as store, pytest.raises(StoreCorrupt, match=damaged):
        store.lineages([UUID(damaged)])


@pytest.mark.parametrize(("column", "value"), [("packet_id", "abc"), ("thread_id", None), ("tags", "[]")])
def test_what_is_decided_is_not_called_undecided(
    cli: Cli, lived: tuple[Path, str], loose: Path, home: Path, column: str, value: str | None
) -> None:
    """Mutation: the search misses the damaged decision, and council prove says that there is none."""
    path = home / "s.db"
    shutil.copy(loose, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE packet_store SET {column} = ? WHERE position = 4", (value,))
        connection.commit()
    said = cli("prove", lived[1], "proof", "--url", str(path), "--name", NAME)
    assert said.code == DAMAGED
    assert f"record 4 is the first bad one: its column {column} does not say" in said.err


def test_an_export_names_the_record_behind_a_gap(
    cli: Cli, lived: tuple[Path, str], loose: Path, home: Path
) -> None:
    """Mutation: the others are exported, and only their import finds that one is missing."""
    path = home / "s.db"
    shutil.copy(loose, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM packet_store WHERE position = 4")
        connection.commit()
    said = cli("store", "export", "export", "--url", str(path))
    assert said.code == DAMAGED
    assert "record 5 of journal 'council': it comes right after record 3: record 4 is missing" in said.err
    assert not (home / "export").exists()


def test_a_search_that_misses_the_proposal_is_told(
    cli: Cli, lived: tuple[Path, str], loose: Path, home: Path
) -> None:
    """Mutation: council show says that the seats still deliberate, of a journal in memory."""
    path = home / "s.db"
    shutil.copy(loose, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM packet_words")
        connection.commit()
    for command in (["show", lived[1]], ["show", "#4"], ["log", "--proposal", lived[1]]):
        said = cli(*command, "--url", str(path), "--name", NAME)
        assert said.code == DAMAGED
        assert f"the proposal {lived[1]} is there, and a search for its records misses it" in said.err


def test_a_schema_that_is_no_text_is_told(cli: Cli, home: Path, lived: tuple[Path, str]) -> None:
    path = home / "s.db"
    path.write_bytes(lived[0].read_bytes().replace(b"CREATE TABLE epochs", b"CREATE TABL\xff epochs", 1))
    for command in ("verify", "log", "replay"):
        said = cli(command, "--url", str(path), "--name", NAME)
        assert said.code == DAMAGED
        assert "it is damaged: put it aside untouched, and go back to a copy" in said.err
        assert "malformed database schema" in said.err
