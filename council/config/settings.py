"""The settings of a council: keys, limits, defaults.

Those of a seat are in ``seat_settings``, and those of the other tables in ``tables``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, TypeAdapter, model_validator

from council.config import field_types as fields
from council.config.field_types import ADDRESS_CHARS_MAX as ADDRESS_CHARS_MAX
from council.config.field_types import DAY_S, ENTRIES_MAX
from council.config.field_types import MEMORY as MEMORY
from council.config.field_types import NAME_PATTERN as NAME_PATTERN
from council.config.field_types import SHOWN_CHARS_MAX as SHOWN_CHARS_MAX
from council.config.field_types import is_import_path as is_import_path
from council.config.seat_settings import BUILT_IN as BUILT_IN
from council.config.seat_settings import MODEL_KEYS as MODEL_KEYS
from council.config.seat_settings import MODEL_MIND as MODEL_MIND
from council.config.seat_settings import PRICES
from council.config.seat_settings import SeatConfig as SeatConfig
from council.config.seat_settings import SeatSettings as SeatSettings
from council.config.seat_settings import of_profile as of_profile
from council.config.seat_settings import seat_contradictions as seat_contradictions
from council.config.settings_model import ENABLED as ENABLED
from council.config.settings_model import SettingsModel, config_error
from council.config.settings_model import did_you_mean as did_you_mean
from council.config.settings_model import expected as expected
from council.config.tables import ActionConfig as ActionConfig
from council.config.tables import NotifyConfig as NotifyConfig
from council.config.tables import OutputChannel as OutputChannel
from council.config.tables import OutputConfig as OutputConfig
from council.config.tables import PolicyRow as PolicyRow
from council.config.tables import ScannerConfig as ScannerConfig

SEATS_MAX = 15  # each seat is a process, and a ballot to wait for
ROWS_MAX = 1_000  # of policy
HUMANS_MAX = 100  # names that an error still lists
NOBODY = "none"  # the value of ``observer`` for no observer
OBSERVER = "lite"  # the default observer, if there is a seat of this name (rules 3.1)
OTHER_ACTORS = frozenset({"coordinator", "panel", "executor"})  # named as seats are, "<council>/coordinator"
DEFAULT_SEATS = tuple(map(SeatConfig, BUILT_IN))


class CouncilConfig(SettingsModel):
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
            raise config_error(type(self), [f"{key}: {text}" for key, text in wrong])
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


def unpriced(values: Mapping[str, Any], seats: Iterable[SeatConfig]) -> list[tuple[str, str]]:
    """The caps in dollars that have no effect, because a model has no prices."""
    names = [seat.name for seat in seats if seat.mind == MODEL_MIND and seat.usd_per_million_input is None]
    why = (
        f"{', '.join(names)}: a cap in dollars needs {PRICES} of each seat's model, 0 where it costs nothing"
    )
    caps = ("proposal_usd_max", "seat_usd_max", "council_usd_max")
    return [(key, why) for key in caps if names and values.get(key) is not None]


COUNCIL_KEYS = tuple(key for key in CouncilConfig.model_fields if key != "pool")  # which CouncilPool sets
# The keys that hold rows, each with the model of a row.
ROWS: dict[str, type[BaseModel]] = {"policy": PolicyRow, "scanners": ScannerConfig}
SEAT_KEYS = tuple(key for key in SeatConfig.model_fields if key != "name")
FILES = ("charter", "schemas", "profiles", "rules")  # read with the configuration; a seat's is its persona


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
