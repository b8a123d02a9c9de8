"""``council identity``: shows who the council is, and has its identity changed."""

from __future__ import annotations

import json as jsons
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from council.cli.options import EXIT_CODES, Address, Config, Json, Name
from council.cli.reach import Where, opened
from council.cli.record.sources import reading
from council.cli.record.store import Url
from council.cli.report import DONE, REJECTED, Report, UsageFault
from council.kinds.text import clean, line, span
from council.protocol.errors import Refused

if TYPE_CHECKING:
    from rich.console import RenderableType

    from council.api.client import Council
    from council.config.charter_files import CharterFiles, SeatShares
    from council.config.settings import CouncilConfig
    from council.core.state import KeptIdentity
    from council.protocol.identity.charter import Identity, Share

app = typer.Typer(help="Show who the council is, and have it changed.", no_args_is_help=True)

Kind = Literal["", "rollback", "patch"]

DIM = "bright_black"
HASH_SHOWN = 12
HASH_CHARS_MIN = 4


@app.command(epilog=EXIT_CODES)
def show(
    journal: Annotated[
        bool, typer.Option("--journal", help="Show the journal's identity instead, as a charter file.")
    ] = False,
    of: Annotated[
        str | None, typer.Option("--of", metavar="HASH", help="With --journal: an earlier identity.")
    ] = None,
    name: Name = None,
    address: Address = None,
    url: Url = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Show identity, persona and task instructions, with their hashes.

    Those of the settings, and what they take of each seat's tokens, counted
    by its own tokenizer. Needs no council.

    With --journal the identity in force, as a file that the setting charter
    can name: council identity show --journal > charter.json
    """
    report = Report(as_json=json)
    where = Where(config, name, address)
    if not journal:
        if of is not None:
            raise UsageFault("--of is for --journal: the settings name one identity alone")
        from council.config.charter_files import charter_files_of, shares

        configured = where.loaded().config
        papers = charter_files_of(configured)
        counted = list(shares(configured, papers))
        if json:
            return report.result(_document(configured, papers, counted), None)
        return report.result({}, _rendered(configured, papers, counted))
    with reading(where, url, report) as source:
        found = _of_hash(identities_of(source.page), of)
    if json:
        return report.result({"hash": found.hash, "identity": jsons.loads(found.text)}, None)
    report.print(
        jsons.dumps({"identity": jsons.loads(found.text)}, indent=2), soft_wrap=True
    )  # a file's content
    return DONE


@app.command("propose-change", epilog=EXIT_CODES)
def propose_change(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A charter with the new identity.")
    ] = None,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for the journal.")] = "",
    rollback: Annotated[
        str | None,
        typer.Option("--rollback", metavar="HASH", help="Return to an earlier identity of the journal."),
    ] = None,
    emergency: Annotated[
        bool, typer.Option("--emergency", help="An urgent patch, decided by you and Prime.")
    ] = False,
    ask: Annotated[bool, typer.Option("--ask", help="Have Prime and Lite vote on it first.")] = False,
    human: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Who proposes; by default the creator.")
    ] = None,
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Have the council's identity changed, as its creator.

    The creator decides alone as long as nothing measures how stable the
    council is; in an emergency with Prime, which is asked first. Exits 1 where
    it is refused. Both stand in the journal, with the reason.

    It is in force from the first launch on whose charter has it: put FILE
    where the setting charter looks, and launch anew. Until then, proposing
    the identity in force (council identity show --journal) withdraws it.
    """
    from council.config.charter_files import charter_files_of, read_identity, refuse_identity
    from council.kinds.identity import of_text

    if (file is None) == (rollback is None):
        raise UsageFault("give the FILE with the new identity, or --rollback HASH")
    if not why.strip():
        raise UsageFault("say why, with --why: it stays in the journal")
    report = Report(as_json=json)
    where = Where(config, name, address)
    where.refuse_address_found()
    configured = where.loaded().config
    given = None if file is None else read_identity(str(file.absolute()))
    kind: Kind = "rollback" if rollback else "patch" if emergency else ""
    with opened(where, report, sole="running") as (council, _):
        after = given or of_text(
            _of_hash(identities_of(lambda asked: council.history(**asked)), rollback).text
        )
        refuse_identity(configured, charter_files_of(configured), after)  # before anybody is asked
        change = _changed(council, report, after, why, kind, ask=ask or kind != "", human=human)
    if isinstance(change, Refused):
        return report.error(change, REJECTED)
    if json:
        return report.result({"change": change}, None)
    _print_change(report, change)
    return DONE


def _changed(
    council: Council, report: Report, after: Identity, why: str, kind: Kind, *, ask: bool, human: str | None
) -> Mapping[str, Any] | Refused:
    """The change, as it stands in the journal, or why it was refused. Raises UsageFault where Prime disagrees."""
    from council.api.identity_change import change_identity

    before = council.status()["identity"]["hash"]
    agreed = _agreed_proposal(council, report, before, after, why) if ask else ""
    try:
        return change_identity(council, after, why, before=before, emergency=kind, agreed=agreed, human=human)
    except Refused as refusal:
        if refusal.code != "identity_refused":
            raise
        return refusal


def _print_change(report: Report, change: Mapping[str, Any]) -> None:
    before, after = change["before"], change["after"]["hash"]
    if before == after:
        report.print(change["reason"])
        return
    online = ", ".join(
        f"{seat} online for {span(seconds)}" if seconds is not None else f"{seat} not online"
        for seat, seconds in (("Prime", change["prime_online_s"]), ("Lite", change["lite_online_s"]))
    )
    report.print(f"the identity changes from {before[:HASH_SHOWN]} to {after[:HASH_SHOWN]}")
    report.print(f"{change['reason']} ({online}; stability not measured)", style=DIM)
    report.print("next: put it into the charter of council.toml, and launch the council anew")


def _agreed_proposal(council: Council, report: Report, before: str, after: Identity, why: str) -> str:
    """The proposal in which Prime agreed. Raises UsageFault where it did not."""
    from council.api.identity_change import ask

    report.note("asking Prime and Lite")
    decision = ask(council, before, after, why)
    prime = council.status()["prime"]
    votes = {ballot.seat: ballot for ballot in decision.ballots}
    if not decision:
        raise UsageFault(
            f"the council does not agree: {decision.outcome or decision.standing}, {line(decision.reason, 200)} (see "
            f"council show {decision.proposal_id}); without --emergency, --rollback and --ask you propose it alone"
        )
    ruled_against = decision.ruling is not None and decision.ruling.ruling != "confirm"
    if prime not in votes or votes[prime].vote != "yes" or ruled_against:
        said = f"{votes[prime].vote}: {line(votes[prime].reason, 200)}" if prime in votes else "nothing"
        if decision.ruling is not None and ruled_against:
            said = f"{decision.ruling.ruling}: {line(decision.ruling.reason, 200)}"
        raise UsageFault(
            f"{prime} does not agree, it said {said} (see council show {decision.proposal_id}); without --emergency, "
            "--rollback and --ask you propose it alone"
        )
    return decision.proposal_id


# Where an identity comes from


def identities_of(page: Any) -> Iterator[KeptIdentity]:
    """The identities that a journal knows, newest first: those that councils began with, and what they became."""
    from council.core.state import KeptIdentity

    asked: dict[str, Any] = {"types": ["start", "identity_change"], "limit": 100}
    seen = set()
    while True:
        found = page(asked)
        for entry in found:
            data = entry.data["rules"]["identity"] if entry.kind == "start" else entry.data["change"]["after"]
            if entry.kind == "start" and data["hash"] and data["hash"] not in seen:
                seen.add(data["hash"])
                yield KeptIdentity(**data)
        if found.cursor is None:
            return
        asked["cursor"] = found.cursor


def _of_hash(identities: Iterator[KeptIdentity], start: str | None) -> KeptIdentity:
    """The newest, or the one whose hash begins so. Raises UsageFault."""
    if start is None:
        first = next(identities, None)
        if first is None:
            raise UsageFault("the journal knows no identity: it was written by a version that kept none")
        return first
    if len(start) < HASH_CHARS_MIN:
        raise UsageFault(f"{start!r:.80}: give {HASH_CHARS_MIN} characters of the hash, or more")
    every = list(identities)
    found = [each for each in every if each.hash.startswith(start.lower())]
    if len(found) != 1:
        there = ", ".join(each.hash[:HASH_SHOWN] for each in every) or "none"
        what = "no identity that was in force" if not found else "several"
        raise UsageFault(f"{start!r:.80}: {what} in the journal ({there})")
    return found[0]


# How it is shown


def _document(config: CouncilConfig, papers: CharterFiles, counted: list[SeatShares]) -> dict[str, Any]:
    from dataclasses import asdict

    charter = papers.charter
    return {
        "charter": config.charter,
        **charter.data(),
        "persona": charter.persona.data(),
        "personas": {seat: persona.data() for seat, persona in papers.personas.items()},
        "hashes": _hashes(papers),
        "seats": [asdict(seat) for seat in counted],
    }


def _hashes(papers: CharterFiles) -> dict[str, Any]:
    charter = papers.charter
    return {
        "identity": charter.identity.content_hash(),
        "persona": charter.persona.content_hash(),
        "personas": {seat: persona.content_hash() for seat, persona in papers.personas.items()},
        "task_instructions": {one.key: one.content_hash() for one in charter.task_instructions},
    }


def _rendered(config: CouncilConfig, papers: CharterFiles, counted: list[SeatShares]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    charter, hashes = papers.charter, _hashes(papers)
    parts: list[RenderableType] = [
        Text.assemble(("identity", "bold"), (f"  {hashes['identity']}", DIM)),
        Text(clean(charter.identity.prompt())),
        "",
    ]
    for seat, persona in (("", charter.persona), *papers.personas.items()):
        whose = f"persona of {seat}" if seat else "persona"
        own = hashes["personas"][seat] if seat else hashes["persona"]
        parts += [Text.assemble((whose, "bold"), (f"  {own}", DIM))]
        parts += [Text(clean(persona.prompt()) or "none: nothing is added to the identity"), ""]
    parts.append(Text("task instructions", "bold"))
    parts += [
        Text.assemble(f"{one.key} ", (f"({one.stage}) ", DIM), line(one.text))
        for one in charter.task_instructions
    ]
    parts += [
        "",
        _table(counted) if counted else Text("No seat has a model, so that no prompt holds these.", DIM),
    ]
    parts += [Text(line(f"{seat.seat}: {seat.problem}"), "red") for seat in counted if seat.problem]
    parts.append(
        Text(f"from {config.charter or 'what ships; the setting charter names one of your own'}", DIM)
    )
    return Group(*parts)


def _table(counted: list[SeatShares]) -> RenderableType:
    from rich.text import Text

    from council.cli.render import table

    numbers = ("MTU", "identity", "persona", "longest instruction")
    rows = table("seat", *numbers, "counted by", numbers=numbers)
    rows.columns[-1].no_wrap = False
    for seat in counted:
        if seat.problem:
            continue
        shares: Mapping[str, Share] = {share.field: share for share in seat.shares}
        longest = max(seat.instructions, key=lambda share: share.tokens)
        cells = [_cell(shares["identity"]), _cell(shares["persona"]), _cell(longest)]
        rows.add_row(Text(seat.seat), f"{seat.mtu:,}", *cells, Text(seat.tokenizer))
    return rows


def _cell(share: Share) -> Any:
    from rich.text import Text

    return Text(f"{share.tokens:,} of {share.limit:,}", "yellow" if share.is_over else "")
