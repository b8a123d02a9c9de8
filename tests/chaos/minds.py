"""Minds whose opinion follows from the proposal's words, so that every process comes to the same."""

from __future__ import annotations

from collections.abc import Sequence

from council import Case, Opinion, Ruling, ShownBallot


async def member(case: Case) -> Opinion:
    return Opinion.no("refused") if case.summary.startswith("refuse") else Opinion.yes("agreed")


class Chair:
    """Prime: votes as the others do, and rules as the proposal asks."""

    async def review(self, case: Case) -> Opinion:
        return await member(case)

    async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        if case.summary.startswith("human"):
            return Ruling("human", "let somebody see it", confidence=0.9)
        if case.summary.startswith("overrule"):
            return Ruling("reject", "not this", confidence=0.9)
        return Ruling("confirm", "so be it", confidence=0.9)
