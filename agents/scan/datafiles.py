"""Checks whether a JSON, TOML or YAML file is well-formed, and finds Python in notebooks and .pth files."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import PurePosixPath

import yaml

CHARS_MAX = 500_000
DEPTH_MAX = 200  # of collections in YAML: for each token the scanner looks at every open one
# Of a dotted key. tomllib's work grows with the square of the parts, and with the table's depth.
KEY_PARTS_MAX = 20
TAG_DIRECTIVES_MAX = 100  # libyaml compares each with all earlier ones

# Each alternative matches wherever it starts, also if the end is missing, so no text is scanned twice.
_TOML_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^"\\]|\\.?|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']|'(?!''))*+(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]|\\.?)*+"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*+",
    re.DOTALL,
)
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_TOML_NO_KEY = re.compile(r"[=\n,\[\]{}]")
# Files that hold Python: a notebook's cells, and lines that Python runs when it starts.
CARRIERS = (".ipynb", ".pth")


@dataclass(frozen=True, slots=True)
class SyntaxFault:
    """The place and reason of a syntax fault.

    Not ``sure``: it may be a dialect or a template. ``is_limit``: the file was not read to its end.
    """

    line: int
    message: str
    sure: bool
    is_limit: bool = False


def syntax_fault(path: str, text: str) -> SyntaxFault | None:
    """The first fault of a whole file; None if it is well-formed."""
    place = PurePosixPath(path)
    try:
        if len(text) > CHARS_MAX:
            raise _LimitError(f"longer than {CHARS_MAX:,} characters")
        _READERS[place.suffix.lower()](text)
    except json.JSONDecodeError as error:
        # Some programs read JSON with comments from files of this name.
        is_dialect = place.name.startswith(("tsconfig", "jsconfig")) or ".vscode" in place.parts
        return SyntaxFault(error.lineno, f"is no JSON: {error.msg}", sure=not is_dialect)
    except tomllib.TOMLDecodeError as error:
        return SyntaxFault(1, f"is no TOML: {error}", sure=True)
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        is_template = "{{" in text or "{%" in text
        line = mark.line + 1 if mark else 0
        return SyntaxFault(line, f"is no YAML: {problem or 'unreadable'}", sure=not is_template)
    except _LimitError as error:
        return SyntaxFault(0, str(error), sure=False, is_limit=True)
    except RecursionError:
        return SyntaxFault(0, "nested too deeply to be read", sure=False, is_limit=True)
    except ValueError:  # Python converts at most 4,300 digits
        return SyntaxFault(0, "a number of too many digits", sure=False, is_limit=True)
    return None


class _LimitError(Exception):
    pass


def _read_json(text: str) -> None:
    json.loads(text.lstrip("\ufeff"))


def _read_toml(text: str) -> None:
    bare = _TOML_STRING_OR_COMMENT.sub("_", text)
    if any(part.count(".") >= KEY_PARTS_MAX for part in _TOML_NO_KEY.split(bare)):
        raise _LimitError(f"a key of more than {KEY_PARTS_MAX} parts")
    tomllib.loads(text)


def _read_yaml(text: str) -> None:
    # The loader that is written in Python takes 20 s for 16,000 brackets.
    if not yaml.__with_libyaml__:
        raise _LimitError("not read: PyYAML is installed here without libyaml")
    if text.count("%TAG") > TAG_DIRECTIVES_MAX:
        raise _LimitError(f"more than {TAG_DIRECTIVES_MAX} %TAG directives")
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):  # no tag is resolved and no alias followed
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            raise _LimitError("nested too deeply to be read")


_READERS = {".json": _read_json, ".toml": _read_toml, ".yaml": _read_yaml, ".yml": _read_yaml}


def is_known(path: str) -> bool:
    """Whether the file's name has the ending of one of these formats."""
    return PurePosixPath(path).suffix.lower() in _READERS


def code_in(path: str, text: str) -> tuple[str, tuple[int, ...]] | None:
    """The Python in a notebook's cells or a .pth file, with the file's line number for each line.

    None for a text that can't be read, or is longer than ``CHARS_MAX``.
    """
    if len(text) > CHARS_MAX:
        return None
    if path.lower().endswith(".pth"):
        # Python's own reader of these files splits at more than line feeds.
        parts = [
            (part, at) for at, line in enumerate(text.split("\n"), 1) for part in line.splitlines() or [""]
        ]
        kept = [part if part.startswith(("import ", "import\t")) else "" for part, _ in parts]
        return "\n".join(kept), tuple(at for _, at in parts)
    try:
        sources = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        code = "\n".join(source if isinstance(source, str) else "".join(source) for source in sources)
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    numbers, number, at = [], 1, 0
    strings = _JSON_STRING.finditer(text)  # one pass: the cells' strings occur in it in their order
    for source in sources:
        for piece in [source] if isinstance(source, str) else source:
            found = next(string for string in strings if json.loads(string[0]) == piece)
            number += text.count("\n", at, found.start())
            at = found.start()
            numbers += [number] * piece.count("\n")
        numbers.append(number)
    return re.sub(r"(?m)^([^\S\n]*)[%!].*", r"\1pass", code), tuple(numbers)  # a notebook's own commands
