"""What the three minds decide together on a change that they could not read, or not all of it: never a yes."""

from __future__ import annotations

import json

import pytest

from council import Decision
from council.agents.lite import Lite
from council.agents.mind import Case, ShownBallot
from council.agents.prime import Prime
from council.agents.scan.datafiles import code_in
from council.agents.scan.scan import scan
from tests.agents.test_minds_together import one_file
from tests.reviewing import analyzed_together, decide_all, told

CLEAN = one_file("app/total.py", "", "def total(prices):\n    return sum(prices)\n")
BINARY = "diff --git a/{0} b/{0}\nindex 1111111..2222222 100644\nBinary files a/{0} and b/{0} differ\n"
# The header promises three new lines; what follows are five, and git would refuse it.
MISCOUNTED = (
    "diff --git a/app/a.py b/app/a.py\n--- a/app/a.py\n+++ b/app/a.py\n@@ -1,2 +1,3 @@\n"
    " import os\n+import shlex\n+\n+os.system(COMMAND)\n-x = 1\n x = 2\n"
)
FOREIGN = one_file("app/a.js", "", "".join("\ufffd".join(line) + "\n" for line in ("let a = 1", "run(a)")))

UNSEEN = {
    "a hunk longer than its header says": MISCOUNTED,
    "a patch that ends early": one_file("app/a.py", "", "x = 1\n" * 40)[:-60],
    "a hunk without a file": "@@ -1,2 +1,2 @@\n-x = 1\n+x = 2\n y = 1\n",
    "binary files alone": BINARY.format("assets/logo.png") + BINARY.format("lib/fast.so"),
    "a program that was deleted": "diff --git a/run.bin b/run.bin\ndeleted file mode 100755\n"
    "index 1111111..0000000\nBinary files a/run.bin and /dev/null differ\n",
    "a damaged patch beside a clean one": CLEAN + MISCOUNTED,
    "source shown as binary beside a clean patch": CLEAN + BINARY.format("app/login.py"),
    "deleted source shown as binary": CLEAN
    + "diff --git a/app/auth.py b/app/auth.py\ndeleted file mode 100644\n"
    "index 1111111..0000000\nBinary files a/app/auth.py and /dev/null differ\n",
    "a binary patch of a workflow": CLEAN
    + "diff --git a/.github/workflows/ci.yml b/.github/workflows/ci.yml\n"
    "index 1111111..2222222 100644\nGIT binary patch\nliteral 4\nLc${NkU|;|M00aO5\n\n",
    "source in an encoding that nobody could decode": CLEAN + FOREIGN,
}
HARM = "import os\ndef f(x):\n    os.system('echo ' + x)\n"
LONG = "".join(f"a = {number}\n" for number in range(11_000))
CELL = {"cell_type": "code", "source": HARM}
UNSEEN |= {
    "Python of too many words": one_file("app/a.py", "", LONG),
    "text of very many commands": "take the next one\n" * 2_001 + CLEAN,
    "a notebook that is too long": one_file(
        "a.ipynb", "", json.dumps({"cells": [CELL], "pad": "x" * 500_000})
    ),
}
# ast-grep has no limit of words, and finds the harm.
FOUND = {
    "Python of too many words, with harm": one_file("app/a.py", "", HARM + LONG),
    "a code block of too many words": f"```python\n{HARM}{LONG}```\n{CLEAN}",
}
DEEP = one_file("app/a.py", "", "import os\ndef f(x):\n    os.system(x" + " + 'a'" * 1_200 + ")\n")
SEEN = {
    "an image beside source": CLEAN + BINARY.format("assets/logo.png"),
    "a locked file that the repository calls binary": CLEAN + BINARY.format("web/package-lock.json"),
    "umlauts of another encoding": one_file("app/a.py", "", 'NAME = "K\ufffdln"  # a city on the Rhine\n'),
    "a rename": "diff --git a/a/x.py b/b/x.py\nsimilarity index 100%\nrename from a/x.py\nrename to b/x.py\n",
}


@pytest.fixture(scope="module")
def decisions() -> dict[str, Decision]:
    cases = {
        title: Case("id", "proposer", "Add up prices", diff)
        for title, diff in (UNSEEN | SEEN | FOUND | {"deep": DEEP}).items()
    }
    # An analyzer that reads the deep one fails, and would for all.
    with analyzed_together(case for title, case in cases.items() if title != "deep"):
        return decide_all(cases)


def waits(decision: Decision) -> bool:
    others = [ballot for ballot in decision.ballots if ballot.seat != "codemind"]
    # A program that nobody can read is a finding that asks, so that Lite may vote no.
    unread = all(ballot.vote != "yes" and "read" in ballot.reason for ballot in others)
    return not decision and decision.standing == "escalated" and unread


def test_what_could_not_be_read_waits_for_a_human(decisions: dict[str, Decision]) -> None:
    """Fails where two seats pass what they could not read, as CodeMind abstains and two are a majority."""
    assert {title: told(decisions[title]) for title in UNSEEN if not waits(decisions[title])} == {}


def test_a_fault_in_a_text_that_is_too_long_is_refused(decisions: dict[str, Decision]) -> None:
    assert {title: told(decisions[title]) for title in FOUND if decisions[title].outcome != "rejected"} == {}


def test_python_nested_too_deeply_waits_for_a_human(decisions: dict[str, Decision]) -> None:
    """Fails where Prime's ballot is lost to it, or where its harm counts as a part that could not be parsed."""
    votes = {ballot.seat: ballot.vote for ballot in decisions["deep"].ballots}
    assert decisions["deep"].standing == "escalated"
    assert (votes["prime"], votes["codemind"]) == ("abstain", "abstain")


def test_a_line_that_python_runs_is_found_behind_any_line_break() -> None:
    text = "lib\x0cimport os\nimport sys\n"
    assert code_in("a.pth", text) == ("\nimport os\nimport sys\n", (1, 1, 2, 3))


def test_a_command_is_found_behind_a_long_string() -> None:
    """Fails where Python text of more than 200,000 characters is passed over."""
    text = f"import os\nDATA = '{'x' * 210_000}'\nos.system('rm -rf /')\n"
    assert Lite().review(Case("1", "ann", "x", one_file("app/a.py", "", text))).vote == "no"


def test_what_is_no_text_anyway_is_a_note(decisions: dict[str, Decision]) -> None:
    """A note alone escalates nothing."""
    assert {
        title: told(decisions[title])
        for title in SEEN
        if decisions[title].outcome != "approved" or decisions[title].ruling is not None
    } == {}


@pytest.mark.parametrize(
    ("path", "target", "waits_for_a_human"),
    [
        ("etc/passwd", "/etc/passwd", True),
        ("app/key", "../../key", True),
        ("app/key", "../shared/key", False),
        ("latest", "v2", False),
    ],
)
def test_a_link_out_of_the_repository_is_never_approved(
    path: str, target: str, waits_for_a_human: bool
) -> None:
    body = f"diff --git a/{path} b/{path}\nnew file mode 120000\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n"
    seen = scan(Case("1", "ann", "x", f"{body}+{target}\n\\ No newline at end of file\n"))
    assert [found.rule for found in seen.of("ask")] == ["link-outside"] * waits_for_a_human


def test_the_reason_names_what_was_not_read() -> None:
    for title, name in (
        ("a damaged patch beside a clean one", "app/a.py"),
        ("source shown as binary beside a clean patch", "app/login.py"),
        ("source in an encoding that nobody could decode", "app/a.js"),
    ):
        for mind in (Prime(), Lite()):
            assert name in mind.review(Case("1", "ann", "x", UNSEEN[title])).reason


def test_prime_confirms_nothing_that_it_could_not_read() -> None:
    """Fails if the yeses of others, however sure, stand in for Prime's own eyes."""
    case = Case("1", "ann", "x", UNSEEN["source shown as binary beside a clean patch"])
    ballots = [ShownBallot(f"s{number}", "yes", "fine", 0.95, "low") for number in range(3)]
    ruling = Prime().rule(case, ballots)
    assert (ruling.ruling, "app/login.py" in ruling.reason) == ("human", True)


def test_a_fault_in_what_was_read_is_still_refused() -> None:
    body = UNSEEN["a damaged patch beside a clean one"] + one_file("run.sh", "", "#!/bin/sh\nrm -rf /\n")
    for mind in (Prime(), Lite()):
        opinion = mind.review(Case("1", "ann", "x", body))
        assert (opinion.vote, opinion.risk_level) == ("no", "high")
