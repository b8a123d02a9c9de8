"""The keywords that several calls of the Python API share, and their types."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    TypedDict,
    TypeGuard,
    TypeVar,
    get_args,
    is_typeddict,
)

from council.agents.messaging.ids import new_id
from council.agents.mind import Action
from council.core.state import ActionStage, Decision, RiskLevel, council_of
from council.protocol.errors import CallerError, ConfigError, EnvelopeError

if TYPE_CHECKING:
    from council.config.settings import (
        ActionConfig,
        CouncilConfig,
        NotifyConfig,
        OutputChannel,
        OutputConfig,
        PolicyRow,
        ScannerConfig,
        SeatConfig,
    )
    from council.protocol.envelope import Envelope, Requester

T = TypeVar("T")
P = ParamSpec("P")

# The turns that led to a proposal, oldest first: ``("user", "…")``, or ``{"role": "user", "text": "…"}``.
History = Sequence[tuple[str, str] | Mapping[str, str]]


class Details(TypedDict, total=False):
    """Details of a proposal besides its summary and body; see ``Council.draft``."""

    risk: RiskLevel
    confidence: float
    action: Action | Mapping[str, Any] | None
    wait_for: Literal["decisive", "all"] | None
    timeout_s: float | None
    supersedes: str | None
    history: History | None
    requester: Requester | Mapping[str, str | None] | None


# Their defaults.
PLAIN: Details = {
    "risk": "low",
    "confidence": 1.0,
    "action": None,
    "wait_for": None,
    "timeout_s": None,
    "supersedes": None,
    "history": None,
    "requester": None,
}


class Guarding(TypedDict, total=False):
    """The keywords of a guard; see ``Council.guard``."""

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
    notify: NotifyConfig | Mapping[str, Any] | None
    output: Mapping[OutputChannel, OutputConfig | Mapping[str, Any]] | None
    action: ActionConfig | Mapping[str, Any] | None
    creator: str | None
    charter: str | None
    schemas: str | None
    profiles: str | None
    sole_seat: Literal["never", "allow-low-risk"] | None
    unknown_tools: Literal["ask", "allow"] | None
    tools: str | None
    rules: str | None
    policy: Sequence[PolicyRow | Mapping[str, Any]] | None
    scanners: Sequence[ScannerConfig | Mapping[str, Any]] | None
    open_max: int | None
    escalations_max: int | None
    events_kept: int | None
    decisions_kept: int | None
    keep_packets: bool | None
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


def checked(call: Callable[P, T]) -> Callable[P, T]:
    """Makes ``call`` raise TypeError for an unknown keyword; the error names the nearest keyword, and all of them.

    Python's own error has no such hint before Python 3.13, and never lists all keywords.
    """
    parameters = inspect.signature(call).parameters
    known = [name for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY]
    taken = {name for name, each in parameters.items() if each.kind is not each.POSITIONAL_ONLY}

    @functools.wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        refuse_unknown(call.__name__, kwargs.keys() - taken, known)
        return call(*args, **kwargs)

    @functools.wraps(call)
    async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
        return await called(*args, **kwargs)  # type: ignore[misc]

    return awaited if inspect.iscoroutinefunction(call) else called  # type: ignore[return-value]


def refuse_unknown(call: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raises TypeError if a keyword in ``given`` is not ``known``; the error lists the known ones."""
    for keyword in given:
        if keyword not in known:
            from council.config.settings import did_you_mean  # it loads pydantic's models

            hint = did_you_mean(keyword, known)
            raise TypeError(f"{call}() takes no keyword {keyword!r}{hint}; known are {', '.join(known)}")


def spelled_out(call: Callable[P, T]) -> Callable[P, T]:
    """Lists the keywords of ``**settings: Unpack[Settings]`` in the signature of ``call``, for help and IPython.

    Type checkers and editors read the TypedDict itself. Each keyword is optional, and shown with the default None.
    """
    signature = inspect.signature(call)
    *before, rest = signature.parameters.values()
    kind = call.__globals__[rest.annotation.removeprefix("Unpack[").removesuffix("]")]
    assert rest.kind is rest.VAR_KEYWORD
    assert is_typeddict(kind)
    keywords = [
        inspect.Parameter(name, rest.KEYWORD_ONLY, default=None, annotation=annotation.__forward_arg__)
        for name, annotation in kind.__annotations__.items()
    ]
    call.__signature__ = signature.replace(parameters=[*before, *keywords])  # type: ignore[attr-defined]
    return call


def action_of(value: Action | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A proposal's action in its form on the wire. Raises EnvelopeError, which states the shape of one."""
    from council.protocol import envelope  # pydantic, which the command line's help does not need

    if isinstance(value, envelope.Action):  # of another envelope
        return value.model_dump()
    return None if value is None else {**Action.of(value)}


# The arguments of ``Council.draft``, by the path that each has in a proposal's envelope.
ARGUMENTS = {
    "content.time_budget_s": "timeout_s",
    "risk_level": "risk",
    **{
        f"content.{name}": name
        for name in ("summary", "body", "action", "wait_for", "supersedes", "history", "key")
    },
}


POOL_KEY_CHARS_MAX = 180  # a key has at most 200 characters, with its number in a pool


def new_proposal(
    sender: str, content: Mapping[str, Any], place: tuple[int, int] | None = None, **more: Any
) -> Envelope:
    """A PROPOSAL envelope with the present time, and a new id or the one of its key.

    ``place`` is the council's number in a pool, and the pool's size. The id must belong to this council. If the id
    of a key does not, a number is added to the key: the same key always gets the same number. Raises CallerError for
    a key in a pool that leaves no room for a number, and EnvelopeError, whose message names the arguments of
    ``Council.draft``.
    """
    # pydantic, which the command line's help does not need
    from council.protocol.envelope import Envelope, id_of_key
    from council.protocol.models import renamed

    about = {"timestamp": datetime.now(UTC), "sender": sender, "role": "proposer", "type": "PROPOSAL"}
    key = content.get("key")
    if place is not None and isinstance(key, str) and len(key) > POOL_KEY_CHARS_MAX:
        raise CallerError(f"a pool's key has {len(key)} characters, expected at most {POOL_KEY_CHARS_MAX}")
    for attempt in itertools.count(1):  # in a pool, about as many as it has councils
        own = f"{key} #{attempt}" if isinstance(key, str) and attempt > 1 else key
        msg_id = id_of_key(sender, own) if isinstance(own, str) else new_id()
        if place is None or council_of(msg_id, place[1]) == place[0]:
            break
    try:
        return Envelope.build(msg_id=msg_id, content={**content, "key": own}, **about, **more)
    except EnvelopeError as error:
        raise renamed(error, ARGUMENTS) from None


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


def checked_id(value: object) -> str:
    """The id of a proposal or an escalation. Raises CallerError if it is not a str."""
    if not isinstance(value, str):
        raise CallerError(
            f"{value!r:.80} is not an id: expected a text, as in decision.proposal_id or escalation.escalation_id"
        )
    return value


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
    try:
        return load(Path(config) if config is not None else None, flags=given).config
    except ConfigError as error:
        raise ConfigError(
            _as_keywords(error.message), problems=[*map(_as_keywords, error.problems)]
        ) from None


def _as_keywords(text: str) -> str:
    """``flag --call-timeout-s: …`` → ``call_timeout_s: …``: names the keyword instead of the flag."""
    return re.sub(r"(?m)^( *)flag --([\w.-]*?)([\w-]+):", _keyword, text)


def _keyword(flag: re.Match[str]) -> str:
    return f"{flag[1]}{flag[2]}{flag[3].replace('-', '_')}:"
