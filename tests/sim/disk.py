"""The disk of a simulated council: its journal as real rows, its epochs, its snapshots. Knows no rules of councils.

What is handed to it is there for good; a shell hands over what has been synced, and after a crash some prefix of
what was not. The rows are read a second time here, by hand: chain, place, lineage (rules 4.3, 4.5, 4.6).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Any

from council.journal.chain import Head, JournalRow, content_hash, row_hash
from council.journal.packets import Descent, unpacked
from council.journal.record import Record, Snapshot
from council.journal.rows import Prepared
from council.protocol.errors import EpochFenced
from tests.sim.compare import hold


class Disk:
    """One council's. ``full`` while it has no room."""

    def __init__(self) -> None:
        self.rows: list[JournalRow] = []
        self.snapshots: list[tuple[Snapshot, float]] = []  # each with the uptime at which it was taken
        self.epoch = 0
        self.full = False
        self._lines: dict[str, tuple[int, str]] = {}
        self._places: dict[str, int] = {}
        self._names: dict[str, str] = {}  # the packets of messages, by their ids
        self._last = bytes(32), 0

    @property
    def position(self) -> int:
        return len(self.rows)

    @property
    def head(self) -> Head:
        return Head(self.rows[-1].position, self.rows[-1].row_hash) if self.rows else Head()

    def begin_epoch(self) -> int:
        """A newer coordinator begins; from now on no older one writes."""
        self.epoch += 1
        return self.epoch

    def append(self, epoch: int, after: Head, transaction: Sequence[Prepared]) -> Head:
        """Keeps a transaction, the whole of it. Raises EpochFenced for a coordinator that was replaced."""
        if epoch != self.epoch:
            raise EpochFenced(f"epoch {self.epoch} writes now, not {epoch}", epoch=epoch, newest=self.epoch)
        hold(
            "4.6", after == self.head, f"epoch {epoch} writes behind {after}, the journal ends at {self.head}"
        )
        for packet in transaction:
            position, previous = self.head
            hashed = content_hash(packet.content)
            own = row_hash(previous, position + 1, epoch, hashed)
            row = JournalRow(position + 1, epoch, previous, hashed, own, packet.content)
            self._read(row, packet)
            self.rows.append(row)
        return self.head

    def _read(self, row: JournalRow, packet: Prepared) -> None:
        """Holds a row against the rules as they are read here."""
        previous, epoch = self._last
        place = row.position.to_bytes(8, "big") + row.epoch.to_bytes(8, "big")
        own = sha256(previous + place + sha256(row.content).digest()).digest()
        hold("4.5", row.row_hash == own, f"record {row.position} does not hold on to those before it")
        hold("4.6", row.epoch >= epoch, f"record {row.position} is of epoch {row.epoch}, after {epoch}")
        self._last = own, row.epoch
        told: dict[str, Any] = json.loads(row.content)
        canonical = json.dumps(told, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
        hold("4.5", canonical == row.content, f"record {row.position} is not in its canonical bytes")
        name, lineage = told["packet_id"], told.get("lineage", {})
        hold("4.2", name not in self._lines, f"packet {name} is kept twice, also at {row.position}")
        parents = lineage.get("parent_ids", [])
        missing = [parent for parent in parents if parent not in self._lines]
        hold("4.3", not missing, f"record {row.position} derives from {missing}, which are not kept")
        lines = [self._lines[parent] for parent in parents]
        line = (1 + max(line[0] for line in lines), lines[0][1]) if lines else (0, name)
        said = lineage.get("generation", 0), lineage.get("root_packet_id", name)
        hold("4.3", said == line, f"record {row.position} says of its line {said}, it is {line}")
        self._check_parents(row.position, told, parents)
        columns = (packet.packet_id, packet.parent_ids)
        hold("4.3", columns == (name, tuple(parents)), f"record {row.position} has the columns {columns}")
        self._lines[name] = line
        self._places[name] = row.position

    def _check_parents(self, position: int, told: dict[str, Any], parents: list[str]) -> None:
        """A decision derives from its proposal, its ballots, its ruling and its answer (rules 4.3)."""
        payload, name = told["payload"], told["packet_id"]
        if payload.get("msg_id"):
            self._names[payload["msg_id"]] = name
        for decision in payload.get("decisions", ()):
            acts = [*decision["ballots"], decision["ruling"], decision["answer"]]
            wanted = [decision["proposal_id"], *(act["msg_id"] for act in acts if act)]
            missing = {self._names.get(each) for each in wanted} - {name, *parents}
            hold("4.3", not missing, f"record {position} decides and does not derive from {missing}")

    def decided(self, part: int) -> bytes:
        """A part of the decided proposals, as a snapshot has it."""
        found = [each.added[part][1] for each, _ in self.snapshots if part in each.added]
        hold("1.12", len(found) == 1, f"a decision left memory for part {part}, which is not kept")
        return found[0]

    def lines(self, ids: Collection[str]) -> dict[str, Descent]:
        """Where packets that are kept stand in their lines."""
        return {each: Descent(*self._lines[each]) for each in ids if each in self._lines}

    def records(self, after: int = 0) -> list[Record]:
        """What is kept behind position ``after``, as a coordinator that starts reads it."""
        return [unpacked(row.content, row.position).record for row in self.rows[after:]]

    def sealed(self, packet: str) -> bytes:
        """The envelope that brought the record which is this packet."""
        position = self._places[packet]
        sealed = unpacked(self.rows[position - 1].content, position).record.sealed
        assert sealed is not None
        return sealed
