"""The row class of the table of kinds, and its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from council.core.effects import Effect
    from council.core.events import Event
    from council.kinds.incoming import Incoming
    from council.protocol.envelope import MessageType

# The kinds of the rows that are announced: what ``Event.kind`` may be. A council of a newer version may have others.
EventKind = Literal[
    "alert",
    "ballot",
    "check",
    "creator_change",
    "decision",
    "denial",
    "identity_change",
    "loss",
    "observation",
    "outcome",
    "outcome_asked",
    "overrun",
    "proposal",
    "refusal",
    "result",
    "revocation",
    "roll",
    "ruling",
    "spending",
    "start",
    "to_human",
    "to_prime",
    "token",
    "use",
]

Data = Mapping[str, Any]  # the fields of an event or an announcement, as plain data
Fact = str | Callable[[Any], Any]  # the name of a field, or a function that returns the value
# From milliseconds of a stub to minutes of a model.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


def fact(of: Event | Effect, which: Fact, *default: Any) -> Any:
    """A field of an event or an effect, or of the value in its first field, such as a ballot.

    Raises AttributeError if there is no such field and no ``default``.
    """
    if callable(which):
        return which(of)
    return getattr(of if hasattr(of, which) else getattr(of, of.__struct_fields__[0]), which, *default)


class MessageSpec(NamedTuple):
    """The message that brings an event: its type, its reader, and the kind of an INFO (rules 1.1, 1.2).

    ``by``: how its sender must have joined. ``parts``: the roles it may be sent in; empty for any.
    """

    type: MessageType
    read: Callable[[Incoming], Event]
    kind: str = ""
    by: Literal["voter", "human", "executor", "any"] = "voter"
    parts: tuple[str, ...] = ()


class Metric(NamedTuple):
    """One metric; a counter's ``name`` is without the ``_total`` that it has on the wire.

    Each also has the label ``council``, the council's name. An announcement counts by ``amount`` if ``when`` is true
    of it. A label's value is the field of its name, or the one in ``values``.
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
    """A counter of announcements, by ``labels`` (names with spaces between) and the labels in ``values``."""
    return Metric("counter", name, help, (*labels.split(), *values), (), amount, when, values)


def timed(name: str, help: str, labels: str) -> Metric:
    """A histogram of the field ``seconds`` of announcements."""
    return Metric("histogram", name, help, tuple(labels.split()), SECONDS, "seconds")


class Line(NamedTuple):
    """A line of the event log, or an event of a decision's span: a title and facts, without free text."""

    title: str
    facts: dict[str, Any]
    level: str = "warning"


def tells(title: str, level: str = "warning", **facts: Fact) -> Callable[[Any], Line]:
    """Makes lines with these facts of an announcement."""
    return lambda effect: Line(title, {name: fact(effect, which) for name, which in facts.items()}, level)


class Phrase(NamedTuple):
    """A description of an event: who did what, in short, and the details."""

    act: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of event of a council.

    - ``kind``: its word in the journal, in the feed and in logs; ``label``: shown instead, if given
    - ``words``: describe it on one line, as templates of its data or a function
    - ``style``: a colour, a vote or an outcome
    - ``event``: its class in the journal, if it is journaled; ``message``: the message that brings it, if one does
    - ``sweeps``: it is not about one proposal, and may end many
    - ``announced``: its class in the feed, if it is announced; ``counted``: its metrics
    - ``logged``: its line in the event log; ``noted``: its event in the span of its proposal's decision
    """

    kind: str
    words: tuple[str, str] | Callable[[Data], Phrase]
    style: str | Callable[[Data], str] = ""
    label: str = ""
    event: type[Event] | None = None
    message: MessageSpec | None = None
    sweeps: bool = False
    announced: type[Effect] | None = None
    counted: tuple[Metric, ...] = ()
    logged: Callable[[Any], Line | None] = lambda _: None
    noted: Callable[[Any], Line | None] = lambda _: None

    def phrase(self, data: Data) -> Phrase:
        """Describes the data of a record or an announcement. It may hold any text from outside."""
        if callable(self.words):
            return self.words(data)
        act, detail = self.words
        return Phrase(act.format_map(data), detail.format_map(data))

    def style_of(self, data: Data) -> str:
        return self.style(data) if callable(self.style) else self.style
