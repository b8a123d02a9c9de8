"""Counts ballots. Knows nothing of time, seats' health or messages."""

from __future__ import annotations

from collections.abc import Iterable

from council.core.state import Ballot, Tally, TieBreak


def count(ballots: Iterable[Ballot]) -> Tally:
    """How the ballots fall. An abstention is presence, not a side (rules 1.4)."""
    yes = no = abstain = 0
    for ballot in ballots:
        if ballot.vote == "yes":
            yes += 1
        elif ballot.vote == "no":
            no += 1
        else:
            abstain += 1
    return Tally(yes, no, abstain)


def majority(tally: Tally) -> str | None:
    """``yes``, ``no``, or None for a tie; among the ballots cast (rules 1.4)."""
    if tally.yes == tally.no:
        return None
    return "yes" if tally.yes > tally.no else "no"


def carried(tally: Tally, reach: int) -> bool:
    """Whether one side exceeds half of ``reach`` seats, so that no ballot can turn it (rules 1.5)."""
    return 2 * max(tally.yes, tally.no) > reach


def break_tie(ballots: Iterable[Ballot], prime: str) -> TieBreak | None:
    """The act by which Prime's own ballot breaks a tie; None if it has none, or abstained (rules 1.6)."""
    for ballot in ballots:
        if ballot.seat == prime and ballot.vote != "abstain":
            return TieBreak(prime, ballot.msg_id, ballot.vote)
    return None


def dissent(ballots: Iterable[Ballot], outcome: str | None) -> str:
    """The losing side in words, each seat with its vote, confidence and reason; empty if there is none."""
    losing = {"approved": ("no",), "rejected": ("yes",)}.get(outcome or "", ("yes", "no"))
    against = [ballot for ballot in ballots if ballot.vote in losing]
    if outcome not in ("approved", "rejected") and len({ballot.vote for ballot in against}) < 2:
        return ""  # nobody lost: there was one side only
    return "; ".join(f"{b.seat} ({b.vote}, {b.confidence:.2f}): {b.reason}" for b in against)
