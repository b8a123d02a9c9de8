"""``council doctor``: checks that everything a council needs is there, and says what to do if not.

Everything that it starts ends with it; Ray is started only on request. The seats' models are called once, unless
offline.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from council.cli import reach
from council.cli.options import Address, Config, Json, Name
from council.cli.report import DONE, REJECTED, Report
from council.kinds.text import line, span
from council.protocol.errors import ConfigError, CouncilError
from council.protocol.extras import install, is_installed

if TYPE_CHECKING:
    from council.config.settings import CouncilConfig, SeatConfig

Finding = tuple[str, str, str]
PACKAGES = ("council-runtime", "ast-grep-cli", "ruff")  # the static checks call the last two
DISK_NEEDED = 2**30  # Ray's session folder with its logs and sockets
# The keys of a seat that decide what is imported, and which key is sent where.
_DECISIVE = ("mind", "base_url", "model", "api_key_env", "api_key_file")


def doctor(
    ray: Annotated[bool, typer.Option("--ray", help="Also start a council on Ray, and end it.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Leave out the calls to the seats' models.")
    ] = False,
    name: Name = None,
    address: Address = None,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Check that everything a council needs is there.

    Starts nothing, except with --ray. Calls each seat's model once, for a few tokens, outside any budget. Exits
    1 if something does not work.

    If a file in the working folder names minds, models or a Ray, these are imported, called or connected to
    only if --config names that file.
    """
    from council.cli import overview

    report = Report(as_json=as_json)
    found = list(examine(reach.Where(config, name, address), report, try_ray=ray, offline=offline))
    code = REJECTED if any(level == "fail" for level, _, _ in found) else DONE
    entries = [{"level": level, "what": what, "said": said} for level, what, said in found]
    return report.result({"checks": entries}, overview.checks(found), code)


def examine(where: reach.Where, report: Report, *, try_ray: bool, offline: bool = False) -> Iterator[Finding]:
    """One finding after the other: ``(ok | warn | fail, what, what was found or is to be done)``."""
    yield "ok", "Python", f"{platform.python_version()} ({platform.system()} {platform.machine()})"
    for package in PACKAGES:
        try:
            yield "ok", package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield "fail", package, f"not installed: pip install {package}"
    if is_installed("ray"):
        yield "ok", "ray", importlib.metadata.version("ray")
    else:
        yield "warn", "ray", f"not installed; a council that stays up needs it: {install('ray')}"
    git = shutil.which("git")
    yield (
        ("ok", "git", git)
        if git
        else ("warn", "git", "not installed; council review needs it to read commits")
    )
    try:
        loaded = where.loaded()
    except ConfigError as error:
        for problem in error.problems:
            yield "fail", "configuration", line(problem)
        return
    config = loaded.config
    elsewhere = ("default", "environment ", "flag ")
    files = sorted({origin for origin in loaded.origins.values() if not origin.startswith(elsewhere)})
    yield "ok", "configuration", f"valid, from {', '.join(files) or 'the defaults'}"
    yield _charter(config)
    yield from _seats(where, report, config.seats, offline=offline)
    yield _state_folder()
    yield from _sqlite(config)
    yield from _token_file()
    yield _disk()
    yield from outputs(config)
    yield _council(where, report)
    if try_ray:
        yield _ray(where, report)


def _charter(config: CouncilConfig) -> Finding:
    from council.config.charter_files import charter_files_of, resolve_charter

    try:
        identity = charter_files_of(resolve_charter(config)).charter.identity
    except ConfigError as error:
        return "fail", "charter", "; ".join(map(line, error.problems))
    return "ok", "charter", f"identity {identity.content_hash()[:12]}, from {config.charter or 'what ships'}"


def _seats(
    where: reach.Where, report: Report, seats: Iterable[SeatConfig], *, offline: bool
) -> Iterator[Finding]:
    from council.config.build_minds import build_mind
    from council.config.settings import MODEL_MIND

    models = []
    for seat in seats:
        what, file = f"seat {seat.name}", where.seat_found_here(seat.name, _DECISIVE)
        if file is not None:
            yield "warn", what, _not_tried(seat.base_url or seat.mind, file)
        elif seat.mind == MODEL_MIND:
            models.append(seat)
        else:
            try:
                build_mind(seat)
                yield "ok", what, str(seat.mind)
            except CouncilError as error:
                yield "fail", what, line(error.message)
    if models:
        from council.cli.setup import modelcheck

        with reach.waiting(report, "asking the seats' models") if not offline else contextlib.nullcontext():
            found = list(modelcheck.examine(models, offline=offline))
        yield from found


def _not_tried(named: object, file: str) -> str:
    return f"{line(str(named), 100)} is named by {line(file)}; to try it, name that file with --config"


def _state_folder() -> Finding:
    from council.config.files import open_to_others
    from council.config.human_keys import state_dir

    path = state_dir()
    there = next(each for each in (path, *path.parents) if each.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return "fail", "state folder", f"{there} can't be written: change its mode, or set XDG_STATE_HOME"
    for secret in (*path.glob("humans/*.key"), *path.glob("councils/*.json")):
        if open_to_others(secret):
            return "fail", "state folder", f"{secret} is open to others: chmod 600 {secret}"
    return "ok", "state folder", str(path) if there == path else f"{path} (not there yet)"


def _sqlite(config: CouncilConfig) -> Iterator[Finding]:
    """Whether the SQLite of this Python keeps a store whole, if the store is a file."""
    from council.config.settings import MEMORY
    from council.journal.engines import sqlite_fault

    store = config.store or ""
    if store != MEMORY and not store.startswith("postgres"):
        fault = sqlite_fault()
        yield ("ok", "SQLite", sqlite3.sqlite_version) if fault is None else ("warn", "SQLite", fault)


def _token_file() -> Iterator[Finding]:
    from council.cluster import admission

    path = admission.token_file()
    if path is not None:
        wrong = admission.open_to_others(path)
        yield ("ok", "Ray's token", str(path)) if wrong is None else ("warn", "Ray's token", line(wrong))


def _disk() -> Finding:
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return "fail", "disk", f"{folder}: {error.strerror}: set TMPDIR, or RAY_TMPDIR"
    level, hint = ("ok", "") if free >= DISK_NEEDED else ("warn", "; Ray wants more for its session")
    return level, "disk", f"{free / 2**30:.1f} GB free in {folder}{hint}"


def outputs(config: CouncilConfig) -> Iterator[Finding]:
    """The messages of each channel that could not be delivered."""
    from council.config.outputs import spool_of

    for channel in config.output:
        dead = spool_of(config.name) / channel / "dead"
        lost = sorted(dead.glob("*.json"))
        if not lost:
            yield "ok", f"output {channel}", "no message was lost"
            continue
        try:
            why = str(json.loads(lost[-1].read_bytes())["why"])
        except (OSError, ValueError, KeyError, TypeError):
            why = "its file can't be read"
        count = "1 message was" if len(lost) == 1 else f"{len(lost):,} messages were"
        yield (
            "warn",
            f"output {channel}",
            f"{count} not delivered, the last because: {line(why)}. They are in {dead}; to send one again, move "
            "its file up, and start the council again",
        )


def _council(where: reach.Where, report: Report) -> Finding:
    from council.cluster import known

    config = where.loaded().config
    what = f"council {config.name}"
    try:
        file = where.found_here("ray_address")
        if file is not None:
            return "warn", what, _not_tried(config.ray_address, file)
        if config.ray_address is None and known.located(config.name) is None:
            return "ok", what, "not up (council up brings it up)"
        began = time.monotonic()
        with reach.opened(where, report, sole="running") as (council, _):
            status = council.status()
        active = sum(1 for seat in status["seats"] if seat["active"])
        level = "ok" if active >= status["quorum"] else "warn"
        said = (
            f"answers ({span(time.monotonic() - began)} to connect), {active} of {len(status['seats'])} seats"
        )
        return level, what, f"{said} active"
    except CouncilError as error:
        return "fail", what, line(error.message)


def _ray(where: reach.Where, report: Report) -> Finding:
    for seat in where.loaded().config.seats:
        file = where.seat_found_here(seat.name, _DECISIVE)
        if file is not None:
            return "warn", "Ray", f"not started: {_not_tried(seat.base_url or seat.mind, file)}"
    where.launch = True
    began = time.monotonic()
    try:
        with reach.opened(where, report) as (council, _):
            council.status()
    except CouncilError as error:
        return "fail", "Ray", line(error.message)
    except Exception as error:  # noqa: BLE001 - whatever Ray raises is the finding
        return "fail", "Ray", f"does not start: {line(str(error)) or type(error).__name__}"
    return "ok", "Ray", f"a council started and ended in {span(time.monotonic() - began)}"
