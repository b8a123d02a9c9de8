"""Mangle atoms in a model's answer: read by a grammar, checked against declarations.

This module covers the form and types of facts (rules 6.3), and what a model may never assert (rules 6.4). It has no
rules and no inference engine, and does not read control packets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from council.protocol.errors import ConfigError, EnvelopeError
from council.protocol.values import DEPTH_MAX, quoted, text_problem

# An atom is one fact. A longer text is a document, and belongs into memory.
ATOM_CHARS_MAX = 4_000
SCHEMA_CHARS_MAX = 1_000_000
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1

# rules 6.4: only the council and humans state what is permitted, safe, overridden or approved. Only the executor
# states the result of an action. A namespace before the name makes no difference.
_RESERVED = frozenset({"permitted", "safe_action", "admin_override", "signed_approval"})
_RESULTS = frozenset({"result", "results"})
# With the strings and comments in which brackets are text.
_BRACKETS = re.compile(
    r'"(?:[^"\\]++|\\.)*+"?|\'(?:[^\'\\]++|\\.)*+\'?|`(?:[^`\\]++|\\.)*+`?|#[^\n]*+|[\[\](){}]', re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u\{([0-9A-Fa-f]{1,6})\}|([\s\S]))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "`": "`", "\\": "\\", "\n": "\n"}


@dataclass(frozen=True, slots=True)
class Name:
    """A name, like ``/in_progress`` or ``/task/7``."""

    text: str


# A list is a tuple, and a struct a dictionary by its names.
Value = Name | str | int | float | tuple["Value", ...] | dict[str, "Value"]


@dataclass(frozen=True, slots=True)
class Atom:
    """A ground atom."""

    predicate: str
    args: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Type:
    """The type of an argument: ``/string``, or ``fn:List(/string)`` with its element types."""

    word: str
    parts: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if self.word in ("fn:Union", "fn:Singleton"):
            return " or ".join(map(str, self.parts))
        return f"{self.word}({', '.join(map(str, self.parts))})" if self.parts else self.word


@dataclass(frozen=True, slots=True)
class Declaration:
    """A predicate, its parameters, and their possible types; each row of ``bounds`` is one alternative."""

    predicate: str
    parameters: tuple[str, ...]
    bounds: tuple[tuple[Type, ...], ...]
    reserved: bool


@dataclass(frozen=True, slots=True)
class Schema:
    """The declared predicates, by name and number of arguments."""

    declared: Mapping[tuple[str, int], Declaration]

    @classmethod
    def read(cls, text: str, where: str = "schema") -> Schema:
        """The schema of Mangle declarations. Raises ConfigError, which names ``where`` and the line."""
        return cls({}).extended(text, where)

    def extended(self, text: str, where: str = "schema") -> Schema:
        """This schema with more declarations. A new declaration of a known predicate replaces the old one.

        What a model may never assert stays reserved, whatever they declare (rules 6.4). Raises ConfigError.
        """
        found: dict[tuple[str, int], Declaration] = {}
        try:
            tree = _parsed(text, "declarations", SCHEMA_CHARS_MAX)
        except EnvelopeError as error:
            raise ConfigError(f"{where}: {error}") from None
        for node in tree.children:
            line = node.children[0].line
            try:
                declaration = _declaration(node)
                key = declaration.predicate, len(declaration.parameters)
                if key in found:
                    raise EnvelopeError(f"{key[0]} with {key[1]} arguments is declared twice", field=where)
            except EnvelopeError as error:
                raise ConfigError(f"{where}, line {line}: {error}") from None
            found[key] = declaration
        return Schema({**self.declared, **found})

    def check(self, text: str) -> None:
        """Raises EnvelopeError unless ``text`` is an atom that a model may assert, as declared (rules 6.3, 6.4)."""
        atom = parse(text)
        name, count = atom.predicate, len(atom.args)
        declaration = self.declared.get((name, count))
        if declaration is None:
            counts = sorted(most for known, most in self.declared if known == name)
            if counts:
                wanted = " or ".join(map(str, counts))
                raise EnvelopeError(f"{quoted(name)} has {wanted} arguments, found {count}", field="atom")
            raise EnvelopeError(f"{quoted(name)} is not declared; declare it in a schema file", field="atom")
        if declaration.reserved:
            raise EnvelopeError(
                f"{quoted(name)} may be asserted by the council alone, never by a model", field="atom"
            )
        rows = declaration.bounds
        if not rows or any(all(map(_fits, atom.args, row)) for row in rows):
            return
        # The row with the most fitting arguments gives the most helpful error.
        row = max(rows, key=lambda row: _misfit(atom.args, row))
        at = _misfit(atom.args, row)
        raise EnvelopeError(
            f"{quoted(name)}: {declaration.parameters[at]} must be {row[at]}, "
            f"found {quoted(_written(atom.args[at]))}",
            field="atom",
        )


@cache
def shipped() -> Schema:
    """The built-in schema, read once."""
    return Schema.read(_text("schemas.gl"), "schemas.gl")


def parse(text: str) -> Atom:
    """The ground atom of ``text``, which a period may end. Raises EnvelopeError that says what is wrong."""
    return _atom(_parsed(text, "update", ATOM_CHARS_MAX).children[0])


# Behind the names above


def _text(name: str) -> str:
    return resources.files("council.protocol.answer").joinpath(name).read_text(encoding="utf-8")


@cache
def _parser() -> Any:
    from lark import Lark  # it takes a tenth of a second, and only readers of atoms need it

    return Lark(
        _text("mangle.lark"), parser="lalr", start=["update", "declarations"], maybe_placeholders=False
    )


def _parsed(text: str, start: str, chars_max: int) -> Any:
    """The tree of a text. The parser has its own stack and never backtracks, so its work is linear."""
    from lark import UnexpectedInput

    if len(text) > chars_max:
        raise EnvelopeError(f"{len(text):,} characters; at most {chars_max:,} are read", field="atom")
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += 1 if found[0] in "[({" else -1 if found[0] in "])}" else 0
        if depth > DEPTH_MAX:
            raise EnvelopeError(f"nested more than {DEPTH_MAX} deep", field="atom")
    try:
        return _parser().parse(text, start=start)
    except UnexpectedInput as error:
        ended = getattr(getattr(error, "token", None), "type", "") == "$END"
        at = len(text) if ended or error.pos_in_stream is None else error.pos_in_stream
        raise EnvelopeError(_unexpected(text, at, start), field="atom") from None


def _unexpected(text: str, at: int, start: str) -> str:
    rest = text[at:].lstrip()
    if start == "update" and rest.startswith((":-", "<-", "⟸")):
        return "is a rule; an update is one fact"
    line = text.count("\n", 0, at)
    place = f"character {at - text.rfind(chr(10), 0, at)}" + (f" of line {line + 1}" if line else "")
    if not rest:
        return "ends too early" if text.strip() else "is empty"
    return f"{place}: did not expect {quoted(rest, 20)}"


def _atom(node: Any) -> Atom:
    return Atom(str(node.children[0]), tuple(map(_value, node.children[1:])))


def _value(node: Any) -> Value:
    match getattr(node, "type", None) or node.data:
        case "NAME":
            return Name(str(node))
        case "STRING":
            return _unescaped(node[1:-1])
        case "INTEGER":
            # The limit of the text also limits the digits, so that int() can't take long.
            number = int(node) if len(node) <= 20 else INTEGER_MAX + 1
            if not INTEGER_MIN <= number <= INTEGER_MAX:
                raise EnvelopeError(f"{quoted(str(node))} does not fit 64 bits", field="atom")
            return number
        case "FLOAT":
            if not math.isfinite(float(node)):
                raise EnvelopeError(f"{quoted(str(node))} is too large a number", field="atom")
            return float(node)
        case "VARIABLE":
            raise EnvelopeError(f"{quoted(str(node))} is a variable; an update is ground", field="atom")
        case "list":
            return tuple(map(_value, node.children))
        case _:
            return _struct(node)


def _struct(node: Any) -> dict[str, Value]:
    fields: dict[str, Value] = {}
    for pair in node.children:
        label, value = map(_value, pair.children)
        if not isinstance(label, Name):
            raise EnvelopeError("the fields of a struct are named, like {/line: 7}", field="atom")
        if label.text in fields:
            raise EnvelopeError(f"{quoted(label.text)} appears twice in one struct", field="atom")
        fields[label.text] = value
    return fields


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        digits, plain = found[1] or found[2], found[3]
        if digits is not None and int(digits, 16) <= 0x10FFFF:
            return chr(int(digits, 16))
        if plain not in _ESCAPED:
            raise EnvelopeError(f"{quoted(found[0])} is not an escape", field="atom")
        return _ESCAPED[plain]

    text = _ESCAPE.sub(one, text)
    problem = text_problem(text)
    if problem is not None:
        raise EnvelopeError(f"a text {problem}", field="atom")
    return text


def _written(value: Value) -> str:
    """The value for an error message."""
    match value:
        case Name():
            return value.text
        case str():
            return f'"{value}"'
        case tuple():
            return f"[{', '.join(map(_written, value))}]"
        case dict():
            return "{" + ", ".join(f"{label}: {_written(inner)}" for label, inner in value.items()) + "}"
        case _:
            return str(value)


# Declarations

_PARTS = {
    "fn:Union": range(1, 10_000),
    "fn:Singleton": (1,),
    "fn:List": (1,),
    "fn:Struct": range(0, 10_000, 2),
}


def _is_reserved(predicate: str) -> bool:
    name = predicate.replace(":", ".").rpartition(".")[2]
    return name in _RESERVED or name.rpartition("_")[2] in _RESULTS


def _declaration(node: Any) -> Declaration:
    predicate, parameters, *rest = node.children
    name = str(predicate)
    atoms = [str(atom.children[0]) for part in rest if part.data == "description" for atom in part.children]
    rows = [tuple(map(_type, part.children)) for part in rest if part.data == "bound"]
    for row in rows:
        if len(row) != len(parameters.children):
            raise EnvelopeError(
                f"{name} has {len(parameters.children)} parameters, and a bound of {len(row)}", field="schema"
            )
    return Declaration(
        predicate=name,
        parameters=tuple(map(str, parameters.children)),
        bounds=tuple(rows),
        reserved="reserved" in atoms or _is_reserved(name),
    )


def _type(node: Any) -> Type:
    word, *parts = node.children
    found = Type(str(word), tuple(map(_type, parts)))
    if word.type == "NAME":
        return found
    if found.word not in _PARTS:
        raise EnvelopeError(f"{quoted(found.word)} is not a type; known: {', '.join(_PARTS)}", field="schema")
    if len(parts) not in _PARTS[found.word]:
        raise EnvelopeError(f"{found.word} can't have {len(parts)} parts", field="schema")
    names = found.parts[:: 2 if found.word == "fn:Struct" else 1]
    if found.word in ("fn:Singleton", "fn:Struct") and any(n.parts or n.word[0] != "/" for n in names):
        raise EnvelopeError(f"{found.word} wants names, like /a", field="schema")
    return found


def _misfit(args: tuple[Value, ...], row: tuple[Type, ...]) -> int:
    return next(
        n for n, (value, wanted) in enumerate(zip(args, row, strict=True)) if not _fits(value, wanted)
    )


def _fits(value: Value, wanted: Type) -> bool:
    match wanted.word:
        case "/any":
            return True
        case "/name":
            return isinstance(value, Name)
        case "/string":
            return isinstance(value, str)
        case "/number":
            return isinstance(value, int)
        case "/float64":
            return isinstance(value, float)
        case "fn:Union":
            return any(_fits(value, part) for part in wanted.parts)
        case "fn:Singleton":
            return value == Name(wanted.parts[0].word)
        case "fn:List":
            return isinstance(value, tuple) and all(_fits(inner, wanted.parts[0]) for inner in value)
        case "fn:Struct":
            types = {name.word: of for name, of in zip(wanted.parts[::2], wanted.parts[1::2], strict=True)}
            return (
                isinstance(value, dict)
                and value.keys() == types.keys()
                and all(_fits(inner, types[name]) for name, inner in value.items())
            )
        case prefix:  # a name alone means all names below it
            return isinstance(value, Name) and value.text.startswith(f"{prefix}/")
