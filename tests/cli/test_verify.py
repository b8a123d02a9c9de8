"""``council verify``, ``checkpoint`` and ``prove`` as a shell sees them: exit codes, words, files."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from council import Council, CouncilPool
from council.config.human_keys import state_dir
from council.core.events import CoordinatorStarted
from council.core.state import Moment, Rules
from council.journal.checkpoint import Checkpoint, Signer, journal_key
from council.journal.packets import Packer
from council.journal.proof import Proof, check_proof
from council.journal.record import Record
from council.journal.store import PacketStore
from council.journal.writer import identity
from council.protocol.packet import PacketEnvelopeIn
from tests.journal.packets import append
from tests.patience import HANG_S

from .conftest import Cli

ROWS = 6


def document(out: str) -> dict[str, Any]:
    assert out.count("\n") == 1
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def whole(number: int, moment: Any) -> Any:
    packet = PacketEnvelopeIn.build(packet_type="council.fault", payload={"text": f"[red]{number}\x1b"})
    return packet.completed(UUID(int=number), moment)


@pytest.fixture
def path(home: Path) -> Path:
    """A store whose journal begins as a council's does."""
    path = home / "s.db"
    with PacketStore.open(str(path)) as store:
        epoch, head = store.begin_epoch("council", "me")
        event = CoordinatorStarted("council.77", epoch, Rules(("prime", "lite"), "prime"))
        first = Packer("council.77", lambda ids: {}).packed(Record(Moment(0.0, 1.79e9, 1), event))
        head, _ = store.append_rows("council", epoch, [first], head)
        more = [whole(number, first.timestamp) for number in range(2, ROWS + 1)]
        append(store, "council", epoch, more, head)
        store.begin_epoch("empty", "me")
    return path


def tamper(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for name in ("packet_store_frozen", "packet_store_kept"):
        connection.execute(f"DROP TRIGGER IF EXISTS {name}")
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_a_journal_that_holds(cli: Cli, path: Path) -> None:
    said = cli("verify", "--url", str(path))
    assert said.code == 0, said
    assert f"journal council in {path} holds: 6 records, epoch 1" in said.out
    assert "not checked without a checkpoint" in said.out
    assert said.err == "", "a bar in a log"
    found = document(cli("verify", "--url", str(path), "--json").out)
    assert found["exit_code"] == 0
    assert (found["verified"]["rows"], found["verified"]["checkpoint"]) == (ROWS, None)
    with PacketStore.open(str(path), read_only=True) as store:
        assert found["verified"]["row_hash"] == store.records("council")[-1].row_hash.hex()


def test_the_first_bad_record_is_named_and_exits_1(cli: Cli, path: Path) -> None:
    tamper(path, "UPDATE packet_store SET packet_type = 'x' WHERE position = 4")
    said = cli("verify", "--url", str(path))
    assert (said.code, said.out) == (1, "")
    assert "record 4 is the first bad one: its column packet_type" in said.err
    assert "go back to a copy" in said.err
    error = document(cli("verify", "--url", str(path), "--json").out)
    assert (error["exit_code"], error["error"]["code"]) == (1, "journal_corrupt")
    assert error["error"]["facts"]["position"] == 4
    for command in (("checkpoint", "c.json"), ("prove", "2", "p.json")):
        assert cli(*command, "--url", str(path)).code == 1
        assert not Path(command[-1]).exists()


def test_searches_that_mislead_exit_1(cli: Cli, path: Path) -> None:
    """Mutation: log and show miss what somebody hid from them, and verify says that all is well."""
    with PacketStore.open(str(path)) as store:
        store.enter_words()
    hidden = "packet = 4 AND word = 'type council.fault'"
    tamper(path, "DROP TRIGGER packet_words_kept", f"DELETE FROM packet_words WHERE {hidden}")
    said = cli("verify", "--url", str(path))
    assert (said.code, said.out) == (1, "")
    told = " ".join(said.err.split())
    assert "record 4 of journal 'council'" in told
    assert (
        "is not entered under each of its words: it is hidden there. To rebuild its search words, end the"
        in told
    )
    error = document(cli("verify", "--url", str(path), "--json").out)
    assert (error["exit_code"], error["error"]["code"]) == (1, "store_corrupt")
    assert error["error"]["facts"]["what"] in told
    # The journal holds, whatever somebody has done to the searches of the store.
    assert cli("checkpoint", "c.json", "--url", str(path)).code == 0
    assert cli("prove", "#2", "p.json", "--url", str(path)).code == 0
    assert cli("store", "export", "all.jsonl", "--url", str(path)).code == 0
    assert cli("store", "import", "all.jsonl", "--url", "anew.db").code == 0
    assert cli("verify", "--url", "anew.db").code == 0


def test_a_checkpoint_that_is_kept_shows_what_was_cut(cli: Cli, path: Path, home: Path) -> None:
    said = cli("checkpoint", "c.json", "--url", str(path))
    assert said.code == 0, said
    key = Signer(journal_key("council")).public
    assert key in said.out
    made = Checkpoint.read(home / "c.json")
    assert (made.key, made.position, made.council_id, made.epoch) == (key, ROWS, "council.77", 1)
    assert stat.S_IMODE((home / "c.json").stat().st_mode) == 0o600
    said = cli("verify", "--checkpoint", "c.json", "--url", str(path))
    assert said.code == 0, said
    assert "at record 6; 0 records after it" in said.out
    assert f"signed by the expected key {key}" in said.out
    tamper(path, "DELETE FROM packet_store WHERE position > 4")
    assert cli("verify", "--url", str(path)).code == 0
    said = cli("verify", "--checkpoint", "c.json", "--url", str(path))
    assert said.code == 1
    assert "record 5 is the first bad one: it is missing" in said.err


def test_whose_key_it_is(cli: Cli, path: Path, home: Path) -> None:
    """Given, or this user's own; else it is said that nobody vouches for it."""
    url = ("--url", str(path))
    assert cli("checkpoint", "c.json", *url).code == 0
    key = Signer(journal_key("council")).public
    found = document(cli("verify", "--checkpoint", "c.json", "--json", *url).out)["verified"]
    assert (found["key_known"], found["after_checkpoint"]) == (True, 0)
    (home / "key").write_text(f"{key.upper()}\n", encoding="ascii")
    for given in (key, "key"):
        assert cli("verify", "--checkpoint", "c.json", "--key", given, *url).code == 0
    other = Signer(b"o" * 32).public
    said = cli("verify", "--checkpoint", "c.json", "--key", other, *url)
    assert (said.code, "forged" in said.err) == (1, True)
    (state_dir() / "journals" / "council.key").unlink()
    said = cli("verify", "--checkpoint", "c.json", *url)
    assert (said.code, "nothing here says whose that is" in said.out) == (0, True)
    (state_dir() / "journals" / "council.key").write_bytes(b"o" * 32)
    (state_dir() / "journals" / "council.key").chmod(0o600)
    assert cli("verify", "--checkpoint", "c.json", *url).code == 1
    (home / "c.json").write_text("{}", encoding="ascii")
    said = cli("verify", "--checkpoint", "c.json", "--json", *url)
    assert (said.code, document(said.out)["error"]["code"]) == (1, "checkpoint_refused")


def test_a_packet_is_proved_to_an_outsider(
    cli: Cli, path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("prove", str(UUID(int=3)), "p.json", "--url", str(path)).code == 0
    assert Proof.read(home / "p.json").position == 3
    key = Signer(journal_key("council")).public
    path.unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "elsewhere"))
    said = cli("verify", "--proof", "p.json", "--key", key)
    assert said.code == 0, said
    assert f"packet {UUID(int=3)}, council.fault of " in said.out
    assert "is record 3 of journal council of council 'council' (id 77)" in said.out
    found = document(cli("verify", "--proof", "p.json", "--json").out)["proof"]
    assert (found["key_known"], found["packet"]["payload"]) == (False, {"text": "[red]3\x1b"})
    assert not (home / "elsewhere").exists()
    assert cli("verify", "--proof", "p.json", "--key", "0" * 64).code == 1
    assert cli("verify", "--proof", "p.json", "--journal", "other").code == 1
    altered = (home / "p.json").read_text(encoding="utf-8").replace("[red]3", "[red]4")
    (home / "p.json").write_text(altered, encoding="utf-8")
    said = cli("verify", "--proof", "p.json")
    assert (said.code, "the proof does not hold" in said.err) == (1, True)


def test_a_decision_is_proved_by_its_proposal(cli: Cli, home: Path) -> None:
    store = str(home / "own.db")
    with Council.inline(name="own", store=store) as council:
        decision = council.propose("Rotate the staging key")
    asked = ("--url", store, "--name", "own")
    assert cli("prove", decision.proposal_id, "p.json", *asked).code == 0
    found = document(cli("verify", "--proof", "p.json", "--json").out)["proof"]
    (kept,) = found["packet"]["payload"]["decisions"]
    assert (found["position"], kept["outcome"]) == (decision.position, decision.outcome)
    assert kept["proposal_id"] == decision.proposal_id
    said = cli("verify", "--proof", "p.json")
    assert f"it is a record of ballot on {decision.proposal_id}: " in said.out
    assert f" → {decision.outcome}, {decision.reason}" in said.out
    assert cli("prove", "1", "p.json", *asked).code == 0
    assert "it is a record of start: " in cli("verify", "--proof", "p.json").out


def test_a_checkpoint_of_another_council_is_told_as_that(cli: Cli, home: Path) -> None:
    """Mutation: another journal of the same name, and shorter, is one whose end was cut off."""
    for file, proposals in (("long.db", 3), ("short.db", 1)):
        with Council.inline(store=str(home / file)) as council:
            for _ in range(proposals):
                council.propose("x")
    assert cli("checkpoint", "c.json", "--url", "long.db").code == 0
    made = Checkpoint.read(home / "c.json")
    with PacketStore.open(str(home / "short.db"), read_only=True) as store:
        own = identity(store, "council")
    for command in (("verify",), ("prove", "1", "p.json")):
        said = cli(*command, "--checkpoint", "c.json", "--url", "short.db")
        assert said.code == 1
        flat = " ".join(said.err.split())
        assert f"is of the council '{made.council_id}', and '{own}' is to be verified" in flat


def test_what_is_wrong_with_a_first_record_is_told_before_whose_it_is(cli: Cli, path: Path) -> None:
    assert cli("checkpoint", "c.json", "--url", str(path)).code == 0
    tamper(path, "UPDATE packet_store SET content = x'7b7d' WHERE position = 1")
    said = cli("verify", "--checkpoint", "c.json", "--url", str(path))
    assert (said.code, "record 1 is the first bad one" in " ".join(said.err.split())) == (1, True), said


def test_a_pools_part_is_found_by_the_pools_store(cli: Cli, home: Path) -> None:
    """Its journal is in a file of its own, beside the one that the pool was given."""
    store = str(home / "s.db")
    with CouncilPool.inline(2, store=store, name="checks") as pool:
        drafted = pool.draft("x", key="k")
        pool.propose(drafted)
        name = pool.council(drafted.msg_id).name
    for command in (
        ("log",),
        ("show", drafted.msg_id),
        ("verify",),
        ("checkpoint", "c.json"),
        ("prove", drafted.msg_id, "p.json"),
        ("replay",),
        ("replay", "--what-if", "quorum=3"),
    ):
        said = cli(*command, "--url", store, "--name", name)
        assert said.code == 0, (command, said)
    assert Checkpoint.read(home / "c.json").journal == name
    said = cli("verify", "--url", store, "--name", "checks.7")
    assert "nothing is recorded yet at" in " ".join(said.err.split())
    (home / "council.toml").write_text(f'store = "{store}"\n', encoding="utf-8")
    assert cli("verify", "--name", name).code == 0


def test_a_journal_in_the_store_itself_goes_before_a_pools_part(cli: Cli, home: Path) -> None:
    """Mutation: another file than the one that was named is called sound."""
    store = str(home / "s.db")
    with Council.inline(store=store, name="checks.0") as council:
        own = council.status()["council_id"]
        council.propose("x")
    with CouncilPool.inline(2, store=store, name="checks") as pool:
        pool.propose("y")
    said = cli("checkpoint", "c.json", "--url", store, "--name", "checks.0")
    assert said.code == 0, said
    assert Checkpoint.read(home / "c.json").council_id == own


def test_a_proof_under_a_checkpoint_that_is_given(cli: Cli, path: Path, home: Path) -> None:
    assert cli("checkpoint", "c.json", "--url", str(path)).code == 0
    said = cli("prove", "2", "p.json", "--checkpoint", "c.json", "--url", str(path), "--json")
    assert said.code == 0, said
    assert document(said.out)["proved"]["position"] == 2
    assert Proof.read(home / "p.json").checkpoint == Checkpoint.read(home / "c.json")


def test_to_the_output(path: Path, home: Path) -> None:
    """What is written there can be read from a file again."""
    command = [sys.executable, "-m", "council.cli"]
    for name, arguments in (("council-checkpoint", ("checkpoint",)), ("council-proof", ("prove", "2"))):
        done = subprocess.run(
            [*command, *arguments, "-", "--url", str(path)], capture_output=True, timeout=HANG_S, check=True
        )
        (home / name).write_bytes(done.stdout)
    Checkpoint.read(home / "council-checkpoint").check()
    check_proof(Proof.read(home / "council-proof"))


def test_the_store_is_not_written_over(cli: Cli, path: Path) -> None:
    before = path.read_bytes()
    for command in (("checkpoint",), ("prove", "2")):
        said = cli(*command, str(path), "--url", str(path))
        assert (said.code, "is the store itself" in said.err) == (2, True)
    assert path.read_bytes() == before


def test_a_bar_on_a_terminal(path: Path) -> None:
    """Where somebody watches, on the terminal alone, and gone at the end."""
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-m", "council.cli", "verify", "--url", str(path)]
        env = {**os.environ, "TERM": "xterm"}
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=theirs, timeout=HANG_S, check=True, env=env
        )
        os.close(theirs)
        theirs = -1
        shown = b""
        while more := _read(ours):
            shown += more
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    assert b"6/6" in shown
    assert done.stdout.startswith(b"journal council in ")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # nobody holds the other end any more
        return b""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("verify", "--key", "0" * 64), "--key is for"),
        (("verify", "--proof", "p.json", "--checkpoint", "c.json"), "leave --checkpoint and --url out"),
        (("verify", "--proof", "p.json", "--key", "none"), "64 hex digits"),
        (("verify", "--journal", "other"), "has no journal 'other'"),
        (("checkpoint", "-", "--json"), "both want the output"),
        (("checkpoint", "c.json", "--journal", "empty"), "nothing to sign"),
        (("prove", "x", "p.json"), "is not the id of a proposal: expected its first 4 characters"),
        (("prove", "0", "p.json"), "is not the id of a proposal: expected its first 4 characters"),
        (("prove", "7", "p.json"), "holds no packet 7"),
        (("prove", "2", "p.json", "--key", "0" * 64), "--key is for a --checkpoint"),
    ],
)
def test_wrong_usage_exits_2(cli: Cli, path: Path, arguments: tuple[str, ...], told: str) -> None:
    where = () if "--proof" in arguments else ("--url", str(path))
    said = cli(*arguments, *where)
    assert (said.code, told in " ".join(said.err.split())) == (2, True), said


def test_what_cannot_be_reached_exits_4(cli: Cli, path: Path, home: Path) -> None:
    assert cli("verify", "--url", str(home / "none.db")).code == 4
    assert cli("verify", "--checkpoint", "none.json", "--url", str(path)).code == 4
    assert cli("checkpoint", "no/such/c.json", "--url", str(path)).code == 4
