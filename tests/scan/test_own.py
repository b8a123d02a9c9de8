"""A user's own rules and silences: loaded, applied, refused, and read from before the change."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest

from council import Council
from council.agents.mind import Case
from council.agents.scan import own
from council.agents.scan.own import Own, own_of, read_folder
from council.agents.scan.ruleset import OWN, RuleError
from council.agents.scan.scan import Findings, scan
from council.protocol.errors import ConfigError
from tests.scan import examples

LINES = """\
- id: no-debug
  family: config
  weight: stop
  paths: ["*.yml"]
  match: '^debug: true'
  message: Debugging is on. Turn it off.
"""
CODE = """\
id: py-no-pay
language: python
message: Pays directly. Use the queue.
rule: {pattern: pay($$$)}
metadata: {family: bug, weight: ask}
"""


def diff(**files: str) -> str:
    """A diff that adds files; __ in a name is a dot, and ___ a slash."""
    parts = []
    for name, text in files.items():
        path = name.replace("___", "/").replace("__", ".")
        lines = text.split("\n")
        parts.append(
            f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
            f"@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)
        )
    return "".join(parts)


def seen(body: str, texts: Mapping[str, str]) -> Findings:
    return scan(Case("1", "ann", "A change", body), own_of(tuple(texts.items())))


def ids(found: Findings) -> set[tuple[str, str]]:
    return {(each.rule, each.weight) for each in found.found}


@pytest.mark.parametrize("name", ["a.yml", "silence.yml"])
@pytest.mark.parametrize("part", ["[", "{a: ", "- ", "a: ["])
def test_a_file_that_nests_too_deeply_is_refused(part: str, name: str) -> None:
    """libyaml crashed the process."""
    with pytest.raises(
        RuleError, match=rf"{name}:1: it can.t be read as YAML: it nests more than 100 levels deep"
    ):
        own_of(((name, part * (1_000_000 // len(part))),))


def test_own_rules_apply_beside_ours() -> None:
    body = diff(a__yml="debug: true", b__py="pay(1)\neval(x)")
    found = ids(seen(body, {"lines.yml": LINES, "code.yml": CODE}))
    assert {("no-debug", "stop"), ("py-no-pay", "ask"), ("py-eval-of-data", "stop")} <= found
    assert not {"no-debug", "py-no-pay"} & {rule for rule, _ in ids(seen(body, {}))}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("<p>\n<SCRIPT src='a'>\neval(x)</SCRIPT>", 3),
        ("<script setup>const a = 1</script><script>\neval(x)", 2),
        ("eval(x)\n</script>\n<p>eval(y)", 1),  # a fragment that begins within a script
        ("<p>eval(x)</p>\n<scripts>eval(x)", 0),
    ],
)
def test_scripts_in_pages_are_read_as_javascript(text: str, line: int) -> None:
    found = scan(Case("1", "ann", "A change", diff(a__html=text, b__vue=text, c__svelte=text)))
    lines = {each.path: each.line for each in found.found if each.rule == "js-eval-of-data"}
    assert lines == (dict.fromkeys(("a.html", "b.vue", "c.svelte"), line) if line else {})
    assert not found.failed


def test_the_same_id_replaces_our_rule() -> None:
    harmless = CODE.replace("py-no-pay", "py-eval-of-data")
    assert "py-eval-of-data" not in {
        rule for rule, _ in ids(seen(diff(b__py="eval(x)"), {"a.yml": harmless}))
    }
    line = LINES.replace("no-debug", "docker-user-root")
    docker = diff(Dockerfile="FROM a:1\nUSER root\nCMD x")
    assert ("docker-user-root", "ask") in ids(seen(docker, {}))
    assert "docker-user-root" not in {rule for rule, _ in ids(seen(docker, {"a.yml": line}))}


def silenced(row: str, body: str) -> Findings:
    return seen(body, {"council.rules/silence.yml": f"- {row}"})


def test_a_silence_holds_for_its_rule_and_paths_alone() -> None:
    body = diff(tools___a__py="eval(x)", b__py="eval(y)")
    found = silenced("{rule: py-eval-of-data, paths: ['tools/*'], reason: ours}", body)
    assert [each.path for each in found.found if each.rule == "py-eval-of-data"] == ["b.py"]
    assert [(each.path, why) for each, why in found.silenced] == [("tools/a.py", "ours")]
    everywhere = silenced("{rule: py-eval-of-data, reason: ours}", body)
    assert "py-eval-of-data" not in {rule for rule, _ in ids(everywhere)}


def test_a_silence_ends_after_its_day_and_is_named() -> None:
    given = own_of([("silence.yml", "- {rule: py-eval-of-data, reason: ours, until: 2026-03-01}")])
    found = scan(Case("1", "ann", "A change", diff(b__py="def f(y):\n    eval(y)"))).found
    assert [each.rule for each in found] == ["py-eval-of-data"]
    assert given.silence(found, date(2026, 3, 1))[0] == ()
    left, silent = given.silence(found, date(2026, 3, 2))
    assert silent == ()
    assert left[0].weight == "stop"
    assert left[0].message.endswith("Its silence ended on 2026-03-01.")


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"a.yml": "- id: x\n- }"}, "a.yml:2: it can't be read as YAML"),
        (
            {"a.yml": LINES + "  weight: ask\n"},
            "a.yml:7: it can't be read as YAML: the key weight is there twice",
        ),
        (
            {"a.yml": "\n" + LINES.replace("stop", "halt")},
            "a.yml:2: rule no-debug: weight is 'halt', expected one of stop, ask, note",
        ),
        (
            {"a.yml": LINES.replace("'^debug: true'", "'('")},
            "a.yml:1: rule no-debug: match is no regular expr",
        ),
        (
            {"a.yml": LINES.replace("'^debug: true'", "'^(\\w+ ?)+$'")},
            "a.yml:1: rule no-debug: match is no regular expr.* repeats a repetition",
        ),
        ({"a.yml": LINES + "  pats: [a]\n"}, "a.yml:1: rule no-debug: a line rule has no key pats"),
        ({"a.yml": CODE + "constraint: {}\n"}, "a.yml:1: rule py-no-pay: a code rule has no key constraint"),
        ({"a.yml": "a: &x [1]\nb: *x\n"}, "a.yml:1: it can't be read as YAML: anchors, aliases"),
        ({"a.yml": LINES, "b.yml": LINES}, "b.yml:1: the id no-debug is taken by a.yml:1"),
        ({"a.yml": CODE.replace("python", "cobol")}, "a.yml:1: rule py-no-pay: language is 'cobol'"),
        ({"a.yml": CODE.replace("Pays directly. Use the queue.", "3")}, "a.yml:1: rule py-no-pay: "),
        ({"a.yml": "utils:"}, "a.yml:1: utils is None"),
        ({"silence.yml": "- {rule: x}"}, "silence.yml:1: silence: .*reason"),
        ({"silence.yml": "- {rule: x, reason: ' '}"}, "silence.yml:1: silence: reason is empty"),
        ({"silence.yml": "\n- {rule: x, reason: y, until: soon}"}, "silence.yml:2: silence: .*until"),
        ({"silence.yml": "- {rule: x, reason: y, path: z}"}, "silence.yml:1: silence: .*path"),
    ],
)
def test_what_does_not_load_is_named(texts: Mapping[str, str], why: str) -> None:
    with pytest.raises(RuleError, match=why):
        own_of(tuple(texts.items()))


def test_a_rule_that_ast_grep_refuses_is_named() -> None:
    given = own_of(
        [("a.yml", CODE), ("b.yml", CODE.replace("py-no-pay", "bad").replace("pattern", "patern"))]
    )
    with pytest.raises(RuleError, match=r"b\.yml:1: rule bad: ast-grep failed"):
        own.check(given)


def write(folder: Path, **texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.yml").write_text(text)
    return folder


def test_the_folder_is_read_without_examples(tmp_path: Path) -> None:
    folder = write(tmp_path / "council.rules", a=LINES)
    (folder / "a.examples.yml").write_text("no-debug: {bad: []}")
    assert [name for name, _ in read_folder(folder)] == [str(folder / "a.yml")]
    (folder / "b.yml").write_bytes(b"a: 1\n\xff")
    with pytest.raises(RuleError, match=r"b\.yml:2: it is not UTF-8"):
        read_folder(folder)
    with pytest.raises(RuleError, match=r"can't be read: .*expected a folder of rules"):
        read_folder(tmp_path / "none")


def test_a_change_of_the_rules_asks_a_human() -> None:
    for path in ("council__rules___a__yml", "sub___council__rules___silence__yml", "council__toml"):
        found = scan(Case("1", "ann", "A change", diff(**{path: "a: 1"})))
        assert ("own-rules-changed", "ask") in ids(found), path
    assert not scan(Case("1", "ann", "A change", diff(rules___a__yml="a: 1"))).found
    named = own_of([("a.yml", LINES)], folder="checks")
    assert ("own-rules-changed", "ask") in ids(scan(Case("1", "a", "b", diff(checks___a__yml="a: 1")), named))


def test_silencers_that_a_change_brings_are_findings() -> None:
    changes = {
        "a__py": "run(cmd)  # nosec",
        "b__go": "h := md5.New() //nolint:gosec",
        "c__js": "// eslint-disable-next-line no-eval",
        "d__java": '@SuppressWarnings("java:S2077")',
    }
    for name, text in changes.items():
        asked = {each.rule for each in scan(Case("1", "a", "b", diff(**{name: text}))).of("ask")}
        assert any(rule.startswith("silencer-") for rule in asked), name
        tests = scan(Case("1", "a", "b", diff(**{f"tests___{name}": text})))
        assert not any(each.rule.startswith("silencer-") for each in tests.of("ask")), name


def test_the_silencers_examples_hold() -> None:
    tried = list(examples.of(OWN / "lines" / "silencers.yml"))
    assert len(tried) > 30
    assert examples.failures(tried) == []


# A council


def test_a_council_judges_by_the_rules_that_its_settings_name(tmp_path: Path) -> None:
    write(tmp_path / "council.rules", a=LINES)
    (tmp_path / "council.toml").write_text('rules = "council.rules"\n')
    change = diff(a__yml="debug: true")
    with Council.inline(tmp_path / "council.toml") as council:
        write(tmp_path / "council.rules", a=LINES.replace("stop", "note"))  # it is loaded once
        decision = council.propose("Change a setting", change)
    assert decision.outcome == "rejected"
    assert any("no-debug" in ballot.reason for ballot in decision.ballots)
    with Council.inline() as council:
        assert council.propose("Change a setting", change).outcome == "approved"


def test_a_rule_that_does_not_load_refuses_the_launch(tmp_path: Path) -> None:
    folder = write(tmp_path / "council.rules", a=LINES.replace("stop", "halt"))
    with pytest.raises(ConfigError, match=r"a\.yml:1: rule no-debug"):
        Council.inline(rules=str(folder))
    write(folder, a=CODE.replace("pattern", "patern"))
    with pytest.raises(ConfigError, match=r"a\.yml:1: rule py-no-pay: ast-grep failed"):
        Council.inline(rules=str(folder))
    with pytest.raises(ConfigError, match="expected /path or ~/path"):
        Council.inline(rules="council.rules")


def test_own_is_no_option_of_a_seat() -> None:
    from council.protocol.errors import MindError

    with pytest.raises(MindError, match="give the setting rules"):
        Council.inline(seats={"lite": {"options": {"own": 3}}})


def test_nothing_is_added_by_default() -> None:
    assert own_of(()).rules == Own().rules == ()


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_a_review_reads_the_rules_from_before_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from council.cli.decide import changes
    from council.cli.report import UsageFault

    git(tmp_path, "init", "-q")
    write(tmp_path / "council.rules", a=LINES)
    (tmp_path / "council.rules" / "link.yml").symlink_to("/etc/passwd")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "Rules")
    write(tmp_path / "council.rules", a=LINES.replace("stop", "note"), silence="- {rule: x, reason: y}")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "Weaken")
    assert changes.find("HEAD", tmp_path).rules == (("council.rules/a.yml", LINES),)
    assert changes.find("HEAD~1", tmp_path).rules == ()  # the first commit has nothing before it
    write(tmp_path / "council.rules", a="- {")
    git(tmp_path, "commit", "-qam", "Break")
    write(tmp_path / "council.rules", a=LINES)
    git(tmp_path, "commit", "-qam", "Mend")
    with pytest.raises(
        UsageFault, match=r"before the change: council\.rules/a\.yml:2: it can't be read as YAML"
    ):
        changes.find("HEAD", tmp_path)
