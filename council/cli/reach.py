"""Connects a command to its council: a running one, one on Ray for this run, or one in process.

``propose`` needs a running council, unless an option says otherwise. ``review`` uses one in process if none was named
and none is up: a gate in a CI job must not depend on other processes, and the rules are the same. A note on stderr
says so, also if a council was brought up and has crashed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from council.cli.report import Report, UsageFault
from council.kinds.text import clean

if TYPE_CHECKING:
    from council.api.client import Council
    from council.config.load import Loaded
    from council.config.settings import CouncilConfig

How = Literal["connected", "launched", "inline"]
# If no council is up, a command asks for one or --inline, runs one itself, or asks for one.
Sole = Literal["error", "inline", "running"]

NAME_CHARS_MAX = 64  # of a client
# The keys of a seat that say which key is sent where.
_OF_A_KEY = ("base_url", "api_key_env", "api_key_file")


@dataclass(slots=True)
class Where:
    """Names the council to use, by the command line and the configuration, which is read once.

    Without ``trusts_folder`` no configuration is looked for around the working folder: a change under review must not
    choose the seats that review it, or a class that is imported. ``rules`` are the texts of rules for a council of
    this command's own, unless the configuration names others. ``keyed``: the client has the same name each time, so
    that it finds a proposal of an earlier command by its key.
    """

    config: Path | None = None
    name: str | None = None
    address: str | None = None
    inline: bool = False
    launch: bool = False
    trusts_folder: bool = True
    insecure: bool = False
    ship: bool = False
    dashboard: bool = False
    rules: tuple[tuple[str, str], ...] = ()
    keyed: bool = False
    _loaded: Loaded | None = field(default=None, init=False)

    def loaded(self) -> Loaded:
        """The configuration, with these options on top. Raises ConfigError."""
        from council.config.load import load

        if self._loaded is None:
            flags = {
                "name": self.name,
                "ray_address": self.address,
                "ray_insecure": self.insecure or None,
                "ray_ship": self.ship or None,
                "ray_dashboard": self.dashboard or None,
            }
            start = None if self.trusts_folder else Path(Path.cwd().anchor)  # nothing is above it
            self._loaded = load(self.config, start=start, flags=flags)
        return self._loaded

    def ruled(self) -> CouncilConfig:
        """The configuration with these rules, unless it names others."""
        from dataclasses import replace

        from council.config.charter_files import charter_files_of
        from council.config.settings import with_charter_files

        config = self.loaded().config
        if config.rules is not None or not self.rules:
            return config
        return with_charter_files(config, replace(charter_files_of(config), rules=self.rules))

    def client(self) -> dict[str, Any]:
        """The name and key of this command's client, if it has the same ones each time. Raises OperatorError."""
        if not self.keyed:
            return {}
        from council.config.human_keys import current_user
        from council.runtime.journals import sender_key

        sender = f"cli-{current_user()}"[:NAME_CHARS_MAX]
        # A council in memory that is up also knows the name, so the key is kept whatever the store is.
        return {
            "sender": sender,
            "key": sender_key(self.loaded().config.model_copy(update={"store": None}), sender),
        }

    def found_here(self, key: str) -> str | None:
        """The file found around the working folder that gives a value; None if the user named the file.

        The folder may be anybody's repository, so what its files name is not connected to or imported unasked.
        """
        origin = self.loaded().origins.get(key, "")
        return origin if self.config is None and os.sep in origin else None

    def seat_found_here(self, seat: str, keys: Iterable[str]) -> str | None:
        """The first such file that gives one of these keys of a seat."""
        files = (self.found_here(f"seats.{seat}.{key}") for key in keys)
        return next((file for file in files if file is not None), None)

    def refuse_address_found(self) -> None:
        """Raises UsageFault if only such a file names the Ray, and no council was brought up there."""
        from council.cluster import known

        file, config = self.found_here("ray_address"), self.loaded().config
        kept = known.read(config.name)
        if file is not None and (kept is None or kept.address != config.ray_address):
            does = f"names the Ray at {config.ray_address}"
            raise _untrusted(file, does, f"{_config_option(file)}, or --address")

    def refuse_insecure_found(self) -> None:
        """Raises UsageFault if only such a file allows a cluster without a token."""
        file = self.found_here("ray_insecure")
        if file is not None and self.loaded().config.ray_insecure:
            raise _untrusted(file, "says ray_insecure", "--insecure")

    def refuse_keys_found(self) -> None:
        """Raises UsageFault if only such a file says which key is sent to which server."""
        for seat in self.loaded().config.seats:
            key = seat.api_key_env or seat.api_key_file
            file = self.seat_found_here(seat.name, _OF_A_KEY)
            if key is not None and file is not None:
                does = f"has seat {seat.name} send the key in {key} to {seat.base_url}"
                raise _untrusted(file, does, _config_option(file))


def _untrusted(file: str, does: str, option: str) -> UsageFault:
    where = "is in the working folder or above it, where it may be anybody's"
    return UsageFault(f"{file} {does}, and {where}: if it is yours, give {option}")


def _config_option(file: str) -> str:
    return f"--config {file.removesuffix(' [tool.council]')}"


@contextlib.contextmanager
def opened(where: Where, report: Report, *, sole: Sole = "error") -> Iterator[tuple[Council, How]]:
    """The council, closed at the end, or left if it runs by itself. ``sole``: what to do if none is up.

    Raises UsageFault, ConfigError, MindError, Unreachable, VersionMismatch, NameTaken.
    """
    if where.inline and (where.launch or where.address is not None):
        raise UsageFault("--inline runs a council in this process: leave out --launch and --address")
    council, how = _connect(where, report, sole)
    try:
        yield council, how
    finally:
        council.close()


def _connect(where: Where, report: Report, sole: Sole) -> tuple[Council, How]:
    from council.api.client import Council
    from council.cluster import known
    from council.config.origins import RAY_ORIGIN
    from council.config.settings import MEMORY
    from council.protocol.extras import require_ray

    config = where.loaded().config
    if not (where.inline or where.launch):
        if sole == "inline" and where.loaded().origins["ray_address"] == RAY_ORIGIN:
            config = config.model_copy(update={"ray_address": None})  # names a Ray, and no council on it
        if config.ray_address is not None or known.running(config.name) is not None:
            with waiting(report, f"connecting to {config.name}"):
                neutral_folder()
                return Council.connect(config=config, **where.client()), "connected"
        if sole != "inline" or where.name is not None:
            known.located(config.name)  # it may have crashed
            raise _not_up(config.name, sole)
    where.refuse_keys_found()
    if where.launch:
        require_ray("starting a council on Ray", "; or run one in this process with --inline")
    # Nobody can answer in a council that ends with this command, so it needs no human's key. It can't go on later, so
    # it keeps no journal on disk unless a store is named, and is in the way of no other council of its name.
    config = where.ruled().model_copy(
        update={"humans": {}, "store": config.store or MEMORY, "ray_address": config.ray_address}
    )
    if where.launch:
        with waiting(report, "starting a council on Ray"):
            neutral_folder()
            return Council.launch(config, **where.client()), "launched"
    if not where.inline:
        if (kept := known.read(config.name)) is not None:  # and does not run
            report.note(kept.crashed().message)
        report.note("no council is up: one in this process decides (see council review --help)")
    return Council.inline(config, **where.client()), "inline"


def _not_up(name: str, sole: Sole) -> Exception:
    from council.cluster import known
    from council.protocol.errors import Unreachable

    others = ", ".join(each.name for each in known.every())
    up = f" (up: {others})" if others else ""
    other = "name another with --name or --address"
    other = other if sole == "running" else "run one in this process with --inline"
    return Unreachable(
        f"no council named {name!r} is up{up}: bring it up with council up, or {other}", name=name
    )


def neutral_folder() -> None:
    """Leaves the working folder for one of our own, before Ray is used.

    Ray puts the working folder of a driver before all else that its workers import from; and this may be a
    repository under review, whose code must not run (a ``json.py`` in it would).
    """
    from council.cluster import known

    if "PYTHONPATH" in os.environ:  # named by the user, so it goes on to mean what it meant here
        parts = os.environ["PYTHONPATH"].split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in parts if part)
    os.chdir(known.folder())


@contextlib.contextmanager
def waiting(report: Report, what: str) -> Iterator[None]:
    """Shows that something takes its time: a spinner with the seconds on a terminal, one line elsewhere."""
    if report.as_json:
        yield
    elif not report.notes.is_terminal:
        report.note(f"{what} …")
        yield
    else:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(style="cyan"),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=report.notes, transient=True) as progress:
            progress.add_task(clean(what), total=None)
            yield
