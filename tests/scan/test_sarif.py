"""Scanners that print SARIF, and SARIF that the council prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from council import Council
from council.agents.mind import Case
from council.agents.scan import sarif
from council.agents.scan.finding import Finding, Weight
from council.agents.scan.own import Level, Scanner, own_of
from council.agents.scan.scan import scan
from council.protocol.errors import ConfigError

LEVELS: tuple[tuple[Level, Weight], ...] = (("error", "stop"), ("warning", "ask"), ("note", "note"))
# Reports each line with FIXME, as its level the word that follows.
SCANNER = """\
import json, os, re, sys
from pathlib import Path
results = []
for path in sorted(Path(".").rglob("*")):
    for number, line in enumerate(path.read_text().split("\\n"), 1) if path.is_file() else ():
        if found := re.search(r"FIXME (\\w+)", line):
            place = {"artifactLocation": {"uri": str(path)}, "region": {"startLine": number}}
            results.append({"ruleId": "fixme", "level": found[1], "message": {"text": f"Seen in {path.name}"},
                            "locations": [{"physicalLocation": place}]})
print(json.dumps({"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "t"}}, "results": results}]}))
sys.exit(1 if results else 0)
"""


def scanner(folder: Path, source: str = SCANNER, *, timeout_s: float = 30.0) -> Scanner:
    file = folder / "scanner.py"
    file.write_text(source)
    return Scanner((sys.executable, str(file)), timeout_s, LEVELS)


def found(given: Scanner, body: str) -> list[tuple[str, int, str, str]]:
    seen = scan(Case("1", "ann", "A change", body), own_of((), [given]))
    name = f"{given.name}/"
    return [
        (each.path, each.line, each.weight, each.message)
        for each in seen.found
        if each.rule.startswith(name) or each.rule == "scanner-failed"
    ]


def change(path: str, old: str, new: str, at: int = 1) -> str:
    """A diff of one hunk that replaces lines from line ``at`` on."""
    lines = [f"-{line}" for line in old.split("\n") if old] + [f"+{line}" for line in new.split("\n") if new]
    counts = f"-{at},{len(old.split(chr(10))) if old else 0} +{at},{len(new.split(chr(10))) if new else 0}"
    return (
        f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ {counts} @@\n"
        + "\n".join(lines)
        + "\n"
    )


def test_results_on_added_lines_count_by_their_levels(tmp_path: Path) -> None:
    body = change("src/a.dat", "x", "FIXME error\nfine\nFIXME note", at=40)
    body += change("b.dat", "x", "FIXME warning") + change("c.dat", "x", "FIXME none")
    assert found(scanner(tmp_path), body) == [
        ("src/a.dat", 40, "stop", "Seen in a.dat"),
        ("b.dat", 1, "ask", "Seen in b.dat"),
        ("src/a.dat", 42, "note", "Seen in a.dat"),
    ]


def test_what_was_there_before_or_moved_does_not_count(tmp_path: Path) -> None:
    given = scanner(tmp_path)
    moved = change("a.dat", "FIXME error", "y") + change("b.dat", "y", "FIXME error")
    assert found(given, moved) == []
    stays = "diff --git a/a.dat b/a.dat\n--- a/a.dat\n+++ b/a.dat\n@@ -1,2 +1,3 @@\n FIXME error\n+FIXME error\n x\n"
    assert found(given, stays) == [("a.dat", 2, "stop", "Seen in a.dat")]
    assert found(given, stays.replace("+FIXME error", "+fine")) == []


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("print('all is well')", "It printed no SARIF 2.1.0"),
        ("import sys; sys.exit('no licence')", "(no licence)"),
        ("import time; time.sleep(600)", "did not finish within"),
        ("print('x' * 40_000_000)", "reported more than"),
        ('print(\'{"version": "1.0", "runs": []}\')', "It printed SARIF '1.0'"),
        ('print(\'{"version": "2.1.0", "runs": [{"tool": 3}]}\')', "It printed no SARIF 2.1.0"),
        ("print('[' * 100_000)", "It printed no SARIF 2.1.0"),
        (
            'print(\'{"version": "2.1.0", "runs": [{"tool": {"driver": {}}, "invocations": '
            '[{"executionSuccessful": false}]}]}\')',
            "It reports that it failed",
        ),
    ],
)
def test_a_scanner_that_fails_is_named_and_asks(tmp_path: Path, source: str, why: str) -> None:
    ((path, line, weight, message),) = found(
        scanner(tmp_path, source, timeout_s=1.0 if "sleep" in source else 30.0), change("a.dat", "x", "y")
    )
    assert (path, line, weight) == (f"the scanner {Path(sys.executable).name}", 0, "ask")
    assert why in message
    assert message.endswith("Its findings are missing: mend it, or run it yourself.")


def test_a_missing_scanner_is_named(tmp_path: Path) -> None:
    ((_, _, weight, message),) = found(Scanner(("no-such-scanner",), 30.0, LEVELS), change("a.dat", "x", "y"))
    assert weight == "ask"
    assert message.startswith("It is not installed")


def test_a_change_does_not_choose_the_scanners_settings_or_leave_the_folder(tmp_path: Path) -> None:
    names = [
        ".semgrepignore",
        "sub/.eslintrc.json",
        "eslint.config.js",
        "pyproject.toml",
        "../out.dat",
        "/abs.dat",
        ".git/config",
    ]
    body = "".join(change(name, "x", "FIXME error") for name in names)
    assert found(scanner(tmp_path), body) == []
    assert found(scanner(tmp_path), change(".github/workflows/a.yml", "x", "FIXME error"))[0][2] == "stop"


def test_paths_may_be_absolute_encoded_or_dotted(tmp_path: Path) -> None:
    for uri in ("f'file://{path.resolve()}'", "'./' + str(path).replace(' ', '%20')"):
        source = SCANNER.replace('"uri": str(path)', f'"uri": {uri}')
        assert [
            each[:3] for each in found(scanner(tmp_path, source), change("a.dat", "x", "FIXME error"))
        ] == [("a.dat", 1, "stop")], uri


def test_levels_come_from_the_rules_too_and_regions_may_span() -> None:
    result: dict[str, Any] = {"ruleId": "a", "message": {"text": "m"}}
    place = {"artifactLocation": {"uri": "x%20y.py"}, "region": {"startLine": 2, "endLine": 4}}
    rules = [{"id": "a", "defaultConfiguration": {"level": "error"}}]
    run = {
        "tool": {"driver": {"name": "t", "rules": rules}},
        "results": [
            {**result, "locations": [{"physicalLocation": place}]},
            result,
            {**result, "kind": "pass"},
        ],
    }
    text = json.dumps({"version": "2.1.0", "runs": [run]}).encode()
    assert sarif.read(text) == [sarif.Result("a", "error", "x y.py", 2, 4, "m")]


def test_a_council_runs_the_scanners_of_its_settings(tmp_path: Path) -> None:
    command = list(scanner(tmp_path).command)
    row = {"command": command, "timeout_s": 30.0, "levels": {"warning": "stop"}}
    with Council.inline(scanners=[row]) as council:
        decision = council.propose("Change a text", change("a.dat", "x", "FIXME warning"))
        assert decision.outcome == "rejected"
        assert council.propose("Change a text", change("a.dat", "x", "y")).outcome == "approved"
    for wrong, why in (
        ({"command": "./x"}, "scanners.1.command: found './x'"),
        ({}, "scanners.1.command: is missing"),
    ):
        with pytest.raises(ConfigError, match=why):
            Council.inline(scanners=[wrong])


def test_findings_are_written_as_sarif() -> None:
    stop = Finding("a-b", "injection", "stop", "x y.py", 3, "Bad.", 95)
    words = Finding("c", "secret", "ask", "the summary", 0, "Worse.")
    log = sarif.written([stop, words], [(stop, "ours")], {"x y.py"}, "1.0")
    (run,) = log["runs"]
    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["a-b", "c"]
    assert run["tool"]["driver"]["rules"][0]["properties"]["tags"] == ["injection", "external/cwe/cwe-095"]
    assert [each["level"] for each in run["results"]] == ["error", "warning", "error"]
    assert run["results"][0]["locations"] == [
        {"physicalLocation": {"artifactLocation": {"uri": "x%20y.py"}, "region": {"startLine": 3}}}
    ]
    assert "locations" not in run["results"][1]
    assert run["results"][1]["message"]["text"] == "the summary: Worse."
    assert run["results"][2]["suppressions"] == [{"kind": "external", "justification": "ours"}]
    assert sarif.read(json.dumps(log).encode())[0].uri == "x y.py"
