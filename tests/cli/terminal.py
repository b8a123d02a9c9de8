"""A pseudo-terminal of any size with a process on it: what it draws, keys for it, and whether it was restored."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any, Self

from tests.patience import HANG_S

ROOT = Path(__file__).parent.parent.parent
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[=>])")


class Terminal:
    """Runs ``python -m`` with these arguments on a terminal of ``columns`` and ``lines``."""

    def __init__(self, *arguments: str, columns: int, lines: int = 30, **variables: str) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(columns, lines, tell=False)
        self.before = termios.tcgetattr(self._slave)
        # COLUMNS and LINES would be taken for the terminal's size.
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**kept, "TERM": "xterm", "NO_COLOR": "1", "PYTHONPATH": str(ROOT), **variables},
            start_new_session=True,
        )
        self.written = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(HANG_S)
        os.close(self._master)
        os.close(self._slave)

    def resize(self, columns: int, lines: int = 30, *, tell: bool = True) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def read(self, within_s: float = 0.0) -> None:
        """Takes what was written, and waits that long for it."""
        while select.select([self._master], [], [], within_s)[0]:
            self.written += os.read(self._master, 65_536).decode()
            within_s = 0.0

    def frame(self) -> list[str]:
        """The lines of the newest picture that was drawn whole: from one move to the corner to the next."""
        frames = self.written.split("\x1b[H")
        whole = frames[-2] if len(frames) > 2 else ""
        return [_CONTROL.sub("", each) for each in re.split(r"\r*\n", whole)]

    def see(self, *texts: str, columns: int | None = None) -> list[str]:
        """The first picture with all these texts, and of that width."""
        ends_s = time.monotonic() + HANG_S
        while True:
            self.read(0.05)
            found = self.frame()
            shown = "\n".join(found)
            fits = columns is None or {len(each) for each in found} == {columns}
            if fits and all(text in shown for text in texts):
                return found
            assert time.monotonic() < ends_s, f"{texts} not in:\n{shown}"
            assert self.process.poll() is None, f"it ended: {self.written[-2_000:]}"

    def see_written(self, text: str) -> None:
        """Waits until that was written."""
        ends_s = time.monotonic() + HANG_S
        while text not in self.written:
            self.read(0.05)
            assert time.monotonic() < ends_s, f"{text} not in:\n{self.written}"

    def ended(self) -> int:
        """The exit code, once the process has ended."""
        ends_s = time.monotonic() + HANG_S
        while self.process.poll() is None:
            self.read(0.05)
            assert time.monotonic() < ends_s, f"it does not end: {self.frame()}"
        self.read(0.0)
        return int(self.process.returncode)

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def left_as_found(self) -> bool:
        """Whether the own screen was left, the cursor is shown, and keys are read by lines as before."""
        with contextlib.suppress(ValueError):
            left = self.written.rindex("\x1b[?1049l") > self.written.rindex("\x1b[?1049h")
            shown = self.written.rindex("\x1b[?25h") > self.written.rindex("\x1b[?25l")
            return left and shown and self.settings() == self.before
        return False
