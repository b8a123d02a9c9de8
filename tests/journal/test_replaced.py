"""A coordinator that was replaced and does not know it yet: what it says last is not put over what came after."""

from __future__ import annotations

import asyncio
from pathlib import Path

from council.journal.checkpoint import Checkpoint
from council.journal.store import PacketStore
from council.journal.writer import DurableJournal
from tests.journal.journals import begun
from tests.runtime.harness import COUNCIL_ID, Hand

KEY = bytes(32)


def test_a_replaced_coordinator_leaves_the_checkpoint_of_its_successor(tmp_path: Path) -> None:
    """Found by chaos: a council could be cut back to where the old one ended, and nothing would have told it."""
    file = tmp_path / "checkpoint"

    def opened(takeover: bool) -> DurableJournal:
        store = PacketStore.open(str(tmp_path / "store.db"))
        return DurableJournal.open(store, "test", COUNCIL_ID, KEY, checkpoint=file, takeover=takeover)

    async def succeeded() -> None:
        hand = begun()
        old = opened(takeover=False)
        await old.append(hand.records)
        new = opened(takeover=True)
        new.recover(Hand(inactivity_limit_s=10_000.0).driver)
        await new.close()
        assert Checkpoint.read(file).epoch == 2
        await old.close()

    asyncio.run(succeeded())
    assert Checkpoint.read(file).epoch == 2
