"""The built-in tools that the settings ``[action]`` allow."""

from __future__ import annotations

import os
from pathlib import Path

from council.action.command import Command
from council.action.files import FilePatch, FileWrite
from council.action.git_commit import GitCommit
from council.action.http_request import HttpRequest
from council.action.sandbox import Limits
from council.action.tool import Tool
from council.config.settings import ActionConfig
from council.protocol.errors import ConfigError


def builtin_tools(action: ActionConfig | None) -> dict[str, Tool]:
    """The tools by name. The tools for files and programs need a ``root``; ``http.request`` needs ``hosts``.

    Raises ConfigError if the root is not a folder, or is the whole file system.
    """
    tools: list[Tool] = []
    if action is None:
        return {}
    limits = Limits(
        action.timeout_s,
        action.output_bytes_max,
        action.memory_bytes_max,
        action.cpu_s,
        action.processes_max,
        action.file_bytes_max,
    )
    if action.root is not None:
        root = Path(os.path.realpath(os.path.expanduser(action.root)))
        if not root.is_dir() or root == Path("/"):
            raise ConfigError(f"action.root: found {action.root!r}, expected an existing folder other than /")
        tools += [
            Command(root, limits=limits, sandbox=action.sandbox, readable=action.readable),
            FileWrite(root),
            FilePatch(root),
            GitCommit(root, limits=limits, sandbox=action.sandbox),
        ]
    if action.hosts:
        hosts = HttpRequest(action.hosts, private=action.private_hosts, bytes_max=action.output_bytes_max)
        tools.append(hosts)
    return {tool.name: tool for tool in tools}
