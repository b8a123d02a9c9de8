"""Says whether a JSON, TOML or YAML file is well-formed, and what Python a notebook or .pth file holds."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import PurePosixPath

CHARS_MAX = 500_000
DEPTH_MAX = 200  # of collections in YAML: a scanner looks at every open one for each token
LOOKUPS_MAX = 200_000  # of a notebook's lines of code among its lines of JSON; most need one or two each
_YAML = {".yaml", ".yml"}
_KNOWN = {".json", ".toml", *_YAML}


@dataclass(frozen=True, slots=True)
class SyntaxFault:
    """Where and why a file is not well-formed. Not ``sure``: it may be a dialect, a template, or too long."""

    line: int
    message: str
    sure: bool


def is_known(path: str) -> bool:
    """Whether the file's name says that it is of one of these formats."""
    return PurePosixPath(path).suffix.lower() in _KNOWN


def syntax_fault(path: str, text: str) -> SyntaxFault | None:
    """The first fault of a whole file; None if it is well-formed."""
    if len(text) > CHARS_MAX:
        return SyntaxFault(0, f"longer than {CHARS_MAX:,} characters", sure=False)
    place = PurePosixPath(path)
    suffix = place.suffix.lower()
    try:
        if suffix == ".json":
            json.loads(text.lstrip("\ufeff"))
        elif suffix == ".toml":
            tomllib.loads(text)
        else:
            return _yaml_fault(text)
    except json.JSONDecodeError as error:
        # These programs read JSON with comments from files of this name.
        is_dialect = place.name.startswith(("tsconfig", "jsconfig")) or ".vscode" in place.parts
        return SyntaxFault(error.lineno, f"is no JSON: {error.msg}", sure=not is_dialect)
    except tomllib.TOMLDecodeError as error:
        return SyntaxFault(1, f"is no TOML: {error}", sure=True)
    except RecursionError:
        return SyntaxFault(0, "nested too deeply to be read", sure=False)
    return None


def code_in(path: str, text: str) -> tuple[str, tuple[int, ...]] | None:
    """The Python that a notebook's cells hold or a .pth file runs, and for each of its lines that of the file."""
    lines = text.split("\n")
    if path.lower().endswith(".pth"):
        kept = [line if line.startswith(("import ", "import\t")) else "" for line in lines]
        return "\n".join(kept), tuple(range(1, len(lines) + 1))
    try:
        cells = json.loads(text)["cells"] if len(text) <= CHARS_MAX else None
        sources = [cell["source"] for cell in cells or () if cell["cell_type"] == "code"]
        code = "\n".join(source if isinstance(source, str) else "".join(source) for source in sources)
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    at, left, numbers = 0, LOOKUPS_MAX, []
    for line in code.split("\n"):
        said = json.dumps(line)[1:-1]
        near = range(at, min(at + min(1_000, left), len(lines)))
        found = next((n for n in near if said in lines[n]), None)
        left -= len(near) if found is None else found - at
        at = at if found is None else found
        numbers.append(at + 1)
    return re.sub(r"(?m)^([^\S\n]*)[%!].*", r"\1pass", code), tuple(numbers)  # a notebook's own commands


def _yaml_fault(text: str) -> SyntaxFault | None:
    import yaml

    # The loader in Python takes 20 s for 16,000 brackets.
    if not yaml.__with_libyaml__:
        return SyntaxFault(0, "not read: PyYAML is installed here without libyaml", sure=False)
    depth = 0
    try:  # events alone: no tag is looked up, no alias followed
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH_MAX:
                return SyntaxFault(0, "nested too deeply to be read", sure=False)
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "unreadable"
        is_template = "{{" in text or "{%" in text
        return SyntaxFault(mark.line + 1 if mark else 0, f"is no YAML: {problem}", sure=not is_template)
    return None
