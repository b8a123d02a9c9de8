"""Finds where a command reads a council's history: the store, or the council that is up.

The store needs no running council. If a council keeps its journal in memory, or runs elsewhere, the council is asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from council.cli.reach import Where, opened
from council.cli.record.store import opened as store_opened
from council.cli.report import Report, UsageFault

if TYPE_CHECKING:
    from council.api.client import Council
    from council.journal.entries import Asked, HistoryPage
    from council.journal.packets import StoredRecord

Name = Annotated[
    str | None,
    typer.Option(
        "--name", "--journal", metavar="NAME", help="The council's name, which is also its journal's."
    ),
]


@dataclass(frozen=True, slots=True)
class HistorySource:
    """Something that has a history; ``council`` is the council that is asked, None if the store is read."""

    name: str
    where: str
    page: Callable[[Asked], HistoryPage]  # as ``Council.history``
    records: Callable[[], Iterator[StoredRecord]] | None = None  # of a store alone
    packets: Callable[[str], list[dict[str, Any]]] | None = (
        None  # as ``cognition.packets_of``; of a store alone
    )
    council: Council | None = None


@contextlib.contextmanager
def reading(where: Where, url: str | None, report: Report) -> Iterator[HistorySource]:
    """The history of the council that ``where`` names.

    It is read from the store at ``url``, or else from the store of the settings. If nothing is kept there, the
    council that is up is asked. Raises Unreachable if none is up, UsageFault, ConfigError, StoreError.
    """
    from council.cluster import known
    from council.config.settings import MEMORY
    from council.protocol.errors import StoreOutdated, StoreUnreachable, UnknownJournal, Unreachable

    config = where.loaded().config
    if url is not None and where.address is not None:
        raise UsageFault("--url names a store, --address a council that is up: leave one of them out")
    with contextlib.ExitStack() as stack:
        if where.address is not None or (url is None and config.store == MEMORY):
            yield stack.enter_context(_running(where, report))
            return
        try:
            source = stack.enter_context(_stored(config.name, url, where))
        except (UnknownJournal, StoreUnreachable, StoreOutdated) as error:
            if url is not None:
                raise
            if config.ray_address is None and known.running(config.name) is None:
                # If there is no store at all, its error says what to do.
                more = "; no council of this name is up either: name another with --name"
                message = error.message + (more if isinstance(error, UnknownJournal) else "")
                raise Unreachable(message, name=config.name) from error
            report.note("the store has no record of it: asking the running council")
            source = stack.enter_context(_running(where, report))
        yield source


@contextlib.contextmanager
def _stored(name: str, url: str | None, where: Where) -> Iterator[HistorySource]:
    from council.journal import history
    from council.journal.entries import wanted

    def page(asked: Asked) -> HistoryPage:
        return history.page(store.database, name, wanted(asked))

    def packets(given: str) -> list[dict[str, Any]]:
        from council.journal import cognition, episodes

        proposal_id, records = episodes.read(episodes.records(given), page)
        return cognition.packets_of(store, name, proposal_id, records, datetime.now(UTC))

    with store_opened(url, where, journal=name, read_only=True) as store:
        page({"limit": 1})  # or there is no such journal
        yield HistorySource(
            name,
            store.where,
            page,
            lambda: history.records(store.database, name),
            packets,
        )


@contextlib.contextmanager
def _running(where: Where, report: Report) -> Iterator[HistorySource]:
    with opened(where, report, sole="running") as (council, _):
        where_it_is = "the council that is up"
        yield HistorySource(
            council.name, where_it_is, lambda asked: council.history(**asked), council=council
        )
