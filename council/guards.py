"""Puts a council in front of a function. Knows nothing of how the council decides."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from council.core.state import Decision, RiskLevel
from council.protocol.envelope import SUMMARY_CHARS_MAX
from council.protocol.errors import CallerError, EnvelopeError, NotApproved
from council.protocol.jsondata import freeze_value

if TYPE_CHECKING:
    from council.client import Council

# An argument is shown to the seats whole or not at all; this leaves room for several in one proposal.
SHOWN_CHARS_MAX = 200_000


class Guard:
    """The decorator that ``Council.guard`` gives; works on plain and on async functions."""

    def __init__(
        self,
        council: Council,
        risk: RiskLevel,
        describe: str | Callable[..., str] | None,
        wait_for_human: bool,
        timeout_s: float | None,
    ) -> None:
        self._council = council
        self._describe = describe
        self._details: dict[str, Any] = {"risk": risk, "timeout_s": timeout_s}
        self._wait_for_human = wait_for_human

    def __call__(self, function: Any) -> Any:
        signature = inspect.signature(function)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def asked_async(*args: Any, **kwargs: Any) -> Any:
                details = self._proposal(function, signature, args, kwargs)
                decision = await self._council.aio.propose(**details)
                _refuse_unless_approved(function, decision)
                self._refuse_if_changed(details, self._proposal(function, signature, args, kwargs))
                return await function(*args, **kwargs)

            return asked_async

        @functools.wraps(function)
        def asked(*args: Any, **kwargs: Any) -> Any:
            details = self._proposal(function, signature, args, kwargs)
            decision = self._council.propose(**details)
            _refuse_unless_approved(function, decision)
            self._refuse_if_changed(details, self._proposal(function, signature, args, kwargs))
            return function(*args, **kwargs)

        return asked

    def _proposal(
        self, function: Any, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """What is proposed. A call that the function would not take raises its TypeError, unproposed."""
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        name = f"{getattr(function, '__module__', '?')}.{_name_of(function)}"
        shown = {key: _shown(key, value) for key, value in bound.arguments.items()}
        return {
            "proposal": self._summary(function, bound, shown)[:SUMMARY_CHARS_MAX],
            "action": {"tool": name[:200], "args": shown},
            "wait_for_human": self._wait_for_human,
            **self._details,
        }

    def _refuse_if_changed(self, approved: dict[str, Any], now: dict[str, Any]) -> None:
        """Arguments may be changed by others while the council decides; then another call was approved."""
        if approved["action"] != now["action"]:
            raise CallerError(
                f"{now['action']['tool']} was not run: its arguments changed while the council decided on them"
            )

    def _summary(self, function: Any, bound: inspect.BoundArguments, shown: dict[str, Any]) -> str:
        if callable(self._describe):
            summary = self._describe(*bound.args, **bound.kwargs)
            if not isinstance(summary, str):
                found = type(summary).__name__
                raise CallerError(f"describe of {_name_of(function)} gave a {found}, expected a text")
            return summary
        if self._describe is None:
            return f"Call {_name_of(function)}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"
        try:
            return self._describe.format(**bound.arguments)
        except (KeyError, IndexError, AttributeError) as error:
            raise CallerError(
                f"describe={self._describe!r} names {error}, which is no argument of {_name_of(function)}; "
                f"its arguments are {', '.join(bound.arguments)}"
            ) from error
        except (ValueError, TypeError) as error:
            raise CallerError(f"describe={self._describe!r} can't be filled in: {error}") from error


def _shown(name: str, value: Any) -> Any:
    """An argument as data, whole: itself where an envelope can hold it, else its repr.

    Raises CallerError for one too large: seats must not approve what they were not shown.
    """
    try:
        text = json.dumps(value, allow_nan=False)
        if len(text) <= SHOWN_CHARS_MAX:
            data = json.loads(text)
            freeze_value({"": data})  # as deep as it will stand in the proposal
            return data
    except (TypeError, ValueError, RecursionError, EnvelopeError):
        text = _repr(value)
    if len(text) > SHOWN_CHARS_MAX:
        raise CallerError(
            f"argument {name} takes {len(text):,} characters to show, at most {SHOWN_CHARS_MAX:,} can be: the "
            "seats must see all that they decide on; guard a function that takes less (a path, an id, a digest)"
        )
    return text


def _repr(value: Any) -> str:
    """A repr that an envelope can hold, also of a value that can't give one."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a value's own code
        text = f"<{type(value).__qualname__}, whose repr raised {type(error).__name__}>"
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def _name_of(function: Any) -> str:
    """A function's name; that of its class for an object that can be called."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _refuse_unless_approved(function: Any, decision: Decision) -> None:
    if decision:
        return
    if not decision.final:
        how = f"it waits for a human ({decision.escalation_id}): {decision.reason}"
    else:
        how = f"{decision.outcome}: {decision.reason}" + (f"; {decision.dissent}" if decision.dissent else "")
    raise NotApproved(f"{_name_of(function)} was not run: {how}", decision=decision)
