"""The receivers of outputs that ``[output]`` names, with their addresses and keys.

They are read where the council is launched, as those of notices are, because its coordinator may run elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from council.config.human_keys import key_from, state_dir
from council.config.notify import address
from council.config.settings import CouncilConfig, OutputChannel


class Output(NamedTuple):
    """The receiver of one channel: a file, a command or a webhook. ``key`` signs what the webhook gets."""

    file: str
    command: tuple[str, ...]
    webhook: str
    key: bytes
    private_hosts: bool
    timeout_s: float


def outputs_of(config: CouncilConfig) -> dict[OutputChannel, Output]:
    """The receivers by channel.

    Raises ConfigError if a variable is missing or wrong, and OperatorError if a key can't be read or kept.
    """
    found: dict[OutputChannel, Output] = {}
    for channel, given in config.output.items():
        setting = f"output.{channel}"
        url, key = address(given.webhook or "", setting), b""
        if url:
            key = key_from(
                f"the webhook of {setting}",
                given.key,
                spool_of(config.name) / f"{channel}.key",
                setting=setting,
            )
        file = str(Path(given.file).expanduser()) if given.file else ""
        found[channel] = Output(file, given.command, url, key, given.private_hosts, given.timeout_s)
    return found


def spool_of(council: str) -> Path:
    """The folder of a council's messages that wait, and of those that could not be delivered."""
    return state_dir() / "outputs" / council
