"""Finds the escalation to answer, and the answer: from options, or from a person who is shown the case and asked."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from council.cli.report import Interrupted, Report, UsageFault
from council.kinds.text import clean, count, line
from council.protocol.errors import Refused

if TYPE_CHECKING:
    from council.api.client import Council
    from council.runtime.open_escalations import OpenEscalation

PREFIX_LEAST = 4
# How many matches of an ambiguous id are listed.
MATCHES_SHOWN = 5
_ID = re.compile(r"(?:esc-)?([0-9a-f]+)(?:-[0-9]+)?")
ASKED = "approve, reject or leave it? [a/r/L] "


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of ``council answer``. ``asks``: whether a person is there to be asked. Raises UsageFault."""

    given: str
    approve: bool
    reject: bool
    reason: str
    asks: bool

    def __post_init__(self) -> None:
        if self.approve and self.reject:
            raise UsageFault("give one of --approve and --reject")
        check_id(self.given)
        if not (self.approve or self.reject or self.asks):
            raise UsageFault(
                f"give --approve or --reject: there is no terminal to ask on; council escalations {self.given} "
                "shows what is to be approved"
            )


class Answer(NamedTuple):
    """An answer that is to be given."""

    escalation_id: str
    approve: bool
    reason: str


def check_id(given: str) -> None:
    """Raises UsageFault for what can't be an id, or is too short."""
    found = _ID.fullmatch(given.lower())
    if found is None:
        raise UsageFault(f"no escalation {given[:80]!r}: council escalations lists them")
    if len(found[1]) < PREFIX_LEAST:
        raise UsageFault(f"{given!r} is too short: give {PREFIX_LEAST} or more characters of the id")


def find(council: Council, waiting: Sequence[OpenEscalation], given: str) -> OpenEscalation:
    """The one of ``waiting`` whose id begins with ``given``. Raises UsageFault, and Refused if it was answered."""
    begin = given.lower().removeprefix("esc-")
    ids = {each.escalation_id.removeprefix("esc-"): each for each in waiting}
    found = [each for name, each in ids.items() if name.startswith(begin)]
    if begin in ids or len(found) == 1:
        return ids.get(begin) or found[0]
    if found:
        named = ", ".join(
            f"{each.escalation_id} ({line(each.summary, 60)})" for each in found[:MATCHES_SHOWN]
        )
        more = f" and {len(found) - MATCHES_SHOWN:,} more" if len(found) > MATCHES_SHOWN else ""
        raise UsageFault(f"{given!r} begins {count(len(found), 'id')}: {named}{more}; give more characters")
    raise _not_waiting(council, begin, given)


def _not_waiting(council: Council, begin: str, given: str) -> Exception:
    """The error for an id that no waiting escalation has."""
    try:
        entries = council.history(proposal=begin, limit=1).entries
        proposal_id = next((each.proposal_id for each in entries if each.proposal_id), begin)
        decided = council.decision(proposal_id)
    except Refused:
        return Refused(
            f"no escalation {given!r}: council escalations lists them",
            code="unknown_proposal",
            proposal_id=begin,
        )
    if decided is None:
        return Refused(
            f"{proposal_id} does not wait for a human: the council still deliberates", code="not_escalated"
        )
    if decided.answer is not None:
        return Refused(
            f"already answered by {decided.answer.human}: {decided.outcome}. Your answer was not counted.",
            code="already_answered",
        )
    return Refused(
        f"{proposal_id} does not wait for a human: it is {decided.outcome or decided.standing}",
        code="closed",
    )


def settle(council: Council, wanted: Wanted, report: Report, where: Sequence[str]) -> Answer | None:
    """The answer by the options, or that of the person who is asked; None to leave it. Raises UsageFault, Refused."""
    case = find(council, council.escalations(), wanted.given)
    approve, reason = wanted.approve, _reason(wanted.reason)
    needs_reason = f"approving a high risk needs a reason: give --reason to approve {case.escalation_id}"
    if not wanted.asks:
        if approve and case.risk == "high" and not reason:
            raise UsageFault(needs_reason)
        return Answer(case.escalation_id, approve, reason)
    from council.cli.card import Card

    report.notes.print(Card(case, time.time(), where=where, answers=False))
    if wanted.approve or wanted.reject:
        if _ask(report, f"{'approve' if approve else 'reject'} this? [y/N] ").lower() not in ("y", "yes"):
            return None
    else:
        said = _ask(report, ASKED).lower()
        if said not in ("a", "approve", "r", "reject"):
            return None
        approve = said.startswith("a")
    is_needed = approve and case.risk == "high"
    if not reason and (is_needed or not wanted.approve):
        reason = _reason(_ask(report, "reason: " if is_needed else "reason (may be empty): "))
    if is_needed and not reason:
        raise UsageFault(needs_reason)
    return Answer(case.escalation_id, approve, reason)


def _reason(given: str) -> str:
    """A reason, or "" for one without words, such as the dots in the command that a case shows."""
    return given.strip() if any(map(str.isalnum, given)) else ""


def _ask(report: Report, question: str) -> str:
    """Reads what the person types; the end of the input counts as an empty line.

    Raises Interrupted at Ctrl-C, and UsageFault for bytes that the terminal's encoding does not have.
    """
    try:
        report.notes.print(clean(question), end="", style="bold", markup=False)
        return input().strip()
    except EOFError:
        return ""
    except UnicodeDecodeError as error:
        raise UsageFault(f"the input is not text in {error.encoding}: nothing was answered") from None
    except KeyboardInterrupt:
        raise Interrupted("nothing was answered") from None
