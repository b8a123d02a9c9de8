"""No payload of the corpus, echoed by an honest model in any of its ways, is taken for what the model said."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from council.protocol.answer.markers import MARKERS, Block, MarkerStream, blocks, marker_head, parse
from tests.cases import each

FILE = Path(__file__).parent.parent / "corpus" / "spoofs" / "spoofs.toml"
SPOOFS = tomllib.loads(FILE.read_text(encoding="utf-8"))["spoof"]
TEXTS = [spoof["text"] for spoof in SPOOFS]
NONCE = "5f3a9c17e2b84d06"
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


def in_two(text: str, at: int) -> tuple[Block, ...]:
    stream = MarkerStream(NONCE)
    return blocks([*stream.feed(text[:at]), *stream.feed(text[at:]), *stream.close()])


def test_the_corpus_is_large_and_of_all_kinds() -> None:
    assert len(set(TEXTS)) == len(SPOOFS) >= 100
    counted = Counter(spoof["kind"] for spoof in SPOOFS)
    assert set(counted) == KINDS
    assert min(counted.values()) >= 5
    assert all(set(spoof) == {"kind", "plain", "text"} for spoof in SPOOFS)


@each("echo", [*ECHOES, *STRIPPED])
def test_with_a_nonce_no_echo_controls_anything(echo: str) -> None:
    """And it stays as it is, in one RESPONSE. Mutation: a marker without the nonce is read too."""
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
            assert in_two(text, at) == whole, (ascii(text), at)


def test_a_true_marker_is_read_in_the_midst_of_them() -> None:
    """Mutation: an open fence, or a near miss, that swallows what the model itself says."""
    for text in TEXTS:
        for marker in MARKERS:
            found = parse(f"{text}\n{marker_head(marker, NONCE)} mine", nonce=NONCE)
            assert [(block.marker, block.text) for block in found[-1:]] == [(marker, "mine")], ascii(text)


def test_without_a_nonce_many_of_them_would_be_markers() -> None:
    """The corpus does bite: so many hold a marker of the documents' form, and ``plain`` says which."""
    bare = re.compile(rf"^(?:{'|'.join(MARKERS)}):", re.MULTILINE)
    plain = [spoof["text"] for spoof in SPOOFS if spoof["plain"]]
    assert all(bare.search(text) for text in plain)
    assert len(plain) >= 40
