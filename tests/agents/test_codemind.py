"""What CodeMind votes down, what it lets pass, and what it says that it could not judge."""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council.agents.codemind import CodeMind
from council.agents.mind import Case, Opinion
from council.agents.prime import Prime
from council.agents.scan import linters, tools
from council.agents.scan.change import read_changes
from council.agents.scan.pieces import pieces_of
from council.agents.static.verdict import REASON_CHARS_MAX
from tests.agents.test_slow_texts import calls_counted
from tests.examples import tried
from tests.reviewing import review_all

HEAD = """import ast, hashlib, hmac, os, pickle, random, re, requests, shlex, ssl, subprocess, time, yaml
TABLE = "users"
LIMIT = 5
DEBUG = model = require_admin = verify_signature = delete = g = login_required = app = request = None
"""
PADDING = "".join(f"k{at} = {at}\n" for at in range(20))
WHOLE = 10**6


def body(lines: str) -> str:
    """A function with these lines in its middle."""
    inner = "".join(f"    {line}\n" if line else "\n" for line in lines.splitlines())
    return f"def f(user, cmd, cur, x):\n    a = 1\n    b = 2\n{inner}    c = 3\n    d = 4\n    return a, b, c, d\n"


def diff(old: str, new: str, path: str = "app/x.py", context: int = 3) -> str:
    lines = difflib.unified_diff(
        f"{HEAD}{PADDING}{old}\n\n{PADDING}".splitlines(True),
        f"{HEAD}{PADDING}{new}\n\n{PADDING}".splitlines(True),
        f"a/{path}",
        f"b/{path}",
        n=context,
    )
    return f"diff --git a/{path} b/{path}\n" + "".join(lines)


def added(path: str, text: str) -> str:
    """A diff that adds a file."""
    lines = text.splitlines()
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
    return head + f"@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)


def case_of(text: str, **more: Any) -> Case:
    return Case("id", "proposer", "summary", text, **more)


def review(text: str, **more: Any) -> Opinion:
    return CodeMind().review(case_of(text, **more))


CHECK = "if not user.is_admin:\n    raise PermissionError('no')"
SQL = "cur.execute('SELECT * FROM t WHERE id=?', (x,))"

# Faults of families that Lite and Prime judge.
OTHERS = {
    "key of a known shape",
    "key by name",
    "guard gone",
    "validation gone",
    "assert gone",
    "one clause gone",
}
OTHERS |= {"guard weakened", "guard does nothing", "guard only logs", "if around it gone", "verify call gone"}
OTHERS |= {"compare gone"}

FAULTS = {
    "unclosed bracket": ("q = 1", "q = (1"),
    "no colon": ("q = 1", "if a\n    q = 1"),
    "bad indent": ("q = 1", "q = 1\n      r = 2"),
    "key of a known shape": ("", "region = 'AKIAQYLPMN5HFIQR7XYZ'"),
    "key by name": ("", "api_token = 'f3b9c8d7e6a5b4c3d2e1f0a9b8c7d6e5'"),
    "shell": ("subprocess.run(['ls', cmd])", "subprocess.run(f'ls {cmd}', shell=True)"),
    "shell of a name": ("", "subprocess.check_output(cmd, shell=True)"),
    "os.system": ("", "os.system('rm ' + cmd)"),
    "words for a shell": ("subprocess.run(['ls', cmd])", "subprocess.run(['sh', '-c', cmd])"),
    "words for bash": ("", "subprocess.Popen(args=['/bin/bash', '-o', 'pipefail', '-ec', f'ls {x}'])"),
    "words added up": ("", "words = ['sh', '-c']\nsubprocess.run(words + [x])"),
    "words appended": ("", "words = ['sh', '-c']\nwords.append(x)\nsubprocess.run(words)"),
    "words in a container": ("", "subprocess.run(['docker', 'exec', 'web', 'sh', '-c', cmd])"),
    "words as arguments": ("", "os.execlp('sh', 'sh', '-c', cmd)"),
    "words beside a program": ("", "os.execvp('bash', ['bash', '-c', cmd])"),
    "shell in a mapping": ("", "subprocess.run(cmd, **{'shell': True})"),
    "shell in a named mapping": ("", "more = {'shell': True}\nsubprocess.run(cmd, **more)"),
    "shell in a dict": ("", "subprocess.check_output(cmd, **dict(shell=True))"),
    "shell by a name": ("", "yes = True\nsubprocess.run(cmd, shell=yes)"),
    "sql joined": (SQL, "cur.execute(' '.join(['SELECT * FROM t WHERE id =', x]))"),
    "sql joined from lines": (SQL, "q = '\\n'.join(('DELETE FROM t', f'WHERE id = {x}'))\ncur.execute(q)"),
    "sql from appended words": (
        SQL,
        "q = ['SELECT * FROM t']\nq.append('WHERE id = ' + x)\ncur.execute(' '.join(q))",
    ),
    "sql f-string": (SQL, "cur.execute(f'SELECT * FROM t WHERE id={x}')"),
    "sql concatenated": (SQL, "cur.execute('DELETE FROM t WHERE id=' + x)"),
    "sql format": (SQL, "cur.execute('SELECT * FROM t WHERE id={}'.format(x))"),
    "sql by a variable": (
        "q = 'SELECT 1'\ncur.execute(q)",
        "q = 'SELECT * FROM t WHERE id=%s' % x\ncur.execute(q)",
    ),
    "eval": ("", "y = eval(x)"),
    "exec compiled": ("", "exec(compile(x, 'x', 'exec'))"),
    "verify=False": ("requests.get(x, timeout=3)", "requests.get(x, timeout=3, verify=False)"),
    "unverified context": ("", "ctx = ssl._create_unverified_context()"),
    "CERT_NONE": ("", "x.verify_mode = ssl.CERT_NONE"),
    "check_hostname": ("", "x.check_hostname = False"),
    "pickle": ("", "y = pickle.loads(request.body)"),
    "yaml": ("", "y = yaml.load(x)"),
    "pickle by a name": ("", "raw = request.body\nmore = raw\ny = pickle.loads(more)"),
    "pickle from the network": ("", "with urlopen(x) as f:\n    y = pickle.load(f)"),
    "pickle's own function": ("", "from pickle import loads\ny = loads(request.body)"),
    "yaml's own function": ("", "from yaml import load, Loader\ny = load(x, Loader=Loader)"),
    "guard gone": (CHECK, ""),
    "validation gone": ("if x <= 0:\n    raise ValueError('x')", ""),
    "assert gone": ("assert x > 0", ""),
    "one clause gone": ("if x <= 0 or x > LIMIT:\n    raise ValueError", "if x <= 0:\n    raise ValueError"),
    "guard weakened": (CHECK, CHECK.replace("is_admin", "is_admin and not DEBUG")),
    "guard does nothing": (CHECK, "if not user.is_admin:\n    pass"),
    "guard only logs": (CHECK, "if not user.is_admin:\n    print('no')"),
    "if around it gone": ("if user.is_admin:\n    delete(x)", "delete(x)"),
    "verify call gone": ("verify_signature(x, user)", ""),
    "compare gone": ("if not hmac.compare_digest(x, user):\n    return None", ""),
}

HARMLESS = {
    "literal_eval": ("", "y = ast.literal_eval(x)"),
    "docstring": ("", '"""password = hunter22; eval(x); os.system(x)"""'),
    "comment": ("", "# password: abc12345 eval(x)"),
    "messages": (
        "",
        "m = {'password': 'Password must have 8+ characters', 'token': 'token', 'secret': '***'}",
    ),
    "from the environment": ("", "password = os.environ['PASSWORD1']"),
    "shell=False": ("", "subprocess.run(cmd, shell=False)"),
    "list": ("", "subprocess.run(['git', 'status'], check=True)"),
    "constant shell": ("", "subprocess.run('ls | wc', shell=True)"),
    "words for a fixed shell": ("", "subprocess.run(['sh', '-c', 'ls | wc'], check=True)"),
    "words quoted for a shell": ("", "subprocess.run(['sh', '-c', 'ls ' + shlex.quote(x)], check=True)"),
    "words behind a fixed script": ("", "subprocess.run(['sh', '-c', 'ls \"$1\"', 'ls', x], check=True)"),
    "a script's own option": ("", "subprocess.run(['bash', 'run.sh', '-c', x], check=True)"),
    "no shell in a mapping": ("", "subprocess.run([cmd], **{'check': True, 'shell': False})"),
    "words appended to a program": (
        "",
        "words = ['git']\nwords.append(x)\nsubprocess.run(words, check=True)",
    ),
    "sql joined from literals": (
        SQL,
        "q = ['SELECT a', 'FROM t']\nq.append('WHERE id=?')\ncur.execute(' '.join(q), (x,))",
    ),
    "safe loader by a name": ("", "from yaml import CSafeLoader as Loader\ny = yaml.load(x, Loader=Loader)"),
    "quoted": ("", "os.system(f'ls {shlex.quote(x)}')"),
    "table constant": ("", "cur.execute('SELECT * FROM ' + TABLE + ' WHERE id=?', (x,))"),
    "table literal": ("", "t = 'users'\ncur.execute(f'SELECT * FROM {t} WHERE id=?', (x,))"),
    "placeholders": ("", "m = ','.join('?' * len(x))\ncur.execute(f'SELECT a FROM t WHERE id IN ({m})', x)"),
    "model.eval": ("", "model.eval()\nre.compile(x)"),
    "safe yaml": ("", "y = yaml.load(x, Loader=yaml.SafeLoader)"),
    "jitter": ("", "time.sleep(random.random())"),
    "md5 not for security": ("", "hashlib.md5(x, usedforsecurity=False)"),
    "shell removed": ("subprocess.run(cmd, shell=True)", "subprocess.run([cmd])"),
    "inherited eval": ("y = eval(x)", "y = eval(x)\nz = y"),
    "guard as call": (CHECK, "require_admin(user)"),
    "guard reworded": (
        "if x <= 0:\n    raise ValueError('x')",
        "if not x > 0:\n    raise ValueError('more')",
    ),
    "guard as assert": ("if x <= 0:\n    raise ValueError('x')", "assert x > 0"),
    "guard split": (
        "if x <= 0 or x > LIMIT:\n    raise ValueError",
        "if x > LIMIT:\n    raise ValueError\nif x <= 0:\n    raise ValueError",
    ),
    "kwargs": (
        "g(\n    1,\n    b=1,\n    c=2,\n    d=3,\n    e=4,\n    h=5,\n    i=6,\n)",
        "g(\n    1,\n    b=1,\n    c=2,\n    d=3,\n    **x,\n    e=4,\n    h=5,\n    i=6,\n)",
    ),
    "in an else": (
        "if x:\n    a = 2\nelse:\n    a = 3\n    b = 4\n    b = 5\n    b = 6\n    b = 7",
        "if x:\n    a = 2\nelse:\n    a = 3\n    b = 4\n    b = 5\n    b = 66\n    b = 7",
    ),
    "in an except": (
        "try:\n    a = 2\nexcept OSError:\n    a = 3\n    b = 4\n    b = 5\n    b = 6",
        "try:\n    a = 2\nexcept OSError:\n    a = 3\n    b = 4\n    b = 5\n    b = 66",
    ),
    "newer syntax": ("", "type Y = int"),
}


# With how much of the file a change is shown. Each more than the first takes as long again.
CONTEXTS = {"hunk": 3, "line": 1, "whole": WHOLE}


@pytest.fixture(
    scope="module",
    params=["hunk", *(pytest.param(each, marks=pytest.mark.long) for each in ("line", "whole"))],
)
def context(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def opinions(context: str) -> dict[str, Opinion]:
    """Of each fault and each harmless change, with as much of its file as the context says."""
    return review_all(
        {
            name: case_of(diff(body(old), body(new), context=CONTEXTS[context]))
            for name, (old, new) in (FAULTS | HARMLESS).items()
        }
    )


def is_sure(opinion: Opinion) -> bool:
    return (
        (opinion.vote, opinion.risk_level) == ("no", "high")
        and opinion.confidence >= 0.9
        and "app/x.py:" in opinion.reason
    )


def test_a_sure_fault_is_voted_down(context: str, opinions: dict[str, Opinion]) -> None:
    if context != "line":
        names = FAULTS.keys() - OTHERS
        assert {name: opinions[name] for name in names if not is_sure(opinions[name])} == {}


def test_a_sure_fault_of_another_mind_s_is_prime_s_too() -> None:
    for name in OTHERS:
        old, new = FAULTS[name]
        assert is_sure(Prime().review(case_of(diff(body(old), body(new))))), name


def test_what_only_looks_alarming_is_not_voted_down(context: str, opinions: dict[str, Opinion]) -> None:
    votes = dict.fromkeys(HARMLESS, ("yes",)) | {"newer syntax": ("yes", "abstain")}
    if context != "line":
        assert {
            name: opinions[name]
            for name in HARMLESS
            if opinions[name].vote not in votes[name] or opinions[name].confidence < 0.3
        } == {}


def test_with_hardly_any_context_it_never_invents_a_fault(opinions: dict[str, Opinion]) -> None:
    assert {
        name: opinion
        for name, opinion in opinions.items()
        if opinion.confidence < 0.3 or (name in HARMLESS and opinion.vote == "no")
    } == {}


@pytest.mark.parametrize("name", ["no colon", "eval", "sql f-string", "guard gone", "quoted", "newer syntax"])
def test_one_run_of_the_linters_finds_for_each_review_what_its_own_would(
    name: str, context: str, opinions: dict[str, Opinion]
) -> None:
    old, new = (FAULTS | HARMLESS)[name]
    assert review(diff(body(old), body(new), context=CONTEXTS[context])) == opinions[name]


def test_pickled_bytes_from_nowhere_in_sight_are_a_human_s_to_rule_on() -> None:
    """Fails where such a no is a stop, or where it escalates nothing: two seats would outvote it."""
    codes = ["y = pickle.loads(x)", "y = pickle.loads(cur.read())"]
    codes += [
        "with open(x, 'rb') as f:\n    y = pickle.load(f)",
        "raw = x.read_bytes()\ny = pickle.loads(raw)",
    ]
    opinions = review_all({code: case_of(diff(body(""), body(code))) for code in codes})
    assert {
        code: opinion
        for code, opinion in opinions.items()
        if (opinion.vote, opinion.risk_level) != ("no", "med") or "py-pickle" not in opinion.escalate
    } == {}


def test_a_decorator_that_guards() -> None:
    old = "@app.post('/x')\n@login_required\n" + body("")
    for context in (1, 3, WHOLE):
        opinion = Prime().review(case_of(diff(old, old.replace("@login_required\n", ""), context=context)))
        assert (opinion.vote, opinion.risk_level) == ("no", "high"), opinion.reason
        assert "login_required" in opinion.reason


def test_what_is_inherited_or_moved_is_not_the_proposers() -> None:
    moved = body("y = eval(x)\n" + CHECK)
    removed = "".join(f"-{line}\n" for line in moved.splitlines())
    count = len(moved.splitlines())
    gone = "diff --git a/old.py b/old.py\ndeleted file mode 100644\n--- a/old.py\n+++ /dev/null\n"
    gone += f"@@ -1,{count} +0,0 @@\n"
    assert review(gone + removed + added("new.py", moved)).vote == "yes"
    worse = gone + removed + added("new.py", moved.replace("raise PermissionError('no')", "pass"))
    assert Prime().review(case_of(worse)).vote == "no"


def test_deleting_a_function_deletes_no_check() -> None:
    assert review(diff("def h(x):\n    assert x\n    return x\n\n\n" + body(""), body(""))).vote == "yes"


def test_tests_may_do_as_tests_do() -> None:
    codes = ["assert 'eval(' in x", "p = '/tmp/x'", "assert x", "password = 'hunter22'"]
    changes = [change for code in codes for change in (("", code), (code, ""))]
    opinions = review_all(
        {(old, new): case_of(diff(body(old), body(new), path="tests/test_x.py")) for old, new in changes}
    )
    assert {change: opinion for change, opinion in opinions.items() if opinion.vote != "yes"} == {}


def test_exec_in_a_test_is_a_medium_matter() -> None:
    opinion = review(diff(body(""), body("exec(x)"), path="tests/test_x.py"))
    assert (opinion.vote, opinion.risk_level) == ("no", "med")


def test_an_undefined_name_is_seen_only_where_the_whole_file_is() -> None:
    old, new = body(""), body("missing(x)")
    whole = review(diff(old, new, context=WHOLE))
    assert (whole.vote, whole.risk_level) == ("no", "med")
    assert "ruff-F821" in whole.escalate
    assert review(diff(old, new)).vote == "yes"


def test_an_import_whose_deletion_leaves_a_name_undefined() -> None:
    old = "import os\n\nprint(os.name)\n"
    text = "".join(difflib.unified_diff(old.splitlines(True), ["print(os.name)\n"], "a/x.py", "b/x.py", n=50))
    text = text.replace("@@\n", "@@\n", 1) + "\\ No newline at end of file\n"
    opinion = review(text)
    assert opinion.vote == "no"
    assert "name-gone" in opinion.reason


@pytest.mark.parametrize(
    ("path", "text", "vote"),
    [
        ("a.json", '{"a": 1}', "yes"),
        ("a.json", '{"a": 1,}', "no"),
        ("tsconfig.json", '{"a": 1,}', "abstain"),
        ("a.toml", "a = 1", "yes"),
        ("a.toml", "a = ", "no"),
        ("a.yaml", "a: !Ref b\n---\nc: 1", "yes"),
        ("a.yaml", "a: [1", "no"),
        ("chart.yaml", "a: {{ .x }}: [", "abstain"),
        ("a.js", "eval(x)", "no"),
        ("a.zig", "const x = 1;", "abstain"),
        ("README.md", "text", "abstain"),
        ("a.json", "[" * 100_000, "abstain"),
    ],
)
def test_other_files(path: str, text: str, vote: str) -> None:
    assert review(added(path, text)).vote == vote


@pytest.mark.parametrize("path", ["tools/x.py", "a.json"])
def test_a_symbolic_link_is_no_broken_file(path: str) -> None:
    """Fails if the path that git shows as its text is parsed."""
    opinion = review(added(path, "shared/x").replace("100644", "120000"))
    assert opinion.vote == "abstain", opinion.reason
    assert "a symbolic link" in opinion.reason


def test_files_it_cannot_judge_lower_its_confidence_but_never_below_the_threshold() -> None:
    clean = added("a.py", "a = 1")
    alone, beside = review(clean), review(clean + added("b.xyz", "x") + added("README.md", "x"))
    assert (alone.vote, beside.vote) == ("yes", "yes")
    assert 0.3 <= beside.confidence < alone.confidence
    assert "b.xyz" in beside.reason


@pytest.mark.parametrize(
    "text", ["", "Let us paint the shed green.", "```\nsome output\n```\n", "```sql\nSELECT 1\n```\n"]
)
def test_without_code_it_abstains(text: str) -> None:
    opinion = review(text)
    assert opinion.vote == "abstain"
    assert opinion.confidence >= 0.3


def test_a_diff_that_cannot_be_read_is_no_clean_result() -> None:
    good = added("a.py", "a = 1")
    assert review(good + "--- a/b.py\n+++ b/b.py\n@@ -1,9 +1,9 @@\n a\n").vote == "abstain"
    assert review(added("a.py", "eval(x)") + "@@ -1 +1 @@\n").vote == "no"


def test_code_blocks_are_judged_too() -> None:
    assert review("```python\nimport os\nos.system('rm ' + x)\n```").vote == "no"
    assert review("```python\nprint('hello')\n```").vote == "yes"


def test_code_in_the_action_is_judged() -> None:
    bad = {"tool": "write_file", "args": {"path": "app/x.py", "content": "eval(input())\n"}}
    assert review("", action=bad).vote == "no"
    patch = {"tool": "apply", "args": {"edits": {"patch": added("x.py", "eval(x)")}}}
    assert review("", action=patch).vote == "no"
    assert review("", action={"tool": "say", "args": {"text": "hello"}}).vote == "abstain"


@pytest.mark.parametrize(
    ("path", "text", "vote"),
    [
        ("tests/test_x.py", "def test_x(client):\n    assert client.login(password='S3cr3tP@ss99')\n", "yes"),
        ("app/x.py", "eval(input())\n", "no"),
        ("a.json", '{"a": 1,}', "no"),
        ("a.md", "x =", "abstain"),
    ],
)
def test_a_file_that_an_action_writes_is_judged_as_one_that_is_added(path: str, text: str, vote: str) -> None:
    """Fails where it is code without a name: then a test's own password is a fault, and JSON is not read."""
    opinion = review("", action={"tool": "write_file", "args": {"path": path, "content": text}})
    assert opinion.vote == vote, opinion.reason
    assert vote != "no" or path in opinion.reason


@pytest.mark.parametrize(
    "action",
    [
        {
            "tool": "write",
            "args": {"files": [{"path": "a.md", "content": "x ="}, {"path": "a.py", "content": "eval(x)"}]},
        },
        {"tool": "apply", "args": {"patches": [added("y.py", "y = 1"), added("x.py", "eval(x)")]}},
        {"tool": "run_cell", "args": {"language": "python", "source": ["y = (\n", "eval(x))\n"]}},
    ],
    ids=["files", "patches", "lines"],
)
def test_code_in_a_list_of_the_action_is_judged(action: dict[str, object]) -> None:
    """Fails where lists are passed over: then it says that there is no code, and two seats pass an eval."""
    opinion = review("", action=action)
    assert (opinion.vote, opinion.risk_level) == ("no", "high"), opinion.reason
    assert "py-eval-of-data" in opinion.reason


@pytest.mark.parametrize(
    ("limit", "value", "command", "why"),
    [
        ("CPU_SECONDS_MAX", 1, [sys.executable, "-c", "while True: pass"], "took more than 1 s of CPU time"),
        ("OUTPUT_BYTES_MAX", 1_024, ["/bin/sh", "-c", "head -c 40000 /dev/zero"], "sh reported|exit code"),
        ("DATA_BYTES_MAX", 1 << 28, [sys.executable, "-c", "bytearray(2 ** 31)"], "MemoryError"),
    ],
)
def test_an_analyzer_is_ended_past_its_limits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, value: int, command: list[str], why: str
) -> None:
    """ruff took 2 GB, and wrote 88 MB, for 100,000 lines of one letter."""
    monkeypatch.setattr(tools, limit, value)
    with pytest.raises(tools.ToolFailed, match=why):
        tools.run(command, tmp_path, timeout_s=120, cpu_s=tools.CPU_SECONDS_MAX)


def test_what_ruff_reports_past_a_bound_is_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "OUTPUT_BYTES_MAX", 4_000_000)
    with pytest.raises(tools.ToolFailed, match="ruff reported more than 4,000,000 bytes"):
        linters.lint(["a\n" * 20_000], timeout_s=120)


def test_comments_and_settings_in_the_text_do_not_quiet_the_linters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ruff.toml").write_text('[lint]\nselect = []\n[per-file-ignores]\n"*" = ["ALL"]\n')
    (tmp_path / "ruff.py").write_text("raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    text = (
        "# ruff: noqa\nprint(nowhere)  # noqa\nfrom flask import Flask\napp = Flask('x')\n"
        "app.run(debug=True)  # nosec # noqa: S201\n"
    )
    assert "ruff-F821" in review(added("ruff.toml.py", text)).reason


def test_nothing_of_the_text_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'w')\nimport conftest\n# -*- coding: utf-8 -*-\n"
    review(added("sitecustomize.py", code) + added("conftest.py", code) + f"```python\n{code}```\n")
    assert not mark.exists()


def test_an_analyzer_that_fails_is_no_clean_result(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, why in (
        ("/bin/false", "false failed with exit code 1"),
        ("/nowhere/x", "x failed with exit code 127"),
    ):
        monkeypatch.setattr(tools, "find", lambda _, name=name: name)
        opinion = review(added("a.py", "a = 1"))
        assert opinion.vote == "abstain"
        assert why in opinion.reason
    opinion = Prime().review(case_of(added("a.py", "a = 1")))
    assert (opinion.vote, opinion.confidence) == ("abstain", 0.2), "two who saw nothing must not approve it"


def test_many_faults_make_no_endless_reason() -> None:
    opinion = review(added("a.py", "\n".join(f"y{at} = eval(x{at})" for at in range(500))))
    assert len(opinion.reason) <= REASON_CHARS_MAX
    assert " more" in opinion.reason


def test_an_ordinary_review_starts_each_analyzer_once_and_does_little_beside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[list[str]] = []
    start = subprocess.Popen

    def noted(command: list[str], **how: Any) -> Any:
        started.append(command)
        return start(command, **how)

    monkeypatch.setattr(subprocess, "Popen", noted)
    with calls_counted() as calls:
        review(diff(body(CHECK), body("")))
    assert len(started) == 2
    assert calls() < 50_000


def test_a_fault_is_told_with_its_place_and_rule() -> None:
    opinion = review(added("app/db.py", "\n\ncur.execute(f'SELECT a FROM t WHERE id={x}')"))
    assert (opinion.vote, opinion.risk_level, opinion.confidence) == ("no", "high", 0.95)
    assert "app/db.py:3 A database runs a statement that is built from data." in opinion.reason
    assert opinion.reason.endswith("(py-sql-execute-built)")


@given(st.integers(0, 40), st.integers(1, 25))
@settings(max_examples=tried(150))
def test_any_cut_through_good_python_parses_or_is_left_unjudged(start: int, length: int) -> None:
    """The mutation caught: a repair that takes an unfinished fragment of valid code for a syntax error."""
    code = '''class A(
    Base,
):
    """Doc.

    Words: and more of them, as prose has.
    """

    @decorated(
        1,
    )
    def f(self, x=(1,
                   2)) -> int:
        try:
            y = {
                "a": [1, 2],
                "b": x,
            }
        except (OSError, ValueError):
            if x:
                pass
            elif y:
                return 1
            else:
                text = """
  not indented: text
"""
        finally:
            g(x, y=1,
              **z)
        return (
            x
            + y
        )


def h():
    pass
'''.splitlines()
    cut = code[start : start + length]
    if not cut:
        return
    middle = len(cut) // 2
    indent = len(cut[middle]) - len(cut[middle].lstrip())
    new = [*cut[:middle], cut[middle], " " * indent + "# a comment", *cut[middle + 1 :]]
    lines = "".join(f" {line}\n" for line in new[: middle + 1])
    lines += f"+{new[middle + 1]}\n" + "".join(f" {line}\n" for line in new[middle + 2 :])
    text = f"--- a/x.py\n+++ b/x.py\n@@ -{start + 1},{len(cut)} +{start + 1},{len(new)} @@\n{lines}"
    changes = read_changes(text).files
    assert not [
        each for each in linters.findings(changes, pieces_of(changes), 20.0) if each.family == "syntax"
    ]
    for piece in pieces_of(changes):
        numbers = {number for number in piece.numbers if number}
        assert numbers <= set(range(start + 1, start + len(new) + 1))
