"""Reads and writes SARIF 2.1.0, the format in which analyzers report their results."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from council.agents.scan.finding import Finding, Weight

VERSION = "2.1.0"
RESULTS_MAX = 20_000  # of one report; an analyzer prints far fewer
TEXT_CHARS_MAX = 300  # of a result's message
NAME_CHARS_MAX = 200  # of a rule's id
_LEVELS: dict[Weight, str] = {"stop": "error", "ask": "warning", "note": "note"}
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


class Result(NamedTuple):
    """A result of an analyzer: lines ``first`` to ``last`` of the file at ``uri``, from 1."""

    rule: str
    level: str
    uri: str
    first: int
    last: int
    message: str


class NoSarif(Exception):
    """A text is no SARIF, or says that its analyzer failed. The message says why."""


class _Text(msgspec.Struct):
    text: str = ""


class _Configuration(msgspec.Struct):
    level: str = "warning"


class _Rule(msgspec.Struct, rename="camel"):
    id: str
    default_configuration: _Configuration = msgspec.field(default_factory=_Configuration)


class _Driver(msgspec.Struct):
    name: str = ""
    rules: list[_Rule] = []


class _Tool(msgspec.Struct):
    driver: _Driver
    extensions: list[_Driver] = []


class _Artifact(msgspec.Struct):
    uri: str = ""


class _Region(msgspec.Struct, rename="camel"):
    start_line: int = 0
    end_line: int = 0


class _Physical(msgspec.Struct, rename="camel"):
    artifact_location: _Artifact = msgspec.field(default_factory=_Artifact)
    region: _Region = msgspec.field(default_factory=_Region)


class _Location(msgspec.Struct, rename="camel"):
    physical_location: _Physical = msgspec.field(default_factory=_Physical)


class _RuleName(msgspec.Struct):
    id: str = ""


class _Result(msgspec.Struct, rename="camel"):
    message: _Text
    rule_id: str = ""
    rule: _RuleName = msgspec.field(default_factory=_RuleName)
    level: str = ""
    kind: str = "fail"
    locations: list[_Location] = []


class _Invocation(msgspec.Struct, rename="camel"):
    execution_successful: bool = True


class _Run(msgspec.Struct):
    tool: _Tool
    results: list[_Result] = []
    invocations: list[_Invocation] = []


class _Log(msgspec.Struct):
    version: str
    runs: list[_Run]


_READ = msgspec.json.Decoder(_Log)


def read(text: bytes) -> list[Result]:
    """The results of a report. What it suppresses counts too: a change could hold the suppression.

    Raises NoSarif.
    """
    try:
        log = _READ.decode(text.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoSarif(f"it printed no SARIF {VERSION}: {str(error)[:NAME_CHARS_MAX]}") from error
    if not log.version.startswith("2.1."):
        raise NoSarif(f"it printed SARIF {log.version[:20]!r}, expected {VERSION}")
    if not all(each.execution_successful for run in log.runs for each in run.invocations):
        raise NoSarif("it reports that it failed")
    found = [result for run in log.runs for result in _results(run)]
    if len(found) > RESULTS_MAX:
        raise NoSarif(f"it reported {len(found):,} results, at most {RESULTS_MAX:,} are read")
    return found


def _results(run: _Run) -> Iterator[Result]:
    drivers = (run.tool.driver, *run.tool.extensions)
    levels = {rule.id: rule.default_configuration.level for driver in drivers for rule in driver.rules}
    for each in run.results:
        if each.kind != "fail":
            continue
        rule = each.rule_id or each.rule.id
        level = each.level or levels.get(rule, "warning")
        text = " ".join(each.message.text.split())[:TEXT_CHARS_MAX]
        for location in each.locations[:1]:
            place = location.physical_location
            first, last = place.region.start_line, place.region.end_line
            uri = unquote(place.artifact_location.uri)
            yield Result(rule[:NAME_CHARS_MAX], level, uri, first, max(first, last), text)


def written(
    found: Sequence[Finding], silenced: Sequence[tuple[Finding, str]], files: Collection[str], version: str
) -> dict[str, Any]:
    """The findings as a report of one run. ``files`` are the paths of files; other places are given in words.

    ``silenced`` are findings with the reason of their silence, which become suppressed results.
    """
    every = [*((each, None) for each in found), *silenced]
    rules = {each.rule: each for each, _ in every}
    ids = {rule: at for at, rule in enumerate(rules)}
    driver = {
        "name": "council",
        "version": version,
        "rules": [
            {
                "id": rule,
                "defaultConfiguration": {"level": _LEVELS[each.weight]},
                "properties": {
                    "tags": [each.family, *([f"external/cwe/cwe-{each.cwe:03}"] if each.cwe else [])]
                },
            }
            for rule, each in rules.items()
        ],
    }
    results = [_result(each, why, ids[each.rule], files) for each, why in every]
    return {
        "$schema": _SCHEMA,
        "version": VERSION,
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _result(found: Finding, silenced: str | None, at: int, files: Collection[str]) -> dict[str, Any]:
    is_file = found.path in files
    text = found.message if is_file else f"{found.place}: {found.message}"
    result: dict[str, Any] = {
        "ruleId": found.rule,
        "ruleIndex": at,
        "level": _LEVELS[found.weight],
        "message": {"text": text},
    }
    if is_file:
        place: dict[str, Any] = {"artifactLocation": {"uri": quote(found.path)}}
        if found.line:
            place["region"] = {"startLine": found.line}
        result["locations"] = [{"physicalLocation": place}]
    if silenced is not None:
        result["suppressions"] = [{"kind": "external", "justification": silenced}]
    return result
