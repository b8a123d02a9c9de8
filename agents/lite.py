"""The seat Lite: reads a proposal for policy. Uses no model; knows nothing of whether the code is right.

What it finds, and what it says of it:

| finding                                                            | vote    | risk | confidence |
|--------------------------------------------------------------------|---------|------|------------|
| a secret that passed its validator, a person's card, account or id | no      | high | 0.95       |
| a destructive command (removes /, a disk; runs a download; …)      | no      | high | 0.95       |
| a likely secret or personal data; a risky or unreadable command    | no      | med  | 0.65       |
| more changed lines than ``max_changed_lines``                      | yes     | med  | 0.5        |
| a binary file, as an image, beside what it read                    | yes     | med  | 0.45       |
| something worth a mention (sudo, an address in a document)         | yes     | med  | 0.55       |
| source changed without a test                                      | yes     | low  | 0.7        |
| a change with none of these                                        | yes     | low  | 0.85       |
| words without a change, none of these                              | yes     | low  | 0.6        |
| a damaged diff, source shown as binary or in no known encoding     | abstain | med  | 0.2        |
| nothing that can be read: only images, or empty                    | abstain | low  | 0.5        |

Below 0.3 only where part of the change was not seen: that goes to Prime (rules 1.8), and never for a mere
concern. A reason shows four characters of a
secret at most. Names of persons are not found: that takes a model or a directory.
"""

from __future__ import annotations

from collections.abc import Sequence

from council.agents.changes import shown
from council.agents.mind import Case, Opinion
from council.agents.policy import UNREAD, Note, Sight, look, readable

REASONS_MAX = 5  # findings told in a reason; the rest are counted
_SAYS = "static policy checks, no model"


class Lite:
    """Policy on what a proposal adds. ``max_changed_lines``: more than these are hard to review (800)."""

    def __init__(self, *, max_changed_lines: int = 800) -> None:
        if max_changed_lines < 1:
            raise ValueError(f"max_changed_lines is {max_changed_lines}: give 1 or more")
        self.max_changed_lines = max_changed_lines

    def review(self, case: Case) -> Opinion:
        """Its opinion; the module's table says how it comes about. Never raises for what a case says."""
        sight = look(case)
        if faults := sight.of("fault"):
            return Opinion.no(_told("found", faults), confidence=0.95, risk_level="high")
        if concerns := sight.of("concern"):
            return Opinion.no(_told("found, without certainty,", concerns), confidence=0.65, risk_level="med")
        if sight.unread:  # what was not seen may hold anything: no yes, and Prime is to look (rules 1.8)
            why = f"{_SAYS}: I could not read all of it: {_listed(sight.unread)}"
            return Opinion.abstain(why, confidence=UNREAD, risk_level="med")
        if not readable(case, sight):
            why = _named("binary", sight.binaries) or "it is empty"
            return Opinion.abstain(f"{_SAYS}: nothing here that I can read: {why}", confidence=0.5)
        return self._weigh(sight)

    def _weigh(self, sight: Sight) -> Opinion:
        """A yes, as sure as what stands beside it allows."""
        says: list[str] = []
        confidence, risk = (0.85 if sight.reading.files else 0.6), "low"
        lines = sight.added + sight.removed
        if sight.reading.files and sight.sources and not sight.tests:
            says.append("source changed without a test")
            confidence = 0.7
        if mentions := sight.of("mention"):
            says.append(_told("worth a look:", mentions, prefix=""))
            confidence, risk = min(confidence, 0.55), "med"
        if lines > self.max_changed_lines:
            says.append(f"{lines} changed lines, more than {self.max_changed_lines}: split it")
            confidence, risk = min(confidence, 0.5), "med"
        if sight.binaries:
            says.append(f"not read, {_named('binary', sight.binaries)}")
            confidence, risk = min(confidence, 0.45), "med"
        if sight.generated:
            says.append(_named("generated", sight.generated))
        looked = (
            f"{len(sight.reading.files)} files, {lines} lines"
            if sight.reading.files
            else "its words and its action"
        )
        reason = f"{_SAYS}: no secret, personal data or dangerous command in {looked}"
        if says:
            reason += "; " + "; ".join(says)
        return Opinion.yes(reason, confidence=confidence, risk_level="med" if risk == "med" else "low")


def _told(head: str, notes: list[Note], prefix: str = f"{_SAYS}: ") -> str:
    return f"{prefix}{head} {_listed(notes)}"


def _named(what: str, paths: tuple[str, ...]) -> str:
    return f"{what}: {_listed([shown(path) for path in paths], ', ')}" if paths else ""


def _listed(items: Sequence[object], between: str = "; ") -> str:
    more = f" and {len(items) - REASONS_MAX} more" if len(items) > REASONS_MAX else ""
    return between.join(map(str, items[:REASONS_MAX])) + more
