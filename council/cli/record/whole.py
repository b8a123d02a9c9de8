"""``council show``: one proposal whole, as its records tell it. Knows nothing of how they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from council.cli.options import Address, Config, Json
from council.cli.reach import Where
from council.cli.record.log import document, pages
from council.cli.record.sources import Name, Source, reading
from council.cli.record.store import Url
from council.cli.report import DONE, REJECTED, UNDECIDED, Report, UsageFault, decision_code, judged

if TYPE_CHECKING:
    from council.core.state import Ballot, Decision, Escalation
    from council.journal.entries import Asked, Entry
    from council.journal.packets import Kept

# A proposal that revises one that revises … is told so far back.
ANCESTORS_MAX = 20
_POSITION = re.compile("#([1-9][0-9]{0,17})")


@dataclass(frozen=True, slots=True)
class Story:
    """One proposal's records in order, those of what it revises, and how it stands."""

    proposal_id: str
    entries: tuple[Entry, ...]
    revised: tuple[Entry, ...]
    decision: Decision | None
    escalation: Escalation | None

    @property
    def proposal(self) -> Entry | None:
        """The record of its submission; None where that is kept no more."""
        return _submission(self.entries, self.proposal_id)

    def exit_code(self) -> int:
        """As ``council propose`` would exit; as ``council verify`` where a record of it is damaged."""
        if any(_damaged(entry) for entry in (*self.entries, *self.revised)):
            return REJECTED
        return UNDECIDED if self.decision is None else decision_code(self.decision)


@judged
def show(
    proposal: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A proposal, by 4 or more characters of its id; or a record, '#12'."
        ),
    ],
    name: Name = None,
    address: Address = None,
    url: Url = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Show one decision whole.

    The proposal, every ballot, who was late or missing, the ruling, the answer,
    when what happened, what follows from what, and the hashes that council
    verify goes by. --json has the envelopes too.

    From the store, so that no council need be up; one that keeps its journal in
    memory is asked itself. Exits as propose would, or with 1 where a record
    of it is damaged.
    """
    report = Report(as_json=json)
    with reading(Where(config, name, address), url, report) as source:
        place = _POSITION.fullmatch(proposal)
        if place is None:
            story = tell(source, proposal.lower().removeprefix("esc-"))
        else:
            entry = _at(source, int(place[1]))
            if entry.proposal_id is None:
                return _alone(source, entry, report)
            story = tell(source, entry.proposal_id)
    code = story.exit_code()
    if json:
        return report.result(_document(source, story), None, code)
    from council.cli.record import drawing

    return report.result({}, drawing.story(story, source.name), code)


def _damaged(entry: Entry) -> bool:
    from council.journal.entries import DAMAGED

    return entry.kind == DAMAGED


def _at(source: Source, position: int) -> Entry:
    asked: Asked = {"cursor": position - 1, "newest_first": False, "limit": 1, "envelopes": True}
    found = next(iter(source.page(asked)), None)
    if found is None or found.position != position:
        raise UsageFault(f"the journal of {source.name} has no record #{position}; council log lists them")
    return found


def _alone(source: Source, entry: Entry, report: Report) -> int:
    """A record that is about no single proposal."""
    code = REJECTED if _damaged(entry) else DONE
    if report.as_json:
        told = {"council": source.name, "where": source.where, "record": document(entry)}
        return report.result(told, None, code)
    from council.cli.record import drawing

    return report.result({}, drawing.record(entry, source.name), code)


def tell(source: Source, given: str) -> Story:
    """The story of the proposal that ``given`` is the id of, or begins. Raises Refused, CallerError."""
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


def _remembered(source: Source, proposal_id: str) -> Decision | None:
    """What the council that is up knows of a proposal whose records its memory has no more."""
    from council.protocol.errors import Refused

    if source.council is None:
        return None
    try:
        return source.council.decision(proposal_id)
    except Refused:
        return None


def _ended(
    source: Source, proposal_id: str, entries: Sequence[Entry]
) -> tuple[Decision | None, Escalation | None]:
    """What was decided, with the ballots that came later, and why a human was asked, if one was."""
    escalation: Escalation | None = None
    for entry in entries:
        decisions, escalations = entry.decisions, entry.escalations
        if proposal_id in entry.more and source.records is not None:
            # Its record ended so many that it holds the first ones alone; the core knows the rest.
            decisions, escalations = _again(source.records(), entry.position)
        escalation = next((each for each in escalations if each.proposal_id == proposal_id), escalation)
        decided = next((each for each in decisions if each.proposal_id == proposal_id), None)
        if decided is not None:
            late = (*decided.late, *_ballots(entries, behind=entry.position))
            unique = {each.msg_id: each for each in late}
            return replace(decided, late=tuple(unique.values())), escalation
    return None, escalation


def _again(records: Iterator[Kept], position: int) -> tuple[tuple[Decision, ...], tuple[Escalation, ...]]:
    """What the record at ``position`` came to, by the core."""
    from council.core import effects as do
    from council.runtime.replay import Replay

    replay = Replay()
    for kept in records:
        effects = replay.take(kept)
        if kept.record.position == position:
            return (
                tuple(each.decision for each in effects if isinstance(each, do.AnnounceDecision)),
                tuple(each.escalation for each in effects if isinstance(each, do.AnnounceEscalation)),
            )
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


def _revised(source: Source, entries: Sequence[Entry], proposal_id: str) -> Iterator[Entry]:
    """The proposals that it revises, the nearest first."""
    found = _submission(entries, proposal_id)
    for _ in range(ANCESTORS_MAX):
        older = found.data["what"]["supersedes"] if found is not None else None
        if not older:
            return
        asked: Asked = {"proposal": older, "types": ["proposal"], "newest_first": False, "limit": 1}
        found = next(iter(source.page(asked)), None)
        if found is not None:
            yield found


def _document(source: Source, story: Story) -> dict[str, Any]:
    from council.core.state import plain

    decision, standing, outcome = story.decision, "escalated" if story.escalation else "deliberating", None
    if decision is not None:
        standing, outcome = decision.standing, decision.outcome
    return {
        "council": source.name,
        "where": source.where,
        "proposal_id": story.proposal_id,
        "standing": standing,
        "outcome": outcome,
        "decision": plain(decision),
        "escalation": plain(story.escalation),
        "records": [document(entry) for entry in story.entries],
        "revised": [document(entry) for entry in story.revised],
    }
