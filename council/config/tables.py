"""The settings in tables of their own: notices, outputs, actions, policy and scanners."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from council.config import field_types as fields
from council.config.field_types import ADDRESS_CHARS_MAX, DAY_S, ENTRIES_MAX
from council.config.settings_model import SettingsModel, config_error

# ``shell`` is not among them: a command is run by ``act`` alone.
OutputChannel = Literal[
    "cli", "web", "discord", "slack", "council", "memory", "log", "api", "webhook", "audio"
]


class ReceiverConfig(SettingsModel):
    """What the receivers of notices and of outputs have in common."""

    command: tuple[Annotated[str, Field(min_length=1), AfterValidator(fields.is_argument)], ...] = fields.key(
        (),
        "the command that is run for each message, which it reads from its standard input as JSON",
        'a list of a program and its arguments, as in ["/usr/local/bin/page-me", "--loud"], each up to '
        f"{fields.ARGUMENT_CHARS_MAX:,} characters",
        strict=False,  # a list is as good as a tuple
        max_length=ENTRIES_MAX,
    )
    webhook: Annotated[str, AfterValidator(fields.is_webhook)] | None = fields.key(
        None,
        "where each message is posted as JSON, signed; a secret address belongs in a variable",
        "https://… without name and password, or env:VARIABLE (not COUNCIL_…)",
        max_length=ADDRESS_CHARS_MAX,
    )
    key: Annotated[str, AfterValidator(fields.is_key_source)] = fields.key(
        "kept",
        "where the key is that signs what the webhook gets",
        "'kept', 'file:/path', 'file:~/path' or 'env:VARIABLE' (not COUNCIL_…)",
    )
    timeout_s: float = fields.seconds(
        10.0, 600.0, "how long the command may run, and the webhook take to answer"
    )


class NotifyConfig(ReceiverConfig):
    """The receivers of notices about proposals that wait for a human (rules 1.9)."""

    content: bool = fields.switch(False, "whether notices hold what the proposal and the human say")
    remind_s: float = fields.seconds(3600.0, 30 * DAY_S, "the time between reminders while it waits")

    @model_validator(mode="after")
    def _names_a_receiver(self) -> Self:
        if not self.command and self.webhook is None:
            raise config_error(
                type(self), ["it names nobody, expected a table with command, webhook, or both"]
            )
        return self


class OutputConfig(ReceiverConfig):
    """The receiver of one channel of outputs: a table [output.CHANNEL] (GCP 7)."""

    file: fields.Path = fields.path("the file that each message is appended to, as a line of JSON")
    private_hosts: bool = fields.switch(
        False, "whether the webhook's host may have an address that is not public"
    )

    @model_validator(mode="after")
    def _names_one_receiver(self) -> Self:
        if sum(map(bool, (self.file, self.command, self.webhook))) != 1:
            raise config_error(type(self), ["expected a file, a command or a webhook, and one of them only"])
        return self


class ActionConfig(SettingsModel):
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


class PolicyRow(SettingsModel):
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
            raise config_error(
                type(self),
                ['it fits everything, expected tool, args, paths, hosts or agent; any tool is tool = "*"'],
            )
        return self


class ScannerConfig(SettingsModel):
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
