"""Applies code rules: one run of ast-grep over both sides of a change."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from council.agents.scan import tools
from council.agents.scan.compare import Match
from council.agents.scan.pieces import Piece
from council.agents.scan.ruleset import PARSED, Rule, RuleError, reads

CHARS_MAX = 200  # of a captured name or number

_PHP_TAG = re.compile(r"(<\?(?:php\b|=)|\?>)")
_SCRIPT_TAG = re.compile(r"(<script\b[^>]{0,500}>|</script)", re.IGNORECASE)
_PUT = {"?>": ";", "<?=": " echo "}  # what stands in place of a tag

# In the JSON of a rule: its utils by name, its regexes, and in these each backslash with what it escapes.
_MATCHES = re.compile(r'"matches":"([^"]+)"')
_REGEX = re.compile(r'"regex":"(?:[^"\\]|\\.)*"')
_ESCAPE = re.compile(r"\\\\(\\\\|.)")
# Letters, digits and blanks of ASCII: those of Unicode take long to compile.
_ASCII = {"w": "[0-9A-Za-z_]", "d": "[0-9]", "s": r"[ \\t\\r\\n\\f\\v]", "b": r"(?-u:\\b)"}


def matches(pieces: Sequence[Piece], rules: Iterable[Rule], *, timeout_s: float) -> list[Match]:
    """Where the rules match, on both sides. Raises ToolFailed."""
    wanted = languages(pieces)
    by_id = {f"{rule.id}@{name}": rule for rule in rules for name in rule.languages if name in wanted}
    if not by_id:
        return []
    with tempfile.TemporaryDirectory(prefix="council-scan-") as name:
        folder = Path(name)
        _write_rules(folder / "rules.yml", by_id)
        texts = folder / "texts"
        texts.mkdir(mode=0o700)
        for at, piece in enumerate(pieces):
            for name in languages([piece]):
                text = _code_of(piece, name) + "\n"
                (texts / f"{at}{_suffix(name)}").write_text(text, "utf-8", errors="replace", newline="")
        command = [tools.find("ast-grep"), "scan", "-r", "rules.yml", "--json=stream", "texts"]
        printed = tools.run(command, folder, timeout_s=timeout_s)
    found = []
    for line in printed.splitlines():
        try:
            each = msgspec.json.decode(line)
            rule, piece = by_id[each["ruleId"]], pieces[int(Path(each["file"]).stem)]
            first, last = (each["range"][end]["line"] for end in ("start", "end"))
            names = each.get("metaVariables", {}).get("single", {})
            captured = {name: node["text"][:CHARS_MAX] for name, node in names.items()}
        except (msgspec.DecodeError, LookupError, ValueError, TypeError, AttributeError) as error:
            raise tools.ToolFailed("ast-grep printed a finding that could not be read") from error
        if reads(rule.paths, piece.path):
            found.append(Match(rule, piece, first, last, each["text"], captured))
    return sorted(found, key=lambda match: (match.piece.path, match.piece.hunk, match.first))


def languages(pieces: Iterable[Piece]) -> set[str]:
    """The languages in the pieces, as ast-grep names them. HTML holds scripts."""
    names = {piece.language.ast_grep for piece in pieces if piece.language and piece.language.ast_grep}
    return names | {"javascript"} if "html" in names else names


def _code_of(piece: Piece, name: str) -> str:
    """The text of a piece as ast-grep is given it for a language: without the HTML around PHP or scripts."""
    if name == "php":
        return "<?php " + _between(piece.text.removeprefix("<?php "), _PHP_TAG, is_code=True)
    is_held = piece.language is not None and name != piece.language.ast_grep
    return _between(piece.text, _SCRIPT_TAG, is_code=False) if is_held else piece.text


def _between(text: str, tags: re.Pattern[str], *, is_code: bool) -> str:
    """What stands between an opening tag and the closing one. Lines keep their places.

    ``is_code`` says whether a text without tags is code. A text whose first tag is a closing one begins with code.
    """
    parts = tags.split(text)
    if len(parts) > 1:
        is_code = parts[1].startswith(("?>", "</"))
    shown = []
    for at, part in enumerate(parts):
        blank = "\n" * part.count("\n")
        if at % 2:
            is_code = not part.startswith(("?>", "</"))
            shown.append(_PUT.get(part, " " + blank))
        else:
            shown.append(part if is_code else blank)
    return "".join(shown)


def _suffix(name: str) -> str:
    return ".hcl" if name == "hcl" else PARSED[name]  # it does not know .tf


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
        _json({**rule.code, "id": key, "language": key.partition("@")[2], "message": ""} | _needed(rule.code))
        for key, rule in by_id.items()
    )
    place.write_text("\n---\n".join(documents), encoding="utf-8")


def _needed(code: Mapping[str, Any]) -> dict[str, Any]:
    """The utils that a rule uses. ast-grep compiles all that it is given, once for each rule."""
    given, needed = code["utils"], {}
    texts = [_json([code["rule"], code.get("constraints")])]
    while texts:
        for name in _MATCHES.findall(texts.pop()):
            if name in given and name not in needed:
                needed[name] = given[name]
                texts.append(_json(given[name]))
    return {"utils": needed}


def _json(node: Any) -> str:
    text = msgspec.json.encode(node).decode()
    return _REGEX.sub(lambda regex: _ESCAPE.sub(lambda each: _ASCII.get(each[1], each[0]), regex[0]), text)
