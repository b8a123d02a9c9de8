"""Classes of errors, with code and exit code, and codes of refusals: ``python -m tests.hold.errors --write``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import council
from tests.hold import doors, texts


def lines() -> Iterator[str]:
    yield from ("# Class, what it is a kind of, code, the exit code that it makes", "")
    for kind in doors.errors():
        base = kind.__mro__[1].__name__
        yield f"{kind.__name__}({base})  {kind.code}  {doors.exit_code(kind('what happened'))}"
    yield from ("", "# Codes of refusals", "")
    yield from sorted(refusals())


def refusals() -> set[str]:
    """The codes that stand in a call, anywhere in the package: ``code="late"``, or for a parameter ``code``."""
    found: set[str] = set()
    for file in Path(council.__file__).parent.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        takes = {
            node.name: [each.arg for each in node.args.args].index("code")
            for node in nodes
            if isinstance(node, ast.FunctionDef) and "code" in [each.arg for each in node.args.args]
        }
        for node in nodes:
            if isinstance(node, ast.Call):
                given = [each.value for each in node.keywords if each.arg == "code"]
                at = takes.get(getattr(node.func, "id", ""))
                given += [] if at is None else node.args[at : at + 1]
                found |= {str(each.value) for each in given if isinstance(each, ast.Constant)}
    return {code for code in found if not code.isdigit()}


if __name__ == "__main__":
    texts.command("errors", lines)
