"""Durable journals for tests: real stores, a driver that is handed their records, and what tells drivers apart."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from council.core.state import CouncilState
from council.journal.packets import unpacked
from council.journal.record import Record
from council.journal.store import PacketStore
from council.journal.writer import DurableJournal
from council.runtime.archive import named_in
from council.runtime.driver import Driver
from tests.journal.conftest import raw
from tests.runtime.harness import COUNCIL_ID, WALL_0, key_of, none_decided, run
from tests.sim.compare import entries

NAME = "test"
KEY = bytes(range(32))


def opened(address: str, *, key: bytes = KEY, timeout_s: float = 1.0, **options: Any) -> DurableJournal:
    store = PacketStore.open(address, timeout_s=timeout_s)
    return DurableJournal.open(store, NAME, COUNCIL_ID, key, **options)


@contextlib.contextmanager
def journal_of(address: str, **options: Any) -> Iterator[DurableJournal]:
    journal = opened(address, **options)
    try:
        yield journal
    finally:
        journal.close_now()


def write(journal: DurableJournal, records: Sequence[Record]) -> None:
    """Has them kept, and waits for it."""

    async def appended() -> None:
        await journal.append(records)

    run(appended())


def fresh(rules: Any, decided: Callable[[int], bytes] = none_decided) -> Driver:
    """A driver that knows nothing yet."""
    ids = iter(range(1, 10**9))
    driver = Driver(
        rules,
        COUNCIL_ID,
        {name: key_of(name) for name in rules.seats},
        (0.0, WALL_0),
        new_id=lambda: f"{next(ids):016x}",
        humans={"ada": key_of("ada")},
        decided=decided,
    )
    driver.join("client", "proposer", key_of("client"))
    return driver


def recovered(address: str, rules: Any, **options: Any) -> Driver:
    """What a coordinator that starts now would know, and what it can read back."""
    with journal_of(address, **options) as journal:
        driver = fresh(rules, journal.decided)
        journal.recover(driver)
        for row in journal._store.records(NAME, 0, 10_000):
            for proposal_id in named_in(unpacked(row.content, row.position).record.event):
                if (away := driver.away(proposal_id)) is not None:
                    driver.take_back(away, driver.archive.fetch(away))
    return driver


def whole(driver: Driver) -> dict[str, Any]:
    """All that a driver knows and a journal keeps; heartbeats alone, and so the time of the last, are not."""
    state: CouncilState = driver.state
    return {
        "rules": state.rules,
        "ruled_from": state.ruled_from,
        "epoch": state.epoch,
        "seats": [(s.name, s.active, s.boot, s.why) for s in state.seats.values()],
        "open": list(state.open.items()),
        "closed": sorted(state.closed.items()),
        "with_human": state.with_human,
        "timers": sorted({(p.deadline_s, each) for each, p in state.open.items()} - set(state.timers)),
        "wall_timers": sorted(
            {(p.escalation.expires_wall_s, each) for each, p in state.open.items() if p.escalation}
            - set(state.wall_timers)
        ),
        "ids": entries(driver._ids),
        "proposers": driver.senders.proposers,
        "payloads": {each: driver.outbox.payloads[each] for each in state.open},
        "counts": {name: count for name, count in driver.announcements.counts.items() if count},
        "refused": {name: count for name, count in driver.refused.items() if count},
        "feed": driver.announcements.feed.position,
        "announced": driver.announcements.announced,
        "refusals": driver.announcements.refusals.now(),
        "position": driver.position,
    }


def locked(address: str) -> Any:
    """A connection that keeps the journal's writer out, until ``unlocked``."""
    connection = raw(address)
    if "://" in address:
        key = f"hashtextextended('council:journal:{NAME}', 0)"
        connection.execute("BEGIN")
        connection.execute(f"SELECT pg_advisory_xact_lock({key})")
    else:
        connection.execute("BEGIN IMMEDIATE")
    return connection


def unlocked(connection: Any) -> None:
    connection.execute("ROLLBACK")
    connection.close()


def unguarded(address: str, *statements: str) -> None:
    """Does what the store's triggers refuse, as whoever owns the database can."""
    connection = raw(address)
    if "://" in address:
        for table in ("packet_store", "epochs"):
            connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL")  # its foreign key's too
    else:
        names = (
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name IN ('packet_store', 'epochs')"
        )
        for (name,) in connection.execute(names).fetchall():
            connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(statement)
    connection.close()
