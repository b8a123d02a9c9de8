"""Reads PLAN, EXECUTE and the other markers in a model's output as it streams, and tells them from similar text.

A marker is exactly one of six words, a nonce and a colon, ``EXECUTE[5f3a9c17e2b84d06]:``, at the start of the text or
directly after a line feed. The nonce is made for one call and shown to that model alone, so the author of text that
the model repeats can't have known it. A marker without it, with another, or after any other line end is text.

A nonce does not help if a model was persuaded to write the marker itself. Approval, tokens and policy exist for that
case (rules 3.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast, get_args

from council.protocol.errors import CallerError, EnvelopeError
from council.protocol.values import too_large

Marker = Literal["PLAN", "EXECUTE", "RESPONSE", "THOUGHT_SEED", "INTERRUPT", "VERIFY"]
Outcome = Literal["success", "fail"]

MARKERS: tuple[Marker, ...] = get_args(Marker)
# One answer of a model, far above any output limit. A model that never ends is stopped here.
OUTPUT_CHARS_MAX = 2**20
# A hundred seeds and commands are many, and each block is an object that others process.
BLOCKS_MAX = 1_000
# 64 random bits can't be guessed during a call. The upper limit only keeps the marker short.
_NONCE = re.compile(r"[0-9a-f]{16,64}")
# Whitespace between a marker and its text; other blanks belong to the text.
_BLANKS = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Block:
    """The text after one marker, stripped. Text before the first marker is RESPONSE."""

    marker: Marker
    text: str


@dataclass(frozen=True, slots=True)
class BlockPiece:
    """A part of a block, as it streams. ``block`` is the block's number, from 0 in the order in which they begin."""

    block: int
    marker: Marker
    text: str


class MarkerStream:
    """Reads one answer of a model in chunks, split anywhere.

    It never holds back more than one marker. Otherwise it equals ``parse``, piece by piece. After an error, or
    ``close``, it reads no more.
    """

    def __init__(self, nonce: str) -> None:
        """``nonce`` is the one of this call's markers. Raises EnvelopeError for an invalid one."""
        self._heads = tuple(marker_head(marker, nonce) for marker in MARKERS)
        self._head = re.compile(rf"({'|'.join(MARKERS)})\[{nonce}\]:")
        self._head_chars = max(map(len, self._heads))
        self._held = ""  # the beginning of a line that may become a marker
        self._at_line_start = True
        self._block: BlockPiece | None = None
        self._seed: BlockPiece | None = None
        self._seed_is_blank = True
        self._count = 0
        self._chars = 0
        self._closed = False

    def feed(self, chunk: str) -> list[BlockPiece]:
        """The new pieces in this chunk. Raises EnvelopeTooLarge above OUTPUT_CHARS_MAX or BLOCKS_MAX."""
        if self._closed:
            raise CallerError("this stream of markers is closed; a new answer needs a new one")
        self._chars += len(chunk)
        if self._chars > OUTPUT_CHARS_MAX:
            self._closed = True
            raise too_large("output", "characters of a model's answer", OUTPUT_CHARS_MAX, self._chars)
        return self._read(self._held + chunk, is_last=False)

    def close(self) -> list[BlockPiece]:
        """The pieces that were held back, at the end of the text."""
        if self._closed:
            return []
        pieces = self._read(self._held, is_last=True)
        self._closed = True
        return pieces

    def _read(self, text: str, *, is_last: bool) -> list[BlockPiece]:
        pieces: list[BlockPiece] = []
        written = at = 0
        while at < len(text):
            if self._at_line_start:
                head = self._head.match(text, at)
                if head is None and not is_last and self._may_become(text, at):
                    break
                if head is not None or self._seed is not None:
                    self._write(text[written:at], pieces)
                    written = at
                if head is not None:
                    self._open(cast(Marker, head[1]), pieces)
                    written = at = head.end()
                    self._at_line_start = False
                    continue
                if self._seed is not None and not self._goes_on_with_seed(text[at]):
                    self._seed = None
            end = text.find("\n", at) + 1
            self._at_line_start = end > 0
            at = end or len(text)
        self._write(text[written:at], pieces)
        self._held = text[at:]
        return pieces

    def _may_become(self, text: str, at: int) -> bool:
        """Whether the existing part of a line may be the beginning of a marker."""
        return len(text) - at < self._head_chars and any(head.startswith(text[at:]) for head in self._heads)

    def _goes_on_with_seed(self, first: str) -> bool:
        """Whether a line with this beginning belongs to the seed: a seed is one line, and indented lines below it."""
        return first in " \t" or (self._seed_is_blank and first not in "\r\n")

    def _open(self, marker: Marker, pieces: list[BlockPiece]) -> BlockPiece:
        if self._count == BLOCKS_MAX:
            self._closed = True
            raise too_large("output", "or more blocks of a model's answer", BLOCKS_MAX, BLOCKS_MAX + 1)
        opened = BlockPiece(self._count, marker, "")
        self._count += 1
        # rules 3.2: only a seed may be inside another block, which continues after it.
        if marker == "THOUGHT_SEED":
            self._seed, self._seed_is_blank = opened, True
        else:
            self._block, self._seed = opened, None
        pieces.append(opened)
        return opened

    def _write(self, text: str, pieces: list[BlockPiece]) -> None:
        into = self._seed or self._block
        if into is None:
            text = text.lstrip(_BLANKS)  # blank lines before the first marker are not a RESPONSE
        if not text:
            return
        if into is None:
            into = self._open("RESPONSE", pieces)  # rules 3.2: text before the first marker
        elif into is self._seed and text.strip(_BLANKS):
            self._seed_is_blank = False
        pieces.append(BlockPiece(into.block, into.marker, text))


def marker_head(marker: Marker, nonce: str) -> str:
    """A marker, as it must be written at the start of a line. Raises EnvelopeError for an invalid nonce."""
    if not _NONCE.fullmatch(nonce):
        raise EnvelopeError.at("nonce", "expected 16 to 64 lower-case hex digits, made anew for each call")
    return f"{marker}[{nonce}]:"


def blocks(pieces: Iterable[BlockPiece]) -> tuple[Block, ...]:
    """The blocks of one answer, joined from its pieces, in order."""
    begun: dict[int, BlockPiece] = {}
    texts: dict[int, list[str]] = {}
    for piece in pieces:
        begun.setdefault(piece.block, piece)
        texts.setdefault(piece.block, []).append(piece.text)
    return tuple(
        Block(piece.marker, "".join(texts[number]).strip(_BLANKS)) for number, piece in begun.items()
    )


def parse(text: str, *, nonce: str) -> tuple[Block, ...]:
    """The blocks of a whole answer; ``nonce`` as for MarkerStream. Raises EnvelopeError, EnvelopeTooLarge."""
    stream = MarkerStream(nonce)
    return blocks([*stream.feed(text), *stream.close()])


def check_nonce(nonce: str, text: str) -> None:
    """Raises EnvelopeError for an invalid nonce, and for one that foreign text for the same prompt holds.

    The text itself stays word for word (rules 2.2).
    """
    marker_head("PLAN", nonce)
    if nonce in text.casefold():
        raise EnvelopeError.at("nonce", "is in the text that it must tell apart; make another")


# The result of Verify

# The word must end there: ``success/fail`` and ``success or fail`` repeat the question.
_RESULT = re.compile(r"(success|succeeded|passed|fail|failed|failure)(?![\w/|-])(?!\s+or\b)", re.IGNORECASE)


def read_verification(found: Iterable[Block]) -> Outcome | None:
    """The result of Verify: the word with which its VERIFY begins (GCP 6). None if there is no result.

    One failure among several means failure. If one of them can't be read, there is no success.
    """
    results = [_RESULT.match(block.text) for block in found if block.marker == "VERIFY"]
    words = [None if result is None else result[1].lower() for result in results]
    if any(word is not None and word.startswith("fail") for word in words):
        return "fail"
    return "success" if words and None not in words else None
