"""The codes of ruff as data: each row's examples, and both sides of a change."""

import pytest

from council.agents.scan.change import read_changes
from council.agents.scan.finding import CODE, WEIGHTS, Finding
from council.agents.scan.linters import codes, findings, lint
from council.agents.scan.pieces import pieces_of
from council.agents.scan.tools import ToolFailed
from tests.patience import HANG_S


def test_each_code_is_reported_for_its_bad_examples_and_no_good_one() -> None:
    examples = [
        (code, is_bad, text)
        for code, row in codes().items()
        for is_bad, texts in ((True, row.bad), (False, row.good))
        for text in texts
    ]
    reports = lint([text for *_, text in examples], timeout_s=HANG_S)
    reported = {(report.text, report.code) for report in reports}
    assert [each for at, each in enumerate(examples) if ((at, each[0]) in reported) is not each[1]] == []


def test_each_code_has_a_family_a_weight_and_words() -> None:
    for code, row in codes().items():
        assert row.family in CODE, code
        assert row.weight in WEIGHTS, code
        assert row.bad, code
        assert row.good, code
        assert 4 <= len(row.message.split()) <= 25, code


def found_in(diff: str) -> list[Finding]:
    changes = read_changes(diff).files
    return findings(changes, pieces_of(changes), HANG_S)


def change(path: str, tags: str) -> str:
    """A diff that adds (+), removes (-) or keeps ( ) a function with a call that ruff reports, once for each tag."""
    lines = [
        tag + line for tag in tags for line in ("", "def f(u):", "    return requests.get(u, verify=False)")
    ]
    old, new = (sum(line[0] in sides for line in lines) for sides in (" -", " +"))
    text = "".join(f"{line}\n" for line in [" import requests", *lines])
    return f"--- a/{path}\n+++ b/{path}\n@@ -1,{old + 1} +1,{new + 1} @@\n{text}"


def test_only_what_the_old_side_has_less_often_is_found() -> None:
    assert found_in(change("a.py", "-") + change("b.py", "+")) == []
    (found,) = found_in(change("a.py", " +"))
    assert (found.rule, found.family, found.weight, found.cwe) == ("ruff-S501", "crypto", "stop", 295)
    assert found.path == "a.py"


def test_a_message_that_says_it_is_safe_is_no_finding() -> None:
    assert lint(["import subprocess\nsubprocess.run('ls', shell=True)\n"], timeout_s=HANG_S) == []


def test_a_linter_that_fails_is_a_named_fault() -> None:
    with pytest.raises(ToolFailed, match="ruff did not finish within 0 s"):
        lint(["eval(x)\n"], timeout_s=0)


def test_the_hunks_of_a_change_are_linted_with_the_lines_of_the_file() -> None:
    diff = (
        "--- a/a.py\n+++ b/a.py\n@@ -40,2 +40,3 @@ def f():\n     x = nowhere\n"
        "+    y = requests.get(u, verify=False) if x is 'a' else eval(x)\n     return y\n"
    )
    found = found_in(diff)
    assert {(one.rule, one.place) for one in found} == {("ruff-F632", "a.py:41"), ("ruff-S307", "a.py:41")}


@pytest.mark.parametrize(
    ("gone", "put", "kept", "is_found"),
    [
        ("import json", "import os", "json.loads(text)", True),
        ("from app.auth import check_user", "from app.auth import check_users", "check_user(text)", True),
        ("LIMIT = 3", "MOST = 3", "text > LIMIT", True),
        ("def helper(a): return a", "def assist(a): return a", "helper(text)", True),
        ("import numpy as np", "import numpy", "np.mean(text)", True),
        ("import json", "import simplejson as json", "json.loads(text)", False),
        ("from app.auth import text", "import os", "text(1)", False),
        ("import json", "import os", "jsonify(text)", False),
        ("from app import request", "import os", "t(text)", False),
        ("from app import load, dump", "from app import (\n+    load, dump\n+)", "dump(text)", False),
    ],
)
def test_a_name_that_the_change_no_longer_binds_is_found_in_a_hunk(
    gone: str, put: str, kept: str, is_found: bool
) -> None:
    count = 4 + put.count("\n")
    head = f"--- a/a.py\n+++ b/a.py\n@@ -21,4 +21,{count} @@\n"
    diff = f"{head}-{gone}\n+{put}\n \n def load(text):\n     return {kept}\n"
    found = found_in(diff)
    assert [(one.rule, one.weight, one.place) for one in found] == [
        ("name-gone", "stop", f"a.py:{20 + count}")
    ] * is_found


@pytest.mark.parametrize(
    "lines",
    [
        " def load(text):\n-    return json.loads(text)\n+    return json.loads(text\n",
        " def load(text):\n-    if text:\n+    if text\n         return 1\n",
        " def load(text):\n-    total = 1\n+    total = = 1\n     return total\n",
        "-def load(text):\n+def load(text:\n     return 1\n",
        " def load(text):\n     for line in text:\n-        yield line\n+    yield line\n",
    ],
)
def test_a_hunk_that_breaks_the_syntax_is_found(lines: str) -> None:
    old, new = (sum(line[:1] not in (mark, "") for line in lines.split("\n")) for mark in "+-")
    diff = f"--- a/a.py\n+++ b/a.py\n@@ -21,{old} +21,{new} @@\n{lines}"
    (found,) = found_in(diff)
    assert (found.rule, found.family, found.weight, found.path) == (
        "ruff-invalid-syntax",
        "syntax",
        "stop",
        "a.py",
    )
    assert 21 <= found.line <= 24


def test_brackets_that_another_hunk_closes_break_nothing() -> None:
    diff = """--- a/app/a.py
+++ b/app/a.py
@@ -10,4 +10,5 @@
 def configure():
-    set(
-        tables={
+    if URL:
+        tables = {}
+    tables = {
             'a': {},
@@ -20,4 +20,6 @@
             'b': {},
-        },
+    }
+    set(
+        tables=tables,
         x=1,
     )
"""
    assert found_in(diff) == []
