"""Reads the keys that are pressed at a terminal, by name, without blocking."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import termios
import tty
from collections.abc import Callable, Iterator

# A terminal sends a sequence at once. An Escape with nothing after it for this long is the key itself.
ESCAPE_S = 0.05
QUIT = "q"
_SEQUENCE = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]")
_UNFINISHED = re.compile(rb"\x1b(?:[\[O][0-9;]*)?")
_SEQUENCES = {b"A": "up", b"B": "down", b"C": "right", b"D": "left", b"H": "home", b"F": "end"}
_SEQUENCES |= {b"5~": "page up", b"6~": "page down", b"1~": "home", b"4~": "end"}
_BYTES = {b"\r": "enter", b"\n": "enter", b" ": "page down", b"\x7f": "left", b"\x08": "left", b"\x03": QUIT}
_BYTES |= {b"q": QUIT, b"Q": QUIT, b"k": "up", b"j": "down"}


class Decoder:
    """Names the keys in the bytes of a terminal. Unknown sequences are dropped."""

    def __init__(self) -> None:
        self._held = b""

    def keys(self, data: bytes) -> list[str]:
        """The keys in ``data``, which follows what came before. An unfinished sequence is held back."""
        self._held += data
        found = list[str]()
        while self._held and not _UNFINISHED.fullmatch(self._held):
            sequence = _SEQUENCE.match(self._held)
            taken = sequence[0] if sequence else self._held[:1]
            self._held = self._held[len(taken) :]
            name = "escape" if taken == b"\x1b" else _BYTES.get(taken) or _SEQUENCES.get(taken[2:])
            found += [name] if name else []
        return found

    def rest(self) -> list[str]:
        """The key that was held back, once nothing follows it: Escape, or none."""
        held, self._held = self._held, b""
        return ["escape"] if held == b"\x1b" else []


@contextlib.contextmanager
def keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Calls ``pressed`` with each key, on the running loop, if the standard input is a terminal.

    The end of the input counts as ``QUIT``. The terminal is restored at the end.
    """
    if not sys.stdin.isatty():
        yield
        return
    descriptor, decoder = sys.stdin.fileno(), Decoder()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def told(names: list[str]) -> None:
        for name in names:
            pressed(name)

    def readable() -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
        try:
            data = os.read(descriptor, 1024)
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            loop.remove_reader(descriptor)
            pressed(QUIT)
        told(decoder.keys(data))
        timer = loop.call_later(ESCAPE_S, lambda: told(decoder.rest()))

    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, readable)
        yield
    finally:
        loop.remove_reader(descriptor)
        if timer is not None:
            timer.cancel()
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
