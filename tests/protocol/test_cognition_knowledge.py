"""Which turns of a history a packet is given: the newest, and older ones that share rare words with its prompt."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.protocol.cognition import CognitionPacket, add_knowledge, build_packet
from council.protocol.cognition.knowledge import RECENT_TURNS, SNIPPETS_MAX
from council.protocol.cognition.parts import RelevantHistorySnippet
from tests.protocol.cognition.tables import ID, NOW

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200)
NEWEST = [f"weather {n}" for n in range(RECENT_TURNS)]


def packet(prompt: str) -> CognitionPacket:
    return build_packet(prompt, now=NOW, new_id=lambda: ID, session_id="s", time_budget_ms=1)


def turns(*texts: str) -> list[RelevantHistorySnippet]:
    return [RelevantHistorySnippet(id=f"t{at}", role="user", summary=text) for at, text in enumerate(texts)]


def older(prompt: str, *texts: str) -> list[str]:
    """The chosen ones of these texts, which come before the newest turns."""
    found = add_knowledge(packet(prompt), turns(*texts, *NEWEST)).context.relevant_history_snippet
    chosen = [turn.summary for turn in found]
    assert chosen[-RECENT_TURNS:] == NEWEST
    return chosen[:-RECENT_TURNS]


def test_the_newest_turns_and_the_related_ones_are_taken_in_order() -> None:
    history = ["the parser fails on commas", "lunch was good", "rain again", "parser written"]
    assert older("why does the parser fail?", *history) == [history[0], history[3]]
    assert older("hm", *history) == []


def test_a_rare_word_counts_more_and_of_equals_the_later() -> None:
    """Mutation: counting shared words, whatever they are."""
    history = [f"deploy server {n}" for n in range(SNIPPETS_MAX)]
    chosen = older("deploy the server in zanzibar", "zanzibar", *history)
    assert chosen == ["zanzibar", *history[-(SNIPPETS_MAX - RECENT_TURNS - 1) :]]


def test_a_script_without_spaces_has_words_too() -> None:
    assert older("为什么数据库坏了", "数据库迁移失败了", "今天天气很好") == ["数据库迁移失败了"]


def test_a_packets_own_turns_stay_and_are_not_taken_twice() -> None:
    once = add_knowledge(packet("parser"), turns("parser", "other"))
    assert add_knowledge(once, turns("parser", "other")) == once
    twice = [*turns("old words"), *turns("new words")]  # one id: the newest counts
    found = add_knowledge(packet("x"), twice).context.relevant_history_snippet
    assert [turn.summary for turn in found] == ["new words"]


@pytest.mark.parametrize("is_reversed", [False, True])
def test_of_texts_that_share_as_much_the_short_one_is_nearer_but_no_heading_is(is_reversed: bool) -> None:
    """Its reader pays by its length. Mutations: it is not divided by; or by whatever few words there are."""
    long = [f"parser lexer {' '.join(f'word{n}' for n in range(40))} {at}" for at in range(9)]
    short = [f"parser and lexer share a grammar file {at}" for at in range(9)]
    heading = [f"lexer {at}" for at in range(9)]
    for worse in (long, heading):
        history = [*short, *worse] if is_reversed else [*worse, *short]
        assert set(short) < set(older("parser lexer", *history))


@given(st.lists(TEXTS, max_size=30), TEXTS)
def test_knowledge_is_some_of_the_history(texts: list[str], prompt: str) -> None:
    """In order, whole, within the limit; nothing that is hashed changes."""
    history = turns(*texts)
    found = add_knowledge(packet(prompt), history)
    taken = found.context.relevant_history_snippet
    assert list(taken) == [turn for turn in history if turn in taken]
    assert len(taken) <= SNIPPETS_MAX
    assert all(turn in taken for turn in history[-RECENT_TURNS:])
    assert found.compute_hashes() == found


def test_it_is_the_same_in_every_process() -> None:
    """Mutation: an order that comes from a set, which differs with the hash seed."""
    code = """
from tests.protocol.test_cognition_knowledge import *
words = [f"w{n}" for n in range(40)]
history = turns(*[" ".join(words[n % 7 :: n % 5 + 1]) for n in range(60)])
print(add_knowledge(packet("check " + " ".join(words[::3])), history).to_json())
"""
    run = [sys.executable, "-c", code]
    hashes = {
        subprocess.run(run, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1
