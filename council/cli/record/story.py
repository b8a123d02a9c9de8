"""One proposal's story, as the records of its journal give it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from council.cli.record.log import pages
from council.cli.record.sources import HistorySource
from council.cli.report import REJECTED, UNDECIDED, decision_code

if TYPE_CHECKING:
    from council.core.state import Ballot, Decision, Escalation
    from council.journal.entries import Asked, Entry
    from council.journal.packets import StoredRecord

# The number of revised proposals that are shown, each revised by the next.
ANCESTORS_MAX = 20


@dataclass(frozen=True, slots=True)
class Story:
    """One proposal's records in order, the proposals that it revises, and its decision or escalation."""

    proposal_id: str
    entries: tuple[Entry, ...]
    revised: tuple[Entry, ...]
    decision: Decision | None
    escalation: Escalation | None

    @property
    def proposal(self) -> Entry | None:
        """The record of its submission; None if it is not kept any more."""
        return _submission(self.entries, self.proposal_id)

    def exit_code(self) -> int:
        """The exit code of ``council propose``; if one of its records is damaged, that of ``council verify``."""
        if any(damaged(entry) for entry in (*self.entries, *self.revised)):
            return REJECTED
        return UNDECIDED if self.decision is None else decision_code(self.decision)


def damaged(entry: Entry) -> bool:
    from council.journal.entries import DAMAGED

    return entry.kind == DAMAGED


def story_of(source: HistorySource, given: str) -> Story:
    """The story of the proposal whose id is ``given`` or begins with it. Raises Refused, CallerError."""
    from council.protocol.errors import Refused

    try:
        every: Asked = {"proposal": given, "envelopes": True}
        entries = tuple(pages(source, every, newest_first=False))
    except Refused:
        decided = _remembered(source, given)
        if decided is None:
            raise
        return Story(decided.proposal_id, (), (), decided, None)
    ids = (entry.proposal_id for entry in entries if entry.proposal_id is not None)
    proposal_id = next((each for each in ids if each.startswith(given)), given)
    decided, waiting = _ended(source, proposal_id, entries)
    return Story(proposal_id, entries, tuple(_revised(source, entries, proposal_id)), decided, waiting)


def _remembered(source: HistorySource, proposal_id: str) -> Decision | None:
    """The decision on a proposal whose records the running council does not keep any more."""
    from council.protocol.errors import Refused

    if source.council is None:
        return None
    try:
        return source.council.decision(proposal_id)
    except Refused:
        return None


def _ended(
    source: HistorySource, proposal_id: str, entries: Sequence[Entry]
) -> tuple[Decision | None, Escalation | None]:
    """The decision, with the ballots that came later, and the escalation, if there are any."""
    escalation: Escalation | None = None
    for entry in entries:
        decisions, escalations = entry.decisions, entry.escalations
        if proposal_id in entry.more and source.records is not None:
            # The record holds only the first of its many decisions; a replay gives the others.
            decisions, escalations = _again(source.records(), entry.position)
        escalation = next((each for each in escalations if each.proposal_id == proposal_id), escalation)
        decided = next((each for each in decisions if each.proposal_id == proposal_id), None)
        if decided is not None:
            late = (*decided.late, *_ballots(entries, behind=entry.position))
            unique = {each.msg_id: each for each in late}
            return replace(decided, late=tuple(unique.values())), escalation
    return None, escalation


def _again(
    records: Iterator[StoredRecord], position: int
) -> tuple[tuple[Decision, ...], tuple[Escalation, ...]]:
    """The decisions and escalations of the record at ``position``, by a replay."""
    from council.journal.record import came_to
    from council.runtime.replay import Replay

    replay = Replay()
    for kept in records:
        effects = replay.replay(kept)
        if kept.record.position == position:
            return came_to(effects)
    return (), ()


def _ballots(entries: Sequence[Entry], *, behind: int) -> Iterator[Ballot]:
    import msgspec

    from council.core.state import Ballot

    for entry in entries:
        if entry.kind == "ballot" and entry.position > behind:
            yield msgspec.convert(entry.data["ballot"], Ballot)


def _submission(entries: Sequence[Entry], proposal_id: str) -> Entry | None:
    own = (each for each in entries if each.kind == "proposal" and each.proposal_id == proposal_id)
    return next(own, None)


def _revised(source: HistorySource, entries: Sequence[Entry], proposal_id: str) -> Iterator[Entry]:
    """The proposals that it revises, the newest first."""
    found = _submission(entries, proposal_id)
    for _ in range(ANCESTORS_MAX):
        if found is None or not (older := found.data["what"]["supersedes"]):
            return
        asked: Asked = {"proposal": older, "types": ["proposal"], "newest_first": False, "limit": 1}
        found = next(iter(source.page(asked)), None)
        if found is not None:
            yield found
