"""Plants a bug in the council for a while. Knows nothing of what it does there."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from tests.sim.bugs import Bug


def _found(bug: Bug) -> FunctionType:
    module, _, path = bug.place.partition(":")
    found: Any = importlib.import_module(f"council.{module}")
    for name in path.split("."):
        found = getattr(found, name)
    assert isinstance(found, FunctionType), f"{bug.name}: {bug.place} is no plain function"
    return found


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Has the council run with the bug. Its function is changed in place, whoever imported it."""
    function = _found(bug)
    source = re.sub(
        r"\A@.*\n", "", textwrap.dedent(inspect.getsource(function))
    )  # else it is entered in a table
    found = source.count(bug.line)
    assert found == 1, f"{bug.name}: {function.__qualname__} holds {bug.line!r} {found} times, expected once"
    names: dict[str, Any] = {}
    exec(compile(source.replace(bug.line, bug.instead), f"<{bug.name}>", "exec"), function.__globals__, names)
    sound = function.__code__
    function.__code__ = names[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = sound
