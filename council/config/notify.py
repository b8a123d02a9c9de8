"""The receivers of notices about what waits for a human: the addresses and keys that ``[notify]`` names.

They are read where the council is launched, as the keys of humans are, because its coordinator may run elsewhere.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from council.agents.messaging.logs import get_logger
from council.config.field_types import is_webhook
from council.config.human_keys import key_from, state_dir
from council.config.settings import CouncilConfig
from council.protocol.errors import ConfigError

log = get_logger("council")


class Receivers(NamedTuple):
    """The receivers of notices: a command, a webhook, or both. ``key`` signs what the webhook gets."""

    command: tuple[str, ...]
    webhook: str
    key: bytes
    content: bool
    remind_s: float
    timeout_s: float


def receivers_of(config: CouncilConfig) -> Receivers | None:
    """The receivers that the settings name; None if they name none.

    Raises ConfigError if a variable is missing or wrong, and OperatorError if a key can't be read or kept.
    """
    notify = config.notify
    if notify is None:
        return None
    if notify.command and shutil.which(notify.command[0]) is None:
        log.warning("notify: this machine has no such program", command=notify.command[0])
    url, key = address(notify.webhook or "", "notify"), b""
    if url:
        whose = f"the webhook of {config.name}"
        key = key_from(whose, notify.key, webhook_key_path(config), setting="notify")
    return Receivers(notify.command, url, key, notify.content, notify.remind_s, notify.timeout_s)


def webhook_key_path(config: CouncilConfig) -> Path:
    """The file of the key that signs notices, if the settings name no other."""
    return state_dir() / "notify" / f"{config.name}.key"


def address(given: str, setting: str) -> str:
    """The webhook's address, which a variable may hold, because many addresses are secrets. Raises ConfigError."""
    kind, _, variable = given.partition(":")
    if kind != "env":
        return given
    found = os.environ.get(variable)
    if found is None:
        state = "is not set"
    else:
        try:
            return is_webhook(found)
        except ValueError:
            state = "holds another value"
    problem = f"{setting}: the webhook's address should be in the variable {variable}, which {state}: expected https://…"
    raise ConfigError(problem, problems=(problem,))
