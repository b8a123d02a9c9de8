"""Folds the constants of a change: strings put together from parts, or decoded, in any language with quotes.

Literals that are added or adjacent, joined lists, formats, f-strings, base64 and hex become the text that the program
has. A constant of one file is known in the others of the same change. One reader of tokens serves all languages,
because hunks seldom parse. What it can't fold it leaves out. No text makes it raise.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from council.agents.scan.change import FileChange
from council.agents.scan.finding import Finding
from council.agents.scan.personal import words
from council.agents.scan.secrets import find_tokens, finding_of, named_finding

CHARS_MAX = 400_000  # of the new sides of a change; the rest is left out
STEPS_MAX = 150_000  # terms and methods that are read; a program of that size has fewer
TEXT_CHARS_MIN, TEXT_CHARS_MAX = 6, 8_000  # of a folded text
DEPTH_MAX = 10  # brackets in brackets

_HASH = re.compile(
    r"\.(?:py|pyi|rb|pl|pm|sh|bash|zsh|ya?ml|r|exs?|tf|toml)$|(?:^|/)(?:Makefile|Dockerfile|Gemfile|\.env)"
)
_REST = (
    r"|(?P<string>[rRbBuUfF$@]{0,2}+(?:\"(?:[^\"\\\n]|\\[^\n])*+\"|'(?:[^'\\\n]|\\[^\n])*+'|`(?:[^`\\\n]|\\[^\n])*+`))"
    r"|(?P<junk>[\"'`][^\n]*+)|(?P<name>[A-Za-z_$][\w$]{0,80})|(?P<number>0x[0-9a-fA-F]{1,8}|\d{1,9})"
    r"|(?P<op>[:+.|]=|=>|->|::|==|&&|\S)|(?P<end>$)"
)
_TOKENS = [
    re.compile(rf"(?:[ \t\r\n]|\\\n|{comment})*+(?:{_REST[1:]})") for comment in (r"//[^\n]*+", r"\#[^\n]*+")
]
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(?:U00|u\{?)([0-9a-fA-F]{4,6})\}?|([0-7]{3})|(.))")
_NEEDLESS = re.compile(
    r"\\(?:x|u00|u\{)(?:3[0-9]|[46][1-9a-fA-F]|[57][0-9aA])"
)  # a letter or digit, written as an escape
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_NAMED = re.compile(r"[$#]\{(\w+)\}|\$(\w+)")
_BRACED = re.compile(r"\$?\{(\w+)\}")
_FIELD = re.compile(r"%(?:\d\$)?[svd]|\{\d?\}")
_BASE64 = re.compile("b64decode|base64_?decode|decode64|atob|frombase64|base64.*decode", re.IGNORECASE)
_HEX = re.compile("fromhex|unhexlify|hex2bin|parsehex|hex.*decode", re.IGNORECASE)
_JOINS = frozenset({"join", "Join", "implode", "joinToString"})
_FORMATS = frozenset({"format", "Format", "sprintf", "Sprintf", "vsprintf"})
_LISTS = frozenset({"of", "asList", "listOf", "arrayOf", "array", "string", "String", "list", "tuple", "qw"})
_CHARS = frozenset({"chr", "fromCharCode", "bytes", "bytearray", "char", "pack"})
_SAME = words(
    "str String bytes bytearray from decode encode toString to_s trim strip getBytes freeze valueOf text encoded u"
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
    number: bool = False


def fold(changes: Iterable[FileChange]) -> list[Folded]:
    """The folded texts on the new side of a change, where the change touches a part of them."""
    readers, left = [], CHARS_MAX
    for change in changes:
        if change.kind == "deleted" or change.is_binary:
            continue
        reader = _Reader(change.path, [])
        for hunk in change.hunks:
            for line in hunk.lines:
                if line.tag != "-" and left > 0:
                    left -= len(line.text) + 1
                    reader.lines.append((line.new_no or 0, line.text[:2_000], line.tag == "+"))
        reader.tokenize()
        readers.append(reader)
    shared: dict[str, _Value] = {}
    found, steps = [], STEPS_MAX
    for reader in readers * 2:  # first for the names of all files
        steps = reader.run(dict(shared), steps)
        shared |= reader.names
        found += reader.found
    return list(dict.fromkeys(found))


_CODE_OR_URL = re.compile(
    r"https?://|\b(?:eval|exec|system|popen|subprocess|socket|__import__|require|powershell|wget|curl)\b|"
    r"/bin/(?:ba)?sh|rm -[rf]"
)


def findings(
    changes: Sequence[FileChange], folded: Iterable[Folded] | None = None, *, lenient: Iterable[str] = ()
) -> list[Finding]:
    """The secrets, and the code or addresses that were hidden, in folded texts. ``lenient`` are paths of tests.

    ``folded`` is what fold gives for the changes, if it is at hand.
    What stands in one piece on an added line is found there, and not again.
    """
    added = {change.path: "\n".join(text for _, text in change.added) for change in changes}
    soft, found = set(lenient), []
    for one in fold(changes) if folded is None else folded:
        raw, path, line = added.get(one.path, ""), one.path, one.line
        for spot in find_tokens(one.text):
            if spot.grade != "fake" and one.text[spot.start : spot.end] not in raw:
                is_soft = spot.grade == "likely" and path in soft
                found.append(finding_of(spot, path, line, "note" if is_soft else None))
        named = named_finding(one.name, one.text, path, line, lenient=path in soft)
        if named and one.text not in raw:
            found.append(named)
        if one.decoded and (hidden := _CODE_OR_URL.search(one.text)):
            message = f"Hides {hidden.group()!r} in a text that it decodes. Write it in plain text."
            found.append(Finding("constant-hidden-code", "supply", "ask", path, line, message, 506))
    return list(dict.fromkeys(found))


def _join(values: Iterable[_Value], between: str = "", **more: bool) -> _Value | None:
    values = list(values)
    text = between.join(value.text for value in values)
    if len(text) > TEXT_CHARS_MAX or any(value.items is not None for value in values):
        return None
    decoded = any(value.decoded for value in values)
    return _Value(text, None, sum(v.parts for v in values), any(v.fresh for v in values), decoded)


def _decode(value: _Value | None, how: str) -> _Value | None:
    """The text behind base64, hex or rot13, if it is a text."""
    if value is None or value.items is not None:
        return None
    text = value.text
    try:
        if how == "rot13":
            plain = codecs.decode(text, "rot13")
        elif how == "hex":
            plain = bytes.fromhex(text.replace("0x", "").replace("\\x", "")).decode()
        else:
            text = text.rstrip("=").replace("-", "+").replace("_", "/")
            plain = base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except (ValueError, binascii.Error):
        return None
    return replace(value, text=plain, decoded=True) if plain else None


class _Reader:
    """Reads the tokens of one file."""

    def __init__(self, path: str, lines: list[tuple[int, str, bool]]) -> None:
        self.path, self.lines = path, lines
        self.tokens: list[tuple[str, str, int, bool]] = []  # kind, text, line, whether the change adds it
        self.names: dict[str, _Value] = {}
        self.found: list[Folded] = []
        self.steps = 0

    def tokenize(self) -> None:
        pattern = _TOKENS[bool(_HASH.search(self.path))]
        for number, text, is_added in self.lines:
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
            starts = (
                kind == "string" or (kind == "name" and self.tokens[at + 1][0] == "op") or text in ("[", "(")
            )
            at = self._statement(at) if starts else at + 1
        return self.steps

    def _statement(self, at: int) -> int:
        """Reads an assignment or an expression, and gives where the next begins."""
        kind, name, line, _ = self.tokens[at]
        start = self._assigned(at) if kind in ("name", "string") else 0
        name = (
            (self.tokens[at - 1][1] if name == "string" else name).lstrip("$").strip("\"'`") if start else ""
        )
        value, end = self.expression(start or at, 0)
        if start:
            old = self.names.pop(name, None)
            is_partial = self.tokens[end][1] in ("+", ".", "%", "(", "[", "?") and self.tokens[end][2] == line
            if value and self.tokens[start - 1][1] in ("+=", ".="):
                value = _join([old, value]) if old else None
            if value and not is_partial:
                self.names[name] = value
        is_folded = value and value.fresh and (value.parts > 1 or value.decoded)
        if value and value.items is None and is_folded and len(value.text) >= TEXT_CHARS_MIN:
            added = [number for _, _, number, is_added in self.tokens[at:end] if is_added]
            self.found.append(Folded(self.path, added[0] if added else line, value.text, name, value.decoded))
        return max(end, at + 1)

    def _assigned(self, at: int) -> int:
        """Where the value of an assignment to the name or key at ``at`` begins, 0 if it is none."""
        if self.tokens[at + 1][1] == "]":
            at += 1
        first, second, third = (self.tokens[at + more][1] for more in (1, 2, 3))
        if first == ":" and third == "=":
            return at + 4
        return at + 2 if first in ("=", ":=", "+=", ".=", "=>", ":") and second else 0

    def expression(self, at: int, depth: int) -> tuple[_Value | None, int]:
        """Terms with a plus, a dot, or nothing between them."""
        value, at = self.term(at, depth)
        while value and self.steps > 0:
            kind, text, line, _ = self.tokens[at]
            is_plus = text in ("+", "&", "..") or (text == "." and self.tokens[at + 1][1][:1] in "\"'$")
            is_adjacent = kind == "string" and (depth > 0 or line == self.tokens[at - 1][2])
            if text == "%" and value.items is None:
                args, end = self.term(at + 1, depth)
                value, at = self._formatted(value, args), end
                continue
            if not (is_plus or is_adjacent) or value.items is not None:
                break
            other, end = self.term(at + is_plus, depth)
            both = _join([value, other]) if other else None
            if both is None:
                break
            value, at = both, end
        return value, at

    def term(self, at: int, depth: int) -> tuple[_Value | None, int]:
        self.steps -= 1
        kind, text, _, fresh = self.tokens[at]
        value: _Value | None = None
        end = at + 1
        if depth > DEPTH_MAX:
            return None, end
        if kind == "string":
            value = self._literal(text, fresh)
        elif kind == "number":
            value = _Value(str(int(text, 0 if text[:2] == "0x" else 10)), None, 0, fresh, number=True)
        elif kind == "name":
            value, end = self._name(at, depth)
        elif text in ("[", "("):
            is_typed = [one[1] for one in self.tokens[at + 1 : at + 4 : 2]] == ["]", "{"]  # []string{"a"}
            items, end = self._items(at + 3 if is_typed else at, depth)
            if items is not None:
                value = items[0] if text == "(" and len(items) == 1 else _Value("", tuple(items), fresh=fresh)
        return self._postfix(value, end, depth) if value else (None, end)

    def _literal(self, text: str, fresh: bool) -> _Value | None:
        start = min(text.index(quote) for quote in "\"'`" if quote in text)
        prefix, quote, body = text[:start].lower(), text[start], text[start + 1 : -1]
        plain = body if "r" in prefix or "\\" not in body else _ESCAPE.sub(_unescaped, body)
        value = _Value(plain, fresh=fresh, decoded=plain != body and bool(_NEEDLESS.search(body)))
        pattern = _BRACED if "f" in prefix or "$" in prefix else _NAMED if quote != "'" else None
        if pattern and (names := [next(filter(None, found.groups())) for found in pattern.finditer(plain)]):
            known = [self._known(name) for name in names]
            if any(one is None or one.items is not None for one in known):
                return None
            pieces = iter(one.text for one in known if one)
            plain = pattern.sub(lambda found: next(pieces), plain)
            value = replace(value, text=plain, parts=2, fresh=fresh or any(one.fresh for one in known if one))
        return value if len(value.text) <= TEXT_CHARS_MAX else None

    def _known(self, name: str) -> _Value | None:
        name = name.lstrip("$")
        return self.names.get(name) or self.shared.get(name)

    def _name(self, at: int, depth: int) -> tuple[_Value | None, int]:
        """A known name, or a call whose result is known."""
        chain = self.tokens[at][1]
        value, end = self._known(chain), at + 1
        while self.tokens[end][1] in (".", "::", "->") and self.tokens[end + 1][0] == "name" and not value:
            chain, value, end = (
                f"{chain}.{self.tokens[end + 1][1]}",
                self._known(self.tokens[end + 1][1]),
                end + 2,
            )
            if [one[1] for one in self.tokens[end : end + 2]] == ["(", ")"] and self.tokens[end + 2][
                1
            ] == ".":
                end += 2
            self.steps -= 1
        if chain == "new" and self.tokens[end][0] == "name":
            return self._name(end, depth + 1) if depth < DEPTH_MAX else (None, end)
        last, opening = chain.rpartition(".")[2], self.tokens[end][1]
        if opening == "[" and self.tokens[end + 1][1] == "]" and self.tokens[end + 2][1] == "{":
            end, opening = end + 2, "{"
        if opening not in ("(", "{") or (opening == "{" and last not in _LISTS):
            return value, end
        items, after = self._items(end, depth)
        value = self._called(chain, last, items) if items else None
        return value, after if value else end + 1

    def _items(self, at: int, depth: int) -> tuple[list[_Value] | None, int]:
        """The values between brackets, of which ``at`` is the opening one; None if one is unknown."""
        closing = {"(": ")", "[": "]", "{": "}"}[self.tokens[at][1]]
        found: list[_Value] = []
        end = at + 1
        while self.tokens[end][1] != closing:
            value, end = self.expression(end, depth + 1)
            if value is None or self.tokens[end][1] not in (",", closing):
                return None, at + 1
            found.append(value)
            end += self.tokens[end][1] == ","
        return found, end + 1

    def _called(self, chain: str, last: str, items: list[_Value]) -> _Value | None:
        texts = [one for one in items if one.items is None]
        lists = [one.items for one in items if one.items is not None]
        how = texts[-1].text.lower().replace("_", "") if len(texts) > 1 else ""
        if how in ("base64", "hex", "rot13"):  # Buffer.from(x, "base64"), codecs.decode(x, "hex")
            return _decode(texts[0], how)
        if _HEX.search(chain) or _BASE64.search(chain):
            return _decode(items[0], "hex" if _HEX.search(chain) else "base64")
        if last in _JOINS and lists and texts:
            return _join(lists[0], texts[0].text)
        if chain == "String.join" and len(texts) > 2:
            return _join(texts[1:], texts[0].text)
        if last in _FORMATS and len(items) > 1:
            return self._formatted(items[0], _Value("", tuple(items[1:])))
        numbers = lists[0] if lists else tuple(items)
        if last in _CHARS and numbers and all(one.number and int(one.text) < 0x110000 for one in numbers):
            text = "".join(chr(int(one.text)) for one in numbers)
            return _Value(text, None, len(numbers), any(one.fresh for one in numbers), decoded=True)
        if last in _LISTS and (len(items) > 1 or last not in _SAME):
            return _Value("", tuple(items))
        return items[0] if last in _SAME else None

    def _formatted(self, value: _Value, args: _Value | None) -> _Value | None:
        """A format with its fields filled in."""
        given = list(args.items if args.items is not None else [args]) if args else []
        texts = [one.text for one in given if one.items is None]
        if len(texts) != len(given) or len(_FIELD.findall(value.text)) != len(texts) or not texts:
            return None
        rest = iter(texts)
        joined = _join([value, *given])
        return joined and replace(joined, text=_FIELD.sub(lambda found: next(rest), value.text))

    def _postfix(self, value: _Value | None, at: int, depth: int) -> tuple[_Value | None, int]:
        """The methods that are called on a value."""
        while value and self.steps > 0:
            self.steps -= 1
            first, second, third = (self.tokens[at + more][1] for more in range(3))
            if first in (".", "->") and third == "(" and self.tokens[at + 1][0] == "name":
                items, end = self._items(at + 2, depth)
                value = self._method(value, second, items) if items is not None else None
                at = end if value else at + 3
            elif first == "." and second in ("join", "reverse"):  # Ruby
                value, at = self._method(value, second, []), at + 2
            elif [one[1] for one in self.tokens[at : at + 5]] in (
                ["[", "::", "-", "1", "]"],
                ["[", ":", ":", "-", "1"],
            ):
                value, at = replace(value, text=value.text[::-1], decoded=True), at + 5
            else:
                break
        return value, at

    def _method(self, value: _Value, name: str, items: list[_Value]) -> _Value | None:
        if name in _JOINS:
            if value.items is not None:
                return _join(value.items, items[0].text if items else "")
            return _join(items[0].items or (), value.text) if items else None
        if value.items is not None:
            return value if name in ("freeze", "toList", "toArray") else None
        if name in _FORMATS:
            return self._formatted(value, _Value("", tuple(items)))
        if name in ("replace", "replaceAll", "gsub", "tr") and len(items) == 2 and items[0].text:
            return replace(
                value, text=value.text.replace(items[0].text, items[1].text), parts=value.parts + 1
            )
        if name == "concat":
            return _join([value, *items])
        if name in ("reverse", "reversed"):
            return replace(value, text=value.text[::-1], decoded=True)
        return value if name in _SAME else None


def _unescaped(found: re.Match[str]) -> str:
    code, point, octal, char = found.groups()
    if char:
        return _CONTROL.get(char, char)
    number = int(code or point, 16) if code or point else int(octal, 8)
    return chr(number) if number < 0x110000 else ""
