"""``council store`` as a shell sees it: exit codes, documents, files."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from council.config.human_keys import state_dir
from council.journal.schema import REVISIONS
from council.journal.store import PacketStore
from council.protocol.packet import PacketEnvelopeIn
from tests.journal.packets import append
from tests.patience import HANG_S

from .conftest import Cli


def filled(path: Path) -> Path:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    with PacketStore.open(str(path)) as store:
        lapsed = PacketEnvelopeIn.build(packet_type="event", payload={}, ttl=long_ago + timedelta(hours=1))
        kept = PacketEnvelopeIn.build(packet_type="event", payload={"text": "ü"})
        assert {each.status for each in store.write([lapsed, kept], long_ago)} == {"ok"}
        epoch, head = store.begin_epoch("council", "me")
        own = PacketEnvelopeIn.build(packet_type="decision", payload={})
        append(store, "council", epoch, [own.completed(UUID(int=1), long_ago)], head)
    return path


def document(out: str) -> dict[str, Any]:
    assert out.count("\n") == 1
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def test_the_default_is_a_file_in_the_state_folder(cli: Cli) -> None:
    assert cli("store", "info").code == 4
    assert not state_dir().exists()
    said = cli("store", "migrate", "--json")
    assert said.code == 0, said
    path = state_dir() / "store.db"
    assert document(said.out)["migrated"] == {"where": str(path), "from": None, "to": REVISIONS[-1]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert "already" in cli("store", "migrate").out


def test_the_setting_names_another(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(home / "other.db")
    (home / "council.toml").write_text(f'store = "{path}"\n', encoding="utf-8")
    assert document(cli("store", "info", "--json").out)["store"]["where"] == str(path)
    another = filled(home / "another.db")
    monkeypatch.setenv("COUNCIL_STORE", str(another))
    assert document(cli("store", "info", "--json").out)["store"]["where"] == str(another)
    assert document(cli("store", "info", "--json", "--url", str(path)).out)["store"]["where"] == str(path)


@pytest.mark.parametrize(
    "address",
    ["store.db", "postgresql://me:secret@host/x", "postgresql://host/x?password=secret", "mysql://x", ""],
)
def test_a_setting_that_cannot_hold_is_a_fault_of_the_configuration(
    cli: Cli, home: Path, address: str
) -> None:
    (home / "council.toml").write_text(f'store = "{address}"\n', encoding="utf-8")
    said = cli("store", "info")
    assert said.code == 2
    assert "key store" in said.err
    assert "me:secret" not in said.err


def test_info_shows_packets_journals_and_warnings(cli: Cli, home: Path) -> None:
    path = filled(home / "s.db")
    said = cli("store", "info", "--url", str(path))
    assert said.code == 0
    for word in ("sqlite", "3, 2 of users, 1 with a ttl", "journal council", "1 record, epoch 1", "by me"):
        assert word in said.out, said.out
    found = document(cli("store", "info", "--url", str(path), "--json").out)["store"]
    assert (found["packets"], found["outside"], found["journals"][0]["position"]) == (3, 2, 1)
    assert len(found["journals"][0]["row_hash"]) == 64


def test_gc_removes_what_has_expired(cli: Cli, home: Path) -> None:
    path = filled(home / "s.db")
    assert document(cli("store", "gc", "--url", str(path), "--json").out)["removed"] == 1
    assert "0 packets removed" in cli("store", "gc", "--url", str(path)).out
    assert cli("store", "gc", "--url", str(home / "none.db")).code == 4
    assert not (home / "none.db").exists()


def test_export_and_import_by_file(cli: Cli, home: Path) -> None:
    path = filled(home / "s.db")
    said = cli("store", "export", "out.jsonl", "--url", str(path), "--json")
    assert document(said.out) == {"exported": 3, "file": "out.jsonl", "exit_code": 0}
    assert stat.S_IMODE((home / "out.jsonl").stat().st_mode) == 0o600
    new = str(home / "new.db")
    said = cli("store", "import", "out.jsonl", "--url", new, "--json")
    assert document(said.out)["imported"] == {"packets": 3, "there_already": 0, "orphans": 0}
    assert "0 packets imported, 3 there already" in cli("store", "import", "out.jsonl", "--url", new).out


def test_export_and_import_by_pipe(home: Path) -> None:
    path = filled(home / "s.db")
    command = [sys.executable, "-m", "council.cli", "store"]
    out = subprocess.run(
        [*command, "export", "-", "--url", str(path)], capture_output=True, timeout=HANG_S, check=True
    ).stdout
    assert len(out.splitlines()) == 6
    done = subprocess.run(
        [*command, "import", "-", "--url", str(home / "new.db")],
        input=out,
        capture_output=True,
        timeout=HANG_S,
        check=True,
    )
    assert done.stdout == b"3 packets imported, 0 there already\n"


def test_a_cut_file_exits_2_and_says_what_to_do(cli: Cli, home: Path) -> None:
    path = filled(home / "s.db")
    cli("store", "export", "out.jsonl", "--url", str(path))
    lines = (home / "out.jsonl").read_bytes().splitlines(keepends=True)
    (home / "cut.jsonl").write_bytes(b"".join(lines[:-2]))
    said = cli("store", "import", "cut.jsonl", "--url", str(home / "new.db"), "--json")
    assert said.code == 2
    assert document(said.out)["error"]["code"] == "import_refused"


def test_what_cannot_be_written_leaves_no_half_file(cli: Cli, home: Path) -> None:
    path = filled(home / "s.db")
    before = sorted(os.listdir(home))
    assert cli("store", "export", "no/such/out.jsonl", "--url", str(path)).code == 2
    assert cli("store", "export", "-", "--json", "--url", str(path)).code == 2
    assert cli("store", "import", "none.jsonl", "--url", str(path)).code == 2
    assert [name for name in sorted(os.listdir(home)) if "-" not in name] == [
        n for n in before if "-" not in n
    ]


def test_what_is_no_store_exits_4(cli: Cli, home: Path) -> None:
    (home / "notes.txt").write_text("not a database\n" * 100, encoding="utf-8")
    said = cli("store", "info", "--url", str(home / "notes.txt"), "--json")
    assert said.code == 4
    assert document(said.out)["error"]["code"] == "store_foreign"
    assert cli("store", "info", "--url", "mysql://x/y").code == 2


@pytest.mark.parametrize("name", ["s.db", "s.db-wal", "link"])
def test_an_export_does_not_replace_its_own_store(cli: Cli, home: Path, name: str) -> None:
    """Mutation: the packets are in the file, and the file in the store's place."""
    path = filled(home / "s.db")
    (home / "link").symlink_to(path)
    with PacketStore.open(str(path)):  # holds the log of writes open
        said = cli("store", "export", name, "--url", str(path))
        assert said.code == 2
        assert "the store itself" in said.err
    assert document(cli("store", "info", "--url", str(path), "--json").out)["store"]["packets"] == 3


def test_an_export_replaces_files_alone(cli: Cli, home: Path) -> None:
    """Mutation: as root, ``/dev/stdout`` itself became a file."""
    path = filled(home / "s.db")
    os.mkfifo(home / "pipe")
    (home / "to_pipe").symlink_to("pipe")
    for name in ("pipe", "to_pipe", "."):
        said = cli("store", "export", name, "--url", str(path))
        assert said.code == 2
        assert "no file" in said.err
    assert stat.S_ISFIFO((home / "pipe").lstat().st_mode)
    (home / "there.jsonl").write_bytes(b"old")
    (home / "link").symlink_to("there.jsonl")
    assert cli("store", "export", "link", "--url", str(path)).code == 0
    assert (home / "link").is_symlink()
    assert len((home / "there.jsonl").read_bytes().splitlines()) == 6


def test_what_cannot_be_read_or_written_to_its_end_is_no_fault_of_the_councils(home: Path) -> None:
    path = filled(home / "s.db")
    command = [sys.executable, "-m", "council.cli", "store"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*command, "export", "-", "--url", str(path)],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=HANG_S,
            check=False,
        )
    assert done.returncode == 74
    assert b"can't be written: No space left" in done.stderr
    done = subprocess.run(
        [*command, "import", "/proc/self/mem", "--url", str(path)],
        capture_output=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 2
    assert b"can't be read to its end" in done.stderr
