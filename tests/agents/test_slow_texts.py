"""Texts that took a reader seconds, judged by the work that is counted, never by time. python -m tests.slowness found
most of them; a new one stands here with what it cost."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from council import Council, Decision
from council.agents import datafiles, fragments, shell
from council.agents.changes import read_changes
from council.agents.codemind import CodeMind
from council.agents.lite import Lite
from council.agents.mind import Case, Opinion
from council.agents.prime import Prime
from council.agents.secrets import find_private
from council.agents.shell import Work, read_shell
from tests.agents.test_minds_together import one_file

SLOW = Path(__file__).parent.parent / "corpus" / "slow"
SHELL = (SLOW / "shell.txt").read_bytes().decode("utf-8", "surrogatepass")  # 16 s
SCRIPTS = {
    "spliced": SHELL,
    "spliced, its beginning": SHELL[:1_723],  # 0.6 s
    "pipes": "a|" * 2_999 + "\n",  # 0.2 s, nearly all of it in one step
    "pipes, piece after piece": ("a|" * 2_999 + "\n") * 10,  # 2 s
    "brackets": ")))))))))X[)\n" * 4_900,  # 3 ms a step
}
UNRELATED = {
    "Add the total": one_file("app/total.py", "", "def total(prices):\n    return sum(prices)\n"),
    "Tell of the total": one_file("README.md", "Prices.\n", "Prices, and their total.\n"),
    "Run what is asked for": one_file(
        "app/run.py", "", "import os\n\ndef run(arg):\n    os.system('ls ' + arg)\n"
    ),
    "Break it": one_file("app/a.py", "def f(x):\n    return [x]\n", "def f(x):\n    return [x\n"),
    "Name the port": one_file("app/settings.py", "PORT = 80\n", "PORT = 8080\n"),
}


@contextmanager
def calls_counted() -> Iterator[Callable[[], int]]:
    """How many functions were called within, those of C among them."""
    count = 0

    def counting(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        yield lambda: count
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_that_takes_the_parser_too_many_steps_is_unread(script: str) -> None:
    work = Work()
    reading = read_shell(script, work=work)
    assert reading.fault == "shell text left unread: it takes the parser too many steps"
    assert work.steps <= shell.STEPS_MAX + 1
    assert work.repeats <= shell.REPEATS_MAX + 4  # a step of the longest line counts four times


def test_substitutions_in_substitutions_are_looked_into_within_a_bound() -> None:
    """Fails, by 13 s of CPU for 59,000 characters, if each is looked into from every one around it."""
    work = Work()
    reading = read_shell("echo " + "$(" * 1_400 + "a" + ")" * 1_400, work=work)
    assert reading.fault == "shell text left unread: its parts are looked at too many times"
    assert work.nodes <= shell.NODES_MAX


def test_what_the_scripts_of_one_case_take_is_counted_together() -> None:
    """As many as it likes, each within a piece's bound, and the case's is kept."""
    work = Work()
    faults = [read_shell(SHELL[:700], work=work).fault for _ in range(200)]
    assert not faults[0]
    assert faults[-1]
    assert work.repeats <= shell.REPEATS_MAX + 200


def test_the_same_script_is_read_in_the_same_steps() -> None:
    one, other = Work(), Work()
    for work in (one, other):
        read_shell('for f in *; do echo "$f" | grep a; done\n' * 400 + "echo (\n", work=work)
    assert one == other
    assert 0 < one.steps < shell.STEPS_MAX / 3


@pytest.mark.parametrize(
    "script",
    [
        "ssh host " * 8 + "rm -rf /",
        "eval " * 8 + "rm -rf /",
        f"A={'a' * 500}\nsh -c '{'$A' * 20}; rm -rf /'".replace("'", '"'),
    ],
    ids=["ssh", "eval", "a line too long"],
)
def test_a_nested_script_past_a_limit_is_not_passed_over_in_silence(script: str) -> None:
    reading = read_shell(script)
    assert reading.fault or reading.dangers


@pytest.mark.parametrize("mind", [Prime(), Lite(), CodeMind()], ids=["prime", "lite", "codemind"])
def test_no_mind_agrees_to_an_action_that_it_could_not_read(mind: Prime | Lite | CodeMind) -> None:
    action = {"tool": "shell", "args": {"command": SHELL}}
    opinion: Opinion = mind.review(Case("p", "client", "Clean the build folder", "It is full.", action))
    assert opinion.vote != "yes"
    if not isinstance(mind, CodeMind):  # which reads no shell
        assert "unread" in opinion.reason


def test_proposals_beside_one_that_is_slow_to_read_are_decided_as_without_it() -> None:
    """Before, every thread of the process stood still for more than a minute."""

    def told(decision: object) -> tuple[str, str, list[tuple[str, str]]]:
        assert isinstance(decision, Decision), decision
        return (
            decision.standing,
            decision.outcome,
            [(ballot.seat, ballot.vote) for ballot in decision.ballots],
        )

    with Council.inline(time_budget_s=150.0) as council:
        drafts = [council.draft(title, diff, wait_for="all") for title, diff in UNRELATED.items()]
        alone = [told(decision) for decision in council.propose_many(drafts)]
        slow = council.draft(
            "Clean the build folder", "It is full.", action={"tool": "shell", "args": {"command": SHELL}}
        )
        drafts = [council.draft(title, diff, wait_for="all") for title, diff in UNRELATED.items()]
        first, *others = council.propose_many([slow, *drafts])
    assert [told(decision) for decision in others] == alone
    assert isinstance(first, Decision)
    assert first.outcome != "approved"
    assert not any(ballot.vote == "yes" for ballot in first.ballots)


@pytest.mark.parametrize(
    "text", ["password=" * 44 + "\n", "~~~basic a.b.cthe token='1234567890" * 12 + "'\n"]
)
def test_what_may_be_a_secret_costs_a_few_calls_a_character(text: str) -> None:
    """Each name was judged with all that follows it, letter by letter: 80 calls a character, 9 s for a long text."""
    text *= 64_000 // len(text)
    with calls_counted() as calls:
        find_private(text)
    assert calls() < 20 * len(text)


def as_hunk(text: str) -> str:
    """The text as one added line in the middle of a Python file."""
    return f"--- a/a.py\n+++ b/a.py\n@@ -40,2 +40,3 @@\n x = 1\n+{text}\n y = 2\n"


@pytest.mark.parametrize(
    "text", ["1;" * 300_000, "a,[" * 20_000, "if a b:" * 40_000, "f(" * 90, "1," * 32_000 + "("]
)
def test_python_is_parsed_within_a_bound_of_tokens(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A parse holds the interpreter's lock: one of 600,000 tokens for 2 s, and a hunk had sixty of 64,000."""
    parsed = [0]

    def counted(source: str) -> ast.Module:
        parsed.append(len(re.findall(r"\w+|[^\w\s]", source)))
        return ast.parse(source)

    monkeypatch.setattr(fragments, "_parsed", counted)
    list(fragments.sides_of(read_changes(as_hunk(text)).files))
    assert max(parsed) <= 200_000
    assert sum(parsed) <= 700_000


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{" * 100_000, "- " * 50_000, "[a," * 30_000, "[[a], " * 16_000]
)
def test_yaml_nested_without_end_is_not_read_to_its_end(text: str) -> None:
    """16,000 brackets took the reader in Python 23 s, and 64,000 that in C 7 s."""
    datafiles.syntax_fault("a.yml", "a: b")  # imports what it needs, which is not counted
    with calls_counted() as calls:
        fault = datafiles.syntax_fault("a.yml", text)
    assert fault is not None
    assert (fault.message, fault.sure) == ("nested too deeply to be read", False)
    assert calls() < 20 * datafiles.DEPTH_MAX


def test_lines_of_a_notebook_are_looked_for_so_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line of code was sought in a thousand lines of JSON: 3 s for a file where none is found."""
    monkeypatch.setattr(datafiles, "LOOKUPS_MAX", 6)
    lines = [r'"\u0061\n",', r'"b\n",', r'"\u0063\n",', r'"d\n"']
    text = "\n".join(['{"cells": [{"cell_type": "code", "source": [', *lines, "]}]}"])
    found = datafiles.code_in("a.ipynb", text)
    assert found == ("a\nb\nc\nd\n", (1, 1, 1, 1, 1))
