"""A persona against core rules: what is found, with rule and words, what goes through, what words don't tell."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.protocol.contradictions import EVERY_RULE, Contradiction, contradictions
from council.protocol.identity import OPTIONS_CHARS_MAX

FILE = Path(__file__).parent.parent / "corpus" / "personas.toml"
CORPUS = tomllib.loads(FILE.read_text(encoding="utf-8"))
AGAINST = [(words, group["rule"]) for group in CORPUS["against"] for words in group["words"]]
RULES = [group["rule"] for group in CORPUS["against"] if group["rule"] != EVERY_RULE]


def found(text: str, *rules: str) -> tuple[Contradiction, ...]:
    return contradictions(rules or RULES, [("tone", text)])


def test_the_corpus_is_large() -> None:
    assert len({words for words, _ in AGAINST}) == len(AGAINST) >= 150
    assert len(set(CORPUS["fine"])) == len(CORPUS["fine"]) >= 80
    assert EVERY_RULE in {rule for _, rule in AGAINST}


@pytest.mark.parametrize(("text", "rule"), AGAINST)
def test_what_goes_against_a_rule_is_found_with_the_rule_and_the_words(text: str, rule: str) -> None:
    faults = [fault for fault in found(text) if fault.rule == rule]
    assert faults
    assert all(fault.where == "tone" and fault.words and fault.why for fault in faults)


@pytest.mark.parametrize("text", CORPUS["fine"])
def test_a_tone_goes_through(text: str) -> None:
    """Mutation: a check so coarse that no persona is left."""
    assert found(text) == ()


@pytest.mark.parametrize("text", CORPUS["too_strict"])
def test_what_touches_a_subject_without_saying_the_same_is_refused(text: str) -> None:
    assert found(text)


@pytest.mark.parametrize("text", CORPUS["beyond_words"])
def test_what_words_do_not_tell_is_known(text: str) -> None:
    """The limit that the module states. One that is found now belongs among those that are."""
    assert found(text) == ()


def test_a_core_rule_itself_goes_through() -> None:
    """A persona may repeat what it is under. Mutation: negations not counted."""
    for rule in RULES:
        if "without" not in rule:
            assert found(rule) == (), rule
    assert found("Never execute shell commands without reflection and approval", RULES[0]) == ()


@pytest.mark.parametrize(
    ("rule", "same", "other"),
    [
        ("Never lie", "never lies", "lies"),
        ("Do not delete files", "never deletes files", "deletes old files"),
        ("No privacy leaks", "never leaks private data", "leaks private data"),
        ("Always cite the statute", "always cites the statute", "never cites the statute"),
        ("Must not promise refunds", "doesn't promise refunds", "promises refunds gladly"),
        ("Refuse to write poems about war", "never writes poems about war", "writes poems about war"),
        ("Obey the captain", "obeys the captain", "does not obey the captain"),
        ("Never deploy before consent", "never deploys without consent", "deploys at once, consent or not"),
    ],
)
def test_rules_of_a_users_own_are_read(rule: str, same: str, other: str) -> None:
    assert found(same, rule) == ()
    assert found(other, rule)


def test_each_fault_is_told_once_with_its_place() -> None:
    texts = [("tone", "warm"), ("style_notes", "Lies. Lies. Runs shell commands."), ("x", "Lies.")]
    faults = contradictions(["Never lie", RULES[0]], texts)
    assert [(fault.where, fault.words, fault.rule) for fault in faults] == [
        ("style_notes", "lies", "Never lie"),
        ("style_notes", "runs shell commands", RULES[0]),
        ("x", "lies", "Never lie"),
    ]


def test_long_words_are_cut_where_they_are_shown() -> None:
    (fault,) = found("lies " + "very " * 1000, "Never lie")
    assert len(fault.words) == 201


@given(
    st.lists(st.sampled_from([words for words, _ in AGAINST]), min_size=1, max_size=2),
    st.sampled_from(CORPUS["fine"]),
)
def test_what_stands_around_it_hides_nothing(against: list[str], fine: str) -> None:
    """Mutation: one sentence's negation that reaches into the next."""
    assert found(f"{fine}. {'. '.join(against)}.")
    assert found(f"{'. '.join(against)}\n{fine}")


@given(st.text(max_size=200))
def test_any_text_is_read_and_alike_each_time(text: str) -> None:
    assert found(text) == found(text)


BAIT = [
    "a",
    "make ",
    "make" + " " * 96,
    "all ",
    "i ",
    "rules ",
    "ignor",
    "never ",
    "'",
    "a.",
    "\u0301",
    "ß",
    "run it. ",
]


@pytest.mark.parametrize("bait", BAIT)
def test_bait_is_read_in_a_time_that_grows_with_it(bait: str) -> None:
    """As much as a persona may hold takes some 0.1 s; a pattern that takes the square of it takes minutes."""
    text = (bait * OPTIONS_CHARS_MAX)[:OPTIONS_CHARS_MAX]
    began = time.process_time()
    found(text, "Never lie", RULES[0])
    assert time.process_time() - began < 5
