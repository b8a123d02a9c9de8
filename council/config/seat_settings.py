"""The settings of one seat: keys, limits, defaults."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypedDict, Unpack

from pydantic import AfterValidator, model_validator

from council.config import field_types as fields
from council.config.field_types import ADDRESS_CHARS_MAX, DAY_S, ENTRIES_MAX
from council.config.settings_model import SettingsModel, config_error, did_you_mean, expected
from council.protocol.errors import ConfigError

if TYPE_CHECKING:
    from council.protocol.identity.profiles import SeatProfile

MODEL_MIND = "council.agents.model:ModelMind"  # the mind of a seat that names a base_url and no other mind
PROMPT_TOKENS_MIN = 256  # with fewer, not even the frame of a prompt fits
# The seats that a council has unless others are named. A seat of such a name has this mind unless it names another.
BUILT_IN = {
    "prime": "council.agents.prime:Prime",
    "lite": "council.agents.lite:Lite",
    "codemind": "council.agents.codemind:CodeMind",
}


class SeatSettings(TypedDict, total=False):
    """The keys of a seat besides its name; see ``SeatConfig``, which checks them."""

    mind: Any
    options: dict[str, Any]
    model: str | None
    vendor: str | None
    tokens_max: int | None
    usd_max: float | None
    max_concurrent: int
    resources: dict[str, float]
    labels: dict[str, str]
    runtime_env: dict[str, Any]
    base_url: str | None
    provider: str | None
    api_key_env: str | None
    api_key_file: str | None
    max_context_tokens: int
    max_output_tokens: int
    context_window: int | None
    special_tokens: Literal["refuse", "text"]
    role: str | None
    prompts: str | None
    persona: str | None
    tokenizer: str | None
    temperature: float | None
    top_p: float | None
    answer_format: Literal["auto", "json_schema", "json_object", "text"]
    stages: Literal["auto", "one", "two"]
    scan: Literal["on", "off"]
    timeout_s: float
    max_execution_time_s: float | None
    usd_per_million_input: float | None
    usd_per_million_output: float | None


class SeatConfig(SettingsModel):
    """One seat: its name, its mind, and what decisions say of that mind (rules 1.1).

    ``SeatConfig("prime")`` is the built-in seat of that name, as are ``"lite"`` and ``"codemind"``. A seat of another
    name needs a ``mind`` or a ``base_url``; without one ConfigError is raised. A seat with a ``base_url`` and no mind
    is backed by the language model ``model`` there. Only such a seat has the keys from ``base_url`` on.
    """

    name: str = fields.name(..., "the seat's name, and the sender of its ballots")
    mind: Annotated[str | Any, AfterValidator(fields.may_be_mind)] = fields.key(
        ...,
        "import path of the mind; from Python also an object, class or function",
        "an import path 'package.module:Name' (from Python also a mind)",
    )
    options: dict[str, Any] = fields.table(
        "keyword arguments for the mind's class", f"of at most {ENTRIES_MAX} keyword arguments"
    )
    # rules 1.1: seats that share a model or vendor count separately, and the decision says that they share
    model: str | None = fields.label("the model behind the mind, as decisions name it")
    vendor: str | None = fields.label("who runs that model, as decisions name it")
    tokens_max: int | None = fields.cap(
        "tokens", "the most tokens its model may use, over the council's life (2.6)"
    )
    usd_max: float | None = fields.cap("usd", "the most its model may cost, over the council's life (2.6)")
    # A seat is one process with a thread for each plain review: 256 threads are what one still bears.
    max_concurrent: int = fields.whole(16, 1, 256, "how many reviews the seat runs at once")
    # On a cluster: Ray's own keys for an actor, and no more of them
    resources: dict[fields.ResourceName, fields.ResourceAmount] = fields.table(
        "what the seat's process takes of its node: GPU, CPU, memory, or resources of your own",
        "of resources to amounts above 0, as in {GPU = 1}",
    )
    labels: dict[fields.LabelKey, fields.LabelValue] = fields.table(
        "the labels that a node must have for the seat to run there",
        'of labels to plain values, as in {accelerator = "a100"}',
    )
    runtime_env: dict[str, Any] = fields.table(
        "Ray's runtime_env of the seat's process; shown, so no place for secrets",
        'of Ray\'s runtime_env, as in {pip = ["torch"]}',
    )
    base_url: Annotated[str, AfterValidator(fields.is_base_url)] | None = fields.key(
        None,
        "where an OpenAI-compatible server has the seat's model",
        "http://host/v1 or https://host/v1, without name, password and query",
        max_length=ADDRESS_CHARS_MAX,
    )
    provider: str | None = fields.name(
        None, "whose API that server has, as pydantic-ai names it: 'anthropic'; unset: OpenAI's"
    )
    api_key_env: Annotated[str, AfterValidator(fields.is_variable)] | None = fields.key(
        None,
        "the variable with the server's key; unset: see api_key_file",
        "the name of a variable (not COUNCIL_…)",
    )
    api_key_file: fields.Path = fields.path(
        "the file with the server's key, which its owner alone may read; unset: no key is sent"
    )
    # rules 2: a prompt's tokens, its answer's, and what both cost
    max_context_tokens: int = fields.whole(
        4_096, PROMPT_TOKENS_MIN, 10**7, "how many tokens a prompt may have (2)"
    )
    max_output_tokens: int = fields.whole(2_048, 16, 10**6, "how many tokens an answer may have")
    context_window: int | None = fields.whole(
        None,
        1,
        10**9,
        "how many tokens its model can read and write together; unset: not known (2)",
        what="a whole number of tokens",
    )
    special_tokens: Literal["refuse", "text"] = fields.key(
        "refuse",
        "whether a proposal with a special token, such as <|im_start|>, is refused or shown (2.2)",
        "'refuse', or 'text' for a server that takes them for no more than text",
    )
    role: str | None = fields.name(None, "the role whose prompts the model gets; unset: the seat's own name")
    prompts: fields.Path = fields.path("a folder with files that replace the built-in prompts")
    persona: fields.Path = fields.path(
        "the file with a persona of the seat's own; unset: the charter's (7.1)"
    )
    tokenizer: str | None = fields.label(
        "a vocabulary, or a tokenizer.json; unset: by the model's name", longest=255
    )
    temperature: float | None = fields.amount(None, 2, "the sampling temperature", what="a number")
    top_p: float | None = fields.amount(None, 1, "the sampling top_p", what="a number")
    answer_format: Literal["auto", "json_schema", "json_object", "text"] = fields.key(
        "auto",
        "how the answer's form is requested; auto: detected",
        "'auto', 'json_schema', 'json_object' or 'text'",
    )
    stages: Literal["auto", "one", "two"] = fields.key(
        "auto",
        "how many calls a vote takes; auto: two, a plan first, for an action or a risk above low (3.1)",
        "'auto', 'one' or 'two'",
    )
    scan: Literal["on", "off"] = fields.key(
        "on",
        "whether a model is shown the findings of the static checks, and can't vote for what they stop",
        "'on' or 'off'",
    )
    timeout_s: float = fields.seconds(60.0, DAY_S, "how long the server may be silent")
    max_execution_time_s: float | None = fields.seconds(
        None, DAY_S, "how long all calls for one case may take; unset: as long as the case has"
    )
    usd_per_million_input: float | None = fields.amount(
        None, 1e6, "the price of a million input tokens", what="dollars"
    )
    usd_per_million_output: float | None = fields.amount(
        None, 1e6, "the price of a million output tokens", what="dollars"
    )

    def __init__(self, name: str, **settings: Unpack[SeatSettings]) -> None:
        given: Any = {"name": name, **settings}
        super().__init__(**given)

    @model_validator(mode="before")
    @classmethod
    def _has_a_mind(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or "mind" in given:
            return given
        name = given.get("name")
        mind = MODEL_MIND if given.get("base_url") is not None else BUILT_IN.get(str(name))
        if mind is None:
            known = f"{', '.join(BUILT_IN)}{did_you_mean(str(name).lower(), BUILT_IN)}"
            wrong = f"seat {name!r:.80} has no mind: give mind='module:Class', or use one of {known}"
            raise ConfigError(wrong, problems=(wrong,))
        return {**given, "mind": mind}

    @property
    def mtu(self) -> int:
        """The most tokens that a prompt may have, at most the model's window less its answer's limit (rules 2)."""
        if self.context_window is None:
            return self.max_context_tokens
        return min(self.max_context_tokens, self.context_window - self.max_output_tokens)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        wrong = seat_contradictions({key: getattr(self, key) for key in self.model_fields_set})
        if wrong:
            raise config_error(type(self), [f"{key}: {text}" for key, text in wrong])
        return self


PRICES = "usd_per_million_input and usd_per_million_output"
# The keys that only a seat backed by a model has.
MODEL_KEYS = tuple(SeatConfig.model_fields)[tuple(SeatConfig.model_fields).index("base_url") :]


def seat_contradictions(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The contradictions between the values of a seat, each a key and a text."""
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
    window = given.get("context_window")
    written = given.get("max_output_tokens", SeatConfig.model_fields["max_output_tokens"].default)
    if window is not None and window - written < PROMPT_TOKENS_MIN:
        left = f"{window:,} less the answer's {written:,} (max_output_tokens) leaves {max(window - written, 0):,}"
        mend = "lower max_output_tokens, or give the model a larger window"
        wrong.append(("context_window", f"{left} for a prompt, which needs {PROMPT_TOKENS_MIN}: {mend}"))
    if given.get("provider") is not None and given.get("answer_format") == "json_object":
        wrong.append(("answer_format", "a provider takes no such form, but 'auto', 'json_schema' or 'text'"))
    if given.get("api_key_env") is not None and given.get("api_key_file") is not None:
        wrong.append(("api_key_file", "found beside api_key_env, expected one of the two"))
    prices = [given.get("usd_per_million_input"), given.get("usd_per_million_output")]
    if (prices[0] is None) != (prices[1] is None):
        wrong.append(("usd_per_million_output", "expected both prices, or none"))
    elif given.get("usd_max") is not None and prices[0] is None:
        wrong.append(("usd_max", f"a cap in dollars needs {PRICES}, 0 where it costs nothing"))
    return wrong


def of_profile(profile: SeatProfile) -> dict[str, Any]:
    """A profile of the control-packet document's config.json, as the keys of a seat that it sets.

    ``SeatConfig(name="lite", base_url=..., **of_profile(Profiles.checked(data).profile("reviewer")))``
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
