"""Counts a text in the tokens of the model that will read it, offline.

    count = counter_for("gpt-4o-mini")
    count("hello world")           # 2
    count.is_estimate              # False: it is this model's own tokenizer

``RULES`` map names of models to vocabularies. For a model without a rule, such as any Claude, whose vocabulary is not
published, the count is an estimate: it is marked, and on the high side. The configuration can name a vocabulary or a
``tokenizer.json`` instead.

OpenAI's encodings are tiktoken's. It would download their ranks; here they come with the package splintr-rs, like
all other vocabularies, and have the hash that tiktoken expects. So nothing is downloaded. A counter is pickled as
names; each process loads (``prime``) the tokenizer that it counts with.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from council.protocol.errors import TokenizerError

# By the names that their vendors, or tiktoken, gave them. A vocabulary that several models share is listed once:
# gemma3 is also Gemma 4's, mistral_v1 that of all Mistrals without Tekken, llama2 also Code Llama's, kimi_k2 also
# K3's.
VOCABULARIES = (
    "cl100k_base",
    "o200k_base",
    "deepseek_v3",
    "gemma2",
    "gemma3",
    "glm4",
    "kimi_k2",
    "llama2",
    "llama3",
    "mistral_v1",
    "mistral_v3",
    "olmo2",
    "phi4",
    "qwen3",
)
ESTIMATE = "estimate"
# What counts texts that no model reads.
WITHOUT_MODEL = "cl100k_base"
# OpenAI's encodings, with the number of their ranks.
OPENAI = {"cl100k_base": 100_256, "o200k_base": 199_998}

# A model's name, without folder, provider and file ending, must begin like this, and none of [a-z0-9.] may follow. So
# qwen3.5 and llama-4, which have their own vocabularies, match no rule. An alias that moves from model to model
# (mistral-large-latest, deepseek-chat) has no rule either, because its model may change.
RULES: tuple[tuple[str, str], ...] = (
    (r"(?:chat)?gpt-4o|gpt-4\.[15]|gpt-5(?:\.\d+)?|gpt-oss|o1|o3|o4-mini", "o200k_base"),
    (r"gpt-4|gpt-3\.?5", "cl100k_base"),
    (r"(?:meta-)?llama-?3(?:[.-][123])?", "llama3"),
    (r"(?:meta-)?llama-?2|code-?llama", "llama2"),
    (r"qwen-?(?:2|2\.5|3)|qwq", "qwen3"),
    (r"mistral-7b|mistral:7b|mixtral-8x(?:7|22)b|mixtral:8x(?:7|22)b|codestral-22b", "mistral_v1"),
    (r"(?:open-)?mistral-nemo|pixtral-12b", "mistral_v3"),
    (r"deepseek-v3(?:\.[12])?", "deepseek_v3"),
    # Only the full model: the smaller ones of this name are distilled Qwen or Llama, with their vocabularies.
    (r"deepseek-r1:671b", "deepseek_v3"),
    (r"gemma-?2", "gemma2"),
    (r"gemma-?(?:3n?|4)", "gemma3"),
    (r"glm-?4(?:\.5)?", "glm4"),
    (r"kimi-k2(?:\.[567])?|kimi-k3", "kimi_k2"),
    (r"phi-?4(?!-?(?:mini|multimodal))", "phi4"),
    (r"olmo-?2", "olmo2"),
)
_RULES = tuple((re.compile(f"(?:{rule})(?![a-z0-9.])"), vocabulary) for rule, vocabulary in RULES)
_PROVIDER = re.compile(
    r"^(?:(?:anthropic|azure|bedrock|cerebras|deepseek|fireworks|ft|google(?:-gla|-vertex)?|groq|mistral|ollama|openai"
    r"|openrouter|together|vllm):|(?:(?:us|eu|apac|global)\.)?(?:anthropic|deepseek|google|meta|mistral|moonshotai"
    r"|openai|qwen)\.)"
)

# The estimate: the highest count of a panel of tokenizers that merge little, each weak at something else, times 1.5.
# For ASCII, no other known tokenizer needs more than 1.32 times as much, two tokens aside.
PANEL = ("llama2", "mistral_v1", "mistral_v3", "qwen3")
ESTIMATE_ABOVE_PANEL = (3, 2)  # a fraction, so that rounding happens once
ESTIMATE_ALLOWANCE = 2  # for texts of a few letters, and the space that some tokenizers put in front
# A script that a vocabulary lacks costs at most a token for each byte.
_FOREIGN = re.compile(r"[^\x00-\x7f]+")
_STAND_IN = "\x7f"  # in place of what is left out: a character that merges with no neighbour

# No token is less than a byte. NFC turns some letters into three times their bytes. An estimate is 1.5 times what
# ASCII needs, plus each byte beyond ASCII and its stand-in.
TOKENS_A_BYTE = {"qwen3": 3, ESTIMATE: 5}
EDGE_TOKENS_MAX = 4  # tokens that some put in front, and an estimate's allowance

# The cache holds the counts of the newest texts, some dozen prompts. A longer text is counted each time, so that the
# texts have at most four million characters together.
CACHED_TEXTS, CACHED_CHARS_MAX = 256, 16_384


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """Counts the tokens of texts as ``model`` reads them. ``counter_for`` makes it; call it with a text.

    ``tokenizer`` is one of VOCABULARIES, the path of a ``tokenizer.json``, or ESTIMATE. The text is data: the
    spelling of a special token (``<|im_start|>``) is counted as ordinary letters. Neither a chat template nor a token
    before all text is counted. A text with half of a surrogate pair raises ValueError.

    The tokens of two joined texts may be more or fewer than the sum of both: count the whole text that is sent. A
    counter pickles as these two names; each process reads a path again.
    """

    model: str
    tokenizer: str

    @property
    def is_estimate(self) -> bool:
        """Whether the count is a high estimate and not from the model's own tokenizer."""
        return self.tokenizer == ESTIMATE

    @property
    def description(self) -> str:
        """A description of the tokenizer, for a status or a report."""
        if not self.is_estimate:
            return self.tokenizer
        more, than = ESTIMATE_ABOVE_PANEL
        panel = ", ".join(PANEL)
        return f"an estimate: {more / than:g} times the most that {panel} need; a token for each byte beyond ASCII"

    def __call__(self, text: str) -> int:
        """The number of tokens of ``text``. Counts of short texts are cached."""
        if len(text) > CACHED_CHARS_MAX:
            return _counting(self.tokenizer)(text)
        return _cached(self.tokenizer, text)

    def most(self, text: str) -> int:
        """An upper limit of the tokens of ``text``, by its bytes alone; with a ``tokenizer.json``, the count."""
        if self.tokenizer.endswith(".json"):  # it may change a text in any way before it counts
            return self(text)
        return EDGE_TOKENS_MAX + len(text.encode()) * TOKENS_A_BYTE.get(self.tokenizer, 1)

    def prime(self) -> None:
        """Loads the tokenizer, once in a process, so that no prompt waits for it.

        Raises TokenizerError if a ``tokenizer.json`` is missing or invalid.
        """
        _counting(self.tokenizer)("primed")


def counter_for(model: str, tokenizer: str | None = None) -> TokenCounter:
    """The counter for a model by its name (``gpt-4o``, ``Qwen/Qwen3-8B``, ``llama3.1:8b``), or as configured.

    If ``tokenizer`` is given, it is used: the name of one of VOCABULARIES, the path of a Hugging Face
    ``tokenizer.json``, or "estimate". Raises TokenizerError if it is none of them, or can't be read.
    """
    if tokenizer is None:
        return TokenCounter(model, vocabulary_of(model) or ESTIMATE)
    if tokenizer not in VOCABULARIES and tokenizer != ESTIMATE and not tokenizer.endswith(".json"):
        raise TokenizerError(
            f"tokenizer {tokenizer!r} of model {model!r} is none: expected the path of a tokenizer.json, "
            f"{ESTIMATE!r}, or one of {', '.join(VOCABULARIES)}",
            tokenizer=tokenizer,
        )
    counter = TokenCounter(model, tokenizer)
    if tokenizer.endswith(".json"):
        counter.prime()  # a missing file is an error of the configuration, reported with its other errors
    return counter


def vocabulary_of(model: str) -> str | None:
    """The one of VOCABULARIES that a model of this name has by RULES; None if its tokens can only be estimated."""
    name = model.strip().lower()
    if re.fullmatch(r"deepseek(?:-ai)?/deepseek-r1(?:-0528)?|(?:us\.)?deepseek\.(?:r1|v3)-v\d(?::\d)?", name):
        return "deepseek_v3"
    name = name.rsplit("/", 1)[-1].removesuffix(".gguf")
    # First the whole name, because mistral:7b is a model; then without the provider, as in openai:gpt-4o.
    names = [name, _PROVIDER.sub("", name)]
    return next((vocabulary for name in names for rule, vocabulary in _RULES if rule.match(name)), None)


# The counting itself

_LOADING = Lock()


def _counting(tokenizer: str) -> Callable[[str], int]:
    """The counting function of this tokenizer. The first thread that asks loads it."""
    if tokenizer == ESTIMATE:
        return _estimated
    with _LOADING:
        return _loaded(tokenizer)


@lru_cache(maxsize=64)  # more than there are; a council's seats use a handful
def _loaded(tokenizer: str) -> Callable[[str], int]:
    if tokenizer in OPENAI:
        ordinary = encoding(tokenizer).encode_ordinary

        def count_openai(text: str) -> int:
            text.encode()  # raises UnicodeEncodeError for half of a surrogate pair, which tiktoken replaces
            return len(ordinary(text))

        return count_openai
    import splintr  # 38 MB, which a council with short texts does not need

    if tokenizer in VOCABULARIES:
        encode = splintr.Tokenizer.from_pretrained(tokenizer).encode_ordinary
    else:
        encode = _of_file(tokenizer, splintr.from_json).encode_ordinary

    edges = len(encode(""))  # the tokens that a file's template puts around all text belong to the frame

    def count(text: str) -> int:
        return len(encode(text)) - edges

    def count_composed(text: str) -> int:
        """Some servers compose their input (NFC) and some do not. The higher count holds for both."""
        if unicodedata.is_normalized("NFC", text):
            return count(text)
        return max(count(text), count(unicodedata.normalize("NFC", text)))

    return count_composed if tokenizer == "qwen3" else count


def encoding(name: str) -> Any:
    """One of OPENAI, as ``tiktoken.Encoding``. From now on ``tiktoken.get_encoding`` finds it in this process too.

    Raises TokenizerError if the installed ranks are not those that tiktoken expects.
    """
    import tiktoken.registry
    from tiktoken_ext import openai_public

    if (made := tiktoken.registry.ENCODINGS.get(name)) is None:
        # Its own function for this encoding, with its own pattern and special tokens, which fetches the ranks here.
        fetch = openai_public.load_tiktoken_bpe
        openai_public.load_tiktoken_bpe = lambda _url, expected_hash: _ranks(name, expected_hash)
        try:
            made = tiktoken.Encoding(**getattr(openai_public, name)())
        finally:
            openai_public.load_tiktoken_bpe = fetch
        tiktoken.registry.ENCODINGS[name] = made
    return made


def _ranks(name: str, expected_hash: str) -> dict[bytes, int]:
    import splintr

    bundled = splintr.Tokenizer.from_pretrained(name)
    ranks = {bundled.decode_token_bytes(rank): rank for rank in range(OPENAI[name])}
    file = b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())
    if (found := hashlib.sha256(file).hexdigest()) != expected_hash:
        raise TokenizerError(
            f"the ranks of {name} in splintr-rs have the hash {found}, tiktoken expects {expected_hash}: install the "
            "versions of both that council-runtime asks for",
            tokenizer=name,
        )
    return ranks


def _of_file(path: str, read: Callable[[str], Any]) -> Any:
    if not Path(path).is_file():
        raise TokenizerError(f"tokenizer {path}: there is no such file", tokenizer=path)
    try:
        return read(path)
    except (ValueError, RuntimeError, OSError) as error:
        raise TokenizerError(
            f"tokenizer {path}: {error}; expected a Hugging Face tokenizer.json, or leave it out and have "
            "the model's tokens estimated",
            tokenizer=path,
        ) from error


def _estimated(text: str) -> int:
    if not text:
        return 0
    ascii_only, foreign = _FOREIGN.sub(_STAND_IN, text), "".join(_FOREIGN.findall(text))
    poorest = max(_counting(vocabulary)(ascii_only) for vocabulary in PANEL)
    more, than = ESTIMATE_ABOVE_PANEL
    composed = unicodedata.normalize("NFC", foreign)  # some letters have no composed form, and grow
    bytes_beyond_ascii = max(len(foreign.encode()), len(composed.encode()))
    return ESTIMATE_ALLOWANCE + (more * poorest + than - 1) // than + bytes_beyond_ascii


@lru_cache(maxsize=CACHED_TEXTS)
def _cached(tokenizer: str, text: str) -> int:
    return _counting(tokenizer)(text)
