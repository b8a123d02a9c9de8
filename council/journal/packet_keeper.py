"""Keeps the cognition packets that seats send, redacted, in the store beside the journal.

They change nothing, so like pieces of streams they are not journaled. One that can't be kept is logged.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from council.agents.messaging.logs import get_logger
from council.protocol.envelope import Envelope, Info

if TYPE_CHECKING:  # it loads SQLAlchemy, which a council without a store does without
    from council.journal.store import PacketStore

log = get_logger("council.packets")

WAITING_MAX = 1_000  # packets that wait to be redacted; one more is not kept


def is_packet(envelope: Envelope) -> bool:
    """Whether it is a seat's cognition packet, which is no event."""
    return isinstance(envelope.content, Info) and envelope.content.kind == "packet"


class PacketKeeper:
    """Redacts and writes the packets of one journal's council, on a thread of its own."""

    def __init__(self, store: PacketStore, journal: str) -> None:
        self._store = store
        self._journal = journal
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"packets-{journal}")
        self._slots = threading.BoundedSemaphore(WAITING_MAX)

    def keep(self, envelope: Envelope) -> None:
        """Has the packet in an envelope kept. Does not block."""
        if self._slots.acquire(blocking=False):
            self._executor.submit(self._keep, envelope)
        else:
            self._lost(envelope, f"{WAITING_MAX:,} others wait already")

    def _keep(self, envelope: Envelope) -> None:
        from council.journal.cognition import kept_packet  # its models cost each start some milliseconds

        try:
            (result,) = self._store.write([kept_packet(self._journal, envelope)], datetime.now(UTC))
            if result.error_message is not None:
                self._lost(envelope, result.error_message)
        except Exception as error:  # noqa: BLE001 - nobody waits for its result
            self._lost(envelope, str(error))
        finally:
            self._slots.release()

    def _lost(self, envelope: Envelope, why: str) -> None:
        log.warning("packet not kept", seat=envelope.sender, proposal=envelope.parent_id, why=why)

    def close(self) -> None:
        """Returns once all is written. Blocks."""
        self._executor.shutdown()
