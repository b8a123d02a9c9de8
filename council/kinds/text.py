"""Makes text from outside safe for a terminal.

Models and strangers write reasons, summaries, names and patches. None may move the cursor, change colours or hide
other text.
"""

from __future__ import annotations

import re
import unicodedata

# Characters of these categories are shown as numbers, except tabs and line ends, which are layout.
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters and marks of other categories that are drawn as nothing or as a blank.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
)


def clean(text: str) -> str:
    """``text`` with line ends kept, tabs as spaces, and each control or invisible character as its number."""
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    return "".join(_visible(char) for char in text)


def line(text: str, chars_max: int = 500) -> str:
    """``text`` on one line, cut if it is longer than ``chars_max``."""
    flat = " ".join(clean(text[: 4 * chars_max]).split())
    cut = len(flat) > chars_max or len(text) > 4 * chars_max
    return f"{flat[: chars_max - 1].rstrip()}…" if cut else flat


def _visible(char: str) -> str:
    if char == "\n" or (unicodedata.category(char) not in _HARMFUL and not _BLANK.match(char)):
        return char
    number = ord(char)
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def council_text(council_id: str) -> str:
    """A council's id for people: ``council.f8612720dda1d514`` → ``council 'council' (id f8612720)``."""
    name, _, mark = council_id.rpartition(".")
    return f"council '{line(name, 80)}' (id {line(mark[:8])})" if name else line(council_id, 80)


def span(seconds: float) -> str:
    """A duration for people: ``8 ms``, ``42 s``, ``3 min 5 s``, ``2 h 10 min``, ``3 d 4 h``."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.2f} s" if seconds < 0.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, less, below in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // less
            return f"{whole // size} {name} {rest} {below}" if rest else f"{whole // size} {name}"
    return f"{whole} s"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """``1 seat``, ``3 seats``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
