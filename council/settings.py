"""What a council can be configured with: keys, limits, defaults. Knows nothing of where values come from."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, model_validator

if TYPE_CHECKING:
    from council.protocol.profiles import SeatProfile

NAME_PATTERN = "^[a-z0-9][a-z0-9._-]{0,63}$"  # goes into actor names, file names and metric labels unquoted
SEATS_MAX = 15  # each seat is a process and a ballot to wait for; boards above this no longer deliberate
DAY_S = 86_400.0  # nothing that a caller waits for should outlast the default life of an escalation
PATH_CHARS_MAX = 255  # of an import path
ADDRESS_CHARS_MAX = 1_000  # of a store
SHOWN_CHARS_MAX = 80  # of a value or key in a problem: enough to recognise, not enough to flood a terminal
HUMANS_MAX = 100  # names that an error still lists
# A variable of our own prefix would be read as a setting.
_KEY_SOURCE = re.compile(r"kept|file:(/|~/)[^\0]+|env:(?!COUNCIL_)[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"(?!COUNCIL_)[A-Za-z_][A-Za-z0-9_]*")
MEMORY = "memory"  # in place of a store: what is kept lives as long as the coordinator
MODEL_MIND = "council.agents.model:ModelMind"  # the mind of a seat that names a base_url and no other mind
_STORE = re.compile(r"(/|~/)[^\0]|sqlite:///(/|~/)[^\0]|postgres(ql)?(\+psycopg)?://[^\0]")
# Above what any budget is; in micro-dollars it still is a whole number that every reader of JSON keeps.
CAP_TOKENS_MAX, CAP_USD_MAX = 10**12, 10**6
OPTIONS_MAX = 64  # keyword arguments of one mind


def _whole(default: int, low: int, high: int, about: str) -> Any:
    expected = f"a whole number from {low} to {high}"
    return Field(default, ge=low, le=high, description=about, json_schema_extra={"expected": expected})


def _seconds(default: float, high: float, about: str, *, low: float = 0.001) -> Any:
    expected = f"a number of seconds from {low:g} to {high:g}"
    return Field(default, ge=low, le=high, description=about, json_schema_extra={"expected": expected})


def _cap(kind: str, about: str) -> Any:
    """The most of something that models may use up; unset for no limit."""
    if kind == "tokens":
        expected, high = f"a whole number of tokens up to {CAP_TOKENS_MAX:,}", CAP_TOKENS_MAX
    else:
        expected, high = f"a number of US dollars up to {CAP_USD_MAX:,}", CAP_USD_MAX
    return Field(None, ge=0, le=high, description=about, json_schema_extra={"expected": expected})


def _name(default: Any, about: str) -> Any:
    expected = "1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
    return Field(default, pattern=NAME_PATTERN, description=about, json_schema_extra={"expected": expected})


def _amount(default: float | None, high: float, about: str, *, what: str) -> Any:
    expected = f"{what} from 0 to {high:g}"
    return Field(default, ge=0, le=high, description=about, json_schema_extra={"expected": expected})


def _label(about: str, *, longest: int = 128) -> Any:
    expected = f"a text of 1 to {longest} characters"
    return Field(
        None, min_length=1, max_length=longest, description=about, json_schema_extra={"expected": expected}
    )


def is_import_path(path: str) -> bool:
    """Whether ``path`` has the form ``package.module:Name``; nothing is looked up."""
    module, _, attribute = path.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    return len(path) <= PATH_CHARS_MAX and all(part.isidentifier() for part in parts)


def _may_be_mind(value: Any) -> Any:
    """Refuse early what ``as_mind`` is sure to refuse later; nothing is imported or built here."""
    if isinstance(value, str):
        known = is_import_path(value)
    else:
        known = callable(value) or callable(getattr(value, "review", None))
    if not known:
        raise ValueError("expected an import path 'package.module:Name', or a mind")
    return value


def _is_store_address(value: str) -> str:
    """Refuses a path that depends on where one stands, and a password: ``council config`` shows every value."""
    if value != MEMORY and not _STORE.match(value):
        raise ValueError("expected a path or an address")
    if "://" in value:
        parts = urlsplit(value)  # its ValueErrors say what is wrong
        if parts.password is not None or "password" in parse_qs(parts.query):
            raise ValueError("expected an address without a password")
    return value


def _is_base_url(value: str) -> str:
    """Refuses what no server answers at, and an address with a secret in it: every value is shown."""
    parts = urlsplit(value)  # its ValueErrors say what is wrong
    plain = (
        value.isascii() and value.isprintable() and " " not in value
    )  # no host that only looks like another
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise ValueError("expected an address of HTTP")
    if parts.port == 0 or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("expected an address without name, password, query and fragment")
    return value


def _is_variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value) or len(value) > PATH_CHARS_MAX:
        raise ValueError("expected the name of a variable")
    return value


def _is_path(value: str) -> str:
    if not value.startswith(("/", "~/")) or "\0" in value:
        raise ValueError("expected a path that does not depend on where one stands")
    return value


def _is_key_source(value: str) -> str:
    if len(value) > PATH_CHARS_MAX or not _KEY_SOURCE.fullmatch(value):
        raise ValueError("expected kept, file:/path or env:VARIABLE")
    return value


class SeatConfig(BaseModel):
    """One seat: its name, the mind that holds it, and what is told of that mind (rules 1.1).

    A seat that is given ``base_url`` and no mind is backed by the language model ``model`` there; the keys from
    ``base_url`` on are for such a seat alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    name: str = _name(..., "the seat's name, and the sender of its ballots")
    mind: Annotated[str | Any, AfterValidator(_may_be_mind)] = Field(
        description="import path of the mind; from Python also an object, class or function",
        json_schema_extra={"expected": "an import path 'package.module:Name' (from Python also a mind)"},
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        max_length=OPTIONS_MAX,
        description="keyword arguments for the mind's class",
        json_schema_extra={"expected": f"a table of at most {OPTIONS_MAX} keyword arguments"},
    )
    # rules 1.1: seats that share a model or vendor count separately, and the decision says that they share
    model: str | None = _label("the model behind the mind, as decisions name it")
    vendor: str | None = _label("who runs that model, as decisions name it")
    tokens_max: int | None = _cap(
        "tokens", "the most tokens its model may use, over the council's life (2.6)"
    )
    usd_max: float | None = _cap("usd", "the most its model may cost, over the council's life (2.6)")
    # A seat is one process with a thread for each plain review: 256 threads are what one still bears.
    max_concurrent: int = _whole(16, 1, 256, "how many reviews the seat runs at once")
    base_url: Annotated[str, AfterValidator(_is_base_url)] | None = Field(
        default=None,
        min_length=1,
        max_length=ADDRESS_CHARS_MAX,
        description="where an OpenAI-compatible server has the seat's model",
        json_schema_extra={"expected": "http://host/v1 or https://host/v1, without name, password and query"},
    )
    api_key_env: Annotated[str, AfterValidator(_is_variable)] | None = Field(
        default=None,
        description="the variable with the server's key; unset: see api_key_file",
        json_schema_extra={"expected": "the name of a variable (not COUNCIL_…)"},
    )
    api_key_file: Annotated[str, AfterValidator(_is_path)] | None = Field(
        default=None,
        max_length=PATH_CHARS_MAX,
        description="the file with the server's key, which its owner alone may read; unset: no key is sent",
        json_schema_extra={"expected": "/path or ~/path"},
    )
    # rules 2: a prompt's tokens, its answer's, and what both cost
    max_context_tokens: int = _whole(4_096, 256, 10**7, "how many tokens a prompt may have (2)")
    max_output_tokens: int = _whole(2_048, 16, 10**6, "how many tokens an answer may have")
    role: str | None = _name(None, "whose prompts the model is asked with; unset: the seat's own name")
    prompts: Annotated[str, AfterValidator(_is_path)] | None = Field(
        default=None,
        max_length=PATH_CHARS_MAX,
        description="a folder whose files go before the prompts that ship",
        json_schema_extra={"expected": "/path or ~/path"},
    )
    tokenizer: str | None = _label(
        "a vocabulary, or a tokenizer.json; unset: by the model's name", longest=255
    )
    temperature: float | None = _amount(None, 2, "how much chance an answer has", what="a number")
    top_p: float | None = _amount(None, 1, "of how likely words an answer is made", what="a number")
    answer_format: Literal["auto", "json_schema", "json_object", "text"] = Field(
        default="auto",
        description="how the server is told of the answer's form; auto finds out what it can",
        json_schema_extra={"expected": "'auto', 'json_schema', 'json_object' or 'text'"},
    )
    timeout_s: float = _seconds(60.0, DAY_S, "how long the server may be silent")
    max_execution_time_s: float | None = Field(
        default=None,
        ge=0.001,
        le=DAY_S,
        description="how long all calls for one case may take; unset: as long as the case has",
        json_schema_extra={"expected": f"a number of seconds from 0.001 to {DAY_S:g}"},
    )
    usd_per_million_input: float | None = _amount(None, 1e6, "the price of what it reads", what="dollars")
    usd_per_million_output: float | None = _amount(None, 1e6, "the price of what it writes", what="dollars")

    @model_validator(mode="before")
    @classmethod
    def _a_model_is_a_mind(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("base_url") is not None and "mind" not in given:
            return {**given, "mind": MODEL_MIND}
        return given

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        wrong = seat_contradictions({key: getattr(self, key) for key in self.model_fields_set})
        if wrong:
            raise ValueError("; ".join(f"{key}: {text}" for key, text in wrong))
        return self


_PRICES = "usd_per_million_input and usd_per_million_output"
# What only a seat that is backed by a model takes.
MODEL_KEYS = tuple(SeatConfig.model_fields)[tuple(SeatConfig.model_fields).index("base_url") :]


def seat_contradictions(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the values given for a seat get wrong together, as key and text."""
    mind = given.get("mind")
    if mind != MODEL_MIND:
        wrong = [
            (key, f"is for a seat that is backed by a model: give base_url, and no mind; found {mind!r:.80}")
            for key in MODEL_KEYS
            if given.get(key) not in (None, SeatConfig.model_fields[key].default)
        ]
        if given.get("options") and not isinstance(mind, str) and not inspect.isclass(mind):
            text = "options are for a mind that is still to be built: an import path or a class"
            wrong.append(("options", text))
        return wrong
    wrong = [
        (key, f"not given, and a seat that is backed by a model needs it: {expected(key, SeatConfig)}")
        for key in ("model", "base_url")
        if given.get(key) is None
    ]
    if given.get("options"):
        wrong.append(("options", f"a model takes none; its own keys are {', '.join(MODEL_KEYS)}"))
    if given.get("api_key_env") is not None and given.get("api_key_file") is not None:
        wrong.append(("api_key_file", "found beside api_key_env, expected one of the two"))
    prices = [given.get("usd_per_million_input"), given.get("usd_per_million_output")]
    if (prices[0] is None) != (prices[1] is None):
        wrong.append(("usd_per_million_output", "expected both prices, or none"))
    elif given.get("usd_max") is not None and prices[0] is None:
        wrong.append(("usd_max", f"a cap in dollars needs {_PRICES}, 0 where it costs nothing"))
    return wrong


DEFAULT_SEATS = (
    SeatConfig(name="prime", mind="council.agents.prime:Prime"),
    SeatConfig(name="lite", mind="council.agents.lite:Lite"),
    SeatConfig(name="codemind", mind="council.agents.codemind:CodeMind"),
)


class CouncilConfig(BaseModel):
    """Everything that a council is launched with.

    ``inactivity_s`` must be at least twice ``heartbeat_s``: beats come up to ``heartbeat_s`` apart (rules
    1.10), so below that one lost beat would silence a healthy seat. Three times, the default, bears two.
    ``quorum`` may not exceed the number of seats, for then every proposal would go to a human. A council of
    one seat is allowed and keeps quorum 2 (rules 1.4, 1.11): what its ``sole_seat`` does not let it decide
    goes to a human.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    name: str = _name("council", "the council's name, by which clients find it")
    seats: tuple[SeatConfig, ...] = Field(
        default=DEFAULT_SEATS,
        strict=False,  # a list of seats is as good as a tuple
        min_length=1,
        max_length=SEATS_MAX,
        description="who deliberates",
        json_schema_extra={"expected": "tables keyed by the seats' names, as in [seats.lite]"},
    )
    prime: str = _name("prime", "the seat that breaks ties and rules (rules 1.6, 1.8)")
    quorum: int = _whole(2, 2, SEATS_MAX, "from how many seats a decision needs ballots (rules 1.4)")
    time_budget_s: float = _seconds(60.0, DAY_S, "how long a proposal is deliberated, unless it says (1.7)")
    # Below 0.05 s the beats of 15 seats alone would keep a coordinator busy (a call costs about 1 ms).
    heartbeat_s: float = _seconds(30.0, 3600.0, "the longest time between a seat's beats (1.10)", low=0.05)
    inactivity_s: float = _seconds(90.0, DAY_S, "a seat silent for longer is inactive (1.10)", low=0.1)
    escalation_ttl_s: float = _seconds(DAY_S, 30 * DAY_S, "how long a human has to answer (1.9)")
    # rules 1.9, 1.14: fixed at launch, with a key each; who merely reaches a council can't answer in it
    humans: (
        dict[Annotated[str, Field(pattern=NAME_PATTERN)], Annotated[str, AfterValidator(_is_key_source)]]
        | None
    ) = Field(
        default=None,
        max_length=HUMANS_MAX,
        description="who may answer, and where each one's key is; unset: whoever launches it (1.9)",
        json_schema_extra={
            "expected": "a table of names to 'kept', 'file:/path', 'file:~/path' or 'env:VARIABLE' (not COUNCIL_…)"
        },
    )
    sole_seat: Literal["never", "allow-low-risk"] = Field(
        default="never",
        description="whether one active seat may decide low risk alone (1.11)",
        json_schema_extra={"expected": "'never' or 'allow-low-risk'"},
    )
    # What these three count is held in memory, at up to some 10 kB for a proposal and 1 kB for an event.
    open_max: int = _whole(2000, 1, 100_000, "how many proposals may be open before new ones are refused")
    escalations_max: int = _whole(10_000, 1, 100_000, "how many escalations may await a human")
    events_kept: int = _whole(100_000, 1, 1_000_000, "how many past events can be read again")
    # rules 2.6: reserved before each model call, at its worst; over the council's life but for a proposal's
    proposal_tokens_max: int | None = _cap(
        "tokens", "the most tokens that models may use on one proposal (2.6)"
    )
    proposal_usd_max: float | None = _cap("usd", "the most that models may cost on one proposal (2.6)")
    seat_tokens_max: int | None = _cap("tokens", "the most tokens of a seat that has no tokens_max (2.6)")
    seat_usd_max: float | None = _cap("usd", "the most that a seat without a usd_max may cost (2.6)")
    council_tokens_max: int | None = _cap("tokens", "the most tokens that all models may use together (2.6)")
    council_usd_max: float | None = _cap("usd", "the most that all models may cost together (2.6)")
    store: Annotated[str, AfterValidator(_is_store_address)] | None = Field(
        default=None,
        min_length=1,
        max_length=ADDRESS_CHARS_MAX,
        description="where packets are kept; unset: an SQLite file in the state folder, in process 'memory' (4.1)",
        json_schema_extra={
            "expected": "/path, ~/path, sqlite:////path, postgresql://user@host/database (a password in ~/.pgpass), "
            "or 'memory', which keeps nothing"
        },
    )
    checkpoint: Annotated[str, AfterValidator(_is_path)] | None = Field(
        default=None,
        min_length=1,
        max_length=PATH_CHARS_MAX,
        description="the file for signed checkpoints, best on another disk; unset: one in the state folder (4.5)",
        json_schema_extra={"expected": "/path or ~/path"},
    )
    ray_address: str | None = _label("the Ray cluster to join; unset: one of the council's own", longest=255)
    ray_namespace: str = _name("council", "the Ray namespace of the council's actors")
    call_timeout_s: float = _seconds(30.0, 3600.0, "how long a call to the council may stay unanswered")

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        names = [seat.name for seat in self.seats]
        twice = sorted({name for name in names if names.count(name) > 1})
        wrong = [("seats", f"two seats share the name {name}: give each its own") for name in twice]
        wrong += contradictions(dict(self), names) + unpriced(dict(self), self.seats)
        if wrong:
            raise ValueError("; ".join(f"{key}: {text}" for key, text in wrong))
        return self


def contradictions(values: Mapping[str, Any], seats: Sequence[str]) -> list[tuple[str, str]]:
    """What values that are right by themselves get wrong together, as key and text. Absent keys pass."""
    wrong = []
    if not 1 <= len(seats) <= SEATS_MAX:
        wrong.append(("seats", f"found {len(seats)} seats, expected 1 to {SEATS_MAX}"))
    prime, quorum = values.get("prime"), values.get("quorum")
    if prime is not None and seats and prime not in seats:
        hint = did_you_mean(prime, seats)
        wrong.append(("prime", f"prime is {prime!r}, expected one of the seats: {', '.join(seats)}{hint}"))
    most = max(2, len(seats))
    if quorum is not None and quorum > most:
        why = f"there are {len(seats)} seats" if len(seats) > 1 else "one seat keeps the least quorum"
        wrong.append(("quorum", f"quorum is {quorum}, expected at most {most}: {why}"))
    taken = sorted({*seats, "coordinator"}.intersection(values.get("humans") or ()))
    if taken:
        wrong.append(
            ("humans", f"{', '.join(taken)}: a name of a seat or of the coordinator; choose another")
        )
    beat, silence = values.get("heartbeat_s"), values.get("inactivity_s")
    if beat is not None and silence is not None and silence < 2 * beat:
        why = f"twice heartbeat_s ({beat:g}), so that one beat may be lost"
        wrong.append(("inactivity_s", f"inactivity_s is {silence:g}, expected at least {2 * beat:g}: {why}"))
    return wrong


def of_profile(profile: SeatProfile) -> dict[str, Any]:
    """A profile of the control-packet document's config.json, as keys of a seat: what it sets, and no more.

    ``SeatConfig(name="lite", base_url=..., **of_profile(import_config(data).profile("reviewer")))``
    """
    keys = {
        "model": profile.model,
        "temperature": profile.temperature,
        "top_p": profile.top_p,
        "max_context_tokens": profile.max_context_tokens,
        "max_output_tokens": profile.max_output_tokens,
        "max_execution_time_s": profile.max_execution_time_sec,
    }
    return {key: value for key, value in keys.items() if value is not None}


def unpriced(values: Mapping[str, Any], seats: Iterable[SeatConfig]) -> list[tuple[str, str]]:
    """Caps in dollars that could hold nothing, as a model that they are for has no prices."""
    names = [seat.name for seat in seats if seat.mind == MODEL_MIND and seat.usd_per_million_input is None]
    why = (
        f"{', '.join(names)}: a cap in dollars needs {_PRICES} of each seat's model, 0 where it costs nothing"
    )
    caps = ("proposal_usd_max", "seat_usd_max", "council_usd_max")
    return [(key, why) for key in caps if names and values.get(key) is not None]


COUNCIL_KEYS = tuple(CouncilConfig.model_fields)
SEAT_KEYS = tuple(key for key in SeatConfig.model_fields if key != "name")
ENABLED = "enabled"  # a key of a seat's table, not of a seat: it says whether there is one


def _checkers(model: type[BaseModel]) -> dict[str, TypeAdapter[Any]]:
    """One check for each key, so that every wrong value of every source can be told, not the first alone."""
    adapter: Any = TypeAdapter  # its argument is a value here, which type checkers don't take for a type
    strict = ConfigDict(strict=True, allow_inf_nan=False)
    return {
        key: adapter(Annotated[(info.annotation, info)], config=strict)
        for key, info in model.model_fields.items()
    }


CHECK_COUNCIL = _checkers(CouncilConfig)
CHECK_SEAT = _checkers(SeatConfig) | {ENABLED: TypeAdapter(bool, config=ConfigDict(strict=True))}


def expected(key: str, model: type[BaseModel]) -> str:
    """In words, what a key takes."""
    if key == ENABLED and model is SeatConfig:
        return "true or false"
    extra = model.model_fields[key].json_schema_extra
    return str(extra["expected"]) if isinstance(extra, dict) else "another value"


def did_you_mean(found: Any, known: Iterable[str]) -> str:
    """A hint at the known word that is closest to what was found, or nothing."""
    # Compared by their beginnings: difflib's time grows with the square of the length.
    close = difflib.get_close_matches(str(found)[:SHOWN_CHARS_MAX], list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
