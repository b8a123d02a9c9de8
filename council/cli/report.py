"""What a command leaves behind: its exit code, its document, its error. Knows nothing of councils' insides.

======  ==========================================================================================
 code   meaning
======  ==========================================================================================
   0    approved; or the command did what it was asked to
   1    rejected or cancelled; for ``doctor``: something does not work; for ``verify``, ``log``,
        ``show``, ``replay`` and ``store``: the journal or the store does not hold
   2    usage: an option, argument, configuration, mind, patch or range is wrong, or a name is taken
   3    not decided: it waits for a human, was deferred, no answer came in time, or the council has too
        much open and asks to be tried again
   4    the council, its Ray or its store can't be reached or used, or is of another version
  70    a fault of the council's own
  74    the output can't be written: what was to be told is lost, whatever it was
 130    interrupted (Ctrl-C); 143 on SIGTERM
======  ==========================================================================================
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
    """The command was called wrongly; says what is wrong, and what to do."""


class Interrupted(Exception):
    """The command was interrupted; says what became of what was open."""

    def __init__(self, message: str, code: int = INTERRUPTED) -> None:
        super().__init__(message)
        self.code = code


class Unwritable(Exception):
    """The standard output can't be written; what was to be said there is lost."""

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
        case UsageFault() | errors.CallerError() | errors.ConfigError() | errors.MindError():
            return USAGE
        case errors.NameTaken():
            return USAGE
        case errors.OperatorError():
            return UNREACHABLE
    return FAULT


class Report:
    """Where a command says things: results on the standard output, all else on the standard error.

    With ``as_json`` the output holds one JSON document and nothing else, an error's included.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._out: Console | None = None
        self._notes: Console | None = None

    @property
    def out(self) -> Console:
        """The console of results."""
        if self._out is None:
            self._out = _console(stderr=False)
        return self._out

    @property
    def notes(self) -> Console:
        """The console of progress and remarks."""
        if self._notes is None:
            self._notes = _console(stderr=True)
        return self._notes

    def result(self, document: Mapping[str, Any], shown: RenderableType | None, code: int = DONE) -> int:
        """Says what came of it, and returns ``code``."""
        if self.as_json:
            self.print_json({**document, "exit_code": code})
        elif shown is not None:
            self.print(shown)
        return code

    def print(self, shown: RenderableType, **how: Any) -> bool:
        """Prints on the output, a str as harmless text; False once whoever read it has enough, which is no error."""
        if isinstance(shown, str):
            shown, how = clean(shown), {**how, "markup": False}
        with _writing() as written:
            self.out.print(shown, **how)
        return not written.broken

    def print_json(self, document: Mapping[str, Any]) -> bool:
        """Writes a document as one line, in ASCII, so that nothing in it can act on a terminal."""
        text = json.dumps(document, ensure_ascii=True, allow_nan=False, default=str)
        with _writing() as written:
            sys.stdout.write(f"{text}\n")
        return not written.broken

    def note(self, text: str) -> None:
        """A remark beside the result; ``text`` may hold what came from outside."""
        self.print_note(clean(text), style="dim")

    def error(self, error: BaseException, code: int | None = None) -> int:
        """Says what went wrong, and returns the exit code of it: ``code``, where a command knows better."""
        code = error_code(error) if code is None else code
        if isinstance(error, Unwritable):
            self.as_json = False  # there is nowhere to put the document
        message = (
            str(error) if code != FAULT or hasattr(error, "code") else f"{type(error).__name__}: {error}"
        )
        if self.as_json:
            document = {
                "error": {
                    "code": _name(error, code),
                    "type": type(error).__name__,
                    "message": message,
                    "facts": dict(getattr(error, "facts", None) or {}),
                },
                "exit_code": code,
            }
            try:
                self.print_json(document)
            except Unwritable as lost:
                self.note(str(lost))
        if not message:
            return code  # what there was to say was said
        if code == FAULT:
            message = (
                f"a fault of the council's own: {message}; council --debug … shows where; please report it"
            )
        head = "interrupted" if isinstance(error, Interrupted) else "error"
        from rich.text import Text

        style = "bold yellow" if head == "interrupted" else "bold red"
        self.print_note(Text.assemble((f"{head}: ", style), clean(message)))
        return code

    def print_note(self, text: str | Text, style: str = "") -> None:
        """Prints harmless text; wrapped by words on a terminal, in one line where it goes to a log."""
        with contextlib.suppress(BrokenPipeError):  # nobody reads these any more
            self.notes.print(text, style=style, markup=False, soft_wrap=not self.notes.is_terminal)


def judged(command: Callable[..., int]) -> Callable[..., int]:
    """A command for which what does not hold is a finding, as a failed check of council doctor is: it exits 1."""

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


@dataclass(slots=True)
class _Written:
    """Whether whoever read the output has enough."""

    broken: bool = False


@contextlib.contextmanager
def _writing() -> Iterator[_Written]:
    """Around what is written on the output. Raises Unwritable where it can't be; a reader who left is no error."""
    if sys.stdout is None:
        raise Unwritable("it is closed")
    written = _Written()
    try:
        yield written
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        written.broken = True
    except OSError as error:
        _drop_output()
        raise Unwritable(error.strerror or str(error)) from error


def flushed(code: int) -> int:
    """Writes what is still held back; the exit code, ``code`` unless it could not be written."""
    if sys.stdout is None:
        return code
    try:
        with _writing():
            pass
    except Unwritable as error:
        return Report().error(error)
    return code


def _drop_output() -> None:
    """Sends what Python would still flush nowhere, so that it does not fail at the exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich itself would throw away the output too, and end the process with code 1

    console = Ours(stderr=stderr, highlight=False, emoji=False)
    if console.width > COLUMNS_MAX:
        console.width = COLUMNS_MAX
    return console
