"""Prints a command's result and errors, and makes its exit code (``options.EXIT_CODES``)."""

from __future__ import annotations

import codecs
import contextlib
import functools
import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from council.kinds.text import clean

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from council.core.state import Decision

DONE, REJECTED, USAGE, UNDECIDED, UNREACHABLE, FAULT, UNWRITABLE = 0, 1, 2, 3, 4, 70, 74
INTERRUPTED, TERMINATED = 130, 143
# Lines longer than this are hard to read, however wide the terminal is.
COLUMNS_MAX = 110


class UsageFault(Exception):
    """The command line is wrong. The message says what is wrong, and what to do."""


class Interrupted(Exception):
    """The command was interrupted. The message says whether its proposal is cancelled, decided or still open."""

    def __init__(self, message: str, code: int = INTERRUPTED) -> None:
        super().__init__(message)
        self.code = code


class Unwritable(Exception):
    """The standard output can't be written, so the command's result is lost."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the output can't be written: {why}; the command's result is lost")


def decision_code(decision: Decision) -> int:
    """The exit code that a decision makes."""
    if decision.outcome == "approved":
        return DONE
    return REJECTED if decision.outcome in ("rejected", "cancelled") else UNDECIDED


def error_code(error: BaseException) -> int:
    """The exit code that an error makes."""
    from council.protocol import errors

    match error:
        case Interrupted(code=code):
            return code
        case Unwritable():
            return UNWRITABLE
        case errors.NoAnswer() if "proposal_id" in error.facts:
            return UNDECIDED  # the council may still decide it
        case errors.TooManyOpen():
            return UNDECIDED  # it was reached, and says: later
        case errors.Refused(code="already_answered" | "closed"):
            return REJECTED  # well-formed, but too late
        case UsageFault() | errors.CallerError() | errors.ConfigError() | errors.MindError():
            return USAGE
        case errors.NameTaken():
            return USAGE
        case errors.OperatorError():
            return UNREACHABLE
    return FAULT


class Report:
    """Prints results on the standard output, and everything else on the standard error.

    With ``as_json`` the output is one JSON document and nothing else, also for an error.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    @functools.cached_property
    def out(self) -> Console:
        """The console of results."""
        return _console(stderr=False)

    @functools.cached_property
    def notes(self) -> Console:
        """The console of progress and remarks."""
        return _console(stderr=True)

    def can_ask(self) -> bool:
        """Whether somebody can be asked: on a terminal, and not for a JSON document."""
        return not self.as_json and sys.stdin is not None and sys.stdin.isatty() and self.notes.is_terminal

    def result(self, document: Mapping[str, Any], shown: RenderableType | None, code: int = DONE) -> int:
        """Prints the result, and returns ``code``."""
        if self.as_json:
            self.print_json({**document, "exit_code": code})
        elif isinstance(shown, str):  # a reader gets a sentence on one line
            self.print(shown, soft_wrap=not self.out.is_terminal)
        elif shown is not None:
            self.print(shown)
        return code

    def print(self, shown: RenderableType, **how: Any) -> bool:
        """Prints on the output, a str as harmless text. False if the reader has closed it, which is not an error."""
        if isinstance(shown, str):
            shown, how = clean(shown), {**how, "markup": False}
        return _write(lambda: self.out.print(shown, **how))

    def print_json(self, document: Mapping[str, Any]) -> bool:
        """Writes a document as one line, in ASCII, so that nothing in it can act on a terminal."""
        text = json.dumps(document, ensure_ascii=True, allow_nan=False, default=str)
        return _write(lambda: sys.stdout.write(f"{text}\n"))

    def note(self, text: str) -> None:
        """Prints a remark beside the result; ``text`` may hold foreign text."""
        self.print_note(clean(text), style="dim")

    def error(self, error: BaseException, code: int | None = None) -> int:
        """Prints an error, and returns its exit code, or ``code`` if it is given."""
        code = error_code(error) if code is None else code
        is_ours = code == FAULT and not hasattr(error, "code")
        message = f"{type(error).__name__}: {error}" if is_ours else str(error)
        if self.as_json and not isinstance(error, Unwritable):
            document = {
                "code": _name(error, code),
                "type": type(error).__name__,
                "message": message,
                "facts": dict(getattr(error, "facts", None) or {}),
            }
            try:
                self.print_json({"error": document, "exit_code": code})
            except Unwritable as lost:
                self.note(str(lost))
        if not message:
            return code  # the help was printed instead
        if code == FAULT:
            message = (
                f"a fault of the council's own: {message}; council --debug … shows where; please report it"
            )
        from rich.text import Text

        interrupted = isinstance(error, Interrupted)
        head = ("interrupted: ", "bold yellow") if interrupted else ("error: ", "bold red")
        self.print_note(Text.assemble(head, clean(message)))
        return code

    def print_note(self, text: str | Text, style: str = "") -> None:
        """Prints harmless text, wrapped by words on a terminal and in one line elsewhere."""
        with contextlib.suppress(BrokenPipeError):  # its reader has closed it
            self.notes.print(text, style=style, markup=False, soft_wrap=not self.notes.is_terminal)


def judged(command: Callable[..., int]) -> Callable[..., int]:
    """A command that exits 1 if the journal, a checkpoint or a proof does not hold, as council doctor does."""

    @functools.wraps(command)
    def run(*, json: bool = False, **options: Any) -> int:
        from council.protocol.errors import CheckpointRefused, ProofRefused, StoreCorrupt

        try:
            return command(json=json, **options)
        except (StoreCorrupt, CheckpointRefused, ProofRefused) as error:
            return Report(as_json=json).error(error, REJECTED)

    return run


def _name(error: BaseException, code: int) -> str:
    if isinstance(error, Interrupted):
        return "interrupted"
    return str(getattr(error, "code", {USAGE: "usage", UNWRITABLE: "unwritable"}.get(code, "fault")))


def _write(write: Callable[[], object]) -> bool:
    """Writes on the output; False if its reader has closed it. Raises Unwritable."""
    if sys.stdout is None:
        raise Unwritable("it is closed")
    try:
        write()
        sys.stdout.flush()
    except OSError as error:
        # What Python still holds goes nowhere, so that its flush at the exit does not fail.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            return False
        raise Unwritable(error.strerror or str(error)) from error
    return True


def flushed(code: int) -> int:
    """Flushes the output. Returns the exit code, which is ``code`` unless that fails."""
    if sys.stdout is None:
        return code
    try:
        _write(lambda: None)
    except Unwritable as error:
        return Report().error(error)
    return code


_UNENCODABLE = "council.ascii"
# Each is one column wide, as the sign is, so that a screen keeps its shape.
_SIGNS = dict.fromkeys("·–—−─━", "-") | {"…": "~", "│": "|", "→": ">", "•": "*", "“": '"', "”": '"'}
_SIGNS |= {"✓": "+", "✗": "x", "○": "o"}


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """For a locale without UTF-8: our own signs in ASCII, and any other character as its number."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    unencodable = error.object[error.start : error.end]
    said = (_SIGNS.get(char) or char.encode("ascii", "backslashreplace").decode() for char in unencodable)
    return "".join(said), error.end


def _console(*, stderr: bool) -> Console:
    from rich.console import Console, ConsoleDimensions

    class Ours(Console):
        @property
        def size(self) -> ConsoleDimensions:
            """As it is now: a terminal may be made wider and narrower while it is drawn on."""
            found = super().size
            return ConsoleDimensions(min(found.width, COLUMNS_MAX), found.height)

        @size.setter
        def size(self, size: tuple[int, int]) -> None:
            self._width, self._height = size

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich itself would end the process with code 1

    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
        codecs.register_error(_UNENCODABLE, _in_ascii)
        stream.reconfigure(errors=_UNENCODABLE)
    return Ours(stderr=stderr, highlight=False, emoji=False)
