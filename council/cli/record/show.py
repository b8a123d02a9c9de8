"""``council show``: one proposal, or one record, in full."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from council.cli.options import Address, Config, Json
from council.cli.reach import Where
from council.cli.record.log import document
from council.cli.record.sources import HistorySource, Name, reading
from council.cli.record.store import Url
from council.cli.record.story import Story, damaged, story_of
from council.cli.report import DONE, REJECTED, Report, UsageFault, judged

if TYPE_CHECKING:
    from council.journal.entries import Asked, Entry

Omen = Annotated[
    bool, typer.Option("--omen", help="Print its OMEN packets as JSON Lines, for council validate.")
]
Packets = Annotated[
    bool,
    typer.Option("--packets", help="Show the cognition packets of its seats, if keep_packets keeps them."),
]
_POSITION = re.compile("#([1-9][0-9]{0,17})")


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
    omen: Omen = False,
    packets: Packets = False,
) -> int:
    """Show one decision in full.

    Shows the proposal, every ballot, the late and missing seats, the ruling, the answer, a timeline, the records that
    each record follows from, and the hashes that council verify checks. --json also has the envelopes.

    Reads the store, so no council need be running. If a council keeps its journal in memory, the council is asked
    instead. Exits as propose would, or with 1 if one of its records is damaged.
    """
    from council.core.state import escalated_by

    report = Report(as_json=json or omen)
    if json and omen:
        raise UsageFault("--omen prints JSON Lines, --json one document: leave one of them out")
    if packets and omen:
        raise UsageFault("--omen and --packets print different packets: leave one of them out")
    with reading(Where(config, name, address), url, report) as source:
        place = _POSITION.fullmatch(proposal)
        if place is None:
            story = story_of(source, escalated_by(proposal.lower())[0])
        else:
            entry = _at(source, int(place[1]))
            if entry.proposal_id is None:
                if omen:
                    raise UsageFault(f"record {proposal} is about no single proposal, so it has no episode")
                if packets:
                    raise UsageFault(f"record {proposal} is about no single proposal, so it has no packets")
                return _alone(source, entry, report)
            story = story_of(source, entry.proposal_id)
        if omen:
            return _episode(source, story, report)
        if packets:
            return _packets(source, story, report)
    from council.cli.card import council_options

    code = story.exit_code()
    if json:
        return report.result(_document(source, story), None, code)
    from council.cli.record import story_view

    shown = story_view.proposal(story, source.name, council_options(Where(config, name, address)))
    return report.result({}, shown, code)


def _episode(source: HistorySource, story: Story, report: Report) -> int:
    """The packets of its episode, one on a line."""
    from council.journal import episodes
    from council.protocol.omen import to_dict

    for packet in episodes.read(episodes.episode(story.proposal_id), source.page):
        if not report.print_json(to_dict(packet)):
            break
    return story.exit_code()


def _packets(source: HistorySource, story: Story, report: Report) -> int:
    """The cognition packets that its seats were handed and completed."""
    if source.packets is None:
        raise UsageFault("cognition packets are in the council's store alone: name it with --url")
    found = source.packets(story.proposal_id)
    about = {"council": source.name, "where": source.where, "proposal_id": story.proposal_id}
    document: dict[str, Any] = {**about, "packets": found}
    if not found:
        text = (
            f"no cognition packet of {story.proposal_id} is kept: the setting keep_packets = true keeps them"
        )
        return report.result(document, text, story.exit_code())
    from council.cli.record import packet_view

    return report.result(document, packet_view.packets(found), story.exit_code())


def _at(source: HistorySource, position: int) -> Entry:
    asked: Asked = {"cursor": position - 1, "newest_first": False, "limit": 1, "envelopes": True}
    found = next(iter(source.page(asked)), None)
    if found is None or found.position != position:
        raise UsageFault(f"the journal of {source.name} has no record #{position}; council log lists them")
    return found


def _alone(source: HistorySource, entry: Entry, report: Report) -> int:
    """A record that is about no single proposal."""
    code = REJECTED if damaged(entry) else DONE
    if report.as_json:
        record = {"council": source.name, "where": source.where, "record": document(entry)}
        return report.result(record, None, code)
    from council.cli.record import story_view

    return report.result({}, story_view.record(entry, source.name), code)


def _document(source: HistorySource, story: Story) -> dict[str, Any]:
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
