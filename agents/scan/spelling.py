"""Spells calls by their modules, whatever an import calls them.

``from subprocess import run as r`` makes ``r(...)`` a ``subprocess.run(...)``, which is how rules name it. Only the
modules in rules/words.yml are spelled out, for rules know other names by their last part. Casts of TypeScript go too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from council.agents.scan.pieces import Piece
from council.agents.scan.python_values import written_out
from council.agents.scan.rows import word_list

ALIASES_MAX = 200

_IMPORT = re.compile(r"(?:^|;)[ \t]*import[ \t]+([\w., \t]+)", re.MULTILINE)
_FROM = re.compile(
    r"(?:^|;)[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(?:\(([^()]{0,2000})\)|([^\n(;]{1,500}))", re.MULTILINE
)
_AS = re.compile(r"([\w.]+)(?:[ \t]+as[ \t]+(\w+))?\s*$")
_REQUIRE = re.compile(
    r"(?:const|let|var)[ \t]+(?:(\w+)|\{([^{}]{1,500})\})[ \t]*=[ \t]*require\([ \t]*"
    r"['\"](?:node:)?([\w/]{1,40})['\"][ \t]*\)"
    r"(?:\.(\w+))?"
)
# ``request.query.next as string``: the value is what rules name.
_CAST = re.compile(r"(?<=[\w)\]])[ \t]+as[ \t]+(?:string|number|any)(?=[ \t]*[),;\]}])")
_IMPORT_JS = re.compile(
    r"import[ \t]+(?:\*[ \t]+as[ \t]+)?(?:(\w+)[ \t]*,?[ \t]*)?(?:\{([^{}]{1,500})\}[ \t]*)?from[ \t]+"
    r"['\"](?:node:)?([\w/]{1,40})['\"]"
)


def spelled(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces, with such calls spelled out. No line moves."""
    known: dict[tuple[str, bool], dict[str, str]] = defaultdict(dict)
    for piece in pieces:
        for local, full in aliases(piece):
            names = known[piece.path, piece.is_new]
            if local != full and len(names) < ALIASES_MAX:
                names[local] = full
    return [_spelled(piece, known.get((piece.path, piece.is_new), {})) for piece in pieces]


def _spelled(piece: Piece, names: dict[str, str]) -> Piece:
    if piece.language and piece.language.name == "python":
        piece = replace(piece, text=written_out(piece))
    if piece.language and piece.language.name in ("typescript", "tsx"):
        piece = replace(piece, text=_CAST.sub("", piece.text))
    if not names:
        return piece
    local = re.compile(rf"(?<![\w.$'\"])({'|'.join(map(re.escape, names))})(?=[ \t]*[(.])")
    return replace(piece, text=local.sub(lambda match: names[match[1]], piece.text))


def aliases(piece: Piece) -> Iterator[tuple[str, str]]:
    """(name here, name in full) of what a piece imports of those modules."""
    language = piece.language.name if piece.language else ""
    if language == "python":
        yield from _in_python(piece.text)
    elif language in ("javascript", "typescript", "tsx"):
        yield from _in_javascript(piece.text)


def _in_python(text: str) -> Iterator[tuple[str, str]]:
    modules = word_list("python_modules")
    for match in _IMPORT.finditer(text):
        for part in match[1].split(","):
            named = _AS.match(part.strip())
            if named and named[2] and named[1].split(".")[0] in modules:
                yield named[2], named[1]
    for match in _FROM.finditer(text):
        if match[1].split(".")[0] in modules:
            for part in (match[2] or match[3]).split(","):
                if named := _AS.match(part.strip()):
                    yield named[2] or named[1], f"{match[1]}.{named[1]}"


def _in_javascript(text: str) -> Iterator[tuple[str, str]]:
    for pattern in (_REQUIRE, _IMPORT_JS):
        for match in pattern.finditer(text):
            whole, parts, module = match[1], match[2], match[3]
            if module not in word_list("javascript_modules"):
                continue
            member = match[4] if pattern is _REQUIRE else None
            name = module.replace("/", ".")
            if whole:
                yield whole, f"{name}.{member}" if member else name
            for part in (parts or "").split(","):
                if named := re.findall(r"\w+", part):
                    yield named[-1], f"{name}.{named[0]}"
