"""What the three built-in minds make of findings, and how they word it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from council.agents.mind import Case, Observation, Opinion, RiskLevel, Stream, Vote
from council.agents.scan.finding import Family
from council.agents.scan.own import NOTHING, Own
from council.agents.scan.scan import Findings, scan
from council.agents.static import marks

SURE = 0.95  # the confidence of a no for a finding that stops
REASON_CHARS_MAX = 4_000  # a ballot is read by people, and travels in every record of its decision
UNREAD = 0.2  # the confidence if a part of a change was not seen: below 0.3, so Prime rules (rules 1.8)

# A plan does not run what it will look for. But "check the disk, then run `...`" tells somebody to run it.
_LOOKED_FOR = re.compile(
    r"\b(?:check|verify|ensure|confirm|examine|inspect|search|look|test|see|ask|flag|whether|if|nothing|none)\b"
    r"(?!.*\bthen\b)",
    re.IGNORECASE,
)
_TICKED = re.compile(r"`[^`]{0,500}`")


def listed(items: Sequence[object], most: int = 5, between: str = "; ") -> str:
    """The first items, for a reason, and the number of the others."""
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return between.join(map(str, items[:most])) + more


def count(number: int, what: str) -> str:
    """A number of things: "1 file", "2 files"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def says(mark: str, vote: Vote, reason: str, confidence: float, risk: RiskLevel = "low") -> Opinion:
    """An opinion whose reason begins with the mark of a kind of checks, and is cut if it is too long."""
    return Opinion(vote, (mark + reason)[:REASON_CHARS_MAX], confidence, risk)


def stops(seen: Findings, families: Collection[Family], mark: str) -> Opinion | None:
    """A no of high risk, if a finding of these families stops the proposal."""
    found = seen.of("stop", families)
    return says(mark, "no", listed(found), SURE, "high") if found else None


def asks(seen: Findings, families: Collection[Family], mark: str) -> Opinion | None:
    """A no that goes to Prime's ruling in any case, if a finding of these families asks for a human."""
    if found := seen.of("ask", families):
        reason = f"a human should look: {listed(found)}"[: REASON_CHARS_MAX - len(mark)]
        return Opinion("no", mark + reason, 0.65, "med", escalate=reason)
    return None


class StaticMind:
    """What the built-in minds share. ``own`` are the user's rules (the setting ``rules``)."""

    def __init__(self, *, own: Own = NOTHING) -> None:
        self.own = own

    def observe(self, case: Case, stream: Stream) -> Observation:
        """Interrupts a stream that would be a high risk in a proposal (rules 3.1). No text in it makes it raise."""
        return observed(case, stream, self.own)


def observed(case: Case, stream: Stream, own: Own = NOTHING) -> Observation:
    """A halt if another seat's work has a fault that the case does not have: a quotation is not its own."""
    lines = stream.text.split("\n")
    told = [
        _TICKED.sub("", line) if _LOOKED_FOR.search(line[:2_000].partition("`")[0]) else line
        for line in lines
    ]
    said = scan(Case(case.proposal_id, stream.seat, "", "\n".join(told)), own).of("stop")
    if said:
        known = {(found.rule, found.message) for found in scan(case, own).found}
        said = [found for found in said if (found.rule, found.message) not in known]
    if said:
        return Observation(True, f"{marks.POLICY}its {stream.stage} holds {listed(said)}")
    return Observation(False, marks.POLICY + "nothing against it")
