"""``council identity``: shows the council's identity, and proposes changes of it."""

from __future__ import annotations

import json as jsons
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from council.cli.options import Address, Config, Json, Name
from council.cli.reach import Where, opened
from council.cli.record.sources import reading
from council.cli.record.store import Url
from council.cli.report import DONE, REJECTED, Report, UsageFault
from council.kinds.text import clean, line, span
from council.protocol.errors import Refused, StoreCorrupt

if TYPE_CHECKING:
    from rich.console import RenderableType

    from council.api.client import Council
    from council.config.charter_files import CharterFiles, SeatShares
    from council.config.settings import CouncilConfig
    from council.core.state import KeptIdentity
    from council.journal.entries import Asked, HistoryPage
    from council.protocol.identity.charter import Identity, Persona

app = typer.Typer(help="Show the council's identity, and propose changes to it.", no_args_is_help=True)

Kind = Literal["", "rollback", "patch"]

DIM = "bright_black"
HASH_SHOWN = 12
HASH_CHARS_MIN = 4


@app.command()
def show(
    journal: Annotated[
        bool, typer.Option("--journal", help="Show the identity in the journal, as a charter file.")
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
    """Show identity, personas and task instructions, with their hashes.

    By default it shows those of the settings, and how many tokens of each seat they take, counted by the seat's
    own tokenizer. Needs no council.

    With --journal it shows the identity in force, as a file that the setting charter can name.
    """
    report = Report(as_json=json)
    where = Where(config, name, address)
    if not journal:
        if of is not None:
            raise UsageFault("--of needs --journal: the settings have only one identity")
        from council.config.charter_files import charter_files_of, shares

        settings = where.loaded().config
        files = charter_files_of(settings)
        counted = list(shares(settings, files))
        return report.result(_document(settings, files, counted), _rendered(settings, files, counted))
    with reading(where, url, report) as source:
        found = _of_hash(source.page, of)
    identity = jsons.loads(found.text)
    if json:
        return report.result({"hash": found.hash, "identity": identity}, None)
    report.print(jsons.dumps({"identity": identity}, indent=2), soft_wrap=True)  # the content of a file
    return DONE


@app.command("propose-change")
def propose_change(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A charter with the new identity.")
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
    """Propose a change of the council's identity, as its creator.

    The creator decides alone as long as nothing measures how stable the council is. In an emergency Prime must
    agree, and is asked first. Exits 1 if the change is refused. A change and a refusal are journaled with the
    reason.

    The change is in force from the first launch whose charter has it: put FILE where the setting charter looks,
    and launch again. Until then, proposing the identity in force (council identity show --journal) withdraws
    it.
    """
    from council.api.identity_change import change_identity
    from council.config.charter_files import charter_files_of, read_identity, refuse_identity
    from council.kinds.identity import of_text

    if (file is None) == (rollback is None):
        raise UsageFault("give the FILE with the new identity, or --rollback HASH")
    if not why.strip():
        raise UsageFault("give the reason with --why: it stays in the journal")
    report = Report(as_json=json)
    where = Where(config, name, address)
    where.refuse_address_found()
    settings = where.loaded().config
    given = None if file is None else read_identity(str(file.absolute()))
    kind: Kind = "rollback" if rollback else "patch" if emergency else ""
    with opened(where, report, sole="running") as (council, _):
        after = given or of_text(_of_hash(lambda query: council.history(**query), rollback).text)
        refuse_identity(settings, charter_files_of(settings), after)  # before any seat is asked
        before = council.status()["identity"]["hash"]
        agreed = _agreed_proposal(council, report, before, after, why) if ask or kind else ""
        try:
            change = change_identity(
                council, after, why, before=before, emergency=kind, agreed=agreed, human=human
            )
        except Refused as refusal:
            if refusal.code != "identity_refused":
                raise
            return report.error(refusal, REJECTED)
    return report.result({"change": change}, _change_rendered(change))


def _change_rendered(change: Mapping[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    before, after = change["before"], change["after"]["hash"]
    if before == after:
        return Text(clean(change["reason"]))
    online = ", ".join(
        f"{seat} not online" if seconds is None else f"{seat} online for {span(seconds)}"
        for seat, seconds in (("Prime", change["prime_online_s"]), ("Lite", change["lite_online_s"]))
    )
    return Group(
        f"the identity changes from {before[:HASH_SHOWN]} to {after[:HASH_SHOWN]}",
        Text(clean(f"{change['reason']} ({online}; stability not measured)"), DIM),
        "next: put it into the charter of council.toml, and launch the council again",
    )


def _agreed_proposal(council: Council, report: Report, before: str, after: Identity, why: str) -> str:
    """Asks Prime and Lite; the id of the proposal. Raises UsageFault if the council or Prime does not agree."""
    from council.api.identity_change import ask

    report.note("asking Prime and Lite")
    decision = ask(council, before, after, why)
    prime = council.status()["prime"]
    ballot = next((each for each in decision.ballots if each.seat == prime), None)
    if not decision:
        wrong = f"the council does not agree: {decision.outcome or decision.standing}, {line(decision.reason, 200)}"
    elif decision.ruling is not None and decision.ruling.ruling != "confirm":
        wrong = f"{prime} does not agree: {decision.ruling.ruling}: {line(decision.ruling.reason, 200)}"
    elif ballot is None or ballot.vote != "yes":
        vote = "no ballot" if ballot is None else f"{ballot.vote}: {line(ballot.reason, 200)}"
        wrong = f"{prime} does not agree: {vote}"
    else:
        return decision.proposal_id
    raise UsageFault(
        f"{wrong} (see council show {decision.proposal_id}); without --emergency, --rollback and --ask you propose "
        "it alone"
    )


# Finding an identity


def _identities(page: Callable[[Asked], HistoryPage], *, skip_damaged: bool) -> Iterator[KeptIdentity]:
    """The identities in a journal that were in force, newest first. Raises StoreCorrupt for a damaged record."""
    from council.core.state import KeptIdentity

    query: Asked = {"types": ["start"], "limit": 100}
    seen = {""}  # of a version that kept none
    while True:
        found = page(query)
        for entry in found:
            if entry.kind != "start":
                if skip_damaged:
                    continue
                raise StoreCorrupt(entry.data["why"], position=entry.position)
            kept = KeptIdentity(**entry.data["rules"]["identity"])
            if kept.hash not in seen:
                seen.add(kept.hash)
                yield kept
        if found.cursor is None:
            return
        query["cursor"] = found.cursor


def _of_hash(page: Callable[[Asked], HistoryPage], start: str | None) -> KeptIdentity:
    """The newest identity, or the one whose hash begins with ``start``. Raises UsageFault and StoreCorrupt."""
    if start is not None and len(start) < HASH_CHARS_MIN:
        raise UsageFault(f"{start!r:.80}: give {HASH_CHARS_MIN} characters of the hash, or more")
    if start is None:
        newest = next(_identities(page, skip_damaged=False), None)
        if newest is None:
            raise UsageFault("the journal has no identity: it was written by a version that kept none")
        return newest
    every = list(_identities(page, skip_damaged=True))
    found = [each for each in every if each.hash.startswith(start.lower())]
    if len(found) != 1:
        hashes = ", ".join(each.hash[:HASH_SHOWN] for each in every) or "none"
        what = "several identities" if found else "no identity that was in force"
        raise UsageFault(f"{start!r:.80}: {what} in the journal ({hashes})")
    return found[0]


# Printing it


def _document(config: CouncilConfig, files: CharterFiles, counted: list[SeatShares]) -> dict[str, Any]:
    from dataclasses import asdict

    charter = files.charter
    return {
        "charter": config.charter,
        **charter.data(),
        "persona": charter.persona.data(),
        "personas": {seat: persona.data() for seat, persona in files.personas.items()},
        "hashes": {
            "identity": charter.identity.content_hash(),
            "persona": charter.persona.content_hash(),
            "personas": {seat: persona.content_hash() for seat, persona in files.personas.items()},
            "task_instructions": {each.key: each.content_hash() for each in charter.task_instructions},
        },
        "seats": [asdict(seat) for seat in counted],
    }


def _rendered(config: CouncilConfig, files: CharterFiles, counted: list[SeatShares]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    charter = files.charter
    parts: list[RenderableType] = []
    texts: list[tuple[str, Identity | Persona]] = [
        ("identity", charter.identity),
        ("persona", charter.persona),
    ]
    texts += [(f"persona of {seat}", persona) for seat, persona in files.personas.items()]
    for title, part in texts:
        parts.append(Text.assemble((title, "bold"), (f"  {part.content_hash()}", DIM)))
        parts += [Text(clean(part.prompt()) or "none: nothing is added to the identity"), ""]
    parts.append(Text("task instructions", "bold"))
    for one in charter.task_instructions:
        parts.append(Text.assemble(f"{one.key} ", (f"({one.stage}) ", DIM), line(one.text)))
    parts += ["", _shares(counted)]
    parts += [Text(line(f"{seat.seat}: {seat.problem}"), "red") for seat in counted if seat.problem]
    source = config.charter or "the built-in charter; the setting charter names your own"
    return Group(*parts, Text(f"from {source}", DIM))


def _shares(counted: list[SeatShares]) -> RenderableType:
    """The tokens that each seat has for these texts, and the tokens that they take."""
    from rich.text import Text

    from council.cli.render import table

    if not counted:
        return Text("No seat has a model, so no prompt contains these.", DIM)
    numbers = ("MTU", "identity", "persona", "longest instruction")
    rows = table("seat", *numbers, "counted by", numbers=numbers)
    rows.columns[-1].no_wrap = False
    for seat in counted:
        if seat.problem:
            continue
        shares = {share.field: share for share in seat.shares}
        longest = max(seat.instructions, key=lambda share: share.tokens)
        cells = [
            Text(f"{share.tokens:,} of {share.limit:,}", "yellow" if share.is_over else "")
            for share in (shares["identity"], shares["persona"], longest)
        ]
        rows.add_row(Text(seat.seat), f"{seat.mtu:,}", *cells, Text(seat.tokenizer))
    return rows
