"""Sends a seat's heartbeats while its mind works (rules 1.10)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable

from council.agents.seat.outgoing import SeatSigner

# rules 1.10: a beat comes after 27 to 30 of 30 s, so that seats do not beat in step.
JITTER = 0.1


class HeartbeatSender:
    """The heartbeat of one seat, every ``interval_s`` seconds at most; ``busy_with`` gives what its mind works on.

    ``attend`` may run on another event loop than the one that ``close`` is called on.
    """

    def __init__(
        self,
        signer: SeatSigner,
        busy_with: Callable[[], str | None],
        uptime: Callable[[], float],
        interval_s: float,
    ) -> None:
        self._signer = signer
        self._busy_with = busy_with
        self._uptime = uptime
        self._interval_s = interval_s
        self._started_s = uptime()
        self._attendance: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def attend(self, boot: int, send: Callable[[bytes, str], Awaitable[None]]) -> None:
        """See ``SeatHost.attend``."""
        ended = asyncio.Event()
        attendance = asyncio.get_running_loop(), ended
        self._replace(attendance)
        for beat in itertools.count():
            busy_with = self._busy_with()
            sealed = self._signer.heartbeat(boot, beat, busy_with, self._uptime() - self._started_s)
            # Ray's dashboard shows this name. A seat that beats is active (rules 1.10).
            await send(sealed, f"heartbeat {self._signer.seat} #{beat} active{', busy' if busy_with else ''}")
            await _pause(self._interval_s * (1 - JITTER * random.random()), ended)
            if self._attendance is not attendance:
                return

    def close(self) -> None:
        """Ends the attendance."""
        self._replace(None)

    def _replace(self, attendance: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None) -> None:
        before, self._attendance = self._attendance, attendance
        if before is not None:
            loop, ended = before
            with contextlib.suppress(RuntimeError):  # a closed loop has no attendance to end
                loop.call_soon_threadsafe(ended.set)


async def _pause(seconds: float, ended: asyncio.Event) -> None:
    """Waits for ``seconds``, or until ``ended`` is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ended.wait(), seconds)
