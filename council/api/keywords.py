"""The keywords that several calls of the Python API share, and their types."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeGuard, get_args

from council.agents.messaging.ids import new_id
from council.core.state import ActionStage, Decision, RiskLevel
from council.protocol.errors import CallerError, ConfigError

if TYPE_CHECKING:
    from council.config.settings import CouncilConfig, SeatConfig
    from council.protocol.envelope import Envelope, Requester


# What was said and done before a proposal, oldest first: ``("user", "…")``, or ``{"role": "user", "text": "…"}``.
History = Sequence[tuple[str, str] | Mapping[str, str]]


class Details(TypedDict, total=False):
    """Details of a proposal besides its summary and body; see ``Council.draft``."""

    risk: RiskLevel
    confidence: float
    action: Mapping[str, Any] | None
    wait_for: Literal["decisive", "all"] | None
    timeout_s: float | None
    supersedes: str | None
    history: History | None
    requester: Requester | Mapping[str, str | None] | None


class Guarding(TypedDict, total=False):
    """How a function is guarded; see ``Council.guard``."""

    risk: RiskLevel
    describe: str | Callable[..., str] | None
    wait_for_human: bool
    timeout_s: float | None
    hide: Sequence[str]
    verify: Callable[..., Any] | None
    revert: Callable[..., Any] | None
    requester: Requester | Mapping[str, str | None] | None


class ClientSettings(TypedDict, total=False):
    """The settings that a client of a running council needs."""

    time_budget_s: float | None
    humans: dict[str, str] | None
    ray_namespace: str | None
    ray_insecure: bool | None
    call_timeout_s: float | None
    traces: Literal["off", "otlp", "global"] | None


class Settings(ClientSettings, total=False):
    """The keys of ``council.toml``; see ``CouncilConfig``. None counts as not given."""

    name: str | None
    seats: Sequence[SeatConfig] | Mapping[str, Any] | None
    prime: str | None
    observer: str | None
    quorum: int | None
    heartbeat_s: float | None
    inactivity_s: float | None
    escalation_ttl_s: float | None
    creator: str | None
    charter: str | None
    schemas: str | None
    profiles: str | None
    sole_seat: Literal["never", "allow-low-risk"] | None
    open_max: int | None
    escalations_max: int | None
    events_kept: int | None
    decisions_kept: int | None
    proposal_tokens_max: int | None
    proposal_usd_max: float | None
    seat_tokens_max: int | None
    seat_usd_max: float | None
    council_tokens_max: int | None
    council_usd_max: float | None
    store: str | None
    checkpoint: str | None
    metrics_port: int | None
    metrics_host: str | None
    panel: bool | None
    panel_port: int | None
    panel_host: str | None
    ray_dashboard: bool | None
    ray_address: str | None
    ray_ship: bool | None


def refuse_unknown(call: str, given: Iterable[str], kind: type) -> None:
    """Raises TypeError, which names the known keywords, for one that the TypedDict ``kind`` does not have."""
    known = kind.__annotations__
    for keyword in given:
        if keyword not in known:
            from council.config.settings import did_you_mean  # it loads pydantic's models

            hint = did_you_mean(keyword, known)
            raise TypeError(f"{call}() takes no keyword {keyword!r}{hint}; known are {', '.join(known)}")


def new_proposal(sender: str, content: Mapping[str, Any], **more: Any) -> Envelope:
    """A PROPOSAL envelope with a new id and the present time. Raises EnvelopeError."""
    from council.protocol.envelope import Envelope  # pydantic, which the command line's help does not need

    about = {"timestamp": datetime.now(UTC), "sender": sender, "role": "proposer", "type": "PROPOSAL"}
    return Envelope.build(msg_id=new_id(), content=content, **about, **more)


def turns_of(history: object) -> list[dict[str, Any]]:
    """The turns of a ``History`` in a proposal's form. Raises CallerError, which names an invalid turn."""
    if history is None:
        return []
    if not _is_list(history):
        raise CallerError(f"history is {history!r:.80}, expected a list of turns, {_A_TURN}")
    return [_turn(at, turn) for at, turn in enumerate(history)]


_A_TURN = 'each ("user", "what was said") or {"role": "user", "text": "what was said"}'


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _turn(at: int, turn: object) -> dict[str, Any]:
    if isinstance(turn, Mapping) and {"role", "text"} <= turn.keys():
        return dict(turn)
    if _is_list(turn) and len(turn) == 2:
        return {"role": turn[0], "text": turn[1]}
    raise CallerError(f"history[{at}] is {turn!r:.80}, expected {_A_TURN.removeprefix('each ')}")


def outcome_of(
    decision: Decision | str, stage: ActionStage, ok: bool, text: str
) -> tuple[str, str, str, dict[str, Any]]:
    """A report in the form of ``Session.inform``. Raises CallerError for invalid arguments."""
    if not isinstance(decision, Decision | str):
        raise CallerError(
            f"decision is {type(decision).__name__}, expected a Decision or the id of its proposal"
        )
    if stage not in get_args(ActionStage):
        raise CallerError(f"stage is {stage!r:.80}, expected one of {', '.join(get_args(ActionStage))}")
    if not isinstance(ok, bool):  # "failed" would be a success
        raise CallerError(f"ok is {ok!r:.80}, expected True or False")
    if not isinstance(text, str):
        raise CallerError(f"text is {type(text).__name__}, expected a text")
    proposal_id = decision.proposal_id if isinstance(decision, Decision) else decision
    return proposal_id, "outcome", text, {"proposal_id": proposal_id, "stage": stage, "ok": ok}


def check_many(proposals: object) -> None:
    """Raises CallerError if there is one proposal instead of a list."""
    from council.protocol.envelope import Envelope

    if isinstance(proposals, str | bytes | Envelope | Mapping):
        raise CallerError(f"proposals is one {type(proposals).__name__}: give a list of them, or use propose")


def check_seconds(name: str, value: object) -> None:
    """Raises CallerError, which names the argument, for an invalid duration; None means no limit."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 <= value < math.inf):  # type: ignore[operator]
        raise CallerError(
            f"{name} is {value!r:.80}, expected a number of seconds from 0, or None for no limit"
        )


def configured(config: CouncilConfig | Path | str | None, settings: Mapping[str, Any]) -> CouncilConfig:
    """The configuration: a complete one, a file, or the one that is found; ``settings`` override it."""
    from council.config.load import (
        load,  # imported when it is used, so that importing the package stays quick
    )
    from council.config.settings import CouncilConfig

    given = {key: value for key, value in settings.items() if value is not None}
    if isinstance(config, CouncilConfig):
        if not given:
            return config
        raise ConfigError(
            "a complete CouncilConfig takes no further settings: put them into it",
            problems=[f"settings beside a CouncilConfig: {', '.join(given)}"],
        )
    return load(Path(config) if config is not None else None, flags=given).config
