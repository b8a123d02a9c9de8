"""Applies code rules: one run of ast-grep over both sides of a change."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from council.agents.scan import tools
from council.agents.scan.compare import Match
from council.agents.scan.pieces import Piece
from council.agents.scan.rules import PARSED, Rule, RuleError

CHARS_MAX = 200  # of a captured name or number

_PHP_TAG = re.compile(r"(<\?(?:php\b|=)|\?>)")


class _Position(msgspec.Struct):
    line: int


class _Range(msgspec.Struct):
    start: _Position
    end: _Position


class _Node(msgspec.Struct):
    text: str


class _Captured(msgspec.Struct):
    single: dict[str, _Node] = {}


class _Found(msgspec.Struct, rename={"rule": "ruleId", "variables": "metaVariables"}):
    text: str
    file: str
    rule: str
    range: _Range
    variables: _Captured = msgspec.field(default_factory=_Captured)


_READ = msgspec.json.Decoder(_Found)


def matches(pieces: Sequence[Piece], rules: Iterable[Rule], *, timeout_s: float) -> list[Match]:
    """Where the rules match, on both sides. Raises ToolFailed."""
    wanted = {piece.language.ast_grep for piece in pieces if piece.language and piece.language.ast_grep}
    by_id = {
        f"{rule.id}@{name}": rule for rule in rules for name in rule.languages if name in wanted
    }
    if not by_id:
        return []
    with tempfile.TemporaryDirectory(prefix="council-scan-") as name:
        folder = Path(name)
        _write_rules(folder / "rules.yml", by_id)
        texts = folder / "texts"
        texts.mkdir(mode=0o700)
        for at, piece in enumerate(pieces):
            if piece.language and piece.language.ast_grep:
                place = texts / f"{at}{_suffix(piece.language.ast_grep)}"
                text = _code_of_php(piece.text) if piece.language.name == "php" else piece.text
                place.write_text(text + "\n", encoding="utf-8", errors="replace", newline="")
        command = [tools.find("ast-grep"), "scan", "-r", "rules.yml", "--json=stream", "texts"]
        printed = tools.run(command, folder, timeout_s=timeout_s)
    found = []
    for line in printed.splitlines():
        each = _READ.decode(line)
        rule, piece = by_id[each.rule], pieces[int(Path(each.file).stem)]
        if rule.holds_for(piece.path):
            captured = {name: node.text[:CHARS_MAX] for name, node in each.variables.single.items()}
            first, last = each.range.start.line, each.range.end.line
            found.append(Match(rule, piece, first, last, each.text, captured))
    return sorted(found, key=lambda match: (match.piece.path, match.piece.hunk, match.first))


def _suffix(name: str) -> str:
    return ".hcl" if name == "hcl" else PARSED[name]  # it does not know .tf


def _code_of_php(text: str) -> str:
    """The text without the HTML between "?>" and "<?php", which ast-grep does not parse. Lines stay where they are."""
    parts = _PHP_TAG.split(text.removeprefix("<?php "))
    first = parts[1] if len(parts) > 1 else "?>"
    code, is_code = [], first == "?>"
    for at in range(0, len(parts), 2):
        code.append(parts[at] if is_code else "\n" * parts[at].count("\n"))
        tag = parts[at + 1] if at + 1 < len(parts) else ""
        is_code = tag != "?>"
        code.append({"?>": ";", "<?=": " echo ", "": ""}.get(tag, " "))
    return "<?php " + "".join(code)


def check(rules: Iterable[Rule]) -> None:
    """Raises RuleError, with the rule's place, if ast-grep refuses one."""
    by_id = {f"{rule.id}@{name}": rule for rule in rules for name in rule.languages}
    try:
        _accepts(by_id)
    except tools.ToolFailed:
        for key, rule in by_id.items():  # it names no line: find the rule
            try:
                _accepts({key: rule})
            except tools.ToolFailed as error:
                raise RuleError(f"{rule.place}: rule {rule.id}: {error}") from error
        raise


def _accepts(by_id: dict[str, Rule]) -> None:
    with tempfile.TemporaryDirectory(prefix="council-scan-") as name:
        folder = Path(name)
        _write_rules(folder / "rules.yml", by_id)
        (folder / "texts").mkdir()
        tools.run([tools.find("ast-grep"), "scan", "-r", "rules.yml", "texts"], folder, timeout_s=60.0)


def _write_rules(place: Path, by_id: dict[str, Rule]) -> None:
    documents = (
        {"id": key, "language": key.partition("@")[2], "message": "", **rule.code}
        for key, rule in by_id.items()
    )
    place.write_text("\n---\n".join(map(json.dumps, documents)), encoding="utf-8")
