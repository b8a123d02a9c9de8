"""The floor of the static checks under a seat with a model.

The model is shown what they found. It decides alone what they only ask about. What they stop, its yes does not undo:
its seat votes no with high risk, and its own words stand beside. A ruling that would confirm it goes to a human.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from council.agents.mind import Case, Opinion, Ruling
from council.agents.scan.finding import Finding
from council.agents.scan.own import NOTHING, Own
from council.agents.scan.scan import Findings, scan
from council.agents.static.verdict import REASON_CHARS_MAX, SURE, listed

TOLD_MAX = 20  # findings that a model is shown; the prompt's builder cuts them further

_HEAD = "Static checks found this, gravest first. stop: no vote of yours undoes it; ask: you decide; note: a hint."


@dataclass(frozen=True, slots=True)
class Floor:
    """What static checks found in a case, for a seat with a model.

    ``own`` are the user's rules (the setting ``rules``).
    """

    own: Own = NOTHING

    async def told(self, case: Case) -> str:
        """The findings as lines of text, and what could not be read; "" if there is nothing. Shown as data."""
        seen = await self._seen(case)
        lines = [f"{each.weight} {each}" for each in seen.found[:TOLD_MAX]]
        if len(seen.found) > TOLD_MAX:
            lines.append(f"and {len(seen.found) - TOLD_MAX} more")
        lines += [f"not read: {each}" for each in (*seen.unread, *seen.unknown, *seen.failed)[:TOLD_MAX]]
        return "\n".join((_HEAD, *lines)) if lines else ""

    async def under(self, case: Case, opinion: Opinion) -> Opinion:
        """The model's opinion, or a no of high risk with both reasons if a finding stops the case."""
        if not (stops := await self._stops(case)) or (opinion.vote == "no" and opinion.risk_level == "high"):
            return opinion
        reason = f"static checks stop it: {listed(stops)}; the model says {opinion.vote}: {opinion.reason}"
        return replace(
            opinion, vote="no", reason=reason[:REASON_CHARS_MAX], confidence=SURE, risk_level="high"
        )

    async def under_ruling(self, case: Case, ruling: Ruling) -> Ruling:
        """The model's ruling; a confirmation goes to a human if a finding stops the case."""
        if ruling.ruling != "confirm" or not (stops := await self._stops(case)):
            return ruling
        why = f"static checks stop it, so a human decides: {listed(stops)}"
        reason = f"{why}; the model would confirm it: {ruling.reason}"
        return replace(ruling, ruling="human", reason=reason[:REASON_CHARS_MAX], risk_level="high")

    async def _stops(self, case: Case) -> list[Finding]:
        return (await self._seen(case)).of("stop")

    async def _seen(self, case: Case) -> Findings:
        return await asyncio.to_thread(scan, case, self.own)
