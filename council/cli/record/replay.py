"""``council replay``: compares a journal with the decisions that these rules, or changed ones, give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from council.cli.options import Config, Json
from council.cli.reach import Where, waiting
from council.cli.record.sources import Name
from council.cli.record.store import Url, opened
from council.cli.report import REJECTED, Report, judged
from council.kinds.text import clean, count, line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from council.runtime.replay import Replay
    from council.runtime.whatif import WhatIfChange, WhatIfResult

WORDS = {"ruling": "asks Prime", "human": "asks a human"}


@judged
def replay(
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="KEY=VALUE",
            help="Replay by another rule (quorum=3), or without=SEAT. Repeatable.",
        ),
    ] = None,
    name: Name = None,
    url: Url = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Replay a journal, and compare every effect.

    Exits 1 at the first record that has another effect under the rules of this version. Changes nothing, sends
    nothing, and needs no running council.

    With --what-if it shows which decisions would have been different. You can set quorum and prime; without=SEAT
    leaves out the votes of that seat, as if its mind had failed.

    An answer of Prime or of a human counts if they would have been asked the same question. If they would have been
    asked another one, the result is unknown.
    """
    from council.journal import history
    from council.protocol.errors import ReplayDiverged
    from council.runtime.replay import Replay
    from council.runtime.whatif import WhatIfChange, what_if

    report = Report(as_json=json)
    wanted = WhatIfChange.read(change or ())
    where = Where(config, name)
    council = where.loaded().config.name
    try:
        with (
            opened(url, where, journal=council, read_only=True) as store,
            waiting(report, f"replaying {council}"),
        ):
            kept = history.records(store.database, council)
            if change:
                found = what_if(kept, wanted)
            else:
                replayed = Replay()
                for each in kept:
                    replayed.replay(each)
    except ReplayDiverged as error:
        return report.error(error, REJECTED)
    return (
        _report_whatif(found, wanted, council, report)
        if change
        else _report_replay(replayed, council, report)
    )


def _report_replay(replayed: Replay, council: str, report: Report) -> int:
    counts = {
        "records": replayed.records,
        "decisions": replayed.decisions,
        "escalations": replayed.escalations,
    }
    said = (
        f"{clean(council)}: {count(replayed.records, 'record')} replayed, each with the effects in the journal: "
        f"{count(replayed.decisions, 'decision')}, {count(replayed.escalations, 'escalation')} to a human"
    )
    return report.result({"replayed": {"council": council, **counts}}, said)


def _report_whatif(found: WhatIfResult, change: WhatIfChange, council: str, report: Report) -> int:
    document = {
        "council": council,
        "rules": dict(change.rules),
        "without": sorted(change.without),
        "records": found.records,
        "proposals": found.proposals,
        "refounded": found.refounded,
        "otherwise": [
            {**each._asdict(), "was": each.was._asdict(), "would": each.would._asdict()}
            for each in found.otherwise
        ],
    }
    changed = [f"with {key}={value}" for key, value in change.rules.items()]
    changed += [f"without {seat}" for seat in sorted(change.without)]
    return report.result({"what_if": document}, _drawn(found, f"{council}  {', '.join(changed)}"))


def _drawn(found: WhatIfResult, title: str) -> RenderableType:
    from rich.console import Group

    from council.cli.render import table, text

    what = f"{len(found.otherwise):,} of {count(found.proposals, 'proposal')} would have ended differently"
    if found.refounded:
        what += f"; {found.refounded:,} the same, but for another reason or on other ballots"
    rows = table("proposal", "was", "would be", "what, and why", wide="what, and why")
    for proposal_id, summary, was, would in found.otherwise:
        why = f"{would.why} ({would.tally})" if would.tally else would.why
        words = [text(WORDS.get(end.word, end.word)) for end in (was, would)]
        rows.add_row(proposal_id[:8], *words, text(f"{line(summary, 160)}\n{line(why, 400)}"))
    parts: list[RenderableType] = [rows, ""] if found.otherwise else []
    return Group(text(title, "bold"), "", *parts, what)
