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
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

import msgspec
import yaml

from council.agents.scan.finding import Family, Weight
from council.agents.scan.languages import LANGUAGES
from council.agents.scan.regex import Regex

When = Literal["appears", "vanishes", "pair", "number-up", "number-down"]
OWN = Path(__file__).parent / "rules"
DEPTH_MAX = 100  # of the lists and mappings in a file
EXAMPLES = ".examples.yml"
# The languages that ast-grep parses, each with an extension that it knows.
PARSED = {language.ast_grep: f".{language.extensions[0]}" for language in LANGUAGES if language.ast_grep}

_FOR_ALL = ("family", "weight", "cwe", "when", "paths", "near", "unless")
_CODE = ("rule", "constraints", "transform", "utils")  # what ast-grep is given of a code rule
_FOR_PEOPLE = ("severity", "note", "url")  # keys of ast-grep's that have no effect here
_WILD = re.compile(r"[*?]")
_PATHS = re.compile(r"\bpaths: \[((?:\"[^\"\n]*\"|[, ])*)\]")
_ID = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")


class RuleError(Exception):
    """A rule that can't be loaded. The message names the file, the line and the reason."""


class Loader(yaml.CSafeLoader):
    """Reads YAML; refuses a key that is there twice, of which PyYAML would take the last. Raises yaml.YAMLError."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[Any] = set()
        for key, _ in node.value:
            if key.value in keys or not isinstance(key, yaml.ScalarNode):
                _refuse(f"the key {key.value!s:.80} is there twice, or is no word", key)
            keys.add(key.value)
        return super().construct_mapping(node, deep=deep)

    def items(self) -> Iterator[tuple[Any, int]]:
        """Each document, or if it is a list each of its items, with its line."""
        while self.check_node():
            node: Any = self.get_node()
            for each in node.value if isinstance(node, yaml.SequenceNode) else [node]:
                yield self.construct_document(each), each.start_mark.line + 1


def _refuse(why: str, at: Any) -> NoReturn:
    raise yaml.constructor.ConstructorError(None, None, why, at.start_mark)


class Rule(
    msgspec.Struct, kw_only=True, frozen=True, eq=False, forbid_unknown_fields=True,
    rename={"cut": "from", "put": "to"},
):  # fmt: skip
    """One rule. A code rule has ``languages`` and ``code``, a document for ast-grep.

    A line rule has ``match``; or, if its ``when`` is "pair", ``cut`` and ``put``, which fully match what a changed
    line lost and got. It reads lines that are comments only with ``comments``. ``place`` is its file and line.
    """

    id: str
    family: Family
    weight: Weight
    message: str
    place: str
    cwe: int = 0
    when: When = "appears"
    paths: tuple[str, ...] = ()
    near: Regex | None = None
    unless: Regex | None = None
    languages: tuple[str, ...] = ()
    code: dict[str, Any] = {}
    match: Regex | None = None
    cut: Regex | None = None
    put: Regex | None = None
    comments: bool = False


def reads(globs: Sequence[str], path: str) -> bool:
    """Whether a glob matches a path or its last part, if there are any; and none that begins with ! does."""
    names = path, path.rsplit("/", 1)[-1]
    wanted = [glob for glob in globs if glob[:1] != "!"]
    unwanted = [glob[1:] for glob in globs if glob[:1] == "!"]
    return (not wanted or _fits(names, wanted)) and not _fits(names, unwanted)


def _fits(names: Sequence[str], globs: Sequence[str]) -> bool:
    for glob in globs:
        literal = max(_WILD.split(glob.partition("[")[0]), key=len)  # most names lack it, and are done with
        if any(literal in name and fnmatch.fnmatchcase(name, glob) for name in names):
            return True
    return False


# This package's rules


@functools.cache
def code_rules(language: str) -> tuple[Rule, ...]:
    """This package's code rules for a language. Only the files that name it are parsed. Raises RuleError."""
    named = re.compile(rf"\b{language}\b".encode())
    files = [file for file in files_of(OWN / "ast") if named.search(file.read_bytes())]
    return tuple(rule for file in files for rule in read(file) if language in rule.languages)


def line_rules(paths: Collection[str]) -> tuple[Rule, ...]:
    """This package's line rules, from those files that may have a rule for one of the paths. Raises RuleError."""
    files = files_of(OWN / "lines")
    return tuple(
        rule for file in files if any(reads(globs_in(file), path) for path in paths) for rule in read(file)
    )


@functools.cache
def globs_in(file: Path) -> tuple[str, ...]:
    """The globs of a file of line rules, without parsing it: parsing all files takes longer than most scans.

    There are none if a rule has none: then the file may have a rule for any path.
    """
    text = file.read_text("utf-8")
    lists = _PATHS.findall(text)
    globs = (glob for each in lists for glob in re.findall(r"\"([^\"]*)\"", each) if glob[:1] != "!")
    return tuple(dict.fromkeys(globs)) if len(lists) == text.count("id: ") else ()


@functools.cache
def read(file: Path) -> tuple[Rule, ...]:
    """The rules of one of this package's files. Raises RuleError."""
    return tuple(parse(file.read_text("utf-8"), file.name))


def files_of(folder: Path) -> list[Path]:
    """The files of rules in a folder, by name."""
    return sorted(file for file in folder.glob("*.yml") if not file.name.endswith(EXAMPLES))


def examples(file: Path) -> dict[str, dict[str, list[Any]]]:
    """The examples beside a file of rules: for each id, lists under ``bad`` and ``good``.

    Raises RuleError and OSError.
    """
    beside = file.with_name(file.name.removesuffix(".yml") + EXAMPLES)
    text = beside.read_text(encoding="utf-8", errors="replace") if beside.exists() else ""
    check_foreign(text, beside.name)
    with _as_rule_error(beside.name):
        found = yaml.load(text, Loader) or {}
    kind: Any = dict[str, dict[Literal["bad", "good"], list[Any]]]
    try:
        return msgspec.convert(found, kind)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise RuleError(f"{beside.name}: expected for each rule's id lists under bad and good") from error


# Reading


def checked(texts: Iterable[tuple[str, str]]) -> tuple[Rule, ...]:
    """The rules in some texts, each with its file's name. Raises RuleError, also if two rules have one id.

    It compiles every regular expression, so that a wrong one is named now.
    """
    found: dict[str, Rule] = {}
    for name, text in texts:
        for rule in parse(text, name):
            if rule.id in found:
                raise RuleError(f"{rule.place}: the id {rule.id} is taken by {found[rule.id].place}")
            found[rule.id] = rule
            for field in msgspec.structs.fields(rule):
                try:
                    if isinstance(regex := getattr(rule, field.name), Regex):
                        regex.check()
                except re.error as error:
                    why = f"{field.encode_name} is no regular expression that can be used: {error}"
                    raise RuleError(f"{rule.place}: rule {rule.id}: {why}") from error
    return tuple(found.values())


def parse(text: str, name: str) -> Iterator[Rule]:
    """The rules in a text; ``name`` is the file's, for messages. Raises RuleError."""
    shared: dict[str, Any] = {}
    for raw, line in yaml_items(text, name):
        place = f"{name}:{line}"
        if not isinstance(raw, dict):
            raise RuleError(
                f"{place}: found {raw!r:.80}, expected a rule: a mapping with id, message and more"
            )
        if raw.keys() == {"utils"}:
            if not isinstance(raw["utils"], dict):
                raise RuleError(f"{place}: utils is {raw['utils']!r:.80}, expected rules by their names")
            shared |= raw["utils"]
            continue
        try:
            yield _rule(raw, shared, place)
        except (ValueError, TypeError) as error:  # msgspec.ValidationError is a ValueError
            raise RuleError(f"{place}: rule {raw.get('id', '')!s:.80}: {error}") from error


def check_foreign(text: str, name: str) -> None:
    """Raises RuleError for a text with aliases or tags, and for one that nests deeply, which ends libyaml."""
    depth = 0
    with _as_rule_error(name):
        for event in yaml.parse(text, yaml.CSafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH_MAX:
                _refuse(f"it nests more than {DEPTH_MAX} levels deep", event)
            if getattr(event, "anchor", None) or getattr(event, "tag", None):
                _refuse("anchors, aliases and tags are not read here: write it out", event)


def yaml_items(text: str, name: str) -> Iterator[tuple[Any, int]]:
    """The documents of a YAML text, and the items of those that are lists, each with its line. Raises RuleError."""
    with _as_rule_error(name):
        items = list(Loader(text).items())  # a wrong text is named before a wrong rule
    yield from items


@contextmanager
def _as_rule_error(name: str) -> Iterator[None]:
    try:
        yield
    except (yaml.YAMLError, ValueError) as error:  # a day such as 2026-13-01 is a ValueError
        mark, why = getattr(error, "problem_mark", None), getattr(error, "problem", error)
        raise RuleError(f"{name}:{mark.line + 1 if mark else 1}: it can't be read as YAML: {why}") from error


def _rule(raw: dict[str, Any], shared: dict[str, Any], place: str) -> Rule:
    given = {"place": place} | {key: raw[key] for key in ("id", "message") if key in raw}
    if "rule" in raw:
        given |= _known(raw.get("metadata", {}), "metadata", *_FOR_ALL, "also")
        _known(raw, "a code rule", "id", "message", "language", "metadata", *_CODE, *_FOR_PEOPLE)
        given["languages"] = (raw.get("language"), *given.pop("also", ()))
        given["code"] = {key: raw[key] for key in _CODE if key in raw} | {
            "utils": shared | raw.get("utils", {})
        }
    else:
        given |= _known(raw, "a line rule", "id", "message", *_FOR_ALL, "match", "from", "to", "comments")
    for key, words in (("family", Family), ("weight", Weight), ("when", When)):
        if key in given and given[key] not in get_args(words):
            raise ValueError(f"{key} is {given[key]!r:.80}, expected one of {', '.join(get_args(words))}")
    rule = msgspec.convert(given, Rule, dec_hook=_regex)
    if not _ID.fullmatch(rule.id):
        raise ValueError(f"id is {rule.id!r}, expected words in lower case joined by -")
    if wrong := [name for name in rule.languages if name not in PARSED]:
        raise ValueError(f"language is {wrong[0]!r}, expected one of {', '.join(sorted(PARSED))}")
    if rule.when == "pair" and not (rule.cut or rule.put):
        raise ValueError("when: pair is for line rules, and needs from or to")
    if rule.when != "pair" and (rule.cut or rule.put or not (rule.match or rule.code)):
        raise ValueError("it needs match; from and to belong to when: pair")
    return msgspec.structs.replace(rule, message=" ".join(rule.message.split()))


def _known(given: Any, what: str, *keys: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"{what} is {given!r:.80}, expected keys with their values")
    if unknown := [str(key) for key in given if key not in keys]:
        raise ValueError(f"{what} has no key {unknown[0]:.80}, expected some of {', '.join(keys)}")
    return given


def _regex(kind: type[Regex], given: object) -> Regex:
    if not isinstance(given, str):
        raise ValueError(f"found {given!r:.80}, expected a regular expression")
    return kind(given, re.MULTILINE)
