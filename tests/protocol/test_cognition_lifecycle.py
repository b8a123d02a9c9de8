"""Lifecycle steps 2 to 4: what is wanted, what is known, who does it; the same for the same packet."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.protocol.cognition import (
    CognitionPacket,
    SystemTask,
    add_knowledge,
    build_packet,
    detect_intent,
    lifecycle,
)
from council.protocol.cognition.parts import (
    Cheatsheet,
    Council,
    DataField,
    RelevantHistorySnippet,
)
from tests.cases import each
from tests.protocol.cognition.tables import ID, NOW

PROMPTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200)


def packet(said: str, **more: Any) -> CognitionPacket:
    return build_packet("cli", said, now=NOW, new_id=lambda: ID, **more)


def knowing(said: str, *tools: str) -> CognitionPacket:
    made = packet(said)
    return made.model_copy(update={"context": made.context.model_copy(update={"available_mcp_tools": tools})})


# Step 2


@each(
    ("said", "intent", "task", "confidence"),
    [
        ("Please run the tests.", "act", "TriggerAction", 0.9),
        ("RUN the tests", "act", "TriggerAction", 0.9),
        ("Could you check whether this holds?", "validate", "Validate", 0.9),
        ("I want you to fix the bug", "refine", "Refine", 0.9),
        ("/research cats and dogs", "research", "Research", 1.0),
        ("/nonsense cats", "chat", "GenerateDraft", 0.3),
        ("Should we deploy today?", "decide", "Decision", 0.9),
        ("The thing is old. Summarize it for me.", "draft", "GenerateDraft", 0.9),
        ("My plan is to deploy it on Monday", "act", "TriggerAction", 0.6),
        ("What does delete do?", "question", "GenerateDraft", 0.7),
        ("Ist das gut?", "question", "GenerateDraft", 0.7),
        ("这样好吗？", "question", "GenerateDraft", 0.7),
        ("Fasse das zusammen", "chat", "GenerateDraft", 0.3),
        ("hello", "chat", "GenerateDraft", 0.3),
        ("", "chat", "GenerateDraft", 0.0),
        ("!!! ...", "chat", "GenerateDraft", 0.0),
    ],
)
def test_what_is_wanted_is_found_by_words(said: str, intent: str, task: str, confidence: float) -> None:
    found = detect_intent(packet(said)).intent
    assert (found.user_intent, found.system_task, found.confidence) == (intent, task, confidence)


@pytest.mark.parametrize(
    "said",
    [
        "Do not deploy it",
        "never delete anything",
        "please don't run it",
        'He said "delete everything"',
        "He said “delete everything”",
        "> deploy it now",
        "`rm` and `delete all`",
        "```\ndelete all\n```",
        "```\ndelete all, for this fence has no end",
    ],
)
def test_what_is_negated_or_quoted_is_not_asked_for(said: str) -> None:
    """Mutation: a line that somebody else wrote, quoted to be looked at, triggers an action."""
    assert detect_intent(packet(said)).intent.system_task is not SystemTask.TRIGGER_ACTION


def test_the_first_of_several_counts_and_the_doubt_shows() -> None:
    found = detect_intent(packet("Review the change. Deploy it.")).intent
    assert (found.system_task, found.confidence, found.tags) == (
        SystemTask.VALIDATE,
        0.7,
        ("review", "deploy"),
    )
    assert detect_intent(packet("Review it. Check it.")).intent.confidence == 0.9


def test_tags_are_the_words_that_say_so() -> None:
    assert detect_intent(packet("Review this:\n```\nx = 1\n```")).intent.tags == ("review", "code")
    assert len(detect_intent(packet(". ".join(lifecycle.CUES))).intent.tags) == lifecycle.TAGS_MAX


def test_a_tool_that_is_named_is_a_matter_of_tools() -> None:
    found = detect_intent(knowing("please use fs.read-file for it", "web_search", "fs.read-file")).intent
    assert (found.user_intent, found.system_task, found.tags[0]) == (
        "tool",
        SystemTask.TOOL_ROUTING,
        "fs.read-file",
    )
    for said in ("please use web_search for it", "don't use fs.read-file", "read-file"):
        assert detect_intent(knowing(said, "fs.read-file", "the")).intent.user_intent == "chat"


def test_a_proposal_is_a_matter_of_decision() -> None:
    """By typed fields alone: what its text says does not count."""
    field = DataField(key="proposal", value={"summary": "delete all"})
    assert (
        detect_intent(packet("delete all", extra_data_fields=[field])).intent.system_task
        is SystemTask.DECISION
    )
    debate = packet("delete all").model_copy(update={"council": Council()})
    assert detect_intent(debate).intent.system_task is SystemTask.DECISION


def test_beginning_and_end_of_a_long_prompt_are_read() -> None:
    filler = "lorem ipsum dolor. " * 5_000
    assert detect_intent(packet(f"Review this. {filler}")).intent.user_intent == "validate"
    assert detect_intent(packet(f"{filler} Now review it.")).intent.user_intent == "validate"


def test_a_long_quote_stays_one_to_its_end() -> None:
    """Mutation: cut before the code is taken out, the end of a long piece of it reads like speech."""
    code = "delete all. " * 4_000
    assert detect_intent(packet(f"Look:\n```\n{code}\n```\nbye")).intent.user_intent == "chat"
    assert detect_intent(packet(f"Look:\n> {code}\nbye")).intent.user_intent == "chat"


@given(PROMPTS)
def test_an_intent_is_the_same_for_the_same_and_touches_nothing_else(said: str) -> None:
    before = packet(said)
    after = detect_intent(before)
    assert after == detect_intent(before)
    assert 0 <= after.intent.confidence <= 1
    assert after.compute_hashes() == after
    assert after.model_copy(update={"intent": before.intent}) == before


# Step 3


def turns(*texts: str) -> list[RelevantHistorySnippet]:
    return [RelevantHistorySnippet(id=f"t{at}", role="user", summary=text) for at, text in enumerate(texts)]


def ids(found: CognitionPacket) -> list[str]:
    return [turn.id for turn in found.context.relevant_history_snippet]


def test_the_newest_turns_and_the_related_ones_are_taken_in_order() -> None:
    history = turns("the parser fails on commas", "lunch was good", "rain again", "parser written", "a", "b")
    found = add_knowledge(packet("why does the parser fail?"), history, recent=2)
    assert ids(found) == ["t0", "t3", "t4", "t5"]
    assert ids(add_knowledge(packet("hm"), history, recent=2)) == ["t4", "t5"]
    assert ids(add_knowledge(packet("hm"), history, recent=0)) == []


def test_rare_words_tell_more_than_common_ones() -> None:
    """Mutation: counting shared words, whatever they are."""
    history = turns("zanzibar", *["deploy server"] * 9)
    found = add_knowledge(packet("deploy the server in zanzibar"), history, recent=0, snippets_max=1)
    assert ids(found) == ["t0"]


def test_of_equals_the_later_is_taken() -> None:
    found = add_knowledge(packet("parser"), turns("parser", "parser", "parser"), recent=0, snippets_max=2)
    assert ids(found) == ["t1", "t2"]


def test_a_script_without_spaces_has_words_too() -> None:
    history = turns("数据库迁移失败了", "今天天气很好")
    assert ids(add_knowledge(packet("为什么数据库坏了"), history, recent=0)) == ["t0"]


def test_limits_hold() -> None:
    history = turns(*["parser"] * 100)
    assert len(ids(add_knowledge(packet("parser"), history))) == lifecycle.SNIPPETS_MAX
    assert ids(add_knowledge(packet("parser"), history, snippets_max=3)) == ["t97", "t98", "t99"]
    assert ids(add_knowledge(packet("parser"), history, snippets_max=0)) == []


def test_what_is_held_already_stays_and_is_not_taken_twice() -> None:
    once = add_knowledge(packet("parser"), turns("parser", "other"), [Cheatsheet(id="a", title="parser")])
    assert add_knowledge(once, turns("parser", "other"), [Cheatsheet(id="a", title="parser")]) == once
    twice = [*turns("old words"), *turns("new words")]  # one id: the newest counts
    found = add_knowledge(packet("x"), twice).context.relevant_history_snippet
    assert [turn.summary for turn in found] == ["new words"]


def test_of_texts_that_share_as_much_the_short_one_is_nearer_but_no_heading_is_nearest_of_all() -> None:
    """Who reads them pays by their length. Mutations: it is not divided by; or by whatever few words there are."""
    long = "parser lexer " + " ".join(f"word{n}" for n in range(40))
    short, heading = "parser and lexer share a grammar file", "lexer"
    for first, second, better in ((short, long, short), (heading, short, short)):
        for older in ([first, second], [second, first]):
            found = add_knowledge(packet("parser lexer"), turns(*older), recent=0, snippets_max=1)
            assert [turn.summary for turn in found.context.relevant_history_snippet] == [better]


def test_cheatsheets_that_are_named_or_core_are_taken() -> None:
    sheets = [
        Cheatsheet(id="sql", title="SQL migrations", pointer="kb/sql"),
        Cheatsheet(id="cook", title="Soup", pointer="kb/soup"),
        Cheatsheet(),
        Cheatsheet(id="review_rules", title="Rules", pointer="kb/r"),
    ]
    found = add_knowledge(detect_intent(packet("review the migrations")), (), sheets)
    assert [sheet.id for sheet in found.context.cheatsheets] == ["sql", "default", "review_rules"]


@given(st.lists(PROMPTS, max_size=12), PROMPTS, st.integers(0, 5), st.integers(0, 8))
def test_knowledge_is_some_of_what_was_handed_in(
    texts: list[str], said: str, recent: int, snippets_max: int
) -> None:
    """In order, whole, no more than asked for, the same for the same; nothing that is hashed changes."""
    history = turns(*texts)
    found = add_knowledge(packet(said), history, recent=recent, snippets_max=snippets_max)
    taken = found.context.relevant_history_snippet
    assert list(taken) == [turn for turn in history if turn in taken]
    assert len(taken) <= snippets_max
    newest = history[len(history) - min(recent, snippets_max, len(history)) :]
    assert all(turn in taken for turn in newest)
    assert found.compute_hashes() == found


def test_it_is_the_same_in_every_process() -> None:
    """Mutation: an order that comes from a set, which differs with the hash seed."""
    code = """
from tests.protocol.test_cognition_lifecycle import *
words = [f"w{n}" for n in range(40)]
history = turns(*[" ".join(words[n % 7 :: n % 5 + 1]) for n in range(60)])
found = add_knowledge(detect_intent(packet("check " + " ".join(words[::3]))), history, snippets_max=9)
print(found.to_json())
"""
    run = [sys.executable, "-c", code]
    hashes = {
        subprocess.run(run, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1
