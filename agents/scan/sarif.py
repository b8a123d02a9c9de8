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


def read(text: bytes) -> list[Result]:
    """The results of a report. What it suppresses counts too: a change could hold the suppression.

    Raises NoSarif.
    """
    try:
        log = msgspec.json.decode(text.removeprefix(b"\xef\xbb\xbf"))
        version = str(log["version"])
        if not version.startswith("2.1."):
            raise NoSarif(f"it printed SARIF {version[:20]!r}, expected {VERSION}")
        if not all(
            each.get("executionSuccessful", True)
            for run in log["runs"]
            for each in run.get("invocations", ())
        ):
            raise NoSarif("it reports that it failed")
        found = [result for run in log["runs"] for result in _results(run)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NoSarif(f"it printed no SARIF {VERSION}: {str(error)[:NAME_CHARS_MAX]}") from error
    if len(found) > RESULTS_MAX:
        raise NoSarif(f"it reported {len(found):,} results, at most {RESULTS_MAX:,} are read")
    return found


def _results(run: dict[str, Any]) -> Iterator[Result]:
    """The results of a run that have a place. Raises what a document of another form raises."""
    tool = run["tool"]
    rules = [rule for part in (tool["driver"], *tool.get("extensions", ())) for rule in part.get("rules", ())]
    levels = {rule["id"]: rule.get("defaultConfiguration", {}).get("level", "warning") for rule in rules}
    for each in run.get("results", ()):
        if each.get("kind", "fail") != "fail":
            continue
        rule = each.get("ruleId") or each.get("rule", {}).get("id", "")
        level = each.get("level") or levels.get(rule, "warning")
        text = " ".join(each["message"].get("text", "").split())[:TEXT_CHARS_MAX]
        for location in each.get("locations", ())[:1]:
            place = location.get("physicalLocation", {})
            uri = unquote(place.get("artifactLocation", {}).get("uri", ""))
            region = place.get("region", {})
            first = region.get("startLine", 0)
            last = max(first, region.get("endLine", 0))
            yield msgspec.convert((rule[:NAME_CHARS_MAX], level, uri, first, last, text), Result)


def written(
    found: Sequence[Finding], silenced: Sequence[tuple[Finding, str]], files: Collection[str], version: str
) -> dict[str, Any]:
    """The findings as a report of one run. ``files`` are the paths of files; other places are given in words.

    ``silenced`` are findings with the reason of their silence, which become suppressed results.
    """
    every = [*((each, None) for each in found), *silenced]
    rules = {each.rule: each for each, _ in every}
    ids = {rule: at for at, rule in enumerate(rules)}
    driver = {"name": "council", "version": version, "rules": list(map(_rule, rules.values()))}
    results = [_result(each, why, ids[each.rule], files) for each, why in every]
    return {
        "$schema": _SCHEMA,
        "version": VERSION,
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _rule(found: Finding) -> dict[str, Any]:
    tags = [found.family, *([f"external/cwe/cwe-{found.cwe:03}"] if found.cwe else [])]
    level = {"level": _LEVELS[found.weight]}
    return {"id": found.rule, "defaultConfiguration": level, "properties": {"tags": tags}}


def _result(found: Finding, silenced: str | None, at: int, files: Collection[str]) -> dict[str, Any]:
    is_file = found.path in files
    text = found.message if is_file else f"{found.place}: {found.message}"
    result: dict[str, Any] = {"ruleId": found.rule, "ruleIndex": at, "level": _LEVELS[found.weight]}
    result["message"] = {"text": text}
    if is_file:
        region = {"region": {"startLine": found.line}} if found.line else {}
        place = {"artifactLocation": {"uri": quote(found.path)}} | region
        result["locations"] = [{"physicalLocation": place}]
    if silenced is not None:
        result["suppressions"] = [{"kind": "external", "justification": silenced}]
    return result
