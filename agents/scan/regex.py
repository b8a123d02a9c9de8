"""Regular expressions that are compiled at their first use: most rules have no text to look at in most cases."""

from __future__ import annotations

import re


class Regex:
    """A regular expression with the methods of ``re.Pattern`` that rules need. The first use raises re.error."""

    __slots__ = ("_compiled", "flags", "pattern")

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern, self.flags = pattern, flags
        self._compiled: re.Pattern[str] | None = None

    def compiled(self) -> re.Pattern[str]:
        """The compiled expression. Raises re.error."""
        if self._compiled is None:
            self._compiled = re.compile(self.pattern, self.flags)
        return self._compiled

    def search(self, text: str) -> re.Match[str] | None:
        """As ``re.Pattern.search``."""
        return self.compiled().search(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """As ``re.Pattern.fullmatch``."""
        return self.compiled().fullmatch(text)
