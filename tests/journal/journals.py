"""Journals for tests: what a council went through, as the durable writer keeps it, without a coordinator."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from council.journal.packets import Descent, Packer, StoredRecord, unpacked
from council.journal.record import Record
from council.journal.store import PacketStore
from tests.runtime.harness import COUNCIL_ID, Hand

NAME = "test"


def nothing(ids: Collection[UUID]) -> Mapping[UUID, Descent]:
    return {}


class Drawn(Hand):
    """A hand whose ids look like those of real councils: no two begin alike."""

    def new_id(self) -> str:
        return hashlib.sha256(super().new_id().encode()).hexdigest()[:16]


def begun(*seats: str, **rules: Any) -> Hand:
    """A driver in hand whose coordinator has started, as each journal begins."""
    rules.setdefault("inactivity_limit_s", 10_000.0)  # nobody beats here
    hand = Drawn(seats, **rules) if seats else Drawn(**rules)
    hand.driver.begin(1, hand.rules, hand.now)
    hand.save()
    return hand


def fill(store: PacketStore, records: Sequence[Record], name: str = NAME) -> None:
    """Puts these records into a journal of that name."""
    packer = Packer(COUNCIL_ID, nothing)
    epoch, head = store.begin_epoch(name, "a test")
    store.append_rows(name, epoch, [packer.packed(record) for record in records], head)


def kept(records: Sequence[Record]) -> list[StoredRecord]:
    """These records as they are read back."""
    packer = Packer(COUNCIL_ID, nothing)
    return [unpacked(packer.packed(record).content, record.position) for record in records]


def life() -> tuple[Hand, dict[str, str]]:
    """A council with something of everything, and the ids of its proposals by what became of them."""
    hand = begun()
    ids = {}

    def votes(proposal_id: str, **said: str) -> None:
        for seat, vote in said.items():
            hand.t, hand.wall = hand.t + 0.125, hand.wall + 0.125
            hand.receive(hand.vote(seat, proposal_id, vote))

    ids["approved"] = hand.propose(summary="Rotate the staging key", body="Old: 2019.\nNew: today.")
    votes(ids["approved"], prime="yes", lite="yes", codemind="no")  # codemind is late
    ids["rejected"] = hand.propose(summary="Drop the table", risk_level="med")
    votes(ids["rejected"], prime="no", lite="yes", codemind="no")
    ids["ruled"] = hand.propose(summary="Pay the invoice", risk_level="high", time_budget_s=30.0)
    votes(ids["ruled"], prime="yes", lite="yes", codemind="yes")
    hand.receive(hand.ruling(ids["ruled"], "reject"))
    ids["answered"] = hand.propose(summary="Open the door", risk_level="high")
    votes(ids["answered"], prime="yes", lite="no", codemind="yes")
    hand.receive(hand.ruling(ids["answered"], "human"))
    hand.wait(3_700)
    hand.receive(hand.info("ada", ids["answered"], "answer", "I was there", approve=True))
    ids["lost"] = hand.propose(summary="Nobody is there")
    votes(ids["lost"], prime="yes")
    hand.wait(61)
    hand.save()
    ids["revised"] = hand.propose(summary="Ship it")
    ids["revision"] = hand.propose(summary="Ship half of it", supersedes=ids["revised"])
    hand.receive(hand.unreadable_vote("lite", ids["revision"]))
    hand.receive(hand.sealed(hand.envelope("client", "INFO", {"kind": "note"}), key=bytes(32)))  # forged
    votes(ids["revision"], prime="no", lite="yes")
    hand.driver.seat_died("codemind", hand.driver.boot("codemind"), "its actor died", hand.now)
    hand.save()
    ids["open"] = hand.propose(summary="Still at it")
    return hand, ids
