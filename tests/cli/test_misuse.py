"""What is printed for wrong command lines, files and folders: the whole line, and the exit code.

No council is up in these tests. So an exit code of 2 shows that the fault was found before anything was connected to.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from council.api.client import Council
from council.cli.operate import host_launch
from council.config.settings import COUNCIL_KEYS
from council.journal import engines
from council.kinds.text import council_text
from council.protocol.errors import JournalHeld
from tests.patience import HANG_S

from .conftest import Cli, council_of, entry

EXAMPLE = """--action shell '{"command": "ls"}'"""
# Words of pydantic, msgspec and typer, patterns, and paths inside of envelopes
FOREIGN = re.compile(
    r"Input should|String should|Value error|Expected `|\[0-9|\^\[|content\.|time_budget_s|\$\."
)

PROPOSALS: list[tuple[list[str], str]] = [
    ([], "SUMMARY is missing: what to decide, in one sentence (see council propose --help)"),
    ([""], "the summary is empty"),
    (["  \n "], "the summary is empty"),
    (["x" * 2_001], "the summary must have at most 2,000 characters; it has 2,001"),
    (["a\0b"], "the summary holds a NUL character, which databases refuse; remove it"),
    (
        ["Drop", "it"],
        "unexpected argument 'it': put a text of several words in quotes (see council propose --help)",
    ),
    (["x", "--timeout", "0"], "--timeout: must be more than 0 seconds; found 0.0"),
    (["x", "--timeout", "-1"], "--timeout: must be more than 0 seconds; found -1.0"),
    (["x", "--timeout", "1e9"], "--timeout: must be at most 86,400 seconds; found 1000000000.0"),
    (["x", "--timeout", "nan"], "--timeout: must be a finite number; found nan"),
    (["x", "--timeout", "soon"], "--timeout: must be a number; found 'soon' (see council propose --help)"),
    (["x", "--timeout"], "--timeout needs a value"),
    (
        ["x", "--risk", "hgh"],
        "--risk: 'hgh' is not one of 'low', 'med', 'high'; did you mean 'high'? (see council propose --help)",
    ),
    (
        ["x", "--wait-for", "everyone"],
        "--wait-for: 'everyone' is not one of 'decisive', 'all' (see council propose --help)",
    ),
    (["x", "--action", "shell"], f"--action needs 2 values, for example {EXAMPLE}"),
    (
        ["x", "--action", "shell", "ls"],
        "--action shell: its arguments are not JSON: Expecting value: line 1 column 1 (char 0); give a JSON object, "
        f"for example {EXAMPLE}",
    ),
    (
        ["x", "--action", "shell", '["ls"]'],
        f"--action shell: its arguments must be a JSON object, for example {EXAMPLE}",
    ),
    (["x", "--action", "", "{}"], f"--action: the name of the tool is empty; give it, for example {EXAMPLE}"),
    (
        ["x", "--action", "t" * 201, "{}"],
        "--action tool: must have at most 200 characters; it has 201",
    ),
    (["x", "--body", "@nowhere"], "--body @nowhere: can't be read: No such file or directory"),
    (["x", "--history", "nowhere"], "--history nowhere: can't be read: No such file or directory"),
    (
        ["x", "--history", "turns"],
        "--history [0].role: must be one word of 1 to 32 of a-z, 0-9, '_' and '-', beginning with a letter; found "
        "'The user'",
    ),
    (["x", "--inline=yes"], "--inline takes no value"),
    (
        ["x", "--inline", "--launch"],
        "--inline runs a council in this process: leave out --launch and --address",
    ),
    (
        ["x", "--risks", "low"],
        "there is no option --risks; did you mean --risk? (see council propose --help)",
    ),
]


@pytest.mark.parametrize(("arguments", "told"), PROPOSALS, ids=lambda each: str(each)[:40])
def test_a_wrong_proposal_is_told_before_a_council_is_looked_for(
    cli: Cli, home: Path, arguments: list[str], told: str
) -> None:
    (home / "turns").write_text('{"role": "The user", "text": "a"}', encoding="utf-8")
    said = cli("propose", *arguments)
    assert (said.code, said.out, said.err) == (2, "", f"error: {told}\n")
    assert not FOREIGN.search(said.err)


NAMES = "1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
COMMANDS: list[tuple[list[str], int, str]] = [
    (["nonsense"], 2, "there is no command 'nonsense' (see council --help)"),
    (["propos", "x"], 2, "there is no command 'propos'; did you mean 'propose'? (see council --help)"),
    (["store", "inf"], 2, "there is no command 'inf'; did you mean 'info'? (see council store --help)"),
    (["status", "--nonsense"], 2, "there is no option --nonsense (see council status --help)"),
    (["status", "x"], 2, "unexpected argument 'x' (see council status --help)"),
    (["log", "--limit", "ten"], 2, "--limit: must be a whole number; found 'ten' (see council log --help)"),
    (["watch", "--since", "-1"], 2, "--since: must be at least 0; found '-1' (see council watch --help)"),
    (
        ["log", "--since", "soon"],
        2,
        "--since: found 'soon', expected a time as in 2026-11-21T08:30 or a while ago as in 10m, 2h, 3d",
    ),
    (["estimate", ""], 2, "the summary is empty"),
    (
        ["estimate"],
        2,
        "give the proposal, in a sentence with --body and --action, or all of it with --file",
    ),
    (
        ["review", "nowhere"],
        2,
        "there is no file nowhere, and git finds no repository in {work}: fatal: not a git repository (or any of the "
        "parent directories): .git; give a patch file, or - for the standard input",
    ),
    (
        ["replay", "--what-if", "nonsense"],
        2,
        "what-if 'nonsense': expected quorum, prime, without and =VALUE",
    ),
    (
        ["init", "--print", "--base-url", "nonsense"],
        2,
        "--base-url: expected http://host/v1 or https://host/v1, without name, password and query",
    ),
    (["cluster", "check", "nowhere.yaml"], 2, "nowhere.yaml can't be read: No such file or directory"),
    (["store", "import", "nowhere"], 2, "nowhere can't be read: No such file or directory"),
    (
        ["log", "--url", "foo://x"],
        2,
        "the store's address names no store, 'foo' is not a supported engine: give a path, sqlite:///path or "
        "postgresql://user@host/database",
    ),
    (["down"], 4, "no council named 'council' is up here: there is nothing to take down"),
]


@pytest.mark.parametrize(("arguments", "code", "told"), COMMANDS, ids=lambda each: str(each)[:40])
def test_a_wrong_command_line(cli: Cli, home: Path, arguments: list[str], code: int, told: str) -> None:
    said = cli(*arguments)
    assert (said.code, said.out, said.err) == (code, "", f"error: {told.format(work=home)}\n")
    assert not FOREIGN.search(said.err)


SETTINGS: list[tuple[list[str], str]] = [
    (
        ["--config", "nowhere.toml"],
        "file nowhere.toml: can't be read: No such file or directory; expected a readable TOML file",
    ),
    (["--config", "broken.toml"], "file broken.toml: not TOML: Invalid value (at line 1, column 10)"),
    (["--config", "."], "file .: can't be read: Is a directory; expected a readable TOML file"),
    (
        ["--config", "type.toml"],
        "file type.toml: key quorum: found 'two', expected a whole number from 2 to 15",
    ),
    (
        ["--config", "key.toml"],
        f"file key.toml: key prim: unknown key, expected one of {', '.join(COUNCIL_KEYS)}; did you mean prime?",
    ),
    (
        ["--config", "seat.toml"],
        "file seat.toml: key prime: prime is 'lit', expected one of the seats: prime, lite, codemind; did you mean "
        "lite?",
    ),
    (
        ["--config", "mind.toml"],
        "file mind.toml: key seats.lite.mind: found 3, expected an import path 'package.module:Name'",
    ),
    (["--name", "NO SPACES"], f"flag --name: found 'NO SPACES', expected {NAMES}"),
]


@pytest.mark.parametrize(("arguments", "told"), SETTINGS, ids=lambda each: str(each)[:40])
def test_a_wrong_setting(cli: Cli, home: Path, arguments: list[str], told: str) -> None:
    for name, text in (
        ("broken", "quorum = \n"),
        ("type", 'quorum = "two"'),
        ("key", 'prim = "lite"'),
        ("seat", 'prime = "lit"'),
        ("mind", "[seats.lite]\nmind = 3"),
    ):
        (home / f"{name}.toml").write_text(text, encoding="utf-8")
    said = cli("status", *arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err == f"error: the configuration has 1 problem:\n  {told}\n"


def test_a_wrong_variable(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNCIL_QUORUM", "x")
    said = cli("status")
    assert (said.code, said.out) == (2, "")
    wanted = "environment COUNCIL_QUORUM: found 'x', expected a whole number from 2 to 15"
    assert said.err == f"error: the configuration has 1 problem:\n  {wanted}\n"


# Before anything is recorded


@pytest.mark.parametrize(
    "arguments",
    [["log"], ["show", "0e3d"], ["verify"], ["replay"], ["store", "info"], ["checkpoint", "c.json"]],
    ids=lambda each: each[0],
)
def test_where_nothing_is_recorded_the_next_step_is_council_up(
    cli: Cli, tmp_path: Path, arguments: list[str]
) -> None:
    said = cli(*arguments)
    path = tmp_path / "state/council/store.db"
    told = f"nothing is recorded yet at {path}: run council up, or name another journal with --url"
    assert (said.code, said.out, said.err) == (4, "", f"error: {told}\n")


def test_a_folder_that_can_not_be_written(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    said = cli("propose", "x", "--launch")
    assert (said.code, said.out) == (4, "")
    *_, last = said.err.splitlines()
    folder = tmp_path / "file/council/councils"
    assert last == (
        f"error: the state folder {folder} can't be made: Not a directory; set XDG_STATE_HOME to a folder of yours"
    )


# In a journal


@pytest.fixture
def journal(tmp_path: Path) -> str:
    """A store with the journal of one decision."""
    path = str(tmp_path / "journal.db")
    with council_of(store=path) as council:
        council.propose("Tidy up")
    return path


RECORDED: list[tuple[list[str], str]] = [
    (
        ["show", "x"],
        "'x' is not the id of a proposal: expected its first 4 characters or more, each 0-9 or a-f; "
        "council log lists the ids",
    ),
    (
        ["show", "00000000"],
        "this council has no proposal with an id that begins with 00000000; council log lists the ids",
    ),
    (["show", "#99"], "the journal of council has no record #99; council log lists them"),
    (
        ["log", "--proposal", "0e"],
        "'0e' is not the id of a proposal: expected its first 4 characters or more, each 0-9 or a-f; "
        "council log lists the ids",
    ),
    (["prove", "99", "p.json"], "journal 'council' in {path}, of 5 records, holds no packet 99"),
    (
        ["verify", "--name", "other"],
        "the store {path} has no journal 'other'; name one of those there: 'council'",
    ),
]


@pytest.mark.parametrize(("arguments", "told"), RECORDED, ids=lambda each: str(each)[:40])
def test_an_id_that_is_not_there(cli: Cli, journal: str, arguments: list[str], told: str) -> None:
    said = cli(*arguments, "--url", journal)
    assert (said.code, said.out, said.err) == (2, "", f"error: {told.format(path=journal)}\n")


def test_a_type_of_record_that_is_not_there(cli: Cli, journal: str) -> None:
    said = cli("log", "--type", "balot", "--url", journal)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: 'balot' is not a type of record: the types are proposal, ballot, ")
    assert said.err.endswith(", and decision for every record that decides something; did you mean ballot?\n")


def test_a_seat_that_has_no_record(cli: Cli, journal: str) -> None:
    said = cli("log", "--seat", "nobody", "--url", journal)
    assert (said.code, said.out, said.err) == (0, "", "no record matches\n")
    said = cli("log", "--seat", "nobody", "--url", journal, "--json")
    assert (said.code, said.out, said.err) == (0, "", "")


def test_a_journal_that_is_not_there_is_told_with_those_that_are(cli: Cli, journal: str, home: Path) -> None:
    (home / "council.toml").write_text(f'store = "{journal}"', encoding="utf-8")
    said = cli("log", "--name", "other")
    told = (
        f"the store {journal} holds no record of a council 'other' (journals there: 'council'); no council of this "
        "name is up either: name another with --name"
    )
    assert (said.code, said.out, said.err) == (4, "", f"error: {told}\n")


def test_a_file_that_can_not_be_written(cli: Cli, journal: str) -> None:
    said = cli("store", "export", "nowhere/file", "--url", journal)
    told = "nowhere/file can't be written: No such file or directory; name another"
    assert (said.code, said.out, said.err) == (2, "", f"error: {told}\n")


# As JSON, and where the output ends


def test_with_json_the_error_is_a_document_with_the_same_words(cli: Cli) -> None:
    said = cli("propose", "x", "--timeout", "0", "--json")
    told = "--timeout: must be more than 0 seconds; found 0.0"
    found = json.loads(said.out)
    assert (said.code, found["exit_code"], said.err) == (2, 2, f"error: {told}\n")
    assert (found["error"]["code"], found["error"]["message"]) == ("malformed", told)
    assert found["error"]["facts"] == {"field": "content.time_budget_s", "problems": [told]}


def test_all_faults_of_a_proposal_are_told(cli: Cli) -> None:
    said = cli("propose", "", "--timeout", "0")
    assert said.err == "error: the summary is empty; --timeout: must be more than 0 seconds; found 0.0\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has a device that is always full")
def test_an_output_that_can_not_be_written_is_an_error() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "council.cli", "propose", "Tidy up", "--inline", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=HANG_S,
            check=False,
        )
    told = "the output can't be written: No space left on device; the command's result is lost"
    assert (done.returncode, done.stderr) == (74, f"error: {told}\n")


# Lines that are no errors


def test_doctor_says_that_sqlite_may_damage_a_store_and_what_to_do(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version, level in (((99, 0, 0), "warn"), ((3, 0, 0), "ok")):
        monkeypatch.setattr(engines, "SQLITE_WAL_SOUND", version)
        (found,) = [
            each for each in json.loads(cli("doctor", "--json").out)["checks"] if each["what"] == "SQLite"
        ]
        assert found["level"] == level
        if level == "warn":
            assert found["said"].endswith(
                "may damage a store that two processes write at once (its WAL-reset fault): use a Python with SQLite "
                "99.0.0 or newer, or give each council a store of its own"
            )


def test_a_store_without_sqlite_has_no_such_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNCIL_STORE", "memory")
    assert "SQLite" not in {each["what"] for each in json.loads(cli("doctor", "--json").out)["checks"]}


def test_up_names_the_council_and_its_seats(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, options in (("council", ""), ("ours", " --name ours")):
        monkeypatch.setattr(host_launch, "up", lambda *_, name=name: entry(name, pid=os.getpid()))
        first, *_, last = cli("up", "--name", name).out.splitlines()
        assert first == f"council '{name}' is up: prime, lite, codemind"
        assert last == "next: " + "   ".join(
            f"council {what}{options}" for what in ("propose …", "watch", "down")
        )


def test_a_council_is_named_readably(cli: Cli, journal: str) -> None:
    assert council_text("my.own.f8612720dda1d514") == "council 'my.own' (id f8612720)"
    assert council_text("x") == "x"
    start = cli("log", "--type", "start", "--url", journal).out
    assert re.search(r"; council 'council' \(id [0-9a-f]{8}\)$", start.strip())
    assert not re.search(r"council\.[0-9a-f]{16}", start)


def test_a_held_journal_names_the_way_to_the_council_that_runs(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.db")
    with council_of(store=path) as council:
        council.propose("Tidy up")  # the journal is begun by then
        with pytest.raises(JournalHeld) as caught:
            Council.inline(store=path)
    assert str(caught.value) == (
        f"the council 'council' runs already (process {os.getpid()}) and writes its journal in {path}: to use it, "
        "call Council.connect(name='council'); to end it, use council down; to run a second one, give it another "
        "name, or store = 'memory', which keeps no journal"
    )
