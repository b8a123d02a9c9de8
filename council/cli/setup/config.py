"""``council config``: the settings in effect."""

from __future__ import annotations

from pathlib import Path

from council.cli.options import Address, Config, Json, Name
from council.cli.reach import Where
from council.cli.report import Report


def config(name: Name = None, address: Address = None, config: Config = None, json: Json = False) -> int:
    """Print the settings in effect, and where each came from."""
    from council.cli import overview
    from council.config.load import describe

    report = Report(as_json=json)
    lines = describe(Where(config, name, address).loaded())
    entries = [{"key": key, "value": value, "origin": origin} for key, value, origin in lines]
    here = f"{Path.cwd()}/"
    shown = overview.settings([(key, value, at.removeprefix(here)) for key, value, at in lines])
    return report.result({"settings": entries}, shown)
