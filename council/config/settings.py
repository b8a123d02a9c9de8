"""The settings of a council: keys, limits, defaults."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypedDict, Unpack

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from council.config import field_types as fields
from council.config.field_types import ADDRESS_CHARS_MAX as ADDRESS_CHARS_MAX
from council.config.field_types import DAY_S, ENTRIES_MAX
from council.config.field_types import MEMORY as MEMORY
from council.config.field_types import NAME_PATTERN as NAME_PATTERN
from council.config.field_types import SHOWN_CHARS_MAX as SHOWN_CHARS_MAX
from council.config.field_types import is_import_path as is_import_path
from council.protocol.errors import ConfigError

if TYPE_CHECKING:
    from council.protocol.identity.profiles import SeatProfile

# ``shell`` is not among them: a command is run by ``act`` alone.
OutputChannel = Literal[
    "cli", "web", "discord", "slack", "council", "memory", "log", "api", "webhook", "audio"
]
SEATS_MAX = 15  # each seat is a process, and a ballot to wait for
ROWS_MAX = 1_000  # of policy
HUMANS_MAX = 100  # names that an error still lists
MODEL_MIND = "council.agents.model:ModelMind"  # the mind of a seat that names a base_url and no other mind
NOBODY = "none"  # the value of ``observer`` for no observer
OBSERVER = "lite"  # the default observer, if there is a seat of this name (rules 3.1)
PROMPT_TOKENS_MIN = 256  # with fewer, not even the frame of a prompt fits
# The seats that a council has unless others are named. A seat of such a name has this mind unless it names another.
BUILT_IN = {
    "prime": "council.agents.prime:Prime",
    "lite": "council.agents.lite:Lite",
    "codemind": "council.agents.codemind:CodeMind",
}
OTHER_ACTORS = frozenset({"coordinator", "panel", "executor"})  # named as seats are, "<council>/coordinator"


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


class _Settings(BaseModel):
    """Settings that are checked when they are created. All faults are in one ConfigError, which names their keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="wrap")
    @classmethod
    def _in_words(cls, given: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return check(given)
        except ValidationError as error:
            problems = [_problem(cls, fault) for fault in error.errors()]
        raise _wrong(cls, problems)


def _wrong(model: type[BaseModel], problems: Sequence[str]) -> ConfigError:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = "".join(f"\n  {problem}" for problem in problems)
    return ConfigError(f"{model.__name__} has {count}:{lines}", problems=list(problems))


def _problem(model: type[BaseModel], fault: ErrorDetails) -> str:
    """An error of pydantic's, in words."""
    found = fields.quoted_value(fault["input"])
    if not fault["loc"]:
        return f"found {found}, expected its keys with their values"
    key = str(fault["loc"][0])
    if key not in model.model_fields:
        known = model.model_fields
        return f"{key}: unknown key, expected one of {', '.join(known)}{did_you_mean(key, known)}"
    found = "is missing" if fault["type"] == "missing" else f"found {found}"
    return f"{key}: {found}, expected {expected(key, model)}"


class SeatConfig(_Settings):
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
            raise _wrong(type(self), [f"{key}: {text}" for key, text in wrong])
        return self


_PRICES = "usd_per_million_input and usd_per_million_output"
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
        wrong.append(("usd_max", f"a cap in dollars needs {_PRICES}, 0 where it costs nothing"))
    return wrong


DEFAULT_SEATS = tuple(map(SeatConfig, BUILT_IN))


class NotifyConfig(_Settings):
    """The receivers of notices about proposals that wait for a human (rules 1.9)."""

    command: tuple[Annotated[str, Field(min_length=1), AfterValidator(fields.is_argument)], ...] = fields.key(
        (),
        "the command that is run for each notice, which it reads from its standard input as JSON",
        'a list of a program and its arguments, as in ["/usr/local/bin/page-me", "--loud"], each up to '
        f"{fields.ARGUMENT_CHARS_MAX:,} characters",
        strict=False,  # a list is as good as a tuple
        max_length=ENTRIES_MAX,
    )
    webhook: Annotated[str, AfterValidator(fields.is_webhook)] | None = fields.key(
        None,
        "where each notice is posted as JSON, signed; a secret address belongs in a variable",
        "https://… without name and password, or env:VARIABLE (not COUNCIL_…)",
        max_length=ADDRESS_CHARS_MAX,
    )
    key: Annotated[str, AfterValidator(fields.is_key_source)] = fields.key(
        "kept",
        "where the key is that signs what the webhook gets",
        "'kept', 'file:/path', 'file:~/path' or 'env:VARIABLE' (not COUNCIL_…)",
    )
    content: bool = fields.switch(False, "whether notices hold what the proposal and the human say")
    remind_s: float = fields.seconds(3600.0, 30 * DAY_S, "the time between reminders while it waits")
    timeout_s: float = fields.seconds(
        10.0, 600.0, "how long the command may run, and the webhook take to answer"
    )

    @model_validator(mode="after")
    def _names_a_receiver(self) -> Self:
        if not self.command and self.webhook is None:
            raise _wrong(type(self), ["it names nobody, expected a table with command, webhook, or both"])
        return self


class OutputConfig(_Settings):
    """The receiver of one channel of outputs: a table [output.CHANNEL] (GCP 7)."""

    file: fields.Path = fields.path("the file that each message is appended to, as a line of JSON")
    command: tuple[Annotated[str, Field(min_length=1), AfterValidator(fields.is_argument)], ...] = fields.key(
        (),
        "the command that is run for each message, which it reads from its standard input as JSON",
        f'a list of a program and its arguments, as in ["espeak", "--stdin"], each up to '
        f"{fields.ARGUMENT_CHARS_MAX:,} characters",
        strict=False,
        max_length=ENTRIES_MAX,
    )
    webhook: Annotated[str, AfterValidator(fields.is_webhook)] | None = fields.key(
        None,
        "where each message is posted, signed; a secret address belongs in a variable",
        "https://… without name and password, or env:VARIABLE (not COUNCIL_…)",
        max_length=ADDRESS_CHARS_MAX,
    )
    key: Annotated[str, AfterValidator(fields.is_key_source)] = fields.key(
        "kept",
        "where the key is that signs what the webhook gets",
        "'kept', 'file:/path', 'file:~/path' or 'env:VARIABLE' (not COUNCIL_…)",
    )
    private_hosts: bool = fields.switch(
        False, "whether the webhook's host may have an address that is not public"
    )
    timeout_s: float = fields.seconds(10.0, 600.0, "how long a command may run, and a webhook take to answer")

    @model_validator(mode="after")
    def _names_one_receiver(self) -> Self:
        if sum(map(bool, (self.file, self.command, self.webhook))) != 1:
            raise _wrong(type(self), ["expected a file, a command or a webhook, and one of them only"])
        return self


class ActionConfig(_Settings):
    """What approved actions may touch, and how their programs are held: a table [action]."""

    root: fields.Path = fields.path(
        "the folder that commands, files and commits are under; unset: none are run"
    )
    sandbox: Literal["auto", "none"] = fields.key(
        "auto",
        "how programs are held; auto: bubblewrap, else Landlock, else they are refused; none: not at all",
        "'auto', or 'none' to run programs without any protection",
    )
    hosts: tuple[Annotated[str, Field(pattern=r"^[0-9a-z.-]{1,253}(:[0-9]{1,5})?$")], ...] = fields.key(
        (),
        "the hosts that requests may go to",
        'a list of hosts, as in ["api.example.com", "localhost:8080"]',
        strict=False,
        max_length=ENTRIES_MAX,
    )
    private_hosts: bool = fields.switch(False, "whether a host may have an address that is not public")
    readable: tuple[Annotated[str, AfterValidator(fields.is_path)], ...] = fields.key(
        (), "further folders that programs may read", "a list of /path", strict=False, max_length=ENTRIES_MAX
    )
    timeout_s: float = fields.seconds(60.0, 3600.0, "how long an action may run")
    output_bytes_max: int = fields.whole(2**20, 1, 2**26, "how much of each output is kept", what="bytes")
    memory_bytes_max: int = fields.whole(2**30, 2**24, 2**40, "the memory of each process", what="bytes")
    cpu_s: int = fields.whole(60, 1, 86_400, "the CPU time of each process", what="seconds")
    processes_max: int = fields.whole(64, 4, 10_000, "how many processes a program may have")
    file_bytes_max: int = fields.whole(2**28, 0, 2**40, "the size of a file that it writes", what="bytes")


_Glob = Annotated[str, Field(min_length=1, max_length=fields.ARGUMENT_CHARS_MAX)]
_GLOBS = 'a list of globs, as in ["prod/*", "!prod/docs/*"]; one that begins with ! excludes'


class PolicyRow(_Settings):
    """What becomes of an action that fits: a row [[policy]]. It fits if all that the row names fits."""

    tool: str | None = fields.label("a glob on the tool's name; unset: any action or change")
    args: dict[str, Annotated[str, AfterValidator(fields.is_pattern)]] = fields.table(
        "regular expressions that are searched for in arguments, by the arguments' names",
        'of arguments to regular expressions, as in {command = "^terraform (apply|destroy)"}',
    )
    paths: tuple[_Glob, ...] = fields.key(
        (),
        "globs on the paths that it names or changes; one must match",
        _GLOBS,
        strict=False,
        max_length=ENTRIES_MAX,
    )
    hosts: tuple[_Glob, ...] = fields.key(
        (), "globs on the hosts that it names; one must match", _GLOBS, strict=False, max_length=ENTRIES_MAX
    )
    agent: str | None = fields.label(
        "a glob on the proposer, or the agent or user that it names; not checked"
    )
    then: Literal["reject", "human", "note"] = fields.key(
        ..., "what becomes of it", "'reject', 'human' or 'note'"
    )
    reason: str = fields.key(
        ..., "why; shown with the decision", "a text of 1 to 300 characters", min_length=1, max_length=300
    )

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not (self.tool or self.args or self.paths or self.hosts or self.agent):
            raise _wrong(
                type(self),
                ['it fits everything, expected tool, args, paths, hosts or agent; any tool is tool = "*"'],
            )
        return self


class ScannerConfig(_Settings):
    """A program that prints SARIF 2.1.0 about the files of a change: a row [[scanners]]."""

    command: Annotated[tuple[str, ...], BeforeValidator(fields.words), AfterValidator(fields.is_command)] = (
        fields.key(
            ...,
            "the program and its arguments, run in a folder with the changed files",
            'a list of a program, by its name or /path, and its arguments, as in ["semgrep", "scan", "--sarif"], '
            "or one text",
            strict=False,
        )
    )
    timeout_s: float = fields.seconds(60.0, 600.0, "how long it may run")
    levels: dict[Literal["error", "warning", "note", "none"], Literal["stop", "ask", "note"]] = fields.table(
        "the weights of its levels; unset: error stops, warning asks, note is noted",
        "of 'error', 'warning', 'note', 'none' to 'stop', 'ask', 'note'",
    )


class CouncilConfig(_Settings):
    """The settings of a council.

    ``inactivity_s`` must be at least twice ``heartbeat_s``, so that one lost beat does not make a seat inactive
    (rules 1.10). ``quorum`` may not exceed the number of seats, or every proposal would go to a human. A council of
    one seat keeps quorum 2 (rules 1.4, 1.11): a proposal that ``sole_seat`` does not let it decide goes to a human.
    """

    name: str = fields.name("council", "the council's name, by which clients find it")
    seats: tuple[SeatConfig, ...] = fields.key(
        DEFAULT_SEATS,
        "who deliberates",
        "tables keyed by the seats' names, as in [seats.lite]",
        strict=False,  # a list of seats is as good as a tuple
        min_length=1,
        max_length=SEATS_MAX,
    )
    prime: str = fields.name("prime", "the seat that breaks ties and rules (rules 1.6, 1.8)")
    observer: str | None = fields.name(
        None,
        "the seat that may halt the others while they think, or 'none'; unset: lite, if there is one (3.1)",
    )
    quorum: int = fields.whole(2, 2, SEATS_MAX, "how many ballots a decision needs (rules 1.4)")
    time_budget_s: float = fields.seconds(
        60.0, DAY_S, "how long a proposal is deliberated, unless it says (1.7)"
    )
    # Below 0.05 s the beats of 15 seats alone would keep a coordinator busy (a call costs about 1 ms).
    heartbeat_s: float = fields.seconds(
        30.0, 3600.0, "the longest time between a seat's beats (1.10)", low=0.05
    )
    inactivity_s: float = fields.seconds(90.0, DAY_S, "a seat silent for longer is inactive (1.10)", low=0.1)
    escalation_ttl_s: float = fields.seconds(DAY_S, 30 * DAY_S, "how long a human has to answer (1.9)")
    # rules 1.9, 1.14: fixed at launch, with a key each; reaching a council does not allow answering in it
    humans: (
        dict[
            Annotated[str, Field(pattern=NAME_PATTERN)], Annotated[str, AfterValidator(fields.is_key_source)]
        ]
        | None
    ) = fields.key(
        None,
        "who may answer, and where each key is; unset: the user who launches it (1.9)",
        "a table of names to 'kept', 'file:/path', 'file:~/path' or 'env:VARIABLE' (not COUNCIL_…)",
        max_length=HUMANS_MAX,
    )
    notify: NotifyConfig | None = fields.key(
        None,
        "the receivers of notices about proposals that wait for a human; unset: none (1.9)",
        'a table with command, webhook, or both, as in {command = ["/usr/local/bin/page-me"]}',
        strict=False,
    )
    output: dict[OutputChannel, OutputConfig] = fields.table(
        "the receivers of what the council says, by channel; unset: none (GCP 7)",
        'of channels to tables with a file, a command or a webhook, as in {slack = {webhook = "env:SLACK_HOOK"}}',
    )
    action: ActionConfig | None = fields.key(
        None,
        "what approved actions may touch; unset: no built-in tool",
        'a table, as in {root = "/srv/project", hosts = ["api.example.com"]}',
        strict=False,
    )
    creator: str | None = fields.name(
        None, "which of the humans may change the identity; unset: the first of them (7.2)"
    )
    charter: fields.Path = fields.path(
        "the file of identity, persona and task instructions; unset: those that ship (7)"
    )
    schemas: fields.Path = fields.path(
        "a .gl file or a folder of them: predicates that models may use too (6.3)"
    )
    profiles: fields.Path = fields.path("a config.json of seats' profiles, for what is not set here")
    sole_seat: Literal["never", "allow-low-risk"] = fields.key(
        "never", "whether one active seat may decide low risk alone (1.11)", "'never' or 'allow-low-risk'"
    )
    unknown_tools: Literal["ask", "allow"] = fields.key(
        "ask",
        "whether a human decides if no static check knows a tool, and it writes, pays, sends or deletes",
        "'ask', or 'allow' to go by the other checks alone",
    )
    tools: Annotated[str, AfterValidator(fields.is_path_of_tools)] | None = fields.key(
        None,
        "the tools that the council's executor runs once they are approved; unset: those of clients alone (5)",
        "the import path of a tool or a list of tools, 'package.module:NAME'",
    )
    rules: fields.Path = fields.path(
        "the folder of rules and silences of one's own; in a file it may be relative to the file's folder"
    )
    policy: tuple[PolicyRow, ...] = fields.key(
        (),
        "what becomes of actions that fit, before any seat is asked",
        "tables [[policy]]",
        strict=False,
        max_length=ROWS_MAX,
    )
    scanners: tuple[ScannerConfig, ...] = fields.key(
        (),
        "programs that print SARIF about the files of a change",
        "tables [[scanners]]",
        strict=False,
        max_length=ENTRIES_MAX,
    )
    # All of these are held in memory: up to some 10 kB for a proposal, 4 kB for a decision.
    open_max: int = fields.whole(
        2000, 1, 100_000, "how many proposals may wait for seats or Prime before new ones are refused"
    )
    escalations_max: int = fields.whole(10_000, 1, 100_000, "how many escalations may await a human")
    events_kept: int = fields.whole(
        100_000, 1, 1_000_000, "how many past events can be read again, while they fit 4 MiB"
    )
    decisions_kept: int = fields.whole(
        10_000, 1, 1_000_000, "how many of its newest decisions a council without a store keeps"
    )
    keep_packets: bool = fields.switch(
        False, "whether the store keeps each seat's cognition packet, redacted, for council show --packets"
    )
    # rules 2.6: the highest cost is reserved before each model call. All caps but a proposal's are for the council's
    # life.
    proposal_tokens_max: int | None = fields.cap(
        "tokens", "the most tokens that models may use on one proposal (2.6)"
    )
    proposal_usd_max: float | None = fields.cap("usd", "the most that models may cost on one proposal (2.6)")
    seat_tokens_max: int | None = fields.cap(
        "tokens", "the most tokens of a seat that has no tokens_max (2.6)"
    )
    seat_usd_max: float | None = fields.cap("usd", "the most that a seat without a usd_max may cost (2.6)")
    council_tokens_max: int | None = fields.cap(
        "tokens", "the most tokens that all models may use together (2.6)"
    )
    council_usd_max: float | None = fields.cap("usd", "the most that all models may cost together (2.6)")
    store: Annotated[str, AfterValidator(fields.is_store_address)] | None = fields.key(
        None,
        "where packets are kept; unset: an SQLite file in the state folder, in process 'memory' (4.1)",
        "/path, ~/path, sqlite:////path, postgresql://user@host/database (a password in ~/.pgpass), or 'memory', "
        "which keeps nothing",
        max_length=ADDRESS_CHARS_MAX,
    )
    checkpoint: fields.Path = fields.path(
        "the file for signed checkpoints, best on another disk; unset: one in the state folder (4.5)"
    )
    metrics_port: int | None = fields.whole(
        None,
        0,
        65_535,
        "where the coordinator serves its metrics to Prometheus; 0: any free port; unset: nowhere",
        what="a port",
    )
    # Unencrypted and without a token: the metrics hold no content, but names of seats and models.
    metrics_host: str = fields.host(
        "127.0.0.1", "the address of this machine that its metrics are served at; 0.0.0.0: all of them"
    )
    traces: Literal["off", "otlp", "global"] = fields.key(
        "off",
        "where spans go: by OTLP as OTEL_… says, or to the provider that each process has",
        "'off', 'otlp' or 'global'",
    )
    pool: tuple[int, int] | None = fields.key(
        None,
        "its number in a pool, and the pool's size; set by CouncilPool alone",
        "nothing: CouncilPool sets it",
    )
    panel: bool | None = fields.switch(
        None, "whether the council's live panel is served; unset: by council up, and beside a dashboard"
    )
    panel_port: int = fields.whole(0, 0, 65_535, "where the panel is served; 0: any free port", what="a port")
    # Unencrypted. Without its token the panel shows ids, stages and figures, and no text of a proposal.
    panel_host: str = fields.host("127.0.0.1", "the address of this machine that the panel is served at")
    ray_dashboard: bool = fields.switch(False, "whether a Ray of the council's own has its dashboard")
    ray_address: str | None = fields.label(
        "the Ray cluster to join; auto: the Ray on this machine; unset: a Ray of the council's own",
        longest=255,
    )
    ray_namespace: str = fields.name("council", "the Ray namespace of the council's actors")
    ray_insecure: bool = fields.switch(
        False,
        "whether to launch on, or join as auto, a Ray that demands no token, and so runs anybody's code",
    )
    ray_ship: bool = fields.switch(
        False, "whether to send this package to the cluster's nodes; its dependencies must be installed there"
    )
    call_timeout_s: float = fields.seconds(30.0, 3600.0, "how long a call to the council may stay unanswered")

    # The content of the files that it names, once they are read (``council.config.charter_files``).
    _papers: Any = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        names = [seat.name for seat in self.seats]
        twice = sorted({name for name in names if names.count(name) > 1})
        wrong = [("seats", f"two seats share the name {name}: give each its own") for name in twice]
        wrong += contradictions(dict(self), names) + unpriced(dict(self), self.seats)
        if wrong:
            raise _wrong(type(self), [f"{key}: {text}" for key, text in wrong])
        return self


def contradictions(values: Mapping[str, Any], seats: Sequence[str]) -> list[tuple[str, str]]:
    """The contradictions between values, each a key and a text. Missing keys are right."""
    wrong = []
    if not 1 <= len(seats) <= SEATS_MAX:
        wrong.append(("seats", f"found {len(seats)} seats, expected 1 to {SEATS_MAX}"))
    prime, quorum = values.get("prime"), values.get("quorum")
    if prime is not None and seats and prime not in seats:
        hint = did_you_mean(prime, seats)
        wrong.append(("prime", f"prime is {prime!r}, expected one of the seats: {', '.join(seats)}{hint}"))
    observer = values.get("observer")
    if observer not in (None, NOBODY) and seats and observer not in seats:
        hint = did_you_mean(observer, seats)
        who = f"one of the seats: {', '.join(seats)}, or {NOBODY!r}"
        wrong.append(("observer", f"observer is {observer!r}, expected {who}{hint}"))
    most = max(2, len(seats))
    if quorum is not None and quorum > most:
        why = f"there are {len(seats)} seats" if len(seats) > 1 else "one seat keeps the least quorum"
        wrong.append(("quorum", f"quorum is {quorum}, expected at most {most}: {why}"))
    taken = sorted({*seats, "coordinator"}.intersection(values.get("humans") or ()))
    if taken:
        wrong.append(
            ("humans", f"{', '.join(taken)}: a name of a seat or of the coordinator; choose another")
        )
    creator, humans = values.get("creator"), values.get("humans")
    if creator is not None and humans is not None and creator not in humans:
        who = ", ".join(humans) or "nobody"
        wrong.append(("creator", f"creator is {creator!r}, expected one of the humans: {who}"))
    if other := sorted(OTHER_ACTORS.intersection(seats)):
        wrong.append(("seats", f"{', '.join(other)}: a name of an actor that is no seat; choose another"))
    beat, silence = values.get("heartbeat_s"), values.get("inactivity_s")
    if beat is not None and silence is not None and silence < 2 * beat:
        why = f"twice heartbeat_s ({beat:g}), so that one beat may be lost"
        wrong.append(("inactivity_s", f"inactivity_s is {silence:g}, expected at least {2 * beat:g}: {why}"))
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


def unpriced(values: Mapping[str, Any], seats: Iterable[SeatConfig]) -> list[tuple[str, str]]:
    """The caps in dollars that have no effect, because a model has no prices."""
    names = [seat.name for seat in seats if seat.mind == MODEL_MIND and seat.usd_per_million_input is None]
    why = (
        f"{', '.join(names)}: a cap in dollars needs {_PRICES} of each seat's model, 0 where it costs nothing"
    )
    caps = ("proposal_usd_max", "seat_usd_max", "council_usd_max")
    return [(key, why) for key in caps if names and values.get(key) is not None]


COUNCIL_KEYS = tuple(key for key in CouncilConfig.model_fields if key != "pool")  # which CouncilPool sets
# The keys that hold rows, each with the model of a row.
ROWS: dict[str, type[BaseModel]] = {"policy": PolicyRow, "scanners": ScannerConfig}
SEAT_KEYS = tuple(key for key in SeatConfig.model_fields if key != "name")
FILES = ("charter", "schemas", "profiles", "rules")  # read with the configuration; a seat's is its persona
ENABLED = "enabled"  # a key of a seat's table, not of a seat: it says whether there is one


@functools.cache
def checker(model: type[BaseModel], key: str) -> TypeAdapter[Any]:
    """The check of one key, so that every wrong value of every source is found."""
    if key == ENABLED and model is SeatConfig:
        return TypeAdapter(bool, config=ConfigDict(strict=True))
    adapter: Any = TypeAdapter  # type checkers don't accept a value as its argument
    info = model.model_fields[key]
    config = ConfigDict(strict=True, allow_inf_nan=False)
    return adapter(Annotated[(info.annotation, info)], config=config)  # type: ignore[no-any-return]


def charter_files(config: CouncilConfig) -> Any:
    """The content of the files that a configuration names (a ``CharterFiles``); None before they are read."""
    return config._papers


def with_charter_files(config: CouncilConfig, files: Any) -> CouncilConfig:
    """The configuration with the content of the files that it names."""
    found = config.model_copy()
    found._papers = files
    return found


def expected(key: str, model: type[BaseModel]) -> str:
    """The values that a key takes, in words."""
    if key == ENABLED and model is SeatConfig:
        return "true or false"
    extra = model.model_fields[key].json_schema_extra
    return str(extra["expected"]) if isinstance(extra, dict) else "another value"


def did_you_mean(found: Any, known: Iterable[str]) -> str:
    """A hint at the nearest known word, or nothing."""
    # Compared by their beginnings: difflib's time grows with the square of the length.
    close = difflib.get_close_matches(str(found)[:SHOWN_CHARS_MAX], list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
