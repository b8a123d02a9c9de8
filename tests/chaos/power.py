"""Power cuts: a VFS records what a council writes and syncs, and files are made as a cut would leave them.

What was synced is there. Of what was written since, a cut leaves any sectors: all, none, the first ones, or some.
The same council with synchronous=NORMAL is cut as well, and must be seen to lose: else this could not tell.
"""

from __future__ import annotations

import asyncio
import copy
import os
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from council.api import inline
from council.protocol.errors import StoreError
from tests.chaos import recording
from tests.chaos.ledger import JOURNAL, Ledger, Round
from tests.chaos.load import Load, config
from tests.chaos.sqlite import finish

CUTS_PER_LIFE = 150
PROPOSALS = 150
# The cuts of every so many are taken up by a council, which must go on; all are verified and compared.
GOES_ON = 50
CONTROL = 10
SECTOR = 512


@dataclass
class File:
    """One file under power: what is surely on its disk, and the writes that a cut may take."""

    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[recording.Op] = field(default_factory=list)

    def take(self, op: recording.Op) -> None:
        if op.kind != "sync":
            self.unsynced.append(op)
            return
        for each in self.unsynced:
            _apply(self.synced, each)
        self.unsynced.clear()

    def after_cut(self, chance: random.Random, how: str) -> bytes:
        """What is there when the power is back."""
        found = bytearray(self.synced)
        sectors = [sector for op in self.unsynced for sector in _sectors(op)]
        if how == "prefix":
            sectors = sectors[: chance.randrange(len(sectors) + 1)]
        elif how != "all":
            likely = 0.0 if how == "none" else chance.random()
            sectors = [each for each in sectors if chance.random() < likely]
        for each in sectors:
            _apply(found, each)
        return bytes(found)


def _sectors(op: recording.Op) -> Iterator[recording.Op]:
    if op.kind == "truncate":
        yield op
        return
    at = 0
    while at < len(op.data):
        upto = min(len(op.data), at + SECTOR - (op.offset + at) % SECTOR)
        yield op._replace(offset=op.offset + at, data=op.data[at:upto])
        at = upto


def _apply(content: bytearray, op: recording.Op) -> None:
    if op.kind == "truncate":
        del content[op.offset :]
        return
    if len(content) < op.offset:
        content.extend(bytes(op.offset - len(content)))
    content[op.offset : op.offset + len(op.data)] = op.data


class Life(NamedTuple):
    """A council's life, as its disk and its clients saw it; ``begun`` is where its store was ready."""

    log: list[recording.Op | tuple[Any, ...]]
    begun: int


def lived(folder: Path, seed: int, synchronous: str) -> Life:
    """Has a council decide over a recorded disk; what its clients are told stands in the log between the writes."""
    store = folder / f"power-{synchronous}-{seed}.db"
    log: list[recording.Op | tuple[Any, ...]] = []

    async def live() -> int:
        settings = config(str(store))
        coordinator = await inline.start(settings)
        begun = len(log)
        load = Load(coordinator, settings, lambda *what: log.append(what), in_flight=3)
        await load.open()
        await load.run(iter(range(seed * 1000, seed * 1000 + PROPOSALS)))
        await coordinator.close()
        return begun

    with recording.recorded(log, synchronous):
        return Life(log, asyncio.run(live()))


def run(count: int, seed: int, folder: Path) -> Round:
    result = Round("power")
    _cuts(result, count, seed, folder, "FULL")
    control = Round("control")
    _cuts(control, max(CONTROL, count // CONTROL), seed, folder, "NORMAL")
    hit = control.notes["cuts that lost"]
    assert hit, "synchronous=NORMAL lost nothing: this harness can't tell what is durable"
    result.notes[f"of {control.kills} cuts with synchronous=NORMAL, lost in"] = hit
    return result


def _cuts(result: Round, count: int, seed: int, folder: Path, synchronous: str) -> None:
    chance = random.Random(seed)
    while result.kills < count:
        life = lived(folder, seed, synchronous)
        some = min(CUTS_PER_LIFE, count - result.kills)
        at = sorted(chance.sample(range(life.begun, len(life.log)), some))
        _cut(result, life, at, chance, folder)
        seed += 1


def _cut(result: Round, life: Life, at: list[int], chance: random.Random, folder: Path) -> None:
    files, ledger, done = {"": File(), "-wal": File()}, Ledger(), 0
    for cut in at:
        for entry in life.log[done:cut]:
            if not isinstance(entry, recording.Op):
                ledger.note(*entry)
            elif entry.suffix in files:
                files[entry.suffix].take(entry)
                result.notes["syncs of the database itself"] += (entry.suffix, entry.kind) == ("", "sync")
        done = cut
        how = chance.choice(("all", "none", "prefix", "some"))
        result.notes[f"left {how} of what was not synced"] += 1
        store = folder / "cut.db"
        for suffix, file in files.items():
            Path(f"{store}{suffix}").write_bytes(file.after_cut(chance, how))
        _compare(result, ledger, store)
        result.kills += 1
    result.acknowledged += len(ledger.final)
    result.escalations += len(ledger.standing)


def _compare(result: Round, ledger: Ledger, store: Path) -> None:
    found = Round("cut")
    try:
        if result.kills % GOES_ON == 0 and result.kind == "power":
            finish(
                str(store), copy.deepcopy(ledger), found
            )  # what it goes on to is told in that future alone
            result.notes["taken up again"] += 1
        else:
            ledger.compare(str(store), JOURNAL, found)
    except (StoreError, sqlite3.Error) as error:
        told = sorted(ledger.final.keys() | ledger.standing)
        found.lost += [f"{each}: what the cut left can't be read ({error})" for each in told]
    result.lost += found.lost
    result.duplicated += found.duplicated
    result.changed += found.changed
    if found.lost:
        result.notes["cuts that lost"] += 1
    for suffix in ("", "-wal", "-shm"):
        Path(f"{store}{suffix}").unlink(missing_ok=True)
    for each in store.parent.glob(f"{store.name}.*.lock"):
        os.unlink(each)
