"""Removes secrets, personal data, blocked words and profanity from text before it leaves (GCP 7.3, rules 3.4).

The order is personal data and secrets, content policy, profanity. Matches that overlap are redacted as one, under the
kind of the one that starts first. If they start together, it is the kind that is earlier in this order.

The patterns are those of ``council.agents.scan``. The search also decodes base64, hex, URL-encoding, JSON and HTML
escapes, and joins values that are split over lines. Values that are encoded twice are found in escapes only. Names of
persons are not found. The time is linear in the length of the text.
"""

from __future__ import annotations

import binascii
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick

from council.agents.scan.rows import word_set
from council.agents.scan.secrets import finder
from council.agents.scan.shapes import in_bytes

POLICY, PROFANITY = "blocked by the content policy", "profanity"
BLOCKED_MAX, BLOCKED_CHARS_MAX = 1_000, 200
HOLD_CHARS, HOLD_CHARS_MAX, CONTEXT_CHARS = 1_024, 16_384, 1_024
SEAM_CHARS = 100  # on each side of the end of a line, for a word that two lines divide
BASE64_MIN, HEX_MIN = 12, 16  # characters of a run

_PROFANE = word_set(
    "arsehole asshole bastard bitch bollocks bullshit cock cunt dickhead fuck fucked fucker fucking motherfucker "
    "piss prick shit shitty slut twat wanker whore"
)
_SOFT = "\u00ad\u200b-\u200d\u2060\ufeff"  # characters that nobody sees
_WIDE = "\uff01-\uff5e"  # ASCII in full width
# It begins with a class of characters: so the next place is found fast.
_ESCAPE = re.compile(
    rf"[%\\&\x1b{_SOFT}{_WIDE}](?:(?<=%)[0-9A-Fa-f]{{2}}(?:%[0-9A-Fa-f]{{2}})*+"
    r"|(?<=\\)(?:u00[0-9A-Fa-f]{2}|x[0-9A-Fa-f]{2}|[/\"'\\nrt])|(?<=&)#(?:[0-9]{2,3}|[xX][0-9A-Fa-f]{2});"
    rf"|(?<=\x1b)\[[0-9;]{{0,20}}[A-Za-z]|(?<=[{_SOFT}])[{_SOFT}]*+|(?<=[{_WIDE}])[{_WIDE}]*+)"
)
_IN_WORD = re.compile(r"\w")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
_NARROW = bytes(min(code + 32, 126) for code in range(256))  # by the last byte of a wide character
# The end of a line, unless a sentence goes on behind it.
_SEAM = re.compile(
    r"[\n\r\\ \t](?:(?<=\n)|[ \t\r\\]{0,20}\n)[ \t]{0,20}(?![A-Za-z]?[a-z]{0,20}[.,;:]?[ \t])(?=\S)"
)
_READABLE = bytes(byte if 32 <= byte < 127 or byte in b"\t\r\n" else 10 for byte in range(256))
_WALL = "\n\0\n"  # between texts of one view: no shape matches across it


@dataclass(frozen=True, slots=True)
class Redacted:
    """A redacted text, and how often each kind of value was found. It never holds the values."""

    text: str
    counts: Mapping[str, int] = field(default_factory=dict)


class _Span(NamedTuple):
    start: int
    end: int
    kind: str


class Filter:
    """Redacts texts in three steps. ``blocked`` are phrases that the content policy forbids, in any case."""

    def __init__(self, blocked: Iterable[str] = ()) -> None:
        """Raises ValueError for more than 1,000 blocked phrases, an empty one, or one above 200 characters."""
        phrases = tuple(blocked)
        if len(phrases) > BLOCKED_MAX:
            raise ValueError(f"found {len(phrases):,} blocked phrases, expected at most {BLOCKED_MAX:,}")
        for phrase in phrases:
            if not phrase.strip() or len(phrase) > BLOCKED_CHARS_MAX:
                raise ValueError(
                    f"a blocked phrase has 1 to {BLOCKED_CHARS_MAX} characters; found {phrase[:80]!r}"
                )
        self._phrases = [
            *((each.lower(), POLICY) for each in phrases),
            *((each, PROFANITY) for each in sorted(_PROFANE)),
        ]
        self._words = BytesAhoCorasick([in_bytes(phrase) for phrase, _ in self._phrases])

    def redact(self, text: str) -> Redacted:
        """``text`` with ``[redacted: kind]`` in place of each value."""
        spans = self.spans(text)
        return Redacted(_replaced(text, spans), dict(Counter(span.kind for span in spans)))

    def spans(self, text: str) -> list[_Span]:
        """The parts to remove, in order. They do not overlap."""
        found = _private(text)
        for view in _views(text):
            found += [
                _Span(view.start(each.start), view.end(each.end), each.kind) for each in _private(view.text)
            ]
        blocked = self._blocked(text)
        found += [span for span in blocked if span.kind == POLICY]
        found += [span for span in blocked if span.kind == PROFANITY]
        return _apart(found)

    def _blocked(self, text: str) -> list[_Span]:
        """The phrases that stand in the text as whole words."""
        found = []
        for at, start, end in self._words.find_matches_as_indexes(in_bytes(text), overlapping=True):
            phrase, kind = self._phrases[at]
            beside = text[start - 1 : start] + text[end : end + 1]
            if not _IN_WORD.search(beside) and text[start:end].lower() == phrase:
                found.append(_Span(start, end, kind))
        return found


def _private(text: str) -> list[_Span]:
    """Secrets of any grade, since a wrong grade must not show one; personal data unless it is fake."""
    return [
        _Span(start, end, shape.kind)
        for _, start, end, shape, grade in finder().find(text)
        if grade != "fake" or shape.family == "secret"
    ]


def _apart(found: list[_Span]) -> list[_Span]:
    """The spans in order. Spans that overlap are joined, under the kind of the first."""
    apart: list[_Span] = []
    for span in sorted(found, key=lambda span: span.start):
        last = apart[-1] if apart else None
        if last is None or span.start >= last.end:
            apart.append(span)
        elif span.end > last.end:
            apart[-1] = last._replace(end=span.end)
    return apart


def _replaced(text: str, spans: Iterable[_Span], start: int = 0, end: int | None = None) -> str:
    """``text`` from ``start`` to ``end``; a span that began before ``start`` is named again."""
    end = len(text) if end is None else end
    parts, at = [], start
    for span in spans:
        if span.end > start and span.start < end:
            parts += [text[at : max(at, span.start)], f"[redacted: {span.kind}]"]
            at = min(span.end, end)
    return "".join([*parts, text[at:end]])


# What encodings hide. A view is a plain text made of another text, and knows the places in that one.


class _Piece(NamedTuple):
    """``length`` characters that stand for ``start`` to ``end``, one for one if there are as many."""

    length: int
    start: int
    end: int


class _View:
    """A text made of another view, or of the text itself. Its pieces are made when a place is first asked for."""

    def __init__(self, text: str, pieces: Callable[[], list[_Piece]], of: _View | None = None) -> None:
        self.text, self._make, self._of = text, pieces, of

    @cached_property
    def _pieces(self) -> list[_Piece]:
        return self._make()

    @cached_property
    def _at(self) -> list[int]:
        return list(accumulate((piece.length for piece in self._pieces), initial=0))

    def start(self, offset: int) -> int:
        """The place in the first text where the character at ``offset`` begins."""
        part = bisect_right(self._at, offset) - 1
        length, start, end = self._pieces[part]
        place = start + offset - self._at[part] if length == end - start else start
        return self._of.start(place) if self._of else place

    def end(self, offset: int) -> int:
        """The place in the first text where the character before ``offset`` ends."""
        part = bisect_right(self._at, offset - 1) - 1
        length, start, end = self._pieces[part]
        place = start + offset - self._at[part] if length == end - start else end
        return self._of.end(place) if self._of else place


def _views(text: str) -> Iterator[_View]:
    """The views of a text: without escapes, without escapes within escapes, with its lines joined, and decoded."""
    last = _View(text, lambda: [_Piece(len(text), 0, len(text))])
    for _ in range(2):
        plain, count = _ESCAPE.subn(_unescaped, last.text)
        if not count:
            break
        last = _View(plain, _replacing(_ESCAPE, _unescaped, last.text), last)
        yield last
    parts = _SEAM.split(last.text)
    if len(parts) > 2:
        yield _pairs(parts, last)
    if len(parts) > 1:
        last = _View("".join(parts), _replacing(_SEAM, lambda _: "", last.text), last)
        yield last
    yield _decoded(last)


def _replacing(
    pattern: re.Pattern[str], plain: Callable[[re.Match[str]], str], text: str
) -> Callable[[], list[_Piece]]:
    """The pieces of ``pattern.sub(plain, text)``."""

    def pieces() -> list[_Piece]:
        made, at = [], 0
        for match in pattern.finditer(text):
            start, end = match.span()
            made += [_Piece(start - at, at, start), _Piece(len(plain(match)), start, end)]
            at = end
        return [*made, _Piece(len(text) - at, at, len(text))]

    return pieces


def _unescaped(match: re.Match[str]) -> str:
    escape = match[0]
    if escape[0] == "%":
        return binascii.unhexlify(escape.replace("%", "")).decode("utf-8", "replace")
    if escape[0] == "&":
        return chr(int(escape[3:-1], 16) if escape[2] in "xX" else int(escape[2:-1]))
    if escape[0] == "\\":
        return chr(int(escape[2:], 16)) if escape[1] in "ux" else _LETTERS.get(escape[1], escape[1])
    if escape[0] < "\uff01" or escape[0] > "\uff5e":
        return ""
    return escape.encode("utf-16-le")[::2].translate(_NARROW).decode("ascii")


def _pairs(parts: list[str], last: _View) -> _View:
    """The last word before each seam and the first behind it: a value may stand among lines of one word."""
    halves = [
        (one[-SEAM_CHARS:].rpartition(" ")[2], two[:SEAM_CHARS].partition(" ")[0])
        for one, two in pairwise(parts)
    ]

    def pieces() -> list[_Piece]:
        made: list[_Piece] = []
        for (one, two), seam in zip(halves, _SEAM.finditer(last.text), strict=True):
            end, start = seam.span()
            made += [_Piece(len(one), end - len(one), end), _Piece(len(two), start, start + len(two))]
            made.append(_Piece(len(_WALL), start, start))
        return made

    return _View(_WALL.join([one + two for one, two in halves]), pieces, last)


def _decoded(last: _View) -> _View:
    """What the runs of base64 and hex hold, with line feeds for what cannot be read."""
    texts: list[str] = []
    pieces: list[_Piece] = []
    for start, end, content in _contents(last.text):
        plain = content.replace(b"\0", b"").translate(_READABLE).decode("ascii")  # UTF-16 has zeros
        texts += [plain, _WALL]
        pieces += [_Piece(len(plain), start, end), _Piece(len(_WALL), end, end)]
    return _View("".join(texts), lambda: pieces, last)


def _contents(text: str) -> Iterator[tuple[int, int, bytes]]:
    """Start and end of each run, and what it may stand for: nobody knows where in it the encoded text begins."""
    whole = text.encode("ascii", "replace")
    for start, end in _runs(_BASE64, whole):
        run = whole[start:end].replace(b"-", b"+").replace(b"_", b"/")
        if not (
            run.islower() or run.isupper() or run.isdigit()
        ):  # base64 of text has small and capital letters
            for skipped in range(4):
                rest = run[skipped:]
                yield start, end, binascii.a2b_base64(rest + b"A" * (-len(rest) % 4))
    for start, end in (*_runs(_HEX, whole), *_runs(_HEX_PAIRS, whole)):
        digits = whole[start:end].translate(None, b" :-")
        for skipped in range(2):
            yield start, end, binascii.unhexlify(digits[skipped : skipped + (len(digits) - skipped) // 2 * 2])


def _runs(kind: tuple[bytes, re.Pattern[bytes]], whole: bytes) -> list[tuple[int, int]]:
    """Start and end of each run. It is searched in a text where each character is written as its class."""
    classes, pattern = kind
    return [match.span() for match in pattern.finditer(whole.translate(classes))]


def _kind(shape: str, **characters: str) -> tuple[bytes, re.Pattern[bytes]]:
    """A kind of run. ``characters`` are the members of each class, by the letter that stands for it in ``shape``."""
    classes = [
        next((letter for letter, each in characters.items() if re.match(f"[{each}]", chr(code))), ".")
        for code in range(256)
    ]
    return "".join(classes).encode(), re.compile(shape.encode())


# Each begins with plain text: so the next place is found fast.
_BASE64 = _kind("x" * BASE64_MIN + "x*+", x="A-Za-z0-9+/_-")
_HEX = _kind("x" * HEX_MIN + "x*+", x="0-9A-Fa-f")
_HEX_PAIRS = _kind("xxsxxsxxsxxsxxsxxsxxsxx(?:sxx)*+", x="0-9A-Fa-f", s=" :-")


class Redactor:
    """Redacts a stream. It holds back the last 1,024 characters, so that a value split over chunks is found.

    It holds more, up to 16,384, while a private key or a word without a blank has not ended. A longer value may be
    shown in part. ``counts`` has what was found so far, by kind. After ``close`` it reads no more.
    """

    def __init__(self, filter: Filter | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._filter = filter or Filter()
        self._text = ""  # what was shown last, as context, and what is held
        self._shown = 0
        self._counted = 0  # where the last counted span ends
        self._looked = 0  # the length of the text when it was last searched

    def feed(self, chunk: str) -> str:
        """Adds a chunk, and returns the text that can be shown now."""
        shown = []
        for at in range(0, len(chunk), HOLD_CHARS_MAX):
            self._text += chunk[at : at + HOLD_CHARS_MAX]
            if len(self._text) - max(self._shown, self._looked) >= HOLD_CHARS // 2 and (
                len(self._text) - self._shown >= 2 * HOLD_CHARS
            ):
                shown.append(self._show(is_last=False))
        return "".join(shown)

    def close(self) -> str:
        """Returns the rest of the redacted text."""
        shown = self._show(is_last=True)
        self._text, self._shown, self._counted, self._looked = "", 0, 0, 0
        return shown

    def _show(self, *, is_last: bool) -> str:
        spans = self._filter.spans(self._text)
        end = len(self._text) if is_last else self._cut(spans)
        shown = _replaced(self._text, spans, self._shown, end)
        for span in spans:
            if self._counted <= span.start < end and span.end > self._shown:
                self.counts[span.kind] += 1
                self._counted = span.end
        drop = max(0, end - CONTEXT_CHARS)
        self._text, self._shown = self._text[drop:], end - drop
        self._counted = max(0, self._counted - drop)
        self._looked = len(self._text)
        return shown

    def _cut(self, spans: list[_Span]) -> int:
        """Where the text can be cut: after a blank, in no value, and not behind the head of a private key."""
        least = max(self._shown, len(self._text) - HOLD_CHARS_MAX)
        cut = max(least, len(self._text) - HOLD_CHARS)
        for mark in ("-----BEGIN", "PuTTY-User-Key-File", '"kty"'):
            at = self._text.rfind(mark, self._shown)
            if at >= 0 and "-----END" not in self._text[at:]:
                cut = max(least, min(cut, at))
        blanks = [self._text.rfind(blank, least, cut) for blank in " \n\t"]
        cut = max(blanks) + 1 if max(blanks) >= 0 else least
        for span in reversed(spans):
            if span.start < cut < span.end:
                cut = max(least, span.start)
        return cut


_DEFAULT = Filter()


def redact(text: str) -> Redacted:
    """``text`` without secrets, personal data and profanity, with no content policy."""
    return _DEFAULT.redact(text)
