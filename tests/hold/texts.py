"""A text file that is compared whole with what the code makes, and how it is written anew."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

FOLDER = Path(__file__).parent


def held(name: str) -> list[str]:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def compare(name: str, lines: Iterable[str]) -> None:
    """Fails, with the lines that differ, where ``name`` in this folder holds others."""
    before, found = held(name), list(lines)
    gone = [f"- {line}" for line in before if line not in found]
    new = [f"+ {line}" for line in found if line not in before]
    written = f"python -m tests.hold.{name} --write"
    assert found == before, "\n".join(
        [f"{name}.txt says something else; where that is wanted: {written}", *gone, *new]
    )


def command(name: str, lines: Callable[[], Iterable[str]]) -> None:
    """What ``python -m tests.hold.<name>`` does: prints the lines, or with --write puts them into the file."""
    text = "".join(f"{line}\n" for line in lines())
    if "--write" in sys.argv:
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
