"""Many cases in one test: pytest takes longer to begin and to report a test than most of them take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each(
    names: str | tuple[str, ...], cases: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Runs a test with each of these cases, as ``pytest.mark.parametrize`` does, and names all that fail.

    For tests that take no fixtures.
    """
    given = [
        dict(zip(names, case, strict=True)) if isinstance(names, tuple) else {names: case} for case in cases
    ]
    if not given:
        raise ValueError("no cases, so that nothing would be tested")

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def run() -> None:
            failed = []
            for number, case in enumerate(given, 1):
                try:
                    test(**case)
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(f"case {number}, {case!r}: {type(error).__name__}: {error}")
            if failed:
                pytest.fail(f"{len(failed)} of {len(given)} failed\n" + "\n".join(failed), pytrace=False)

        run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
        run.__module__ = test.__module__
        return run

    return decorate
