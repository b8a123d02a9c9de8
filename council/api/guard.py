"""Puts a council in front of a function.

Arguments are shown in full to the seats, to readers of events and to humans, or the call is refused: an approval
covers only what was shown. A secret is shown as ``<hidden>``. A value whose only text is an address in memory is
refused, unless ``describe`` says in words what the call does.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import string
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar, get_type_hints, overload

from pydantic import Secret, SecretBytes, SecretStr

from council.agents.mind import Action
from council.api import requester as requesters
from council.api import run_approved
from council.api.fingerprint import Fingerprint, NotComparable
from council.api.keywords import Guarding, checked, new_proposal
from council.core.state import REASON_TOLD_MAX, Decision, RiskLevel
from council.core.words import because
from council.protocol.envelope import SUMMARY_CHARS_MAX, Requester
from council.protocol.errors import CallerError, EnvelopeError, NotApproved
from council.protocol.values import freeze_value, kind_of

# An argument is shown in full or not at all. This leaves room for several in one proposal.
SHOWN_CHARS_MAX = 200_000
HIDDEN = "<hidden>"
_SECRETS = (Secret, SecretBytes, SecretStr)
_SECRET_NAMED = re.compile(r"\bSecret(Str|Bytes)?\b")
# The part of the default repr that tells a reader nothing.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Proposer(Protocol):
    """A council as a guard uses it. Results of an asynchronous one are awaited."""

    def propose(self, *args: Any, **kwargs: Any) -> Any: ...
    def report(self, *args: Any, **kwargs: Any) -> Any: ...


F = TypeVar("F", bound=Callable[..., Any])
A = TypeVar("A", bound=Callable[..., Coroutine[Any, Any, Any]])


class Blocking(Proposer, Protocol):
    """A council, or a pool of them, whose methods block; ``aio`` has them as coroutines."""

    aio: Any


@overload
def guard(self: Blocking, function: F, /) -> F: ...
@overload
def guard(
    self: Blocking,
    function: None = None,
    /,
    *,
    risk: RiskLevel = "low",
    describe: str | Callable[..., str] | None = None,
    wait_for_human: bool = False,
    timeout_s: float | None = None,
    hide: Sequence[str] = (),
    verify: Callable[..., Any] | None = None,
    revert: Callable[..., Any] | None = None,
    requester: Requester | Mapping[str, str | None] | None = None,
) -> Callable[[F], F]: ...
@checked
def guard(
    self: Blocking,
    function: Any = None,
    /,
    *,
    risk: RiskLevel = "low",
    describe: str | Callable[..., str] | None = None,
    wait_for_human: bool = False,
    timeout_s: float | None = None,
    hide: Sequence[str] = (),
    verify: Callable[..., Any] | None = None,
    revert: Callable[..., Any] | None = None,
    requester: Requester | Mapping[str, str | None] | None = None,
) -> Any:
    """Puts the council in front of a function: a call of it runs only after approval.

    ``describe`` makes the summary from the arguments: a format string (``"Delete {bucket}"``) or a function. The
    seats and the events show the arguments in full. Those in ``hide``, and pydantic's secrets, are shown as
    ``<hidden>``. Raises NotApproved with the decision if the call is not approved, also while it waits for a
    human, unless ``wait_for_human``. Raises CallerError, without proposing, for an argument that can't be shown,
    such as one whose repr is an address, if there is no ``describe``. The result of the call is reported.
    ``verify(result, *args)`` then says whether it is as intended. If it returns nothing true or raises, or if the
    call itself raises, ``revert(*args)`` runs, and the caller gets NotVerified or the call's own error.
    ``requester`` is as in ``draft``.

    Applying the guard raises CallerError if one of these is wrong, or if the function is a generator function: a
    call of one runs nothing of it.
    """
    how: Guarding = {
        "risk": risk,
        "describe": describe,
        "wait_for_human": wait_for_human,
        "timeout_s": timeout_s,
        "hide": hide,
        "verify": verify,
        "revert": revert,
        "requester": requester,
    }
    decorator = Guard(how, self.aio, self)
    return decorator if function is None else decorator(function)


@overload
def guard_async(self: Proposer, function: A, /) -> A: ...
@overload
def guard_async(
    self: Proposer,
    function: None = None,
    /,
    *,
    risk: RiskLevel = "low",
    describe: str | Callable[..., str] | None = None,
    wait_for_human: bool = False,
    timeout_s: float | None = None,
    hide: Sequence[str] = (),
    verify: Callable[..., Any] | None = None,
    revert: Callable[..., Any] | None = None,
    requester: Requester | Mapping[str, str | None] | None = None,
) -> Callable[[A], A]: ...
@checked
def guard_async(
    self: Proposer,
    function: Any = None,
    /,
    *,
    risk: RiskLevel = "low",
    describe: str | Callable[..., str] | None = None,
    wait_for_human: bool = False,
    timeout_s: float | None = None,
    hide: Sequence[str] = (),
    verify: Callable[..., Any] | None = None,
    revert: Callable[..., Any] | None = None,
    requester: Requester | Mapping[str, str | None] | None = None,
) -> Any:
    """Like ``Council.guard``, but only for async functions: decorating a plain one raises CallerError."""
    how: Guarding = {
        "risk": risk,
        "describe": describe,
        "wait_for_human": wait_for_human,
        "timeout_s": timeout_s,
        "hide": hide,
        "verify": verify,
        "revert": revert,
        "requester": requester,
    }
    decorator = Guard(how, self)
    return decorator if function is None else decorator(function)


class Guard:
    """The decorator of ``Council.guard``, for async functions; with ``blocking``, also for plain ones."""

    def __init__(self, how: Guarding, aio: Proposer, blocking: Proposer | None = None) -> None:
        self._how, self._aio, self._blocking = how, aio, blocking
        hide = how.get("hide", ())
        self._hide = (hide,) if isinstance(hide, str) else tuple(hide)
        for name, given in (("verify", how.get("verify")), ("revert", how.get("revert"))):
            if given is not None and not callable(given):
                raise CallerError(f"{name} is {type(given).__name__}, expected a function")
            if _makes_generator(given):
                raise CallerError(f"{name} is a generator function, expected a function that returns")
        _check_details(how)

    def __call__(self, function: Any) -> Any:
        if isinstance(function, (classmethod, staticmethod, property)):
            kind = type(function).__name__
            raise CallerError(f"guard is given a {kind}, expected a function: write @{kind} above the guard")
        if not callable(function):
            raise CallerError(
                f"guard is given {function!r:.80}, expected a function; its settings are keywords, as in "
                'guard(risk="high")'
            )
        if _makes_generator(function):
            raise CallerError(
                f"{_name_of(function)} is a generator function: calling it runs none of it, so its steps would run "
                "unguarded; guard the function that each step calls, or one that returns a list"
            )
        how, signature = self._how, inspect.signature(function)
        hidden = _hidden(function, signature, self._hide)
        if _is_async(function):

            @functools.wraps(function)
            async def guarded_async(*args: Any, **kwargs: Any) -> Any:
                call = _Call(function, signature, hidden, how, args, kwargs)
                decision = await self._aio.propose(**call.proposal())
                return (await call.steps(decision, self._aio.report, awaits=True)).value_or_raise()

            return guarded_async
        for name, given in (("verify", how.get("verify")), ("revert", how.get("revert"))):
            if _is_async(given):
                raise CallerError(
                    f"{name} is an async function, and {_name_of(function)} is not, so nothing would await it: "
                    "make both async, or neither"
                )
        if (blocking := self._blocking) is None:
            raise CallerError(
                f"{_name_of(function)} is not an async function, and would block the event loop while the council "
                "decides: make it one, or guard it with the blocking council's guard"
            )

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            call = _Call(function, signature, hidden, how, args, kwargs)
            decision = blocking.propose(**call.proposal())
            return run_approved.run_blocking(call.steps(decision, blocking.report, awaits=False))

        return guarded


def _check_details(how: Guarding) -> None:
    """Raises CallerError or EnvelopeError for a wrong ``risk``, ``timeout_s`` or ``requester``, as ``draft`` does."""
    timeout_s = how.get("timeout_s")
    content = {
        "summary": "a guarded call",
        "time_budget_s": 1.0 if timeout_s is None else timeout_s,
        "requester": requesters.changed({}, how.get("requester")) or None,
    }
    new_proposal("guard", content, confidence=1.0, risk_level=how.get("risk", "low"))


def _hidden(function: Any, signature: inspect.Signature, hide: tuple[str, ...]) -> frozenset[str]:
    """The arguments that are not shown: those in ``hide``, and those annotated as pydantic's secrets."""
    unknown = [name for name in hide if name not in signature.parameters]
    if unknown:
        raise CallerError(
            f"hide names {', '.join(map(repr, unknown))}, which {_name_of(function)} does not take; its "
            f"arguments are {', '.join(signature.parameters) or 'none'}"
        )
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - names that only type checkers import; the annotation's words remain
        hints = {}
    annotated = {name: hints.get(name, each.annotation) for name, each in signature.parameters.items()}
    return frozenset(hide) | {name for name, hint in annotated.items() if _SECRET_NAMED.search(repr(hint))}


class _Call:
    """A call of a guarded function. Raises the function's own TypeError for wrong arguments.

    Raises CallerError if its ``verify`` or ``revert`` could not be called.
    """

    def __init__(
        self,
        function: Any,
        signature: inspect.Signature,
        hidden: frozenset[str],
        how: Guarding,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._function, self._how, self._args, self._kwargs = function, how, args, kwargs
        self._name = _name_of(function)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        self._bound = bound
        self._hidden = hidden | {n for n, value in bound.arguments.items() if isinstance(value, _SECRETS)}
        self._approved: dict[str, Fingerprint] = {}
        self._refuse_unless_called_with("verify", how.get("verify"), (None, *args))
        self._refuse_unless_called_with("revert", how.get("revert"), args)

    def _refuse_unless_called_with(self, name: str, given: Any, args: tuple[Any, ...]) -> None:
        if given is None:
            return
        try:
            signature = inspect.signature(given)
        except ValueError:  # a function in C that does not reveal its arguments
            return
        try:
            signature.bind(*args, **self._kwargs)
        except TypeError as error:
            result = "its result and " if name == "verify" else ""
            raise CallerError(
                f"{name} of {self._name} can't be called with {result}the arguments of this call: {error}"
            ) from error

    def proposal(self) -> dict[str, Any]:
        """The arguments of ``propose``. Raises CallerError for an argument that can't be shown or compared."""
        described = self._how.get("describe") is not None
        shown = {
            name: HIDDEN if name in self._hidden else _as_data(name, value, described=described)
            for name, value in self._bound.arguments.items()
        }
        summary = self._summary(shown)[:SUMMARY_CHARS_MAX]
        # Now, because showing and describing may fill a cache of an argument.
        self._approved = self._fingerprints()
        tool = f"{getattr(self._function, '__module__', '?')}.{self._name}"
        return {
            "proposal": summary,
            "action": Action(tool[:200], shown),
            "risk": self._how.get("risk", "low"),
            "timeout_s": self._how.get("timeout_s"),
            "wait_for_human": self._how.get("wait_for_human", False),
            "requester": self._how.get("requester"),
        }

    def _fingerprints(self) -> dict[str, Fingerprint]:
        """The state of all arguments, hidden or not."""
        found = {}
        for name, value in self._bound.arguments.items():
            try:
                found[name] = Fingerprint(value)
            except NotComparable as error:
                raise CallerError(
                    f"argument {name} of {self._name} can't be compared with what it is once the council has "
                    f"decided: {error}. Guard a function that takes what the call depends on (a path, an id, "
                    "a list), or give the argument's class a __getstate__ that tells it"
                ) from error
        return found

    def _summary(self, shown: Mapping[str, Any]) -> str:
        describe = self._how.get("describe")
        if describe is None:
            return f"Call {self._name}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"
        if callable(describe):
            summary = describe(*self._bound.args, **self._bound.kwargs)
            if not isinstance(summary, str):
                found = type(summary).__name__
                raise CallerError(f"describe of {self._name} gave a {found}, expected a text")
            return summary
        arguments = self._bound.arguments
        try:
            return _DescriptionFormatter().vformat(
                describe, (), {k: HIDDEN if k in self._hidden else v for k, v in arguments.items()}
            )
        except (KeyError, IndexError, AttributeError) as error:
            raise CallerError(
                f"describe={describe!r} names {error}, which is not an argument of {self._name}; "
                f"its arguments are {', '.join(arguments)}"
            ) from error
        except (ValueError, TypeError) as error:
            raise CallerError(f"describe={describe!r} can't be filled in: {error}") from error

    def steps(
        self, decision: Decision, report: Callable[..., Any], *, awaits: bool
    ) -> Coroutine[Any, Any, run_approved.StepResult]:
        """The steps of the approved call. Raises NotApproved.

        Raises CallerError if an argument has changed since: a changed call is not the approved one.
        """
        if not decision:
            waits = f"it waits for a human ({decision.escalation_id})"
            why = f"{decision.outcome if decision.final else waits}: {because(decision, REASON_TOLD_MAX)}"
            raise NotApproved(f"{self._name} was not run: {why}", decision=decision)
        if self._approved != self._fingerprints():
            raise CallerError(
                f"{self._name} was not run: its arguments changed while the council decided on them"
            )
        verify, revert = self._how.get("verify"), self._how.get("revert")
        performance = run_approved.Performance(
            self._name, decision, report, awaits=awaits, discreet=bool(self._hidden)
        )
        return performance.steps(
            lambda: self._function(*self._args, **self._kwargs),
            None if verify is None else lambda result: verify(result, *self._args, **self._kwargs),
            None if revert is None else lambda: revert(*self._args, **self._kwargs),
        )


class _DescriptionFormatter(string.Formatter):
    """Fills in a description. Raises ValueError if it would show a value as an address in memory."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        converted = super().convert_field(value, conversion)
        return converted if conversion is None else self._checked(value, converted)

    def format_field(self, value: Any, format_spec: str) -> str:
        return self._checked(value, super().format_field(value, format_spec))

    def _checked(self, value: Any, text: str) -> str:
        if not isinstance(value, str) and _ADDRESS.search(text):
            raise ValueError(f"it shows {kind_of(value)} as an address in memory, not what it is")
        return text


def _as_data(name: str, value: Any, *, described: bool) -> Any:
    """An argument as data, in full: itself if an envelope can hold it, otherwise its repr.

    Raises CallerError if it is too large, because seats must not approve what they were not shown. Raises it for a
    repr that is only an address, unless the call is described; then the address is left out.
    """
    if isinstance(value, str | bytes) and len(value) > SHOWN_CHARS_MAX:  # only its length is shown
        raise _too_long(name, len(value))
    try:
        text = json.dumps(value, allow_nan=False)
        if len(text) <= SHOWN_CHARS_MAX:
            data = json.loads(text)
            freeze_value({"": data})  # as deep as it will be in the proposal
            return data
    except (TypeError, ValueError, RecursionError, EnvelopeError):
        whole = _repr(value)
        text = _ADDRESS.sub("", whole)
        if text != whole and not described:
            raise CallerError(
                f"argument {name} would be shown as {text[:200]}, which does not say what is approved: say what "
                f"the call does with describe=, keep it from view with hide=({name!r},), or give "
                "its class a __repr__"
            ) from None
    if len(text) > SHOWN_CHARS_MAX:
        raise _too_long(name, len(text))
    return text


def _too_long(name: str, found: int) -> CallerError:
    return CallerError(
        f"argument {name} takes {found:,} characters to show, at most {SHOWN_CHARS_MAX:,} can be: the "
        "seats must see all that they decide on; guard a function that takes less (a path, an id, a digest)"
    )


def _repr(value: Any) -> str:
    """A repr that an envelope can hold, also for a value whose own repr fails."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - the value's own code
        text = f"<{type(value).__qualname__} at {id(value):#x}, whose repr raised {type(error).__name__}>"
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def _is_async(function: Any) -> bool:
    """Whether calls must be awaited. A callable object may have an async __call__, which only its class shows."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _makes_generator(function: Any) -> bool:
    """Whether a call only makes a generator, asynchronous or not, and runs nothing of the function."""
    return any(
        inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each)
        for each in (function, type(function).__call__)
    )


def _name_of(function: Any) -> str:
    """A function's name, without those of the functions it is defined in; for a callable object, its class's."""
    return str(getattr(function, "__qualname__", type(function).__qualname__)).rpartition("<locals>.")[2]
