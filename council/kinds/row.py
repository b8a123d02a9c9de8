"""What a row of the table of kinds holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from council.core.effects import Effect
from council.core.events import Event
from council.kinds.incoming import Incoming
from council.protocol.envelope import MessageType

Data = Mapping[str, Any]  # the fields of an event or an announcement, as plain data
Fact = str | Callable[[Any], Any]  # the name of a fact, or a function that finds it
# From a stub's milliseconds to a model's minutes.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


def fact(of: Event | Effect, which: Fact, *default: Any) -> Any:
    """A field of an event or an effect, or of what its first field holds, such as a ballot.

    Raises AttributeError where there is none and no ``default``.
    """
    if callable(which):
        return which(of)
    return getattr(of if hasattr(of, which) else getattr(of, of.__struct_fields__[0]), which, *default)


class Said(NamedTuple):
    """The message that brings an event: its type, how it is read and, for INFO, its kind (rules 1.1, 1.2).

    ``by``: as what its sender must have joined. ``parts``: the roles that it may be sent in; empty for any.
    """

    type: MessageType
    read: Callable[[Incoming], Event]
    kind: str = ""
    by: Literal["voter", "human", "any"] = "voter"
    parts: tuple[str, ...] = ()


class Metric(NamedTuple):
    """One metric; a counter's ``name`` without the ``_total`` that it has on the wire.

    Each also has the label ``council``, the council's name. Of announcements, those that ``when`` is true of count by
    ``amount``; a label's value is the fact of its name, or the one that ``values`` has for it.
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    amount: Fact = lambda _: 1
    when: Fact = lambda _: True
    values: Mapping[str, Fact] = {}


def counter(
    name: str,
    help: str,
    labels: str = "",
    amount: Fact = lambda _: 1,
    when: Fact = lambda _: True,
    **values: Fact,
) -> Metric:
    """Counts announcements, by ``labels`` (names with spaces between) and by those of ``values``."""
    return Metric("counter", name, help, (*labels.split(), *values), (), amount, when, values)


def timed(name: str, help: str, labels: str) -> Metric:
    """The seconds that announcements tell."""
    return Metric("histogram", name, help, tuple(labels.split()), SECONDS, "seconds")


class Line(NamedTuple):
    """A line of the event log, or an event of a decision's span: its title and the facts, no word of a text."""

    title: str
    facts: dict[str, Any]
    level: str = "warning"


def tells(title: str, level: str = "warning", **facts: Fact) -> Callable[[Any], Line]:
    """A line with these facts of an announcement."""
    return lambda effect: Line(title, {name: fact(effect, which) for name, which in facts.items()}, level)


class Phrase(NamedTuple):
    """What happened: who did what in short, and the rest of it."""

    act: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of event of a council.

    ``kind`` is its word in the journal, in the feed and in logs; ``label`` is shown instead where that is long.
    ``words`` say it on one line, as templates of its data or by a function; ``style`` is a colour, a vote or an
    outcome. ``event`` is its class in the journal, if it is journaled; ``said`` is None where no message brings it;
    ``sweeps`` says that it is about no proposal, and may end many. ``announced`` is its class in the feed, if it is
    announced. ``logged`` is its line in the event log, ``noted`` its event in the span of its proposal's decision.
    """

    kind: str
    words: tuple[str, str] | Callable[[Data], Phrase]
    style: str | Callable[[Data], str] = ""
    label: str = ""
    event: type[Event] | None = None
    said: Said | None = None
    sweeps: bool = False
    announced: type[Effect] | None = None
    counted: tuple[Metric, ...] = ()
    logged: Callable[[Any], Line | None] = lambda _: None
    noted: Callable[[Any], Line | None] = lambda _: None

    def phrase(self, data: Data) -> Phrase:
        """What happened, by the data of a record or of an announcement. What it says may hold anything."""
        if callable(self.words):
            return self.words(data)
        act, detail = self.words
        return Phrase(act.format_map(data), detail.format_map(data))

    def style_of(self, data: Data) -> str:
        return self.style(data) if callable(self.style) else self.style
