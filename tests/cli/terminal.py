"""A pseudo-terminal of any size with a process on it: what it draws, keys for it, and whether it was restored."""

from __future__ import annotations

import codecs
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
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.patience import HANG_S, until

ROOT = Path(__file__).parent.parent.parent
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[=>])")

T = TypeVar("T")


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
        self._decoder = codecs.getincrementaldecoder("utf-8")()

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

    def read(self) -> None:
        """Takes what was written."""
        while select.select([self._master], [], [], 0.0)[0]:
            self.written += self._decoder.decode(os.read(self._master, 65_536))

    def frame(self) -> list[str]:
        """The lines of the newest picture that was drawn whole: from one move to the corner to the next."""
        frames = self.written.split("\x1b[H")
        whole = frames[-2] if len(frames) > 2 else ""
        return [_CONTROL.sub("", each) for each in re.split(r"\r*\n", whole)]

    def see(self, *texts: str, columns: int | None = None) -> list[str]:
        """The first picture with all these texts, and of that width."""

        def seen() -> list[str] | None:
            assert self.process.poll() is None, "it has ended"
            self.read()
            found = self.frame()
            fits = columns is None or {len(each) for each in found} == {columns}
            return found if fits and all(text in "\n".join(found) for text in texts) else None

        return self._until(seen, f"the terminal shows {texts}") or []

    def _until(self, what: Callable[[], T], said: str) -> T:
        try:
            return until(what, said)
        except AssertionError as error:
            raise AssertionError(f"{error}; last it wrote {self.written[-4_000:]}") from error

    def see_written(self, text: str) -> None:
        """Waits until that was written."""
        self._until(lambda: self.read() or text in self.written, f"{text} is written")

    def ended(self) -> int:
        """The exit code, once the process has ended."""

        def code() -> bool:
            self.read()
            return self.process.poll() is not None

        self._until(code, "it ends")
        self.read()
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
