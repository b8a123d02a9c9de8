"""Regular expressions that are compiled at their first use: most rules have no text to look at in most cases."""

from __future__ import annotations

import re
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from functools import cached_property
from typing import Any


class Regex:
    """A regular expression with the methods of ``re.Pattern`` that rules need. The first use raises re.error."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern, self.flags = pattern, flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, self.flags)

    def check(self) -> None:
        """Raises re.error for one that does not compile, and for a repetition of a repetition, such as (a+)+.

        On some texts that takes longer than anybody waits, and nothing can stop it.
        """
        if self.compiled and _never_ends(parser.parse(self.pattern, self.flags), False):
            raise re.error("it repeats a repetition without bound, as in (a+)+: leave one of them out")

    def search(self, text: str) -> re.Match[str] | None:
        """As ``re.Pattern.search``."""
        return self.compiled.search(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """As ``re.Pattern.fullmatch``."""
        return self.compiled.fullmatch(text)


def _never_ends(pattern: Any, inside: bool) -> bool:
    """Whether a repetition without bound is all that another one must match, so that a text has many ways to fit.

    ``inside``: the parsed pattern is the other's body.
    """
    for op, given in pattern:
        width = parser.SubPattern(pattern.state, [(op, given)]).getwidth()[0]
        is_all = inside and width == pattern.getwidth()[0]
        repeats = op in (parser.MAX_REPEAT, parser.MIN_REPEAT) and given[1] == parser.MAXREPEAT
        if (repeats and is_all) or any(_never_ends(body, repeats or is_all) for body in _bodies(given)):
            return True
    return False


def _bodies(given: Any) -> Iterator[Any]:
    if isinstance(given, parser.SubPattern):
        yield given
    elif isinstance(given, list | tuple):
        for each in given:
            yield from _bodies(each)
