"""``council rules``: the rules of static checks, those of this package and the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from council.cli.options import Config, Json
from council.cli.reach import Where
from council.cli.report import DONE, REJECTED, Report, UsageFault

if TYPE_CHECKING:
    from council.agents.scan.ruleset import Rule
    from council.agents.scan.trying import Example

app = typer.Typer(help="List, show, try and begin rules of static checks.", no_args_is_help=True)

FOLDER = "council.rules"
Folder = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DIR]", help="A folder of rules; by default the setting rules, or council.rules here."
    ),
]
TRY_S = 300.0
_NO_CALLS = (
    "bash",
    "css",
    "hcl",
    "html",
    "json",
    "yaml",
)  # in which the code rule of the template means nothing


@app.command("list")
def list_(config: Config = None, json: Json = False) -> int:
    """List all rules in effect here: code rules and line rules, your own and those that come with the council.

    A rule of your own replaces one of the same id.
    """
    from council.cli import render

    report = Report(as_json=json)
    ours, own = _every(config)
    shown = render.table("id", "family", "weight", "from", "language", wide="language")
    entries = []
    for rule in sorted([*ours, *own], key=lambda rule: rule.id):
        entry = _entry(rule, is_own=rule in own)
        entries.append(entry)
        language = ", ".join(entry["languages"]) or "lines"
        shown.add_row(*map(render.text, (rule.id, rule.family, rule.weight, entry["from"], language)))
    return report.result({"rules": entries}, shown)


@app.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="The rule's id.")],
    config: Config = None,
    json: Json = False,
) -> int:
    """Show a rule: its message, where it applies, and its examples."""
    from council.cli import render
    from council.config.settings import did_you_mean

    report = Report(as_json=json)
    ours, own = _every(config)
    rule = next((rule for rule in (*ours, *own) if rule.id == id), None)
    if rule is None:
        hint = did_you_mean(id, [rule.id for rule in (*ours, *own)])
        raise UsageFault(f"there is no rule {id!r}{hint}: council rules list has all")
    entry = _entry(rule, is_own=rule in own)
    given = _examples(_file_of(rule, own, config)).get(id, {})
    document = {**entry, "bad": given.get("bad", []), "good": given.get("good", [])}
    lines = [
        (key, ", ".join(value) if isinstance(value, list) else str(value))
        for key, value in entry.items()
        if value not in ("", 0, [])
    ]
    lines += [(kind, _shown(raw)) for kind in ("bad", "good") for raw in given.get(kind, [])]
    return report.result(document, render.facts((key, render.text(value)) for key, value in lines))


@app.command("test")
def try_(folder: Folder = None, config: Config = None, json: Json = False) -> int:
    """Run the examples of your own rules.

    Each bad example must be found by its rule, and each good one must not. Exits 1 if an example does not hold, or a
    rule has no bad or no good example.
    """
    from council.agents.scan import own, trying
    from council.agents.scan.ruleset import RuleError
    from council.agents.scan.tools import ToolFailed

    report = Report(as_json=json)
    folder = folder or _folder(config)
    if folder is None:
        raise UsageFault(f"there is no folder {FOLDER} here: name one, or begin with council rules new ID")
    try:
        given = own.own_of(own.read_folder(folder))
        own.check(given)
        examples: dict[str, Any] = {}
        for file in sorted(folder.glob("*.yml")):
            examples |= _examples(file)
        tried = list(trying.of(given.rules, examples))
        wrong = trying.failures(tried, timeout_s=TRY_S)
    except (RuleError, ToolFailed, ValueError) as error:
        raise UsageFault(str(error)) from error
    lines = [_told(example, ids) for example, ids in wrong]
    bare = [
        f"{rule.place} {rule.id}: it has no {kind} example"
        for rule in given.rules
        for kind in ("bad", "good")
        if not examples.get(rule.id, {}).get(kind)
    ]
    unknown = sorted(examples.keys() - {rule.id for rule in given.rules})
    bare += [f"{folder}: examples for {id}, and there is no such rule" for id in unknown]
    total = f"{len(given.rules)} rules, {len(tried)} examples, {len(wrong)} do not hold"
    document = {
        "rules": len(given.rules),
        "examples": len(tried),
        "silences": len(given.silences),
        "problems": [*lines, *bare],
    }
    return report.result(document, "\n".join([*lines, *bare, total]), REJECTED if wrong or bare else DONE)


@app.command()
def new(
    id: Annotated[str, typer.Argument(metavar="ID", help="The rule's id: words in lower case joined by -.")],
    language: Annotated[
        str | None, typer.Option(metavar="NAME", help="Write a code rule for this language, not a line rule.")
    ] = None,
    json: Json = False,
) -> int:
    """Write a rule to begin with, and its examples, into council.rules/.

    Without --language it is a line rule: a regular expression on lines of files with certain names.
    """
    from council.agents.scan.ruleset import EXAMPLES, PARSED, RuleError, parse
    from council.config import files

    report = Report(as_json=json)
    if language is not None and language not in PARSED:
        raise UsageFault(f"--language {language}: expected one of {', '.join(sorted(PARSED))}")
    if language in _NO_CALLS:
        raise UsageFault(
            f"--language {language}: it has no calls, so leave --language out, and match its lines"
        )
    rule = _CODE_RULE.format(id=id, language=language) if language else _LINE_RULE.format(id=id)
    examples = (_CODE_EXAMPLES if language else _LINE_EXAMPLES).format(id=id)
    try:
        list(parse(rule, f"{id}.yml"))
    except RuleError as error:
        raise UsageFault(str(error)) from error
    folder = Path(FOLDER)
    places = [(folder / f"{id}.yml", rule), (folder / f"{id}{EXAMPLES}", examples)]
    if there := next((place for place, _ in places if place.exists()), None):
        raise UsageFault(f"{there} is there already: choose another id, or edit it")
    try:
        folder.mkdir(exist_ok=True)
        for place, content in places:
            with files.whole(place, replace=False) as stream:
                stream.write(content.encode())
    except OSError as error:
        raise UsageFault(f"{error.filename or folder} can't be written: {error.strerror}") from error
    told = f"wrote {places[0][0]} and {places[1][0]}: edit both, then run council rules test"
    return report.result({"files": [str(place) for place, _ in places]}, told)


def _every(config: Path | None) -> tuple[list[Rule], tuple[Rule, ...]]:
    """The rules of this package that are in effect, and the user's own. Raises UsageFault."""
    from council.agents.scan import own
    from council.agents.scan.ruleset import OWN, RuleError, files_of, read

    folder = _folder(config)
    try:
        given = own.own_of(own.read_folder(folder)) if folder else own.NOTHING
    except RuleError as error:
        raise UsageFault(str(error)) from error
    ids = {rule.id for rule in given.rules}
    files = [file for kind in ("ast", "lines") for file in files_of(OWN / kind)]
    ours = [rule for file in files for rule in read(file) if rule.id not in ids]
    return ours, given.rules


def _folder(config: Path | None) -> Path | None:
    """The user's folder of rules: the setting, or the one here, if there is one."""
    if (named := Where(config).loaded().config.rules) is not None:
        return Path(named).expanduser()
    return Path(FOLDER) if Path(FOLDER).is_dir() else None


def _file_of(rule: Rule, own: Sequence[Rule], config: Path | None) -> Path:
    from council.agents.scan.ruleset import OWN

    name = rule.place.rpartition(":")[0]
    if rule in own:
        return (_folder(config) or Path()) / Path(name).name
    return OWN / ("ast" if rule.languages else "lines") / name


def _examples(file: Path) -> Mapping[str, Any]:
    """The examples beside a file of rules. Raises UsageFault."""
    from council.agents.scan.ruleset import EXAMPLES, RuleError, examples

    try:
        return examples(file) if not file.name.endswith(EXAMPLES) else {}
    except (OSError, RuleError) as error:
        raise UsageFault(str(error)) from error


def _entry(rule: Rule, *, is_own: bool) -> dict[str, Any]:
    return {
        "id": rule.id,
        "message": rule.message,
        "family": rule.family,
        "weight": rule.weight,
        "cwe": rule.cwe,
        "when": rule.when,
        "languages": list(rule.languages),
        "paths": [glob for glob in rule.paths if glob[:1] != "!"],
        "place": rule.place,
        "from": "council.rules" if is_own else "council",
    }


def _shown(raw: Any) -> str:
    if isinstance(raw, str):
        return raw
    return "\n".join(f"{key}: {value}" for key, value in raw.items()) if isinstance(raw, dict) else str(raw)


def _told(example: Example, ids: set[str]) -> str:
    """What an example should be, and its lines."""
    lines = "\n".join(f"    {line.tag}{line.text}" for line in example.change.hunks[0].lines)
    what = "a bad example is not found" if example.is_bad else "a good example is found"
    others = f" (found by {', '.join(sorted(ids))})" if ids and example.is_bad else ""
    return f"{example.rule.place} {example.rule.id}: {what}{others}:\n{lines}"


_LINE_RULE = """\
- id: {id}
  family: config        # docs/rules-format.md lists the families
  weight: ask           # stop, ask or note
  paths: ["*.yml", "*.yaml"]
  match: '^\\s*debug:\\s*true\\b'
  message: Debugging is on. Turn it off outside of development.
"""
_LINE_EXAMPLES = """\
{id}:
  bad:
    - "debug: true"
    - {{old: "debug: false", new: "debug: true"}}
  good:
    - "debug: false"
"""
_CODE_RULE = """\
id: {id}
language: {language}
message: It calls forbidden(). Call allowed() instead.
rule:
  pattern: forbidden($$$)
metadata:
  family: bug           # docs/rules-format.md lists the families
  weight: ask           # stop, ask or note
"""
_CODE_EXAMPLES = """\
{id}:
  bad:
    - "x = forbidden(1)"
    - {{old: "x = allowed(1)", new: "x = forbidden(1)"}}
  good:
    - "x = allowed(1)"
"""
