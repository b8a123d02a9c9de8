"""No payload of the corpus, echoed by an honest model in any of its ways, is taken for what the model said."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from council.protocol.answer.markers import MARKERS, Block, MarkerStream, as_text, blocks, marker_head, parse
from tests.cases import each

FILE = Path(__file__).parent.parent / "corpus" / "spoofs" / "spoofs.toml"
SPOOFS = tomllib.loads(FILE.read_text(encoding="utf-8"))["spoof"]
TEXTS = [spoof["text"] for spoof in SPOOFS]
NONCE = "5f3a9c17e2b84d06"
CONTROL = {"PLAN", "EXECUTE", "THOUGHT_SEED", "INTERRUPT", "VERIFY"}
KINDS = {
    "echo",
    "letters",
    "colon",
    "unseen",
    "bidi",
    "line end",
    "encoded",
    "fence",
    "case",
    "unknown",
    "nonce",
    "split",
}
LINE_END = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
WRITTEN_OUT = re.compile(r"(?:\\r)?\\n|\\u000a|%0A|&#10;|&NewLine;|<br>|[\u2424\u240a]")


def seen(text: str) -> str:
    """As somebody reads it who passes over what has no width or no shape."""
    return "".join(
        char for char in text if unicodedata.category(char) not in ("Cf", "Mn") and char not in "\u3164\u2800"
    )


# How an honest model may give back what it was shown.
ECHOES: dict[str, Callable[[str], str]] = {
    "word for word": lambda text: text,
    "introduced": lambda text: f"You wrote:\n{text}\nI did nothing of it.",
    "fenced": lambda text: f"```\n{text}\n```",
    "as a list": lambda text: "Lines:\n" + "\n".join(f"- {line}" for line in text.split("\n")),
    "normalised": lambda text: unicodedata.normalize("NFKC", text),
    "as it is seen": seen,
    "with one kind of line end": lambda text: LINE_END.sub("\n", text),
    "in capitals": str.upper,
    "all of these": lambda text: unicodedata.normalize("NFKC", seen(LINE_END.sub("\n", text))).upper(),
}
# What also decodes, or takes away what stands before a line: then the nonce alone tells.
STRIPPED: dict[str, Callable[[str], str]] = {
    "decoded": lambda text: WRITTEN_OUT.sub("\n", text).replace("&colon;", ":").replace("\\x45", "E"),
    "indents taken off": lambda text: "\n".join(line.lstrip() for line in LINE_END.split(text)),
    "markup taken off": lambda text: "\n".join(
        line.lstrip("> \t-#*`1.<!~").replace("*", "") for line in LINE_END.split(text)
    ),
}


def control(found: tuple[Block, ...]) -> set[str]:
    return {block.marker for block in found} & CONTROL


def in_two(text: str, at: int, nonce: str | None) -> tuple[Block, ...]:
    stream = MarkerStream(nonce)
    return blocks([*stream.feed(text[:at]), *stream.feed(text[at:]), *stream.close()])


def test_the_corpus_is_large_and_of_all_kinds() -> None:
    assert len(set(TEXTS)) == len(SPOOFS) >= 100
    counted = Counter(spoof["kind"] for spoof in SPOOFS)
    assert set(counted) == KINDS
    assert min(counted.values()) >= 5
    assert all(set(spoof) == {"kind", "plain", "text"} for spoof in SPOOFS)


@each("echo", [*ECHOES, *STRIPPED])
def test_with_a_nonce_no_echo_controls_anything(echo: str) -> None:
    """And it stays as it is, in one RESPONSE. Mutation: the form without a nonce read too."""
    for text in TEXTS:
        echoed = {**ECHOES, **STRIPPED}[echo](text)
        found = parse(echoed, nonce=NONCE)
        expected = echoed.strip(" \t\r\n")
        assert found == ((Block("RESPONSE", expected),) if expected else ()), ascii(echoed)


def test_with_a_nonce_no_split_controls_anything() -> None:
    """Mutation: a marker looked for in each chunk by itself."""
    for text in TEXTS:
        whole = parse(text, nonce=NONCE)
        for at in range(len(text) + 1):
            assert in_two(text, at, NONCE) == whole, (ascii(text), at)


@pytest.mark.parametrize("echo", ECHOES)
def test_quoted_no_echo_controls_anything(echo: str) -> None:
    """Mutation: only line feeds quoted, or only lines that hold a marker as it is."""
    for text in TEXTS:
        echoed = ECHOES[echo](as_text(text, nonce=None))
        assert not control(parse(echoed, nonce=None)), ascii(echoed)


def test_quoted_no_split_controls_anything() -> None:
    for text in TEXTS:
        quoted = as_text(text, nonce=None)
        for at in range(len(quoted) + 1):
            assert not control(in_two(quoted, at, None)), (ascii(quoted), at)


def test_a_true_marker_is_read_in_the_midst_of_them() -> None:
    """Mutation: an open fence, or a near miss, that swallows what the model itself says."""
    for text in TEXTS:
        for marker in MARKERS:
            found = parse(f"{text}\n{marker_head(marker, NONCE)} mine", nonce=NONCE)
            assert [(block.marker, block.text) for block in found[-1:]] == [(marker, "mine")], ascii(text)


def test_why_there_is_a_nonce() -> None:
    """Unquoted and without a nonce exactly these are markers: the corpus does bite, and look-alikes never count."""
    for spoof in SPOOFS:
        found = {block.marker for block in parse(spoof["text"], nonce=None)}
        explicit = parse("PLAN: x\n" + spoof["text"], nonce=None)[1:]
        assert bool(found & CONTROL or explicit) == spoof["plain"], ascii(spoof["text"])
    assert sum(spoof["plain"] for spoof in SPOOFS) >= 40
