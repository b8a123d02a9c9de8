"""Reads what a proposal's OMEN episode is derived from: its own records, and those that show how its runs ended."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from council.core.state import escalated_by
from council.governance.from_council import episode_of
from council.journal.entries import PAGE_MAX, Asked, Entry, HistoryPage
from council.protocol.errors import Refused
from council.protocol.omen import Packet

T = TypeVar("T")
Queries = Generator[Asked, HistoryPage, T]


def episode(given: str) -> Queries[list[Packet]]:
    """Yields the queries of a history, is sent their pages, and returns the episode of the proposal ``given``.

    ``given`` is the proposal's id or begins it. Raises Refused if the records of its beginning are not kept.
    """
    proposal_id, entries = yield from records(given)
    return episode_of(proposal_id, entries)


def records(given: str) -> Queries[tuple[str, list[Entry]]]:
    """Like ``episode``, but returns the proposal's id and the records that its episode is derived from."""
    entries = yield from _pages({"proposal": given})
    start, _ = escalated_by(given.lower())
    own = (each.proposal_id for each in entries if each.kind == "proposal" and each.proposal_id is not None)
    proposal_id = next((each for each in own if each.startswith(start)), None)
    if proposal_id is None:
        raise Refused(
            f"the record of the submission of {start} is not kept, so its episode can't be told",
            code="not_kept",
            proposal_id=start,
        )
    entries += yield from _ends_of_runs(entries, proposal_id)
    unique = {each.position: each for each in entries}
    return proposal_id, [unique[position] for position in sorted(unique)]


def read(queries: Queries[T], page: Callable[[Asked], HistoryPage]) -> T:
    """The result of ``queries``, whose pages ``page`` returns."""
    try:
        asked = next(queries)
        while True:
            asked = queries.send(page(asked))
    except StopIteration as done:
        result: T = done.value
        return result


def _pages(asked: Asked) -> Queries[list[Entry]]:
    """All entries, oldest first."""
    found: list[Entry] = []
    cursor = asked.get("cursor")
    while True:
        page = yield {**asked, "newest_first": False, "limit": PAGE_MAX, "cursor": cursor}
        found += page
        cursor = page.cursor
        if cursor is None:
            return found


def _ends_of_runs(entries: list[Entry], proposal_id: str) -> Queries[list[Entry]]:
    """What its executors did after each use that has no result: a later run of theirs shows that it never comes."""
    reported = {each.data["result"]["use_id"] for each in entries if each.kind == "result"}
    found: list[Entry] = []
    for each in entries:
        request = each.data["request"] if each.kind == "use" else None
        if request is None or request["proposal_id"] != proposal_id or request["use_id"] in reported:
            continue
        found += yield from _pages(
            {"seat": request["executor"], "types": ["executor", "use"], "cursor": each.position}
        )
    return found
