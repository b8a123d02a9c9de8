"""The tools that a council's own executor runs: the built-in ones, and those that its settings name."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Iterable

from council.action.tool import Tool
from council.config.settings import CouncilConfig
from council.protocol.errors import ConfigError

# The name of the council's own executor. A client can't join under it.
EXECUTOR = "executor"


def tools_of(config: CouncilConfig) -> dict[str, Tool]:
    """The built-in tools that ``[action]`` allows, and those of the setting ``tools``, by name.

    Imports the module of ``tools``, and so runs its code. Raises ConfigError for a path that leads to something else
    than a tool or a list of tools, and as ``builtin_tools`` does.
    """
    builtin: dict[str, Tool] = {}
    if config.action is not None:
        from council.action.builtin import (
            builtin_tools,  # sandboxes, which a council without them does not need
        )

        builtin = builtin_tools(config.action)
    if config.tools is None:
        return builtin
    module, _, attribute = config.tools.partition(":")
    try:
        found = operator.attrgetter(attribute)(importlib.import_module(module))
    except (Exception, SystemExit) as error:  # a user's module may do anything when it is imported
        raise _wrong(config.tools, f"it can't be imported: {error!r}") from error
    listed = [*found] if isinstance(found, Iterable) else [found]
    for each in listed:
        if not isinstance(each, Tool):
            raise _wrong(config.tools, f"{each!r:.80} is no tool: see council.action.tool.Tool")
    tools = {each.name: each for each in listed}
    if len(tools) < len(listed):
        raise _wrong(config.tools, "two of the tools have the same name")
    if both := ", ".join(sorted(builtin.keys() & tools)):
        raise _wrong(config.tools, f"{both} is the name of a built-in tool: give yours another")
    return {**builtin, **tools}


def _wrong(path: str, why: str) -> ConfigError:
    return ConfigError(f"tools: {path!r}: {why}", problems=[f"tools: {path!r}: {why}"])
