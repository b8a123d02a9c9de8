"""The table of handlers, one for each class of event. ``step`` calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from council.core.events import Event
from council.core.state import CouncilState, Moment
from council.core.state_store import Effects

E = TypeVar("E", bound=Event)
Handler = Callable[[CouncilState, E, Moment], Effects]
HANDLERS: dict[type[Event], Handler[Any]] = {}


def handles(kind: type[E]) -> Callable[[Handler[E]], Handler[E]]:
    """Has ``step`` call the function below for each event of this class."""

    def enter(handler: Handler[E]) -> Handler[E]:
        HANDLERS[kind] = handler
        return handler

    return enter
