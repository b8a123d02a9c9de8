"""The commands as a shell sees them: exit codes, documents, messages. Councils are real, in process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from council import __version__
from council.agents.mind import Case, Opinion, Ruling
from council.api.client import Council
from council.cli import app, reach
from council.cli.decide import changes
from council.cluster import known
from council.protocol import errors
from tests.examples import at_first
from tests.patience import HANG_S

from .conftest import Chair, Cli, Repository, council_of, entry, says

FAULTY = """\
diff --git a/pay.py b/pay.py
new file mode 100644
--- /dev/null
+++ b/pay.py
@@ -0,0 +1,4 @@
+import requests
+
+def pay(sum: int) -> None:
+    requests.post("https://bank.example", json={"sum": sum}, verify=False, timeout=9)
"""
YES = Opinion.yes("fine", confidence=0.9)
NO = Opinion.no("not fine", confidence=0.9)
ASKS = Chair(Opinion.no("too risky", risk_level="high"), Ruling("human", "a person must see this"))
Up = Callable[[Council], Council]


def document(out: str) -> dict[str, Any]:
    """The one JSON document on the output."""
    assert out.count("\n") == 1
    assert out.isascii()
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


# Exit codes


def test_an_approved_change_exits_0_and_shows_every_seat(cli: Cli, home: Path) -> None:
    (home / "ok.patch").write_text(changes.sample().body, encoding="utf-8")
    said = cli("review", "ok.patch", "--inline")
    assert said.code == 0, said
    assert said.out.startswith("╭─ approved ─")
    for word in ("prime", "lite", "codemind", "3 yes, 0 no, 0 abstained", "quorum 2"):
        assert word in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert said.err.count(" yes ") == 3  # the ballots, as they landed


def test_a_rejected_change_exits_1(cli: Cli, home: Path) -> None:
    (home / "bad.patch").write_text(FAULTY, encoding="utf-8")
    said = cli("review", "bad.patch", "--inline", "--json")
    assert said.code == 1, said
    found = document(said.out)
    assert (found["outcome"], found["exit_code"], found["mode"]) == ("rejected", 1, "inline")
    assert "pay.py" in next(each["reason"] for each in found["ballots"] if each["seat"] == "codemind")
    assert said.err == ""


def test_an_undecided_proposal_exits_3_and_says_what_is_next(cli: Cli, up: Up) -> None:
    up(council_of(prime=ASKS))
    said = cli("propose", "Drop the table")
    assert said.code == 3, said
    assert "escalated" in said.out
    assert "council answer esc-" in said.out


def test_nobody_is_sent_to_answer_a_council_that_ends_with_its_command(cli: Cli) -> None:
    said = cli("propose", "Drop the table", "--inline")
    assert said.code == 3, said
    assert "escalated" in said.out
    assert "council answer" not in said.out + said.err
    assert "the council of this command ends now, so nobody can answer: run council up" in said.err


def test_a_deferred_proposal_exits_3(cli: Cli, up: Up) -> None:
    up(council_of(prime=ASKS, escalation_ttl_s=0.05))
    said = cli("propose", "Drop the table", "--wait-for-human", "--json")
    assert (said.code, document(said.out)["outcome"]) == (3, "deferred")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["propose"], "SUMMARY is missing"),
        (["propose", "x", "--risk", "huge", "--inline"], "--risk: 'huge' is not one of 'low'"),
        (["propose", "x", "--inline", "--action", "rm", "{"], "not JSON"),
        (["propose", "x", "--inline", "--action", "rm", "[]"], "must be a JSON object"),
        (["propose", "x", "--inline", "--action", "rm", "[" * 100_000], "not JSON"),
        (["propose", "", "--inline"], "summary"),
        (["propose", "x" * 3_000, "--inline"], "summary"),
        (["propose", "x", "--inline", "--timeout", "-1"], "--timeout: must be more than 0 seconds"),
        (["propose", "x", "--inline", "--timeout", "nan"], "--timeout: must be a finite number"),
        (["propose", "x", "--inline", "--body", "@nowhere"], "nowhere"),
        (["propose", "x", "--inline", "--launch"], "--inline"),
        (["propose", "x", "--inline", "--name", "NO SPACES"], "--name"),
        (["propose", "x", "--inline", "--config", "nowhere.toml"], "nowhere.toml"),
        (["review", "nowhere", "--inline"], "nowhere"),
        (["review", "--inline"], "repository"),
        (["answer", "esc-1a2b"], "--approve or --reject"),
        (["answer", "1a2b", "--approve", "--reject"], "give one of --approve and --reject"),
        (["answer", "1a2", "--approve"], "4 or more characters"),
        (["answer", "nope", "--approve"], "no escalation 'nope': council escalations lists them"),
        (["escalations", "nope"], "no escalation 'nope': council escalations lists them"),
        (["nonsense"], "nonsense"),
        (["status", "--nonsense"], "--nonsense"),
    ],
)
def test_wrong_usage_exits_2_with_one_message(cli: Cli, arguments: list[str], word: str) -> None:
    said = cli(*arguments)
    assert said.code == 2, said
    assert word in said.err
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    assert said.out == ""
    as_document = cli(*arguments, "--json")
    found = document(as_document.out)
    assert as_document.code == found["exit_code"] == 2
    assert found["error"]["message"]


def test_a_body_that_is_far_too_long_is_told_as_that(cli: Cli, home: Path) -> None:
    """Mutation: to cut it, perhaps within a letter, and to call what is left no UTF-8."""
    (home / "long.txt").write_text("x" + "é" * 2**21, encoding="utf-8")
    said = cli("propose", "x", "--inline", "--body", "@long.txt")
    assert (said.code, "is longer than 4,194,304 bytes" in said.err) == (2, True), said


def test_what_is_said_is_no_markup(cli: Cli, home: Path) -> None:
    """Mutation: to print it as rich reads it, and lose what stands in brackets."""
    said = cli("store", "migrate", "--url", str(home / "a[b]c.db"))
    assert said.code == 0
    assert "a[b]c.db" in "".join(said.out.split())


def test_every_fault_of_the_configuration_is_told(cli: Cli, home: Path) -> None:
    (home / "council.toml").write_text("quorum = 9\nnosuch = 1\nname = 7\n", encoding="utf-8")
    said = cli("propose", "x", "--inline", "--json")
    assert said.code == 2
    problems = document(said.out)["error"]["facts"]["problems"]
    assert len(problems) == 3
    assert all(str(home / "council.toml") in problem or "quorum" in problem for problem in problems)
    said = cli("doctor", "--json")
    assert said.code == 1
    assert [each["what"] for each in document(said.out)["checks"]].count("configuration") == 3


def test_a_mind_that_can_not_be_had_exits_2(cli: Cli, home: Path) -> None:
    (home / "council.toml").write_text('[seats.lite]\nmind = "nowhere.at.all:Mind"\n', encoding="utf-8")
    said = cli("propose", "x", "--inline")
    assert said.code == 2
    assert "seat lite" in said.err


def test_with_no_council_up_it_exits_4_and_names_the_ways_out(cli: Cli) -> None:
    for command in ("propose x", "status", "watch", "escalations", "answer 1a2b --approve", "show 1a"):
        said = cli(*command.split())
        assert said.code == 4, said
        assert "council up" in said.err
        assert ("--inline" in said.err) == command.startswith("propose")
        assert document(cli(*command.split(), "--json").out)["error"]["code"] == "unreachable"


def test_a_review_runs_its_own_council_where_none_is_up(cli: Cli, repository: Repository) -> None:
    repository.commit("First", README__md="hello\n")
    said = cli("review", "--json")
    assert said.code == 0
    assert document(said.out)["mode"] == "inline"
    assert "in this process" in cli("review").err
    named = cli("review", "--name", "ours")
    assert (named.code, "no council named 'ours' is up" in named.err) == (4, True)


def test_a_review_says_that_the_council_that_it_would_have_used_has_crashed(
    cli: Cli, repository: Repository
) -> None:
    repository.commit("First", README__md="hello\n")
    known.write(entry("council", pid=os.getpid(), started="another process's start"))
    said = cli("review", "--json")
    assert (said.code, document(said.out)["mode"]) == (0, "inline")
    assert "ended without council down" in " ".join(said.err.split())
    assert "one in this process decides" in " ".join(said.err.split())


def test_a_review_uses_the_council_that_is_up(cli: Cli, up: Up, repository: Repository) -> None:
    up(council_of(prime=says(NO), lite=says(NO)))
    repository.commit("First", README__md="hello\n")
    said = cli("review", "--json")
    assert (said.code, document(said.out)["mode"]) == (1, "connected")


def test_each_error_has_its_code(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/hold has the codes of all classes of errors."""
    for error, code in (
        (errors.Unreachable("gone", name="x"), 4),
        (errors.NoAnswer("late", waited_s=1.0, proposal_id="1a"), 3),
        (errors.NoAnswer("late", waited_s=1.0), 4),
        (errors.Refused("no", code="unknown_proposal"), 2),
        (errors.Refused("no", code="closed"), 1),
        (errors.Refused("no", code="already_answered"), 1),
        (ZeroDivisionError("division"), 70),
        (KeyboardInterrupt(), 130),
    ):
        monkeypatch.setattr(Council, "inline", Mock(side_effect=error))
        said = cli("propose", "x", "--inline", "--json")
        assert (said.code, document(said.out)["exit_code"]) == (code, code)
        assert "Traceback" not in said.err
        assert said.err.count("\n") == 1


def test_debug_shows_where_and_keeps_the_exit_code(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: to let the error out of the program is exit code 1, which a gate takes for a rejection."""
    monkeypatch.setattr(Council, "inline", lambda *_, **__: 1 / 0)
    said = cli("--debug", "propose", "x", "--inline")
    assert (said.code, "Traceback" in said.err, "ZeroDivisionError" in said.err) == (70, True, True)
    said = cli("--debug", "status")
    assert (said.code, "Traceback" in said.err) == (4, True)
    misplaced = cli("status", "--debug")
    assert (misplaced.code, "Traceback" in misplaced.err) == (2, False)
    assert "--debug" in misplaced.err


# A council that is up


def test_a_proposal_carries_all_that_was_said_of_it(cli: Cli, up: Up, home: Path) -> None:
    cases: list[Case] = []

    async def remembers(case: Case) -> Opinion:
        cases.append(case)
        return YES

    up(council_of(prime=remembers))
    (home / "more.md").write_text("the body", encoding="utf-8")
    turns = ['{"role": "user", "text": "Please\u2028ship."}', "", '["tool", "3 checks passed"]']
    (home / "session.jsonl").write_text("\n".join(turns), encoding="utf-8")
    (home / "session.json").write_text(f"[{turns[0]},\n{turns[2]}]", encoding="utf-8")
    for name in ("session.jsonl", "session.json"):
        more = ["--risk", "med", "--action", "ship", '{"to": "eu"}', "--history", str(home / name)]
        said = cli("propose", "Ship", "--body", f"@{home}/more.md", *more)
        assert said.code == 0, said
        case = cases.pop()
        assert (case.summary, case.body, case.risk_level) == ("Ship", "the body", "med")
        assert case.action is not None
        assert dict(case.action["args"]) == {"to": "eu"}
        assert case.history == (("user", "Please\u2028ship."), ("tool", "3 checks passed"))


def test_a_key_names_one_proposal_also_after_a_restart(cli: Cli, repository: Repository) -> None:
    repository.commit("Rename total to sum", a__py="sum = 1\n")
    (repository.path / "c.toml").write_text(f'store = "{repository.path / "s.db"}"\n', encoding="utf-8")
    ends = ("--inline", "--config", "c.toml", "--json", "--key")
    for command in (("propose", "Rename total to sum"), ("review", "HEAD")):
        keys = (f"{command[0]} 1", f"{command[0]} 1", f"{command[0]} 2")
        first, again, other = (document(cli(*command, *ends, key).out) for key in keys)
        assert first["outcome"] == "approved"
        assert (again["proposal_id"], again["position"]) == (first["proposal_id"], first["position"])
        assert other["proposal_id"] != first["proposal_id"]
    changed = cli("propose", "Rename sum to total", *ends, "propose 1")
    assert (changed.code, document(changed.out)["error"]["code"]) == (2, "id_reused")
    empty = cli("propose", "x", *ends, "")
    assert empty.code == 2
    assert "--key: " in empty.err


@pytest.mark.parametrize("command", ["propose", "estimate"])
def test_a_history_that_is_none_is_told_with_its_place(cli: Cli, home: Path, command: str) -> None:
    for text, words in (
        (None, "session.txt: can't be read: No such file"),
        (b'{"role": "user", "text": "a"}\nuser: b', "session.txt, line 2: is not JSON"),
        (b'[{"role": "user"', "session.txt: is not JSON"),
        (b"user: a", 'line 1: is not JSON.*such as {"role"'),
        (b'{"role": "user", "content": "a"}', r"session.txt: history\[0\] is"),
        (b'{"role": "User", "text": "a"}', r"--history \[0\].role: must be one word"),
        (b"[" * 100_000, "is not JSON"),
        (b"\xff\xfe", "session.txt: is not text in UTF-8"),
    ):
        if text is not None:
            (home / "session.txt").write_bytes(text)
        inline = ["--inline"] if command == "propose" else []
        said = cli(command, "x", *inline, "--history", "session.txt")
        assert said.code == 2, said
        assert re.search(words, " ".join(said.err.split())), said.err
        assert said.err.startswith("error: ")


def test_the_status_is_shown_and_told(cli: Cli, up: Up) -> None:
    council = up(council_of(prime=ASKS))
    decision = council.propose("Drop the table")
    said = cli("status")
    assert said.code == 0
    for word in (
        "3 of 3 seats active",
        "codemind",
        "s of 90 s",
        "no open proposal",
        decision.escalation_id,
    ):
        assert word in said.out
    told = document(cli("status", "--json").out)
    assert [each["escalation_id"] for each in told["escalations"]] == [decision.escalation_id]
    assert {each["name"] for each in told["seats"]} == {"prime", "lite", "codemind"}


def test_an_escalation_is_listed_answered_and_shown(cli: Cli, up: Up) -> None:
    council = up(council_of(prime=ASKS, humans={"ada": "kept"}))
    waiting = str(council.propose("Drop the table").escalation_id)
    assert cli("show", waiting).code == 3
    stranger = cli("answer", waiting, "--approve", "--reason", "mine", "--as", "mallory")
    assert stranger.code == 2
    assert "mallory" in stranger.err
    assert f"those who may answer in {council.status()['council_id']}: ada;" in " ".join(stranger.err.split())
    assert cli("show", waiting).code == 3
    listed = cli("escalations")
    for word in (waiting, "Drop the table", "too risky", "a person must see this", "approve", "reject"):
        assert word in listed.out
    answered = cli("answer", waiting, "--approve", "--reason", "it is a copy", "--as", "ada", "--json")
    assert answered.code == 0, answered
    found = document(answered.out)
    assert (found["outcome"], found["answer"]["human"], found["answer"]["reason"]) == (
        "approved",
        "ada",
        "it is a copy",
    )
    assert cli("show", waiting).code == 0
    assert "ada approved it: it is a copy" in " ".join(cli("show", waiting).out.split())
    again = cli("answer", waiting, "--reject", "--as", "ada")
    assert again.code == 1
    assert cli("escalations").out.strip() == "nothing waits"
    assert document(cli("escalations", "--json").out)["escalations"] == []


def test_an_answer_is_taken_whatever_it_says(cli: Cli, up: Up) -> None:
    council = up(council_of(prime=ASKS))
    waiting = str(council.propose("Drop the table").escalation_id)
    said = cli("answer", waiting, "--reject", "--json")
    assert (said.code, document(said.out)["exit_code"], document(said.out)["outcome"]) == (0, 0, "rejected")
    assert cli("show", waiting).code == 1
    assert cli("show", "0123456789abcdef").code == 2


def test_a_council_that_crashed_is_told_as_that_until_it_is_taken_down(cli: Cli) -> None:
    known.write(entry("council", pid=os.getpid(), started="another process's start"))
    for _ in range(2):
        said = cli("status", "--json")
        assert (said.code, json.loads(said.out)["error"]["code"]) == (4, "council_died")
        assert "ended without council down" in " ".join(said.err.split())
    down = cli("down")
    assert (down.code, "had ended already" in " ".join(down.out.split())) == (0, True)
    assert known.read("council") is None
    assert "nothing to take down" in " ".join(cli("down").err.split())
    said = cli("status", "--json")
    assert (said.code, json.loads(said.out)["error"]["code"]) == (4, "unreachable")


def test_down_does_not_end_open_proposals_unasked(cli: Cli, up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    council = up(council_of(prime=ASKS))
    council.propose("Drop the table")
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a process was signalled"))
    said = cli("down")
    assert said.code == 2
    assert "0 proposals open, 1 with a human" in said.err
    assert "--yes" in said.err


def test_before_ray_the_working_folder_is_left_and_named_paths_keep_their_meaning(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["minds", "", "/elsewhere"]))
    reach.neutral_folder()
    assert Path.cwd() == known.folder()
    assert os.environ["PYTHONPATH"] == os.pathsep.join([str(home / "minds"), "/elsewhere"])


def test_up_refuses_a_name_that_is_up(cli: Cli, up: Up) -> None:
    up(council_of())
    said = cli("up", "--json")
    assert (said.code, document(said.out)["error"]["code"]) == (2, "name_taken")


# Settings, and what surrounds the council


def test_the_settings_are_shown_with_their_origins(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "council.toml").write_text("quorum = 3\n", encoding="utf-8")
    monkeypatch.setenv("COUNCIL_TIME_BUDGET_S", "7")
    said = cli("config", "--name", "mine", "--json")
    assert said.code == 0
    entries = {each["key"]: (each["value"], each["origin"]) for each in document(said.out)["settings"]}
    assert entries["quorum"] == (3, str(home / "council.toml"))
    assert entries["time_budget_s"] == (7.0, "environment COUNCIL_TIME_BUDGET_S")
    assert entries["name"] == ("mine", "flag --name")
    assert entries["open_max"] == (2000, "default")
    assert "council.toml" in cli("config").out


def test_doctor_finds_nothing_wrong_here(cli: Cli) -> None:
    said = cli("doctor", "--json")
    assert said.code == 0, said
    levels = {each["what"]: each["level"] for each in document(said.out)["checks"]}
    for what in ("Python", "ray", "ruff", "git", "seat prime", "seat lite", "seat codemind"):
        assert levels[what] == "ok"


def test_doctor_exits_1_and_says_what_to_mend(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "council.toml").write_text('[seats.lite]\nmind = "nowhere.at.all:Mind"\n', encoding="utf-8")
    known.write(entry("other", pid=os.getpid())).chmod(0o644)
    monkeypatch.setenv("PATH", "")
    said = cli("doctor", "--json", "--config", "council.toml")
    assert said.code == 1
    found = {each["what"]: (each["level"], each["said"]) for each in document(said.out)["checks"]}
    assert found["seat lite"][0] == "fail"
    assert "nowhere" in found["seat lite"][1]
    assert found["git"][0] == "warn"
    assert found["state folder"][0] == "fail"
    assert "chmod 600" in found["state folder"][1]
    assert "✗ fail" in cli("doctor", "--config", "council.toml").out


# The demonstration


def test_the_demonstration_exits_0_whatever_the_decision(cli: Cli, repository: Repository) -> None:
    repository.commit("Pay", pay__py=FAULTY.split("+1,4 @@\n")[1].replace("+", ""))
    said = cli("demo", "--inline", "--json")
    found = document(said.out)
    assert (said.code, found["outcome"], found["summary"]) == (0, "rejected", "Pay")
    shown = cli("demo", "--inline")
    for word in ("3 of 3 seats active", "Pay", "rejected"):
        assert word in shown.out


def test_without_a_history_the_demonstration_reviews_the_bundled_patch(cli: Cli) -> None:
    said = cli("demo", "--inline")
    assert said.code == 0
    assert "bundled sample" in said.err
    assert "Write the stock list in one step" in said.out


# The command itself


def commands() -> list[tuple[str, ...]]:
    """Every command, also those of groups, as it is called."""
    every = app.assembled()
    found = [(str(each.name),) for each in every.registered_commands]
    for group in every.registered_groups:
        assert group.typer_instance is not None
        for each in group.typer_instance.registered_commands:
            assert each.callback is not None
            found.append((str(group.name), each.name or each.callback.__name__))
    assert len(found) > 25
    return found


def test_help_and_version_are_there_at_once() -> None:
    code = (
        "import sys; from council.cli import app; app.run(['--help']); app.run(['--version']);"
        "heavy = {'ray', 'pydantic', 'msgpack', 'council.api.client'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    assert f"council {__version__}" in done.stdout


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_json(cli: Cli, command: tuple[str, ...]) -> None:
    said = cli(*command, "--help")
    assert said.code == 0
    assert "--json" in said.out


@pytest.mark.parametrize(
    ("arguments", "rest", "code", "shown"),
    at_first(
        3,
        ("review bad.patch --inline --json", "| true", 1, False),
        ("review ok.patch --inline", "2> >(true) | cat", 0, True),  # its result is not lost with its remarks
        ("--help", "| true", 0, False),
        ("review ok.patch --inline", "2>&1 | true", 0, False),
    ),
)
def test_a_reader_that_has_enough_changes_no_exit_code(
    home: Path, arguments: str, rest: str, code: int, shown: bool
) -> None:
    """Mutation: rich's own way, which is exit code 1, that of a rejection."""
    (home / "bad.patch").write_text(FAULTY, encoding="utf-8")
    (home / "ok.patch").write_text(changes.sample().body, encoding="utf-8")
    line = f"{sys.executable} -m council.cli {arguments} {rest}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=HANG_S, cwd=home)
    assert (done.returncode, "approved" in done.stdout, done.stderr) == (code, shown, ""), done


def test_what_is_reviewed_does_not_choose_its_jury(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A council.toml in the reviewed folder is part of the change: nothing of it is used, let alone built."""
    marker = tmp_path / "built"
    (tmp_path / "council.toml").write_text(
        f'[seats.lite]\nmind = "pathlib:Path.touch"\n[seats.prime]\nmind = "os:makedirs"\n# {marker}\n'
    )
    (tmp_path / "c.patch").write_text(
        (Path(__file__).parents[2] / "council/cli/decide/sample.patch").read_text()
    )
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "council.cli", "review", "c.patch", "--json", "--inline"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {ballot["seat"] for ballot in json.loads(done.stdout)["ballots"]} == {"prime", "lite", "codemind"}
