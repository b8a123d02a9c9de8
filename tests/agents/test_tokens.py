"""Tokens: each model's own tokenizer counts, and what has none is estimated on the high side.

What is compared with: tiktoken itself for OpenAI's encodings; for files, counts that the tokenizers library
gave (tests/agents/tokenizers/expected.json).
"""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import subprocess
import sys
import unicodedata
from functools import cache
from pathlib import Path

import pytest
import splintr
import tiktoken
import tiktoken.registry
import tiktoken_ext.openai_public
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiktoken.model import MODEL_PREFIX_TO_ENCODING, MODEL_TO_ENCODING

from council.agents.prompting import tokens
from council.agents.prompting.tokens import (
    CACHED_CHARS_MAX,
    ESTIMATE,
    PANEL,
    VOCABULARIES,
    TokenCounter,
    counter_for,
    vocabulary_of,
)
from council.protocol.errors import TokenizerError
from tests.agents.writings import ASCII_TEXT, LANGUAGES, TEXTS, WRITINGS
from tests.examples import tried
from tests.patience import HANG_S

FILES = Path(__file__).parent / "tokenizers"
EXPECTED = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))
SHARED = {  # a tokenizer that has no name of its own here, and the vocabulary that counts as it does
    "gpt-oss": "o200k_base",
    "codellama": "llama2",
    "mistral_v2": "mistral_v1",
    "gemma4": "gemma3",
    "kimi_k3": "kimi_k2",
}


def counter(vocabulary: str) -> TokenCounter:
    return TokenCounter("some model", vocabulary)


# Which tokenizer a name means


@pytest.mark.parametrize(
    ("model", "vocabulary"),
    [
        ("gpt-4o", "o200k_base"),
        ("GPT-4o-mini-2024-07-18", "o200k_base"),
        ("chatgpt-4o-latest", "o200k_base"),
        ("openai/gpt-4o", "o200k_base"),
        ("openai:gpt-4.1-nano", "o200k_base"),
        ("ft:gpt-4o-mini:firm::abc", "o200k_base"),
        ("gpt-4.5-preview", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("gpt-5-mini", "o200k_base"),
        ("gpt-5.1-codex", "o200k_base"),
        ("o1", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("o4-mini", "o200k_base"),
        ("gpt-oss:20b", "o200k_base"),
        ("openai.gpt-oss-120b-1:0", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-35-turbo-16k", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("meta-llama/Meta-Llama-3-8B", "llama3"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3"),
        ("us.meta.llama3-1-8b-instruct-v1:0", "llama3"),
        ("llama3.2:1b", "llama3"),
        ("models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "llama3"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama2"),
        ("codellama:13b", "llama2"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "qwen3"),
        ("qwen3:8b", "qwen3"),
        ("Qwen/Qwen2-VL-7B", "qwen3"),
        ("qwq:32b", "qwen3"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral_v1"),
        ("mistral.mistral-7b-instruct-v0:2", "mistral_v1"),
        ("mistral:7b", "mistral_v1"),
        ("mixtral:8x7b", "mistral_v1"),
        ("mistral-nemo:12b", "mistral_v3"),
        ("mistralai/Pixtral-12B-2409", "mistral_v3"),
        ("deepseek-ai/DeepSeek-V3.1", "deepseek_v3"),
        ("deepseek-ai/DeepSeek-R1", "deepseek_v3"),
        ("deepseek-r1:671b", "deepseek_v3"),
        ("us.deepseek.r1-v1:0", "deepseek_v3"),
        ("gemma2:2b", "gemma2"),
        ("google/gemma-3-4b-it", "gemma3"),
        ("gemma-3n-E4B-it", "gemma3"),
        ("google/gemma-4-12B-it", "gemma3"),
        ("zai-org/GLM-4.5-Air", "glm4"),
        ("moonshotai/Kimi-K2-Instruct", "kimi_k2"),
        ("microsoft/phi-4", "phi4"),
        ("allenai/OLMo-2-1124-7B-Instruct", "olmo2"),
    ],
)
def test_a_known_name_is_counted_with_its_own_vocabulary(model: str, vocabulary: str) -> None:
    found = counter_for(model)
    assert (found.tokenizer, found.is_estimate, found.description) == (vocabulary, False, vocabulary)


@pytest.mark.parametrize(
    "model",
    [
        "claude-opus-4-5",
        "anthropic:claude-sonnet-4-0",
        "us.anthropic.claude-3-haiku-v1:0",
        "gemini-2.5-pro",
        "grok-4",
        "command-r-plus",
        "gpt-6",
        "gpt-4.2",
        "gpt-2",
        "o200",
        "meta-llama/Llama-4-Scout",
        "llama-3.5",
        "qwen3.5-9b",
        "qwen-max",
        "mistral-large-latest",
        "mistral",
        "deepseek-chat",
        "deepseek-r1",
        "deepseek-r1:7b",
        "ollama/deepseek-r1",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
        "gemma-2b",
        "glm-4.6",
        "phi-4-mini-instruct",
        "my-gpt-4o-like-model",
        "",
    ],
)
def test_what_no_rule_names_is_a_marked_estimate(model: str) -> None:
    """A silent guess, such as cl100k for all, makes each of these fail: some have close namesakes with a rule."""
    found = counter_for(model)
    assert found.is_estimate
    assert found.tokenizer == ESTIMATE
    assert found.description.startswith("an estimate: 1.5 times the most that llama2, ")


def test_no_name_that_tiktoken_knows_is_counted_with_another_encoding() -> None:
    alike = {"o200k_harmony": "o200k_base"}
    known = MODEL_TO_ENCODING | {f"{prefix}x": name for prefix, name in MODEL_PREFIX_TO_ENCODING.items()}
    wrong = {
        model: vocabulary_of(model)
        for model, encoding in known.items()
        if vocabulary_of(model) not in (None, alike.get(encoding, encoding))
    }
    assert not wrong
    assert sum(vocabulary_of(model) is not None for model in known) >= 15


@given(st.text(max_size=30))
def test_any_name_has_a_vocabulary_or_is_an_estimate(model: str) -> None:
    found = counter_for(model)
    assert found.is_estimate == (found.tokenizer not in VOCABULARIES)


def test_what_is_configured_stands() -> None:
    assert counter_for("claude-opus-4-5", "o200k_base").tokenizer == "o200k_base"
    assert counter_for("gpt-4o", ESTIMATE).is_estimate


@pytest.mark.parametrize("tokenizer", ["o200k", "", "gpt-4o", "tokenizer.model"])
def test_a_tokenizer_that_is_none_is_told_with_those_there_are(tokenizer: str) -> None:
    with pytest.raises(
        TokenizerError, match=r"expected the path of a tokenizer\.json, 'estimate', or one of cl100k"
    ):
        counter_for("gpt-4o", tokenizer)


# The counts are the tokenizers' own


@cache
def reference(name: str) -> tiktoken.Encoding:
    """tiktoken's own encoding, with its own pattern, of the ranks we count with; checked against its own hash."""

    def ranks(_url: str, expected_hash: str) -> dict[bytes, int]:
        known = {"cl100k_base": 100_256, "o200k_base": 199_998}[name]
        found = {bundled(name).decode_token_bytes(rank): rank for rank in range(known)}
        lines = (b"%s %d\n" % (base64.b64encode(word), rank) for word, rank in found.items())
        assert hashlib.sha256(b"".join(lines)).hexdigest() == expected_hash
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", ranks)
        return tiktoken.Encoding(**getattr(tiktoken_ext.openai_public, name)())


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_openais_encodings_are_tiktokens_own_and_count_as_it_does(name: str) -> None:
    """The ranks have the hash that tiktoken expects of the file that it would fetch."""
    for text in WRITINGS.values():
        assert counter(name)(text) == len(reference(name).encode_ordinary(text)), text


@given(text=TEXTS, name=st.sampled_from(["cl100k_base", "o200k_base"]))
@example(text=" I'ſ", name="o200k_base")
def test_any_text_has_as_many_tokens_as_tiktoken_says(text: str, name: str) -> None:
    assert counter(name)(text) == len(reference(name).encode_ordinary(text))


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_two_common_words_are_two_tokens(vocabulary: str) -> None:
    assert counter(vocabulary)("hello world") == (3 if vocabulary == "mistral_v1" else 2)
    assert counter(vocabulary)("") == 0


@settings(max_examples=tried(40))
@given(TEXTS)
def test_a_vocabulary_that_stands_for_others_counts_as_they_do(text: str) -> None:
    for other, vocabulary in SHARED.items():
        theirs = len(bundled(other).encode_ordinary(text))
        assert counter(vocabulary)(text) == theirs, other


@cache
def bundled(name: str) -> splintr.AnyTokenizer:
    return splintr.Tokenizer.from_pretrained(name)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_special_tokens_in_a_text_are_counted_as_text(vocabulary: str) -> None:
    """Read as what they spell, each of these would be a single token for its own model."""
    tokenizer = bundled(vocabulary)
    special = [word for word in tokenizer.special_tokens() if word.isascii() and len(word) > 8][:20]
    assert special
    for word in special:
        assert counter(vocabulary)(word) > 1, word


def test_qwens_count_holds_whether_a_server_composes_characters_or_not() -> None:
    decomposed = unicodedata.normalize("NFD", LANGUAGES["Vietnamese"])
    composed = unicodedata.normalize("NFC", decomposed)
    assert counter("qwen3")(decomposed) > counter("qwen3")(composed)
    grows = "\u0958" * 10  # has no composed form: NFC writes it with two characters, and more tokens
    assert counter("qwen3")(grows) == counter("qwen3")(unicodedata.normalize("NFC", grows)) == 30


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    for name in (*VOCABULARIES, ESTIMATE):
        with pytest.raises(ValueError, match="surrogates"):
            counter(name)("a\ud800b")


# The estimate


@pytest.mark.parametrize("writing", WRITINGS)
def test_the_estimate_is_never_below_a_real_tokenizer(writing: str) -> None:
    text = WRITINGS[writing] * 3
    estimate = counter(ESTIMATE)(text)
    assert {name: found for name in VOCABULARIES if (found := counter(name)(text)) > estimate} == {}


@settings(max_examples=tried(150))
@given(TEXTS | ASCII_TEXT)
@example("\U0001d160" * 20)  # three times as long when composed
def test_no_text_is_found_that_the_estimate_undercounts(text: str) -> None:
    """Fails with the factor at 1, without the bytes beyond ASCII, and without the allowance."""
    estimate = counter(ESTIMATE)(text)
    assert {name: found for name in VOCABULARIES if (found := counter(name)(text)) > estimate} == {}


def test_the_estimate_needs_no_tokenizer_of_the_panel_to_be_the_right_one() -> None:
    """Half as much again is left for a vocabulary that nobody here has: for prose and code, a quarter at least."""
    others = [name for name in VOCABULARIES if name not in PANEL]
    for writing in ("English", "code", "json", "diff", "log"):
        text = WRITINGS[writing] * 10
        assert counter(ESTIMATE)(text) >= 1.25 * max(counter(name)(text) for name in others), writing


# A tokenizer.json


@pytest.mark.parametrize("name", EXPECTED)
def test_a_tokenizer_json_counts_as_its_library_does(name: str) -> None:
    """Without what its template adds, without cutting at its limit, and special tokens as text."""
    count = counter_for("some/model", str(FILES / f"{name}.json"))
    assert not count.is_estimate
    assert [[text, count(text)] for text, _ in EXPECTED[name]] == EXPECTED[name]


@pytest.mark.parametrize("content", ["", "{}", "no json", '{"model": {"type": "BPE"}}', "[]", '{"model": 3}'])
def test_a_file_that_is_no_tokenizer_is_told(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(TokenizerError, match="expected a Hugging Face tokenizer") as caught:
        counter_for("some/model", str(path))
    assert caught.value.tokenizer == str(path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    for path in (tmp_path / "tokenizer.json", tmp_path):
        with pytest.raises(TokenizerError, match=r"there is no such file|expected the path"):
            counter_for("some/model", str(path))


# In a process, and between processes


def test_a_counter_pickles_as_names_and_counts_in_a_fresh_process_without_network() -> None:
    """A tokenizer itself can't be pickled, and one of tiktoken's would try to fetch its ranks over there."""
    told = pickle.dumps([counter_for("gpt-4o"), counter_for("llama3:8b"), counter_for("claude-opus-4-5")])
    assert len(told) < 500
    code = (
        "import pickle, socket, sys\n"
        "def refuse(*args, **kwargs): raise OSError('no network')\n"
        "socket.socket.__init__ = socket.getaddrinfo = refuse\n"
        f"counters = pickle.loads({told!r})\n"
        "print([count('hello world') for count in counters])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert done.stdout == "[2, 2, 7]\n", done.stderr


def test_tiktoken_itself_finds_the_encodings_without_network() -> None:
    code = (
        "import socket\n"
        "def refuse(*args, **kwargs): raise OSError('no network')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "import tiktoken\nfrom council.agents.prompting import tokens\n"
        "for name in tokens.OPENAI:\n"
        "    assert tokens.encoding(name) is tiktoken.get_encoding(name) is tokens.encoding(name)\n"
        "print([len(tiktoken.encoding_for_model(name).encode(\"I'ſ\")) for name in ('gpt-4', 'gpt-4o')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    counts = [len(reference(name).encode("I'ſ")) for name in ("cl100k_base", "o200k_base")]
    assert done.stdout == f"{counts}\n", done.stderr


def test_ranks_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: counting with ranks that are not those of OpenAI's encoding."""
    monkeypatch.setitem(tokens.OPENAI, "cl100k_base", 100_255)
    monkeypatch.delitem(tiktoken.registry.ENCODINGS, "cl100k_base", raising=False)
    with pytest.raises(TokenizerError, match="ranks of cl100k_base in splintr-rs have the hash"):
        tokens.encoding("cl100k_base")
    assert "cl100k_base" not in tiktoken.registry.ENCODINGS


def test_nothing_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys\nfrom council import Council\nimport council.agents.prompting.tokens as tokens\n"
        "tokens.counter_for('gpt-4o')\nsys.exit(bool({'splintr', 'tiktoken'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr


def test_a_text_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []

    def counting(tokenizer: str):  # type: ignore[no-untyped-def]
        return lambda text: counted.append(text) or len(text)

    monkeypatch.setattr(tokens, "_counting", counting)
    tokens._cached.cache_clear()
    try:
        assert [counter("qwen3")("four"), counter("qwen3")("four"), counter("llama3")("four")] == [4, 4, 4]
        assert counted == ["four", "four"]
        long = "x" * (CACHED_CHARS_MAX + 1)
        assert counter("qwen3")(long) == counter("qwen3")(long) == len(long)
        assert tokens._cached.cache_info().currsize == 2, "a long text is not kept"
    finally:
        tokens._cached.cache_clear()


@settings(max_examples=tried(150))
@given(st.text(max_size=60), st.sampled_from((*VOCABULARIES, ESTIMATE)))
@example("\U0001d160" * 10, "qwen3")
@example("\U0001d160 a" * 10, ESTIMATE)
@example("\n\0\x7f" * 10, ESTIMATE)
def test_no_text_has_more_tokens_than_its_bytes_allow(text: str, vocabulary: str) -> None:
    """Mutation: a byte is taken for a token at most, where composing makes three of it."""
    text = text.encode("utf-8", "replace").decode()
    assert counter(vocabulary)(text) <= counter(vocabulary).most(text)


def test_what_a_file_makes_of_a_text_is_asked() -> None:
    of_file = counter(str(FILES / "bpe.json"))
    assert of_file.most("hello world") == of_file("hello world")
