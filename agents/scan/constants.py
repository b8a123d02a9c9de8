"""Folds the constants of a change: strings put together from parts, or decoded, in any language with quotes.

Literals that are added or adjacent, joined lists, names in a string, base64 and hex become the text that the program
has. A constant of one file is known in the others of the same change. One reader of tokens serves all languages,
because hunks seldom parse. What it can't fold it leaves out. No text makes it raise.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from council.agents.scan.change import FileChange
from council.agents.scan.finding import Finding
from council.agents.scan.secrets import decoded, find_tokens, finding_of, named_finding

CHARS_MAX = 400_000  # of the new sides of a change; the rest is left out
STEPS_MAX = 150_000  # terms that are read; a program of that size has fewer
TEXT_CHARS_MIN, TEXT_CHARS_MAX = 6, 8_000  # of a folded text
DEPTH_MAX = 10  # brackets in brackets

_HASH = re.compile(
    r"\.(?:py|pyi|rb|pl|pm|sh|bash|zsh|ya?ml|r|exs?|tf|toml)$|(?:^|/)(?:Makefile|Dockerfile|Gemfile|\.env)"
)
_REST = (
    r"|(?P<string>[rRbBuUfF$@]{0,2}+(?:\"(?:[^\"\\\n]|\\[^\n])*+\"|'(?:[^'\\\n]|\\[^\n])*+'|`(?:[^`\\\n]|\\[^\n])*+`))"
    r"|(?P<junk>[\"'`][^\n]*+)|(?P<name>[A-Za-z_$][\w$]{0,80})|(?P<op>[:+.|]=|=>|->|::|==|&&|\S)|(?P<end>$)"
)
_TOKENS = [
    re.compile(rf"(?:[ \t\r\n]|\\\n|{comment})*+(?:{_REST[1:]})") for comment in (r"//[^\n]*+", r"\#[^\n]*+")
]
_NAMED = re.compile(r"[$#]\{(\w+)\}|\$(\w+)")
_BRACED = re.compile(r"\$?\{(\w+)\}")
_BASE64 = re.compile("b64decode|base64_?decode|decode64|atob|frombase64|base64.*decode", re.IGNORECASE)
_HEX = re.compile("fromhex|unhexlify|hex2bin|parsehex|hex.*decode", re.IGNORECASE)
_JOINS = frozenset({"join", "Join", "implode", "joinToString"})
_LISTS = frozenset({"of", "asList", "listOf", "arrayOf", "array"})
_BETWEEN = "\n\0\n"  # no shape of a secret matches over it
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_CODE_OR_URL = re.compile(
    r"https?://|\b(?:eval|exec|system|popen|subprocess|socket|__import__|require|powershell|wget|curl)\b|"
    r"/bin/(?:ba)?sh|rm -[rf]"
)


@dataclass(frozen=True, slots=True)
class Folded:
    """A text that a program puts together. ``name`` is what it is assigned to; ``decoded``: it was hidden."""

    path: str
    line: int
    text: str
    name: str = ""
    decoded: bool = False


@dataclass(frozen=True, slots=True)
class _Value:
    """A constant, or a list of them: how many literals it is made of, and whether the change touches one."""

    text: str
    items: tuple[_Value, ...] | None = None
    parts: int = 1
    fresh: bool = False
    decoded: bool = False


def fold(changes: Iterable[FileChange]) -> list[Folded]:
    """The folded texts on the new side of a change, where the change touches a part of them."""
    readers, left = [], CHARS_MAX
    for change in changes:
        if change.kind == "deleted" or change.is_binary:
            continue
        lines = []
        for line in (line for hunk in change.hunks for line in hunk.lines if line.tag != "-"):
            if left > 0:
                left -= len(line.text) + 1
                lines.append((line.new_no or 0, line.text[:2_000], line.tag == "+"))
        readers.append(_Reader(change.path, lines))
    shared: dict[str, _Value] = {}
    found, steps = [], STEPS_MAX
    for reader in readers * 2:  # first for the names of all files
        steps = reader.run(dict(shared), steps)
        shared |= reader.names
        found += reader.found
    return list(dict.fromkeys(found))


def findings(changes: Sequence[FileChange], folded: Sequence[Folded]) -> list[Finding]:
    """The secrets, and the code or addresses that were hidden, in the folded texts of changes.

    What stands in one piece on an added line is found there, and not again.
    """
    added = {change.path: "\n".join(text for _, text in change.added) for change in changes}
    found = []
    starts = list(accumulate((len(one.text) + len(_BETWEEN) for one in folded), initial=0))
    texts = _BETWEEN.join(one.text for one in folded)  # searched at once, because there may be thousands
    for spot in find_tokens(texts):
        one = folded[bisect_right(starts, spot.start) - 1]
        if spot.grade != "fake" and texts[spot.start : spot.end] not in added[one.path]:
            found.append(finding_of(spot, one.path, one.line))
    for one in folded:
        named = named_finding(one.name, one.text, one.path, one.line)
        if named and one.text not in added[one.path]:
            found.append(named)
        if one.decoded and (hidden := _CODE_OR_URL.search(one.text)):
            message = f"Hides {hidden.group()!r} in a text that it decodes. Write it in plain text."
            found.append(Finding("constant-hidden-code", "supply", "ask", one.path, one.line, message, 506))
    return list(dict.fromkeys(found))


def _join(values: Iterable[_Value], between: str = "") -> _Value | None:
    """The values as one text; None if one is a list, or the text is too long."""
    values = list(values)
    text = between.join(value.text for value in values)
    if len(text) > TEXT_CHARS_MAX or any(value.items is not None for value in values):
        return None
    parts, fresh = sum(value.parts for value in values), any(value.fresh for value in values)
    return _Value(text, None, parts, fresh, any(value.decoded for value in values))


class _Reader:
    """Reads the tokens of one file: each with its kind, text and line, and whether the change adds it."""

    def __init__(self, path: str, lines: Iterable[tuple[int, str, bool]]) -> None:
        self.path = path
        self.tokens: list[tuple[str, str, int, bool]] = []
        self.names: dict[str, _Value] = {}
        self.found: list[Folded] = []
        self.steps = 0
        pattern = _TOKENS[bool(_HASH.search(path))]
        for number, text, is_added in lines:
            for match in pattern.finditer(text):
                kind = match.lastgroup or "end"
                if kind != "end":
                    self.tokens.append((kind, match[kind], number, is_added))
        self.tokens += [("end", "", 0, False)] * 4

    def run(self, shared: dict[str, _Value], steps: int) -> int:
        """Fills ``names`` and ``found`` in at most so many steps, and gives how many are left."""
        self.shared, self.names, self.found, self.steps = shared, {}, [], steps
        at = 0
        while self.tokens[at][0] != "end" and self.steps > 0:
            kind, text, _, _ = self.tokens[at]
            is_name = kind == "name" and self.tokens[at + 1][0] == "op"
            at = self._statement(at) if kind == "string" or is_name or text in ("[", "(") else at + 1
        return self.steps

    def _statement(self, at: int) -> int:
        """Reads an assignment or an expression, and gives where the next begins."""
        line, start = self.tokens[at][2], self._assigned(at)
        name = self.tokens[at][1].lstrip("$").strip("\"'`") if start else ""
        value, end = self._expression(start or at, 0)
        if start:
            old = self.names.pop(name, None)
            is_partial = self.tokens[end][1] in ("+", ".", "%", "(", "[", "?") and self.tokens[end][2] == line
            if value and self.tokens[start - 1][1] in ("+=", ".="):
                value = _join([old, value]) if old else None
            if value and not is_partial:
                self.names[name] = value
        if value and value.items is None and value.fresh and (value.parts > 1 or value.decoded):
            added = [number for _, _, number, is_added in self.tokens[at:end] if is_added]
            if len(value.text) >= TEXT_CHARS_MIN:
                number = added[0] if added else line
                self.found.append(Folded(self.path, number, value.text, name, value.decoded))
        return max(end, at + 1)

    def _assigned(self, at: int) -> int:
        """Where the value of an assignment to the name or key at ``at`` begins, 0 if it is none."""
        if self.tokens[at][0] not in ("name", "string"):
            return 0
        at += self.tokens[at + 1][1] == "]"
        first, second, third = (self.tokens[at + more][1] for more in (1, 2, 3))
        if first == ":" and third == "=":
            return at + 4
        return at + 2 if first in ("=", ":=", "+=", ".=", "=>", ":") and second else 0

    def _expression(self, at: int, depth: int) -> tuple[_Value | None, int]:
        """Terms with a plus, a dot, or nothing between them."""
        value, at = self._term(at, depth)
        while value and value.items is None and self.steps > 0:
            kind, text, line, _ = self.tokens[at]
            is_plus = text in ("+", "&", "..") or (text == "." and self.tokens[at + 1][1][:1] in "\"'$")
            if not is_plus and not (kind == "string" and (depth > 0 or line == self.tokens[at - 1][2])):
                break
            other, end = self._term(at + is_plus, depth)
            both = _join([value, other]) if other else None
            if both is None:
                break
            value, at = both, end
        return value, at

    def _term(self, at: int, depth: int) -> tuple[_Value | None, int]:
        """A literal, a known name, a list, a call whose result is known, or one of these joined."""
        self.steps -= 1
        kind, text, _, fresh = self.tokens[at]
        value: _Value | None = None
        end = at + 1
        if depth > DEPTH_MAX:
            return None, end
        if kind == "string":
            value = self._literal(text, fresh)
        elif kind == "name":
            value, end = self._name(at, depth)
        elif text in ("[", "("):
            is_typed = [one[1] for one in self.tokens[at + 1 : at + 4 : 2]] == ["]", "{"]  # []string{"a"}
            items, end = self._items(at + 3 if is_typed else at, depth)
            if items is not None:
                value = items[0] if text == "(" and len(items) == 1 else _Value("", tuple(items))
        if value and self.tokens[end][1] == "." and self.tokens[end + 1][1] in _JOINS:
            has_arguments = self.tokens[end + 2][1] == "("
            items, after = self._items(end + 2, depth) if has_arguments else ([], end + 2)
            return _joined([value, *items]) if items is not None else None, after
        return value, end

    def _literal(self, text: str, fresh: bool) -> _Value | None:
        """A string with the known names that it shows; None if one is not known."""
        start = min(text.index(quote) for quote in "\"'`" if quote in text)
        prefix, quote, plain = text[:start].lower(), text[start], text[start + 1 : -1]
        pattern = _BRACED if "f" in prefix or "$" in prefix else _NAMED if quote != "'" else None
        parts = 1
        for found in reversed(list(pattern.finditer(plain)) if pattern else []):
            known = self._known(next(filter(None, found.groups())))
            if known is None or known.items is not None:
                return None
            plain = plain[: found.start()] + known.text + plain[found.end() :]
            parts, fresh = 2, fresh or known.fresh
        return _Value(plain, parts=parts, fresh=fresh) if len(plain) <= TEXT_CHARS_MAX else None

    def _known(self, name: str) -> _Value | None:
        name = name.lstrip("$")
        return self.names.get(name) or self.shared.get(name)

    def _name(self, at: int, depth: int) -> tuple[_Value | None, int]:
        """A known name, or a call whose result is known."""
        chain = self.tokens[at][1]
        value, end = self._known(chain), at + 1
        while not value and self.tokens[end][1] in (".", "::", "->") and self.tokens[end + 1][0] == "name":
            name = self.tokens[end + 1][1]
            chain, value, end = f"{chain}.{name}", self._known(name), end + 2
            if [one[1] for one in self.tokens[end : end + 3]] == [
                "(",
                ")",
                ".",
            ]:  # Base64.getDecoder().decode
                end += 2
            self.steps -= 1
        if self.tokens[end][1] != "(":
            return value, end
        items, after = self._items(end, depth)
        value = _called(chain, items) if items else None
        return value, after if value else end + 1

    def _items(self, at: int, depth: int) -> tuple[list[_Value] | None, int]:
        """The values between brackets, of which ``at`` is the opening one; None if one is unknown."""
        closing = _CLOSING[self.tokens[at][1]]
        found: list[_Value] = []
        end = at + 1
        while self.tokens[end][1] != closing:
            value, end = self._expression(end, depth + 1)
            if value is None or self.tokens[end][1] not in (",", closing):
                return None, at + 1
            found.append(value)
            end += self.tokens[end][1] == ","
        return found, end + 1


def _called(chain: str, items: list[_Value]) -> _Value | None:
    """The result of a call that decodes a text, or makes or joins a list."""
    last, how = chain.rpartition(".")[2], items[-1].text.lower()
    if len(items) > 1 and how in ("base64", "hex"):  # Buffer.from(x, "base64"), codecs.decode(x, "hex")
        return _decode(items[0], how)
    if _HEX.search(chain) or _BASE64.search(chain):
        return _decode(items[0], "hex" if _HEX.search(chain) else "base64")
    if last in _JOINS:
        return _joined(items)
    return _Value("", tuple(items)) if last in _LISTS else None


def _decode(value: _Value, how: str) -> _Value | None:
    """The text behind base64 or hex, if it is a text."""
    try:
        plain = bytes.fromhex(value.text).decode() if how == "hex" else decoded(value.text)
    except ValueError:
        return None
    is_text = plain and "\ufffd" not in plain and value.items is None
    return replace(value, text=plain, decoded=True) if is_text else None


def _joined(values: list[_Value]) -> _Value | None:
    """A list and what stands between its items, in any order; or a separator and the items: String.join("", a, b)."""
    lists = [value.items for value in values if value.items is not None]
    texts = [value for value in values if value.items is None]
    if lists:
        return _join(lists[0], texts[0].text if texts else "")
    return _join(texts[1:], texts[0].text) if len(texts) > 1 else None
