"""Mangle atoms: the grammar of rules 6.3, declarations, and what no model may assert (rules 6.4)."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.protocol.answer.mangle import (
    ATOM_CHARS_MAX,
    DEPTH_MAX,
    Atom,
    Name,
    Schema,
    parse,
    shipped,
)
from council.protocol.errors import ConfigError, EnvelopeError
from tests.cases import each
from tests.patience import HANG_S

# The document's own examples, of its patterns and of its full schema.
DOCUMENTED = [
    'user_intent(/fix, "auth.go")',
    "task_status(/auth_fix, /in_progress)",
    "task_status(/task123, /pending)",
    'file_state("auth.go", /read)',
    'file_state("auth.go", /modified)',
    'diagnostic(/error, "auth.go", 42, "E001", "fixed")',
]


@pytest.mark.parametrize("text", DOCUMENTED)
def test_the_documents_examples_are_read_with_and_without_a_period(text: str) -> None:
    shipped().check(text)
    shipped().check(f" {text} . ")
    assert parse(f" {text} . ") == parse(text)


@each(
    ("text", "args"),
    [
        ("p()", ()),
        ("p:q.r:S_1()", ()),
        ("p ( )", ()),
        ("p(/a, /a/b, /a-b.c~d%e/F)", (Name("/a"), Name("/a/b"), Name("/a-b.c~d%e/F"))),
        ("p(\"x\", 'y', `z`)", ("x", "y", "z")),
        (r'p("a\"b\'c\n\t\\", "\x41\u{1f600}")', ("a\"b'c\n\t\\", "A😀")),
        ("p('it is \"so\"', `it's`)", ('it is "so"', "it's")),
        ("p(0, -7, 007)", (0, -7, 7)),
        (f"p({2**63 - 1}, {-(2**63)})", (2**63 - 1, -(2**63))),
        ("p(1.5, -.5, 2.0e3, 1.0E-2)", (1.5, -0.5, 2000.0, 0.01)),
        ("p([], [1, [/a]], [1,])", ((), (1, (Name("/a"),)), (1,))),
        ("p({}, {/b: 1, /a: [2]})", ({}, {"/b": 1, "/a": (2,)})),
        ("p(1) # said in passing", (1,)),
        ("p(1) # " + "[" * 99, (1,)),
        ("p('# no comment')", ("# no comment",)),
    ],
)
def test_arguments_are_what_the_grammar_says(text: str, args: tuple[Any, ...]) -> None:
    found = parse(text)
    assert found.args == args
    assert [type(arg) for arg in found.args] == [type(arg) for arg in args]


@each(
    ("text", "problem"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("p", "ends too early"),
        ("p(", "ends too early"),
        ("p(1,2", "ends too early"),
        ("p(/a) :- q(/a).", "is a rule"),
        ("p(X) :- q(X).", "is a rule"),
        ("p(X)", "'X' is a variable"),
        ("p([{/a: _}])", "'_' is a variable"),
        ("p(/a), q(/b)", "did not expect ', q"),
        ("p(/a). q(/b).", "did not expect 'q"),
        ("p(/a)..", "did not expect '.'"),
        ("!p(/a)", "did not expect '!p"),
        ("P(/a)", "did not expect 'P"),
        ("_p(/a)", "did not expect '_p"),
        ("1p(/a)", "did not expect '1p"),
        ("p..q()", "did not expect '..q"),
        ("p(q)", "did not expect 'q)'"),
        ("p(q(/a))", "did not expect 'q("),
        ("p(/)", "did not expect '/)'"),
        ("p(/a/)", "did not expect '/)'"),
        ("p(+1)", "did not expect '+1"),
        ("p(1.)", "did not expect '.)'"),
        ("p(1e5)", "did not expect 'e5"),
        ("p(٣)", "did not expect"),
        ("p(true)", "did not expect 'true)'"),
        ("p(,)", "did not expect ',)'"),
        ("p(1 2)", "did not expect '2)'"),
        ('p("a)', "did not expect"),
        ('p("a\\")', "did not expect"),
        ("p([1, 2)", "did not expect ')'"),
        ("p({/a 1})", "did not expect '1}"),
        ('p("\\q")', "'\\\\q' is not an escape"),
        ('p("\\x4")', "is not an escape"),
        ('p("\\u{110000}")', "is not an escape"),
        ('p("\\x00")', "NUL"),
        ('p("\\u{d800}")', "surrogate"),
        ('p({"a": 1})', "named"),
        ("p({/a: 1, /a: 2})", "twice"),
        (f"p({2**63})", "64 bits"),
        (f"p({-(2**63) - 1})", "64 bits"),
        ("p(" + "9" * 3_000 + ")", "64 bits"),
        ("p(1.0e999)", "too large a number"),
        ("p(" + "[" * DEPTH_MAX + "]" * DEPTH_MAX + ")", "nested more than 32"),
        ("p(# it's \n" + "[" * 1_900 + "]" * 1_900 + ")", "nested more than 32"),
        ('p(# "\n' + "[" * DEPTH_MAX + "]" * DEPTH_MAX + ")", "nested more than 32"),
        ('p("' + "x" * ATOM_CHARS_MAX + '")', "at most 4,000"),
        ("p(\n/a\n%)", "character 1 of line 3"),
    ],
)
def test_what_is_no_ground_atom_is_refused_in_words(text: str, problem: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        parse(text)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 200


NAMES = st.from_regex(r"\A(/[A-Za-z0-9._~%-]+)+\Z").filter(lambda text: len(text) < 50).map(Name)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    NAMES | TEXTS | NUMBERS,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(NAMES.map(lambda name: name.text), inner, max_size=3)
    ),
    max_leaves=6,
)


def written(value: Any) -> str:
    """A value as a model may write it."""
    match value:
        case Name():
            return value.text
        case str():
            return '"' + "".join(rf"\u{{{ord(letter):x}}}" for letter in value) + '"'
        case float():
            mantissa, exponent, power = repr(value).partition("e")
            return (mantissa if "." in mantissa else f"{mantissa}.0") + exponent + power
        case tuple():
            return f"[{', '.join(map(written, value))}]"
        case dict():
            return "{" + ", ".join(f"{label}: {written(inner)}" for label, inner in value.items()) + "}"
    return str(value)


@given(st.from_regex(r"\A[a-z][A-Za-z0-9_:]{0,9}\Z"), st.lists(VALUES, max_size=4).map(tuple))
def test_what_is_written_is_read(predicate: str, args: tuple[Any, ...]) -> None:
    assert parse(f"{predicate}({', '.join(map(written, args))})") == Atom(predicate, args)


@pytest.mark.parametrize("quote", ['"', "'", "`"])
def test_a_backslash_before_a_line_feed_keeps_the_line_feed(quote: str) -> None:
    """As Mangle's own parser reads it."""
    assert parse(f"p({quote}hello\\\n\nworld\\\n{quote})").args == ("hello\n\nworld\n",)


@given(st.text(max_size=60) | st.text("p(/a\"\\[]{}:,.#X_1-e`' \n", max_size=60))
def test_any_text_is_an_atom_or_an_error(text: str) -> None:
    with contextlib.suppress(EnvelopeError):
        assert isinstance(parse(text), Atom)


# What is declared


@each(
    "text",
    [
        'user_intent("id", /query, /explain, "codebase", "none")',
        "user_intent(/id, /mutation, /made_up_verb, \"a.go\", '')",
        *[
            f"task_status(/a, /{s})"
            for s in ["pending", "in_progress", "complete", "completed", "blocked", "failed"]
        ],
        'task_status("a", /failed)',
        *[f'file_state("a", /{state})' for state in ("clean", "read", "modified", "deleted")],
        'diagnostic(/warning, "a", 1, "W", "m")',
        *[f"shard_state(/a, /{state})" for state in ("spawned", "executing", "completed", "failed")],
        'dangerous_action("rm")',
    ],
)
def test_the_shipped_schema_declares_what_the_rules_name(text: str) -> None:
    shipped().check(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("made_up(/a)", "'made_up' is not declared"),
        ("user_intent(/fix)", "'user_intent' has 2 or 5 arguments, found 1"),
        ("task_status(/a)", "'task_status' has 2 arguments, found 1"),
        ("task_status(/a, /done)", "Status must be /pending or /in_progress or"),
        ("task_status(1, /failed)", "TaskId must be /name or /string, found '1'"),
        ("file_state(/a, /read)", "Path must be /string, found '/a'"),
        ('file_state("a", "read")', "State must be /clean"),
        ('diagnostic(/error, "a", "42", "E", "m")', "Line must be /number"),
        ('diagnostic(/error, "a", 4.0, "E", "m")', "Line must be /number"),
        ('diagnostic(/info, "a", 4, "E", "m")', "Severity must be /error or /warning"),
        ('user_intent("id", /other, /fix, "a", "b")', "Category must be /query"),
    ],
)
def test_an_update_is_as_its_predicate_is_declared(text: str, problem: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        shipped().check(text)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "predicate",
    [
        *("permitted", "safe_action", "admin_override", "signed_approval"),
        *("action_result", "result", "results", "test_results", "constitution.permitted", "core:safe_action"),
    ],
)
def test_what_the_council_alone_says_no_model_says(predicate: str) -> None:
    """rules 6.4. Mutation: a user's schema that declares them hands them to the models."""
    schema = shipped().extended(f"Decl {predicate}(A). Decl {predicate}(A, B). Decl {predicate}().")
    for text in (f"{predicate}(/a)", f"{predicate}(/a, /b).", f" {predicate} ( )"):
        with pytest.raises(EnvelopeError, match="never by a model"):
            schema.check(text)
    with pytest.raises(EnvelopeError):
        schema.check(f"{predicate}(X) :- user_intent(X, _).")


def test_names_that_only_resemble_these_are_ordinary() -> None:
    schema = Schema.read("Decl not_permitted(A). Decl resulting(A). Decl permitted_soon(A).")
    for text in ("not_permitted(/a)", "resulting(/a)", "permitted_soon(/a)"):
        schema.check(text)


# Schemas of users


def test_a_user_extends_the_schema() -> None:
    schema = shipped().extended(
        """
        # Ours.
        Decl ours:seen(Path, Lines)
          descr [doc("what was read"), mode("+", "-")]
          bound [/string, fn:List(/number)]
          bound [fn:Singleton(/all), /any].
        Decl ours:kept(What) descr [reserved()].
        Decl at(Place) bound [fn:Struct(/path, /string, /line, fn:Union(/number, /float64))].
        Decl below(Name) bound [/ours].
        Decl diagnostic(S, P, L, C, M) bound [/name, /string, /number, /string, /string].
        """
    )
    for text in (
        'ours:seen("a", [1, 2])',
        'ours:seen(/all, "x")',
        'at({/line: 1.5, /path: "a"})',
        "below(/ours/thing)",
        'diagnostic(/info, "a", 1, "I", "m")',
        "task_status(/a, /failed)",
    ):
        schema.check(text)
    for text in (
        'ours:seen("a", ["x"])',
        "ours:seen(/some, [1])",
        "ours:kept(/a)",
        'at({/path: "a"})',
        'at({/path: "a", /line: "b"})',
        "at([])",
        "below(/ours)",
        "below(/ourselves/x)",
    ):
        with pytest.raises(EnvelopeError):
            schema.check(text)
    with pytest.raises(EnvelopeError):
        shipped().check('ours:seen("a", [1])')
    assert pickle.loads(pickle.dumps(schema)) == schema  # it crosses Ray


@each(
    ("text", "problem"),
    [
        ("Decl a(X)", "ours.gl: ends too early"),
        ("decl a(X).", "ours.gl: character 1: did not expect"),
        ("\n\nDecl a(/x).", "of line 3"),
        ("Decl a(X).\nDecl a(Y).", "ours.gl, line 2: a with 1 arguments is declared twice"),
        ("Decl a(X) bound [/string, /string].", "line 1: a has 1 parameters, and a bound of 2"),
        ("Decl a(X) bound [fn:Maybe(/string)].", "'fn:Maybe' is not a type"),
        ("Decl a(X) bound [fn:List(/string, /name)].", "fn:List can't have 2 parts"),
        ("Decl a(X) bound [fn:Union()].", "fn:Union can't have 0 parts"),
        ("Decl a(X) bound [fn:Singleton(fn:List(/a))].", "fn:Singleton wants names"),
        ("Decl a(X) bound [fn:Struct(/a)].", "fn:Struct can't have 1 parts"),
        ("Decl a(X) bound [" + "fn:List(" * 40 + "/a" + ")" * 40 + "].", "nested more than 32"),
        ("p(/a).", "character 1: did not expect 'p(/a).'"),
    ],
)
def test_a_schema_with_a_fault_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        shipped().extended(text, "ours.gl")
    assert problem in str(caught.value)
    assert caught.value.problems == (str(caught.value),)


def test_the_parser_is_loaded_by_who_reads_atoms_alone() -> None:
    code = "import sys, council.protocol.answer.read; sys.exit('lark was loaded' if 'lark' in sys.modules else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr


def calls(text: str) -> int:
    """How many calls it takes to refuse a text."""
    made = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        parse(text)
    except EnvelopeError:
        pass
    finally:
        sys.setprofile(None)
    return made


@each(
    ("head", "piece"),
    product(
        ["", "p(", "p([", 'p("'],
        ["1,", "[],", "{/a:1},", "[", '""', '"', "`,", "\\", "/a", "a.", "a_", "1 ", "#\n"],
    ),
)
def test_work_grows_as_the_text_does(head: str, piece: str) -> None:
    """Counts calls. Mutation: a parser that tries all ways (lark's default) takes the square of it, or more."""
    parse("p()")  # whatever is made once
    short, long = (
        calls((head + piece * length)[:length]) for length in (ATOM_CHARS_MAX // 4, ATOM_CHARS_MAX)
    )
    assert long <= 5 * short + 100
    assert long <= 60 * ATOM_CHARS_MAX
