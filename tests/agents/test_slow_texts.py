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
from tree_sitter import Node

from council import Council, Decision
from council.agents.codemind import CodeMind
from council.agents.lite import Lite
from council.agents.mind import Case, Opinion
from council.agents.prime import Prime
from council.agents.scan import datafiles, lines, python, removed, shell
from council.agents.scan.change import read_changes
from council.agents.scan.compare import compare
from council.agents.scan.languages import BY_NAME
from council.agents.scan.pieces import piece_of, pieces_of
from council.agents.scan.python_checks import checking_calls
from council.agents.scan.python_values import written_out
from council.agents.scan.regex import Regex
from council.agents.scan.ruleset import line_rules
from council.agents.scan.secrets import find_private
from council.agents.scan.shell import ParseEffort
from council.agents.scan.shell import read as read_shell
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
    work = ParseEffort()
    reading = read_shell(script, work=work)
    assert reading.fault == "shell text left unread: it takes the parser too many steps"
    assert work.steps <= shell.STEPS_MAX + 1
    assert work.repeats <= shell.REPEATS_MAX + 4  # a step of the longest line counts four times


def test_substitutions_in_substitutions_are_looked_into_within_a_bound() -> None:
    """Fails, by 13 s of CPU for 59,000 characters, if each is looked into from every one around it."""
    work = ParseEffort()
    reading = read_shell("echo " + "$(" * 1_400 + "a" + ")" * 1_400, work=work)
    assert reading.fault == "shell text left unread: its parts are looked at too many times"
    assert work.nodes <= shell.NODES_MAX


def test_the_words_of_pipelines_in_pipelines_are_looked_at_within_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each pipeline around a command took its words anew, which nobody counted: 3 s of CPU for 23,600 characters."""
    line = "{ " * 60 + "a " + "$x " * 840 + "|sh;}" * 60 + "\n"
    work, words = ParseEffort(), 0
    word = shell._Reader.word

    def counted(reader: shell._Reader, node: Node) -> str:
        nonlocal words
        words += 1
        return word(reader, node)

    monkeypatch.setattr(shell._Reader, "word", counted)
    reading = read_shell(line * 4, work=work)
    assert reading.fault == "shell text left unread: its parts are looked at too many times"
    assert words <= work.nodes <= shell.NODES_MAX


def test_what_the_scripts_of_one_case_take_is_counted_together() -> None:
    """As many as it likes, each within a piece's bound, and the case's is kept."""
    work = ParseEffort()
    faults = [read_shell(SHELL[:700], work=work).fault for _ in range(200)]
    assert not faults[0]
    assert faults[-1]
    assert work.repeats <= shell.REPEATS_MAX + 200


def test_the_same_script_is_read_in_the_same_steps() -> None:
    one, other = ParseEffort(), ParseEffort()
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
    assert reading.fault or reading.findings


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
            sorted((ballot.seat, ballot.vote) for ballot in decision.ballots),
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

    monkeypatch.setattr(python, "_parsed", counted)
    pieces_of(read_changes(as_hunk(text)).files)
    assert max(parsed) <= python.TOKENS_MAX
    assert sum(parsed) <= 6 * python.TOKENS_MAX  # by six repairs


@pytest.mark.parametrize("start", [1, 40], ids=["whole", "hunk"])
def test_both_sides_of_a_change_are_parsed_within_one_bound(
    monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    """Each side had a bound of its own, and context stands on both: 1 s for 45,000 characters."""

    def tokens_parsed(lines: int) -> int:
        parsed.clear()
        context = " name_of_thing = 1\n" * lines
        diff = f"--- a/a.py\n+++ b/a.py\n@@ -{start},{lines} +{start},{lines + 1} @@\n{context}+x = 1\n"
        pieces_of(read_changes(diff).files)
        return sum(parsed)

    parsed: list[int] = []

    def counted(source: str) -> ast.Module:
        parsed.append(python.tokens_in(source))
        return ast.parse(source)

    monkeypatch.setattr(python, "_parsed", counted)
    assert python.TOKENS_MAX * 0.9 < tokens_parsed(4_900) <= python.TOKENS_MAX
    assert tokens_parsed(9_000) == 0


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


def test_yaml_of_very_many_directives_is_not_read() -> None:
    """libyaml compares each with all before it: 33,000 of them took 1.5 s."""
    directives = [f"%TAG !{n}! tag:a.b\n" for n in range(101)]
    assert datafiles.syntax_fault("a.yml", "".join(directives[:100]) + "--- a\n") is None
    fault = datafiles.syntax_fault("a.yml", "".join(directives) + "--- a\n")
    assert fault == datafiles.SyntaxFault(0, "more than 100 %TAG directives", sure=False, is_limit=True)


@pytest.mark.parametrize("part", ["a", "a ", "1", '"a"', "'.'", r'"\""', "a\t", "b" * 201, '"#"', '""'])
@pytest.mark.parametrize(
    "text",
    ["{} = 1\n", "[{}]\n", "x = [{{{} = 1}}]\n", "x = 1 # it's\n{} = 1\n", 'x = [""""a""""", {{{} = 1}}]\n'],
    ids=["key", "table", "inline", "after a comment", "after a string"],
)
def test_a_toml_key_of_very_many_parts_is_not_read(part: str, text: str) -> None:
    """64,000 characters of it took 1.6 s, and 500,000 a minute and a half."""
    keys = [".".join([part] * count) for count in (20, 21)]
    assert datafiles.syntax_fault("a.toml", text.format(keys[0])) is None
    with calls_counted() as calls:
        fault = datafiles.syntax_fault("a.toml", text.format(keys[1]) * 100)
    assert fault is not None
    assert (fault.message, fault.sure) == ("a key of more than 20 parts", False)
    assert calls() < 50


@pytest.mark.parametrize("unit", ['"\\', "'" * 3, '"""\n\\', '\n\\"""', "'\n", '"""\n\\"', "#", '"a".'])
def test_the_strings_of_toml_are_gone_through_once(unit: str) -> None:
    """Each quote was tried as the start of a key: 5.6 s for 500,000 characters. A text that is taken apart in one
    pass is the same when it is put together again."""
    text = unit * 1_000 + "\\"
    found = list(datafiles._TOML_STRING_OR_COMMENT.finditer(text))
    starts = [at.start() for at in re.finditer("[\"'#]", text)]
    inside = {at for match in found for at in range(match.start(), match.end())}
    assert inside.issuperset(starts)  # so that none is tried in vain


def test_a_lock_file_is_read() -> None:
    """Its values have more dots in a line than a key may have parts."""
    url = "https://files.example.org/packages/3.11/a.b/c_d-1.2.3.post4-cp311-cp311-manylinux_2_17.whl"
    package = (
        '[[package]]\nname = "{0}"\nversion = "1.2.{0}"\n'
        'description = """A. B. C. \\\n  It\'s #1 ""so"" far."""\n'
        'marker = \'sys_platform == "win32" or python_full_version < "3.11.4"\' # it\'s 1.2.3\n'
        'dependencies = [{{ name = "a", specifier = ">=1.2.3,!=1.3.*" }}, "b (>=1.2.3.4)"]\n'
        'wheels = [ {{ url = "{1}", hash = "sha256:00.11" }}, {{ url = "{1}", size = 1.5 }}]\n'
        "extras = [" + '"a.b (>=1.2.3.4)", ' * 30 + "]\n"
        '[package.metadata."requires.dist".a.b.c]\nd.e = 1979-05-27T07:32:00.999-07:00\n\n'
    )
    text = "".join(package.format(n, url) for n in range(500))
    assert len(text) > 400_000
    assert (
        datafiles.syntax_fault("uv.lock.toml", text[: datafiles.CHARS_MAX].rpartition("[[package]]")[0])
        is None
    )


@pytest.mark.parametrize("path", ["a.json", "a.toml"])
def test_a_number_of_very_many_digits_is_no_error_of_the_mind(path: str) -> None:
    """Python refuses to convert it, in words that are neither format's."""
    fault = datafiles.syntax_fault(path, "9" * 5_000 if path == "a.json" else "a = " + "9" * 5_000)
    assert fault is not None
    assert (fault.message, fault.sure) == ("a number of too many digits", False)


def test_the_lines_of_a_notebook_are_found_in_one_pass() -> None:
    """Each line of code was sought in lines of JSON, however long: 22 s for one of 499,000 characters."""
    lines = [r'"\u0061\n",', r'"b\n",', r'"\u0063\n",', r'"d\n"']
    text = "\n".join(['{"cells": [{"cell_type": "code", "source": [', *lines, "]}]}"])
    assert datafiles.code_in("a.ipynb", text) == ("a\nb\nc\nd\n", (2, 3, 4, 5, 5))
    escaped = r"\u0061b\n" * 40_000
    text = '{"cells": [{"cell_type": "code", "source": "' + escaped + '"}], "x": "' + "1b" * 50_000 + '"}'
    with calls_counted() as calls:
        found = datafiles.code_in("a.ipynb", text)
    assert found == ("ab\n" * 40_000, (1,) * 40_001)
    assert calls() < 100


def test_a_python_name_that_was_given_very_many_values_is_looked_up_once() -> None:
    """Each use went through all of them: 1 s for 64,000 characters."""

    def calls_of(lines: int) -> int:
        text = "import os\n" + "a=f(a)\n" * lines
        with calls_counted() as calls:
            written_out(piece_of("a.py", BY_NAME["python"], text))
        return calls()

    assert calls_of(1_000) < 3 * calls_of(500)


def test_the_body_of_a_try_is_read_once_for_all_its_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read again for each one: 300 handlers of 25 kB took 12 s."""
    read = [0]

    def counted(node: ast.stmt, inner: Iterator[ast.AST]) -> Iterator[ast.Call]:
        read[0] += 1
        return checking_calls(node, inner)

    monkeypatch.setattr(removed, "checking_calls", counted)
    handlers = "".join(f"except E{at}:\n    pass\n" for at in range(100))
    changes = read_changes(one_file("a.py", "", f"try:\n    go()\n{handlers}")).files
    removed.findings(changes, pieces_of(changes))
    assert read == [1]


def test_what_a_rule_wants_near_is_looked_for_once_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was looked for at each match: the square of a file's length."""
    searched = []

    def counted(self: Regex, text: str) -> re.Match[str] | None:
        searched.append((self.pattern, text))
        return self.compiled.search(text)

    (rule,) = (each for each in line_rules({"a.go"}) if each.id == "shared-map-unguarded")
    old = "".join(f"\tvar m{at} sync.Map\n\n" for at in range(50))
    change = one_file("a.go", old, old.replace("sync.Map", "map[string]int"))
    pieces = pieces_of(read_changes(change).files)
    matches = lines.matches(pieces, [rule])
    assert len(matches) == 50
    assert rule.near is not None
    monkeypatch.setattr(Regex, "search", counted)
    compare(matches, pieces)
    assert [pattern for pattern, _ in searched].count(rule.near.pattern) == 1
