"""``council log``: a journal's records, a line for each."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from council.cli.options import Address, Config
from council.cli.reach import Where
from council.cli.record.sources import HistorySource, Name, reading
from council.cli.record.store import Url
from council.cli.report import DONE, REJECTED, Report, UsageFault, judged
from council.kinds.text import count

if TYPE_CHECKING:
    from council.journal.entries import Asked, Entry

LOOK_S = 0.5  # between two reads of new records
PAUSE_S = 2.0  # before another try, if they can't be read
SHOWN = 50
# How a record is printed on a terminal. A longer line is cut; council show has all of it.
ONE_LINE: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
_AGO = re.compile(r"(\d{1,9})\s*(s|m|min|h|d|w)")
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_MOMENT = "[TIME|10m|2h|3d]"


@judged
def log(
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only records of this type: ballot, refusal, decision … Repeatable.",
        ),
    ] = None,
    proposal: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only this proposal; 4 characters of its id are enough."),
    ] = None,
    seat: Annotated[str | None, typer.Option(metavar="NAME", help="Only this seat, client or human.")] = None,
    since: Annotated[str | None, typer.Option(metavar=_MOMENT, help="Only since this time.")] = None,
    until: Annotated[str | None, typer.Option(metavar=_MOMENT, help="Only before this time.")] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="COUNT", help="How many records; 0 for all.")] = SHOWN,
    oldest_first: Annotated[
        bool, typer.Option("--oldest-first", help="Show the oldest records, instead of the newest.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new records, until Ctrl-C.")
    ] = False,
    name: Name = None,
    address: Address = None,
    url: Url = None,
    config: Config = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each record.")] = False,
) -> int:
    """Show the records of the journal.

    Shows the newest ones, in the order in which they were written. Reads the store, so no council need be running. If
    a council keeps its journal in memory, the council is asked instead. Exits 1 if a record is damaged.
    """
    from council.journal.entries import DAMAGED

    if follow and (until is not None or oldest_first):
        raise UsageFault("--follow shows what is new: leave --until and --oldest-first out")
    now = datetime.now(UTC)
    asked: Asked = {"proposal": proposal, "types": types, "seat": seat}
    asked["since"], asked["until"] = moment("--since", since, now), moment("--until", until, now)
    report, damaged = Report(as_json=json), 0
    day: date | None = None
    with reading(Where(config, name, address), url, report) as source:
        entries = (_followed if follow else _entries)(source, asked, limit, oldest_first, report)
        try:
            for entry in entries:
                damaged += entry.kind == DAMAGED
                on = entry.at.astimezone().date()
                if not _print(entry, report, new_day=on != day):
                    break
                day = on
        except KeyboardInterrupt:
            if not follow:
                raise
    if damaged:
        report.note(f"{count(damaged, 'record')} damaged: council verify says what is wrong with the journal")
    if day is None and not follow and not json:
        report.note("no record matches")
    return REJECTED if damaged else DONE


def moment(option: str, given: str | None, now: datetime) -> datetime | None:
    """The moment that ``2h`` or an ISO time means; without an offset it is this machine's time. Raises UsageFault."""
    if given is None:
        return None
    ago = _AGO.fullmatch(given.strip())
    try:
        if ago is not None:
            return now - timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])
        return datetime.fromisoformat(given).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageFault(
            f"{option}: found {given!r:.60}, expected a time as in 2026-11-21T08:30 or a while ago as in 10m, 2h, 3d"
        ) from None


def _entries(
    source: HistorySource, asked: Asked, limit: int, oldest_first: bool, report: Report
) -> Iterator[Entry]:
    """The oldest or the newest ``limit`` records, in the order of the journal; 0 means all."""
    if oldest_first or not limit:
        for number, entry in enumerate(pages(source, asked, newest_first=False, most=limit)):
            if limit and number == limit:
                return
            yield entry
        return
    found: list[Entry] = []
    for entry in pages(source, asked, newest_first=True, most=limit + 1):
        if len(found) == limit:
            if report.out.is_terminal and not report.as_json:
                report.note(f"older ones are left out: --limit {10 * limit}, or 0 for all")
            break
        found.append(entry)
    yield from reversed(found)


def pages(
    source: HistorySource, asked: Asked, *, newest_first: bool, behind: int | None = None, most: int = 0
) -> Iterator[Entry]:
    """All entries, read page by page. ``most`` is the number that is wanted, if not all."""
    from council.journal.entries import PAGE_MAX

    some: Asked = {**asked, "newest_first": newest_first, "cursor": behind}
    some["limit"] = min(most or PAGE_MAX, PAGE_MAX)
    while True:
        page = source.page(some)
        yield from page
        if page.cursor is None:
            return
        some["cursor"] = page.cursor


def _followed(
    source: HistorySource, asked: Asked, limit: int, oldest_first: bool, report: Report
) -> Iterator[Entry]:
    """``_entries``, and then each new record, without end."""
    newest = next(iter(source.page({"limit": 1})), None)
    position = newest.position if newest else 0
    for entry in _entries(source, asked, limit, oldest_first, report):
        position = max(position, entry.position)
        yield entry
    yield from _new(source, asked, position, report)


def _new(source: HistorySource, asked: Asked, position: int, report: Report) -> Iterator[Entry]:
    """Each record after ``position``, once it is kept, without end."""
    from council.protocol.errors import CouncilDied, StoreLocked, StoreUnreachable, Unreachable

    trouble = ""
    while True:
        try:
            newest = next(iter(source.page({"limit": 1})), None)
            for entry in pages(source, asked, newest_first=False, behind=position):
                position = entry.position
                yield entry
            position = max(position, newest.position if newest else 0)
            trouble = ""
        except CouncilDied:
            raise
        except (StoreLocked, StoreUnreachable, Unreachable) as error:
            if not trouble:
                report.note(f"nothing can be read, trying again: {error}")
            trouble = str(error)
            time.sleep(PAUSE_S)
        time.sleep(LOOK_S)


def _print(entry: Entry, report: Report, *, new_day: bool) -> bool:
    """Prints a record. Returns False once the reader of the output has gone."""
    from council.cli import render

    if report.as_json:
        return report.print_json(document(entry))
    if not report.out.is_terminal:
        return report.print(render.row(entry, dated=True), soft_wrap=True)
    if new_day:
        report.print(render.day(entry.at))
    return report.print(render.row(entry), **ONE_LINE)


def document(entry: Entry) -> dict[str, Any]:
    """An entry as JSON data, with its envelope if that was asked for."""
    import json

    from council.core.state import plain

    data = {"at": entry.at.isoformat(), **plain(entry)}
    del data["at_s"], data["payload"]
    if entry.envelope is not None:
        data["envelope"] = json.loads(entry.envelope.to_json())
    return data
