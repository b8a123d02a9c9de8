"""The keywords that several calls of the Python API share, with their types. Knows nothing of what they do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from council.core.state import RiskLevel
from council.protocol.errors import CallerError

if TYPE_CHECKING:
    from council.settings import SeatConfig


class Details(TypedDict, total=False):
    """Of a proposal, beside its summary and body; see ``Council.draft``."""

    risk: RiskLevel
    confidence: float
    action: Mapping[str, Any] | None
    wait_for: Literal["decisive", "all"] | None
    timeout_s: float | None
    supersedes: str | None


class ClientSettings(TypedDict, total=False):
    """What of a configuration counts for a client of a council that runs already."""

    time_budget_s: float | None
    humans: dict[str, str] | None
    ray_namespace: str | None
    call_timeout_s: float | None


class Settings(ClientSettings, total=False):
    """The keys of ``council.toml``; see ``CouncilConfig``. One that is None was not given."""

    name: str | None
    seats: Sequence[SeatConfig] | Mapping[str, Any] | None
    prime: str | None
    quorum: int | None
    heartbeat_s: float | None
    inactivity_s: float | None
    escalation_ttl_s: float | None
    sole_seat: Literal["never", "allow-low-risk"] | None
    open_max: int | None
    escalations_max: int | None
    events_kept: int | None
    proposal_tokens_max: int | None
    proposal_usd_max: float | None
    seat_tokens_max: int | None
    seat_usd_max: float | None
    council_tokens_max: int | None
    council_usd_max: float | None
    store: str | None
    checkpoint: str | None
    ray_address: str | None


def refuse_unknown(call: str, given: Iterable[str], kind: type) -> None:
    """Raises TypeError, naming what ``call`` takes, for a keyword that the TypedDict ``kind`` has not."""
    known = kind.__annotations__
    for keyword in given:
        if keyword not in known:
            from council.settings import did_you_mean  # it takes pydantic's models along

            hint = did_you_mean(keyword, known)
            raise TypeError(f"{call}() takes no keyword {keyword!r}{hint}; known are {', '.join(known)}")


def check_seconds(name: str, value: object) -> None:
    """Raises CallerError, naming the argument, for what is no length of time; None is no limit."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 <= value < math.inf):  # type: ignore[operator]
        raise CallerError(
            f"{name} is {value!r:.80}, expected a number of seconds from 0, or None for no limit"
        )
