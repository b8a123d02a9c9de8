"""Keeps the cognition packets that seats send, redacted, in the store beside the journal.

A packet that can't be kept is logged, and costs nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from council.agents.messaging.logs import get_logger
from council.journal.record import SeatPacket
from council.journal.store import PacketStore

log = get_logger("council.packets")

WAITING_MAX = 1_000  # packets that wait to be redacted; one more is not kept


class PacketKeeper:
    """Redacts and writes the packets of one journal's council, on a thread of its own."""

    def __init__(self, store: PacketStore, journal: str) -> None:
        self._store = store
        self._journal = journal
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"packets-{journal}")
        self._slots = threading.BoundedSemaphore(WAITING_MAX)

    def keep(self, packet: SeatPacket) -> None:
        """Has a packet kept. Does not block."""
        if self._slots.acquire(blocking=False):
            self._executor.submit(self._keep, packet)
        else:
            self._lost(packet, f"{WAITING_MAX:,} others wait already")

    def _keep(self, packet: SeatPacket) -> None:
        from council.journal.cognition import kept_packet, redacted_packet
        from council.protocol.cognition import CognitionPacket

        try:
            whole = redacted_packet(CognitionPacket.from_json(packet.text))
            (result,) = self._store.write([kept_packet(self._journal, packet, whole)], datetime.now(UTC))
        except Exception as error:  # noqa: BLE001 - nobody waits for its result
            self._lost(packet, str(error))
        else:
            if result.error_message is not None:
                self._lost(packet, result.error_message)
        finally:
            self._slots.release()

    def _lost(self, packet: SeatPacket, why: str) -> None:
        log.warning("packet not kept", seat=packet.seat, proposal=packet.proposal_id, why=why)

    async def packets(self, proposal_id: str) -> list[dict[str, Any]]:
        """The packets of a proposal, with all that was to be kept before. Raises StoreError."""
        from council.journal.cognition import packets_of

        return await asyncio.get_running_loop().run_in_executor(
            self._executor, packets_of, self._store, self._journal, proposal_id, datetime.now(UTC)
        )

    def close(self) -> None:
        """Returns once all is written. Blocks."""
        self._executor.shutdown()
