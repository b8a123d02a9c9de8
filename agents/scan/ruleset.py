"""Loads rules: those of this package, and a user's own.

A file ``NAME.yml`` holds rules, and ``NAME.examples.yml`` beside it holds their examples by id, which only tests
read. There are two kinds:

* A code rule is a document in ast-grep's format. What is ours stands in its ``metadata``. A document with ``utils``
  alone gives these to all later rules of its file.
* A line rule matches single lines of files with certain names by regular expressions.

docs/rules-format.md describes every field.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from council.agents.scan.finding import Family, Weight
from council.agents.scan.languages import LANGUAGES
from council.agents.scan.regex import Regex

When = Literal["appears", "vanishes", "pair", "number-up", "number-down"]
OWN = Path(__file__).parent / "rules"
DEPTH_MAX = 100  # of the lists and mappings in a user's file
FILE_BYTES_MAX = 1_000_000
EXAMPLES = ".examples.yml"
# The languages that ast-grep parses, each with an extension that it knows.
PARSED = {language.ast_grep: f".{language.extensions[0]}" for language in LANGUAGES if language.ast_grep}

_PATHS = re.compile(r"\bpaths: \[((?:\"[^\"\n]*\"|[, ])*)\]")
_WILD = re.compile(r"[*?\[]")
_ID = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")


class RuleError(Exception):
    """A rule that can't be loaded. The message names the file, the line and the reason."""


class Loader(yaml.CSafeLoader):
    """Reads YAML, and refuses a mapping that has a key twice. PyYAML takes the last one, and says nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As yaml's own. Raises yaml.constructor.ConstructorError for a key that is there twice."""
        seen = set()
        for key, _ in node.value:
            if key.start_mark.index < node.start_mark.index:
                continue  # from another mapping, by <<
            if str(key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!s:.80} is there twice", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


class _Common(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    family: Family
    weight: Weight
    cwe: int = 0
    when: When = "appears"
    paths: tuple[str, ...] = ()
    near: str = ""
    unless: str = ""


class _Metadata(_Common):
    also: tuple[str, ...] = ()


class _LineRule(_Common, rename={"cut": "from", "put": "to"}):
    id: str
    message: str
    match: str = ""
    cut: str = ""
    put: str = ""
    comments: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """The files that a rule is for: one of ``globs`` matches the path, if there are any, and no ``unwanted`` does."""

    globs: tuple[str, ...]
    unwanted: tuple[str, ...]

    def holds_for(self, path: str) -> bool:
        """Whether its globs match a path, or the path's last part."""
        names = path, path.rsplit("/", 1)[-1]
        if any(_fits(name, glob) for glob in self.unwanted for name in names):
            return False
        return not self.globs or any(_fits(name, glob) for glob in self.globs for name in names)


def _fits(name: str, glob: str) -> bool:
    ending = glob[1:]
    if glob[:1] == "*" and not _WILD.search(ending):  # most globs are *.py and such
        return name.endswith(ending)
    return fnmatch.fnmatchcase(name, glob)


@dataclass(frozen=True, slots=True, eq=False)
class LinePattern:
    """What a line rule matches: ``match`` a line; ``cut`` and ``put`` fully match what a changed line lost and got.

    ``cut`` and ``put`` are for a rule whose ``when`` is "pair". Lines that are comments are read only with
    ``comments``.
    """

    match: Regex | None
    cut: Regex | None
    put: Regex | None
    comments: bool


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One rule. A code rule has ``languages`` and ``code``, a document for ast-grep; a line rule has ``line``."""

    id: str
    family: Family
    weight: Weight
    message: str
    cwe: int
    when: When
    place: str
    scope: Scope
    near: Regex | None
    unless: Regex | None
    languages: tuple[str, ...] = ()
    code: Mapping[str, Any] = field(default_factory=dict)
    line: LinePattern | None = None


@functools.cache
def code_rules(language: str) -> tuple[Rule, ...]:
    """This package's code rules for a language. Only the files that name it are parsed. Raises RuleError."""
    named = re.compile(rf"\b{language}\b".encode())
    files = [file for file in files_of(OWN / "ast") if named.search(file.read_bytes())]
    return tuple(rule for file in files for rule in _own(file) if language in rule.languages)


def line_rules(paths: Collection[str] | None = None) -> tuple[Rule, ...]:
    """This package's line rules; with ``paths``, those of files that can have a rule for one. Raises RuleError."""
    files = files_of(OWN / "lines")
    if paths is not None:
        scopes = {file: _scope(file) for file in files}
        files = [file for file in files if any(map(scopes[file].holds_for, paths))]
    return tuple(rule for file in files for rule in _own(file))


@functools.cache
def _scope(file: Path) -> Scope:
    """The paths that a file's rules are for, by its text, because parsing all files takes longer than most scans."""
    text = file.read_text("utf-8")
    lists = _PATHS.findall(text)
    if len(lists) != text.count("id: "):  # a rule may be for every path
        return Scope((), ())
    globs = [glob for each in lists for glob in re.findall(r"\"([^\"]*)\"", each)]
    return Scope(tuple(dict.fromkeys(glob for glob in globs if not glob.startswith("!"))), ())


@functools.cache
def _own(file: Path) -> tuple[Rule, ...]:
    return tuple(read(file))


def files_of(folder: Path) -> list[Path]:
    """The files of rules in a folder, by name."""
    return sorted(file for file in folder.glob("*.yml") if not file.name.endswith(EXAMPLES))


def load(folder: Path) -> tuple[Rule, ...]:
    """The rules of all files of a folder, by name. Raises RuleError, also if two rules have one id.

    Unlike the others, it compiles every regular expression, so that a wrong one is named now.
    """
    found: dict[str, Rule] = {}
    for file in files_of(folder):
        for rule in read(file):
            check_regexes(rule)
            if rule.id in found:
                raise RuleError(f"{rule.place}: the id {rule.id} is taken by {found[rule.id].place}")
            found[rule.id] = rule
    return tuple(found.values())


def read(file: Path) -> Iterator[Rule]:
    """The rules of one file. Raises RuleError."""
    try:
        data = file.read_bytes()
        if len(data) > FILE_BYTES_MAX:
            raise RuleError(f"{file}: it has {len(data):,} bytes, {FILE_BYTES_MAX:,} at most")
        text = data.decode("utf-8")
    except (OSError, UnicodeError) as error:
        raise RuleError(f"{file}: it can't be read: {error}") from error
    yield from parse(text, file.name)


def parse(text: str, name: str) -> Iterator[Rule]:
    """The rules in a text; ``name`` is the file's, for messages. Raises RuleError."""
    shared: dict[str, Any] = {}
    for raw, line in yaml_items(text, name):
        if isinstance(raw, dict) and raw.keys() == {"utils"}:
            if not isinstance(raw["utils"], dict):
                raise RuleError(
                    f"{name}:{line}: utils is {raw['utils']!r:.80}, expected rules by their names"
                )
            shared |= raw["utils"]
        else:
            yield _rule(raw, shared, f"{name}:{line}")


def yaml_items(text: str, name: str) -> Iterator[tuple[Any, int]]:
    """The documents of a YAML text, and the items of those that are lists, each with its line. Raises RuleError."""
    loader = Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None  # there is one
            for each in node.value if isinstance(node, yaml.SequenceNode) else [node]:
                yield loader.construct_document(each), each.start_mark.line + 1
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise RuleError(f"{name}:{line}: this is no YAML: {getattr(error, 'problem', error)}") from error
    finally:
        loader.dispose()


def refuse_depth(text: str, name: str) -> None:
    """Raises RuleError for a YAML text that nests too deeply: libyaml would end the process."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH_MAX:
                line = event.start_mark.line + 1 if event.start_mark else 1
                raise RuleError(f"{name}:{line}: it nests more than {DEPTH_MAX} levels deep")
    except yaml.YAMLError:
        return  # yaml_items says where and why


def examples(file: Path) -> dict[str, dict[str, list[Any]]]:
    """The examples beside a file of rules: for each id, lists under ``bad`` and ``good``."""
    beside = file.with_name(file.name.removesuffix(".yml") + EXAMPLES)
    found = yaml.load(beside.read_text(encoding="utf-8"), Loader) if beside.exists() else {}
    return found or {}


def _rule(raw: Any, shared: dict[str, Any], place: str) -> Rule:
    try:
        if not isinstance(raw, dict):
            raise ValueError("expected a rule: a mapping with id, message and more")
        rule = _code_rule(raw, shared, place) if "rule" in raw else _line_rule(raw, place)
        if not _ID.fullmatch(rule.id):
            raise ValueError(f"id is {rule.id!r}, expected words in lower case joined by -")
        return rule
    except (msgspec.ValidationError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        named = raw.get("id", "") if isinstance(raw, dict) else ""
        raise RuleError(f"{place}: rule {named!s:.80}: {why}") from error


def _code_rule(raw: dict[str, Any], shared: dict[str, Any], place: str) -> Rule:
    meta = msgspec.convert(raw.get("metadata", {}), _Metadata, strict=False)
    if meta.when == "pair":
        raise ValueError("only a line rule can have when: pair")
    languages = (raw["language"], *meta.also)
    for language in languages:
        if language not in PARSED:
            raise ValueError(f"language is {language!r}, expected one of {', '.join(sorted(PARSED))}")
    code: dict[str, Any] = {key: raw[key] for key in ("rule", "constraints", "transform") if key in raw}
    code["utils"] = shared | raw.get("utils", {})
    return _made(meta, raw["id"], raw["message"], place, languages=languages, code=code)


def _line_rule(raw: dict[str, Any], place: str) -> Rule:
    rule = msgspec.convert(raw, _LineRule)
    if rule.when == "pair" and not (rule.cut or rule.put):
        raise ValueError("when: pair needs from or to")
    if rule.when != "pair" and (rule.cut or rule.put or not rule.match):
        raise ValueError("it needs match; from and to belong to when: pair")
    line = LinePattern(_compiled(rule.match), _compiled(rule.cut), _compiled(rule.put), rule.comments)
    return _made(rule, rule.id, rule.message, place, line=line)


def _made(meta: _Common, id: str, message: str, place: str, **more: Any) -> Rule:
    wanted = [glob for glob in meta.paths if not glob.startswith("!")]
    unwanted = [glob[1:] for glob in meta.paths if glob.startswith("!")]
    return Rule(
        id=id,
        family=meta.family,
        weight=meta.weight,
        message=" ".join(message.split()),
        cwe=meta.cwe,
        when=meta.when,
        place=place,
        scope=Scope(tuple(wanted), tuple(unwanted)),
        near=_compiled(meta.near),
        unless=_compiled(meta.unless),
        **more,
    )


def _compiled(pattern: str) -> Regex | None:
    return Regex(pattern, re.MULTILINE) if pattern else None


def check_regexes(rule: Rule) -> None:
    """Compiles every regular expression of a rule. Raises RuleError, which names the first wrong one."""
    regexes = {"near": rule.near, "unless": rule.unless}
    if rule.line:
        regexes |= {"match": rule.line.match, "from": rule.line.cut, "to": rule.line.put}
    for name, regex in regexes.items():
        try:
            if regex:
                regex.compiled()
        except re.error as error:
            raise RuleError(
                f"{rule.place}: rule {rule.id}: {name} is no regular expression: {error}"
            ) from error
