"""The questions to a council. A question is a small message with the type of its answer; the council stays as it is.

A new question is a class here, and its case in ``Coordinator.ask``.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, Generic, TypeVar, get_args

import msgspec

from council.core.state import Decision, Value
from council.journal.entries import HistoryPage, Wanted
from council.protocol.errors import CallerError, EnvelopeError
from council.runtime.open_escalations import Waiting
from council.runtime.token_standing import TokenStanding

T = TypeVar("T")


class Question(Value, Generic[T], frozen=True):
    """A question whose answer is a ``T``; ``tag`` is its name."""


class AskStatus(Question[dict[str, Any]], frozen=True, tag="status"):
    """The council's status, as plain data."""


class AskDecision(Question[Decision | None], frozen=True, tag="decision"):
    """The decision on a proposal, or its standing while it waits for a human; None while the seats deliberate."""

    proposal_id: str


class AskEscalations(Question[list[Waiting]], frozen=True, tag="escalations"):
    """The escalations that wait for a human, oldest first, with their proposals."""


class AskTokens(Question[list[TokenStanding]], frozen=True, tag="tokens"):
    """The tokens that are kept, oldest first, or only the one that the approval of ``proposal_id`` issued."""

    proposal_id: str | None = None


class AskHistory(Question[HistoryPage], frozen=True, tag="history"):
    """A page of the journal's records."""

    wanted: Wanted


class AskEvents(Question[list[dict[str, Any]]], frozen=True, tag="events"):
    """Up to ``limit`` events after a cursor; waits up to ``wait_s`` for the first."""

    after: int
    limit: int
    wait_s: float


class AskPages(Question[dict[str, Any]], frozen=True, tag="pages"):
    """The council's web pages, with the panel's token: ``panel``, ``dashboard``, ``grafana``, ``installed``.

    Each is plain data, or None where there is none, as for a council in process. On Ray the port answers it
    (``cluster.port``), not the coordinator. With ``install``, the council's dashboard for Grafana is written first.
    """

    install: bool = False


_ANY: Any = functools.reduce(operator.or_, Question.__subclasses__())
_QUESTIONS: Any = msgspec.msgpack.Decoder(_ANY)


def name_of(question: Question[T]) -> str:
    return str(question.__struct_config__.tag)


def answer_type(question: Question[T]) -> type[T]:
    """The type of the question's answer."""
    (base,) = type(question).__orig_bases__  # type: ignore[attr-defined]
    found: type[T] = get_args(base)[0]
    return found


def to_bytes(question: Question[T]) -> bytes:
    """``question`` as bytes, for another process. Raises CallerError if it can't be encoded."""
    try:
        return msgspec.msgpack.encode(question)
    except (UnicodeError, OverflowError, TypeError) as error:
        raise CallerError(f"the question {name_of(question)!r} can't be sent: {error}") from None


def from_bytes(data: bytes) -> Question[Any]:
    """The question that ``to_bytes`` packed. Raises EnvelopeError for anything else."""
    try:
        found: Question[Any] = _QUESTIONS.decode(data)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise EnvelopeError(f"question: not one of this version's: {error}", field="question") from None
    return found
