"""How many examples the properties and the variants are tried with: all in make test-all, fewer in make test."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings


def tried(examples: int, least: int = 10) -> int:
    """How many of so many are tried: all with ``--hypothesis-profile all``, else a tenth, but at least ``least``."""
    return max(examples * settings.default.max_examples // 100, least)


def at_first(count: int, *cases: Any) -> list[Any]:
    """The cases of a test, of which only the first ``count`` are tried in make test: the others are marked long."""
    return [
        *cases[:count],
        *(
            pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)
            for case in cases[count:]
        ),
    ]
