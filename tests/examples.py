"""How many examples the properties are tried with: all in make test-all, fewer in make test."""

from __future__ import annotations

from hypothesis import settings


def tried(examples: int) -> int:
    """How many of so many are tried: all with ``--hypothesis-profile all``, else a tenth, but at least ten."""
    return max(examples * settings.default.max_examples // 100, 10)
