"""Removes secrets, personal data, blocked words and profanity from text before it leaves (GCP 7.3, rules 3.4).

The order is personal data and secrets, content policy, profanity. If two matches overlap, the earlier in this order
wins. The patterns are those of ``council.agents.scan``. The search also decodes base64, hex, URL-encoding, JSON and
HTML escapes, and joins values that are split over lines. Values that are encoded twice are found in escapes only.
Names of persons are not found. The time is linear in the length of the text.
"""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from council.agents.scan.secrets import finder

POLICY, PROFANITY = "blocked by the content policy", "profanity"
BLOCKED_MAX, BLOCKED_CHARS_MAX = 1_000, 200
HOLD_CHARS, HOLD_CHARS_MAX, CONTEXT_CHARS = 1_024, 16_384, 1_024

_PROFANE = [
    "arsehole",
    "asshole",
    "bastard",
    "bitch",
    "bollocks",
    "bullshit",
    "cock",
    "cunt",
    "dickhead",
    "fuck",
    "fucked",
    "fucker",
    "fucking",
    "motherfucker",
    "piss",
    "prick",
    "shit",
    "shitty",
    "slut",
    "twat",
    "wanker",
    "whore",
]
_ESCAPE = re.compile(
    r"(?:%[0-9A-Fa-f]{2})+|\\u00[0-9A-Fa-f]{2}|\\x[0-9A-Fa-f]{2}|\\[/\"'\\nrt]|&#[0-9]{2,3};|&#[xX][0-9A-Fa-f]{2};"
    r"|[\u00ad\u200b-\u200d\u2060\ufeff]|[\uff01-\uff5e]"
)
_WORD = r"[A-Za-z]?[a-z]{0,20}[.,;:]?[ \t]"  # of a sentence that goes on behind it
_BREAK = rf"[ \t]{{0,20}}(?:\\?\r?\n|\\r\\n|\\n)[ \t]{{0,20}}(?!{_WORD})"
_BASE64 = re.compile(rf"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{{4,}}+(?:{_BREAK}[A-Za-z0-9+/_-]++)*+")
_HEX = re.compile(rf"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{{2}}(?:[ :-]|{_BREAK})?){{8,}}+")
_CHAIN = re.compile(r"(?<!\S)\S++(?:[ \t]{0,20}\r?\n[ \t]{0,20}\S++)++")
_PROSE = re.compile(_WORD)
_ALIKE = re.compile(r"[\x20-\x7e\t\r\n]{8,}")
_BETWEEN = re.compile(r"[^A-Za-z0-9+/_-]|\\r\\n|\\n")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
_Place = Callable[[int], int]
_WALL = "\n\0\n"  # between texts of one view: no shape matches across it


@dataclass(frozen=True, slots=True)
class Redacted:
    """A redacted text, and how often each kind of value was found. It never holds the values."""

    text: str
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Span:
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
        self._words = [(POLICY, _words(phrases))] if phrases else []
        self._words.append((PROFANITY, _words(_PROFANE)))

    def redact(self, text: str) -> Redacted:
        """``text`` with ``[redacted: kind]`` in place of each value."""
        spans = self.spans(text)
        return Redacted(_replaced(text, spans), dict(Counter(span.kind for span in spans)))

    def spans(self, text: str) -> list[_Span]:
        """The parts to remove, in order. They do not overlap."""
        found = list(_private(text))
        for start, end, plain in _hidden_parts(text):
            found += (
                _Span(start(span.start), end(span.end), span.kind) for span in _private(plain, secrets=True)
            )
        for kind, pattern in self._words:
            found += (_Span(*match.span(), kind) for match in pattern.finditer(text))
        return _apart(found, len(text))


def _words(phrases: Iterable[str]) -> re.Pattern[str]:
    each = sorted(map(re.escape, phrases), key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(each)})(?!\w)", re.IGNORECASE)


def _private(text: str, *, secrets: bool = False) -> Iterator[_Span]:
    """Secrets of any grade, since a wrong grade must not show one; personal data unless it is fake."""
    for _, start, end, shape, grade in finder(personal=not secrets).find(text):
        if shape.family == "secret" or grade != "fake":
            yield _Span(start, end, shape.kind)


def _apart(found: list[_Span], length: int) -> list[_Span]:
    """The spans in order. One that overlaps an earlier found one keeps only what that one leaves."""
    order = sorted(range(len(found)), key=lambda at: (found[at].start, at))
    apart: list[_Span] = []
    for at in order:
        span = found[at]
        last = apart[-1] if apart else None
        if last is None or span.start >= last.end:
            apart.append(span)
        elif span.end > last.end:
            apart[-1] = _Span(last.start, min(span.end, length), last.kind)
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


# What encodings hide: a plain text, and for an offset in it the start and the end of what it stands for


class _View:
    """A text made of parts of another one, with the place of each part."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._at: list[int] = []
        self._places: list[tuple[int, int, bool]] = []
        self._length = 0

    def add(self, text: str, start: int, end: int, *, whole: bool) -> None:
        """``whole``: the part stands for all of start to end; else it is that very text."""
        if text:
            self._at.append(self._length)
            self._places.append((start, end, whole))
            self._texts.append(text)
            self._length += len(text)

    def wall(self) -> None:
        last = self._places[-1][1] if self._places else 0
        self.add(_WALL, last, last, whole=True)

    def text(self) -> str:
        return "".join(self._texts)

    def start(self, offset: int) -> int:
        part = bisect_right(self._at, offset) - 1
        start, _, whole = self._places[part]
        return start if whole else start + offset - self._at[part]

    def end(self, offset: int) -> int:
        part = bisect_right(self._at, offset - 1) - 1
        start, end, whole = self._places[part]
        return end if whole else start + offset - self._at[part]


def _hidden_parts(text: str) -> Iterator[tuple[_Place, _Place, str]]:
    """What each encoding hides, with what gives the start and the end in ``text`` for an offset in it."""
    escapes = _without_escapes(text)
    if escapes is not None:
        plain = escapes.text()
        yield escapes.start, escapes.end, plain
        if (inner := _without_escapes(plain)) is not None:
            yield _through(inner.start, escapes.start), _through(inner.end, escapes.end), inner.text()
    for view in (_decoded_runs(text), _joined_lines(text)):
        if plain := view.text():
            yield view.start, view.end, plain


def _through(inner: _Place, outer: _Place) -> _Place:
    return lambda offset: outer(inner(offset))


def _without_escapes(text: str) -> _View | None:
    if "%" not in text and "\\" not in text and "&#" not in text and text.isascii():
        return None
    view, at = _View(), 0
    for match in _ESCAPE.finditer(text):
        view.add(text[at : match.start()], at, match.start(), whole=False)
        view.add(_unescaped(match[0]), *match.span(), whole=True)
        at = match.end()
    if not at:
        return None
    view.add(text[at:], at, len(text), whole=False)
    return view


def _unescaped(escape: str) -> str:
    if escape[0] == "%":
        return bytes.fromhex(escape.replace("%", "")).decode("utf-8", "replace")
    if escape[0] == "&":
        return chr(int(escape[3:-1], 16) if escape[2] in "xX" else int(escape[2:-1]))
    if escape[0] == "\\":
        return chr(int(escape[2:], 16)) if escape[1] in "ux" else _LETTERS.get(escape[1], escape[1])
    return chr(ord(escape) - 0xFEE0) if "\uff01" <= escape <= "\uff5e" else ""


def _decoded_runs(text: str) -> _View:
    """The readable parts of all runs of base64 and hex, of 16 characters and more."""
    view = _View()
    for match in _HEX.finditer(text):
        digits = re.sub(r"\\r|\\n|[^0-9A-Fa-f]", "", match[0])
        _add_readable(view, bytes.fromhex(digits[: len(digits) // 2 * 2]), match)
    for match in _BASE64.finditer(text):
        run = match[0]
        if len(run) < 16:
            continue
        run = _BETWEEN.sub("", run) if not run.isalnum() else run
        run = run.replace("-", "+").replace("_", "/")
        for skipped in range(4):  # the run may begin with characters that are not of the encoded text
            size = (len(run) - skipped) // 4 * 4
            rest = run[skipped + size :]
            padded = run[skipped : skipped + size] + (rest + "=" * (4 - len(rest)) if len(rest) > 1 else "")
            try:
                _add_readable(view, base64.b64decode(padded), match)
            except binascii.Error:
                continue
    return view


def _add_readable(view: _View, content: bytes, match: re.Match[str]) -> None:
    decoded = content.decode("latin-1")
    if "\0" in decoded:
        decoded = decoded.replace("\0", "")  # UTF-16
    for readable in _ALIKE.finditer(decoded):
        view.add(readable[0], *match.span(), whole=True)
        view.wall()


def _joined_lines(text: str) -> _View:
    """Values that line breaks divide: the end of a line, lines of one word each, and the begin of the next line."""
    view = _View()
    for match in _CHAIN.finditer(text):
        tokens = [
            (part.start() + match.start(), part.end() + match.start())
            for part in re.finditer(r"\S+", match[0])
        ]
        if len(match[0]) < 16 or not any(char.isdigit() for char in match[0]):
            continue
        if _PROSE.match(text, tokens[-1][0]):  # a sentence goes on there
            tokens.pop()
        begin = max(text.rfind("\n", 0, match.start()) + 1, match.start() - 80)
        count = len(tokens)
        for first, last in {(0, count), (1, count), (0, count - 1), (1, count - 1)}:
            _add_joined(view, text, begin if first == 0 else None, tokens[first:last])
        if count > 3:
            for shift in (0, 1):
                for at in range(shift, count - 1, 2):
                    _add_joined(view, text, None, tokens[at : at + 2])
    return view


def _add_joined(view: _View, text: str, begin: int | None, tokens: list[tuple[int, int]]) -> None:
    if len(tokens) < 2:
        return
    if begin is not None:
        view.add(text[begin : tokens[0][0]], begin, tokens[0][0], whole=False)
    for start, end in tokens:
        view.add(text[start:end], start, end, whole=False)
    view.wall()


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
