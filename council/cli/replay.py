"""``council replay``: whether a journal comes to the same again, and what other rules would have come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from council.cli.options import Config, Json
from council.cli.reach import Where, waiting
from council.cli.report import DONE, REJECTED, Report, judged
from council.cli.sources import Name
from council.cli.store import Url, opened
from council.cli.text import clean, count, line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from council.runtime.replay import Replay
    from council.runtime.whatif import Change, End, Found

SHOWN_MAX = 50  # of the proposals that would have ended otherwise; --json has all

STYLES = {"ruling": "yellow", "human": "yellow", "undecided": "bright_black", "refused": "yellow"}
WORDS = {"ruling": "asks Prime", "human": "asks a human"}


@judged
def replay(
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if", metavar="KEY=VALUE", help="By another rule (quorum=3), or without=SEAT. Repeatable."
        ),
    ] = None,
    name: Name = None,
    url: Url = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Run a journal through the core again, and compare every effect.

    Exits 1 at the first record that comes to something else by this version's
    rules. Changes nothing and sends nothing; no council need be up.

    With --what-if: what would have been decided otherwise. quorum, prime,
    sole_seat, escalation_ttl_s, open_max and escalations_max can be set;
    without=SEAT leaves that seat's ballots out, as if its mind had failed.

    What Prime or a human said counts as it was said. Where they would have been
    asked, and never were, nobody knows what they would have said: it says so.
    """
    from council.journal import history
    from council.protocol.errors import ReplayDiverged
    from council.runtime.replay import Replay
    from council.runtime.whatif import Change, what_if

    report = Report(as_json=json)
    wanted = Change.read(change or ())
    council = Where(config, name).loaded().config.name
    try:
        with (
            opened(url, config, journal=council, read_only=True) as store,
            waiting(report, f"replaying {council}"),
        ):
            kept = history.records(store.database, council)
            if change:
                found = what_if(kept, wanted)
            else:
                replayed = Replay()
                for each in kept:
                    replayed.take(each)
    except ReplayDiverged as error:
        return report.error(error, REJECTED)
    return (
        _told_otherwise(found, wanted, council, report) if change else _told_again(replayed, council, report)
    )


def _told_again(replayed: Replay, council: str, report: Report) -> int:
    counts = {
        "records": replayed.records,
        "decisions": replayed.decisions,
        "escalations": replayed.escalations,
    }
    said = (
        f"{clean(council)}: {count(replayed.records, 'record')} come to the same again, word for word: "
        f"{count(replayed.decisions, 'decision')}, {count(replayed.escalations, 'escalation')} to a human"
    )
    return report.result({"replayed": {"council": council, **counts}}, said)


def _told_otherwise(found: Found, change: Change, council: str, report: Report) -> int:
    changed = [f"with {key}={value}" for key, value in change.rules.items()]
    changed += [f"without {seat}" for seat in sorted(change.without)]
    if report.as_json:
        return report.result({"what_if": _document(found, council, change)}, None)
    report.say(_drawn(found, council, changed))
    return DONE


def _document(found: Found, council: str, change: Change) -> dict[str, Any]:
    return {
        "council": council,
        "rules": dict(change.rules),
        "without": sorted(change.without),
        "records": found.records,
        "proposals": found.proposals,
        "refounded": found.refounded,
        "otherwise": [
            {
                "proposal_id": each.proposal_id,
                "summary": each.summary,
                "was": each.was._asdict(),
                "would": each.would._asdict(),
            }
            for each in found.otherwise
        ],
    }


def _drawn(found: Found, council: str, changed: list[str]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from council.cli.show import DIM, text

    title = Text.assemble(text(council, "bold"), (f"  {', '.join(map(clean, changed))}", DIM))
    number = len(found.otherwise)
    what = f"{number:,} of {count(found.proposals, 'proposal')} would have ended otherwise"
    if found.refounded:
        what += f"; {found.refounded:,} the same, but for another reason or on other ballots"
    parts: list[RenderableType] = [title, ""]
    if number:
        table = Table(box=None, header_style=DIM, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
        table.add_column("proposal", no_wrap=True)
        table.add_column("was", no_wrap=True)
        table.add_column("would be", no_wrap=True)
        table.add_column("what, and why", ratio=1)
        for each in found.otherwise[:SHOWN_MAX]:
            why = Text.assemble(
                text(line(each.summary, 160), "bold"), "\n", text(line(_why(each.would), 400))
            )
            table.add_row(text(each.proposal_id[:8]), _word(each.was), _word(each.would), why)
        parts += [table, ""]
        if number > SHOWN_MAX:
            parts.append(Text(f"and {number - SHOWN_MAX:,} more: --json", DIM))
    return Group(*parts, Text(what, "bold" if number else ""))


def _word(end: End) -> RenderableType:
    from rich.text import Text

    from council.cli.show import OUTCOME_STYLES

    style = OUTCOME_STYLES.get(end.word) or STYLES.get(end.word, "")
    return Text(WORDS.get(end.word, end.word), style)


def _why(end: End) -> str:
    return f"{end.why} ({end.tally})" if end.tally else end.why
