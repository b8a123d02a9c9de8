"""``council doctor``: checks that everything a council needs is there, and says what to do if not.

Everything that it starts ends with it; Ray is started only on request. The seats' models are called once, unless
offline.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from council.cli import reach
from council.cli.options import Address, Config, Json, Name
from council.cli.report import DONE, REJECTED, Report
from council.kinds.text import line, span
from council.protocol.errors import ConfigError, CouncilError

if TYPE_CHECKING:
    from council.config.settings import CouncilConfig, SeatConfig

Finding = tuple[str, str, str]
TOOL_TIMEOUT_S = 20.0
# Ray's own processes take some 500 MB, and a seat or coordinator 55 MB each (measured with Ray 2.60).
MEMORY_NEEDED = 800 * 2**20
DISK_NEEDED = 2**30  # Ray's session folder with its logs and sockets


# What of a seat decides what is imported, whom its model's key goes to, and which.
_DECISIVE = ("mind", "base_url", "model", "api_key_env", "api_key_file")


def doctor(
    ray: Annotated[bool, typer.Option("--ray", help="Also start a council on Ray, and end it.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Leave out the calls to the seats' models.")
    ] = False,
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Look whether all is there that a council needs.

    Exits 1 where something does not work. Starts nothing, but with --ray.
    Each seat's model is called once, for a few tokens, outside of any budget.

    Minds, models and a Ray that a file in the working folder names are
    imported, called and connected to only where --config names that file.
    """
    from council.cli import overview

    report = Report(as_json=json)
    found = list(examine(reach.Where(config, name, address), report, try_ray=ray, offline=offline))
    code = REJECTED if any(level == "fail" for level, _, _ in found) else DONE
    entries = [{"level": level, "what": what, "said": said} for level, what, said in found]
    return report.result({"checks": entries}, overview.checks(found), code)


def examine(where: reach.Where, report: Report, *, try_ray: bool, offline: bool = False) -> Iterator[Finding]:
    """One finding after the other: ``(ok | warn | fail, what, what was found or is to be done)``."""
    yield _python()
    yield _package("council-runtime")
    yield _package("ray")
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
    for tool, why in (("ruff", "CodeMind's checks need it"), ("bandit", "CodeMind's checks need it")):
        yield _tool(tool, [sys.executable, "-P", "-m", tool, "--version"], f"{why}: pip install {tool}")
    yield _tool("git", ["git", "--version"], "council review of commits needs it", level="warn")
    yield _state_folder()
    yield from _token_file()
    yield _memory()
    yield _disk()
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
    from council.config.settings import MODEL_MIND

    models = []
    for seat in seats:
        file = _found_here(where, seat)
        if file is not None:
            yield "warn", f"seat {seat.name}", _not_tried(seat.base_url or seat.mind, file)
        elif seat.mind == MODEL_MIND:
            models.append(seat)
        else:
            yield _mind(seat)
    if models:
        from council.cli.setup import modelcheck

        with reach.waiting(report, "asking the seats' models") if not offline else contextlib.nullcontext():
            found = list(modelcheck.examine(models, offline=offline))
        yield from found


def _found_here(where: reach.Where, seat: SeatConfig) -> str | None:
    """The file in the working folder that what a seat is tried with comes from, if there is one."""
    found = (where.found_here(f"seats.{seat.name}.{key}") for key in _DECISIVE)
    return next((file for file in found if file is not None), None)


def _not_tried(named: object, file: str) -> str:
    return (
        f"{line(str(named), 100)} is named by {line(file)}; it is tried only where --config names that file"
    )


def _python() -> Finding:
    return "ok", "Python", f"{platform.python_version()} ({platform.system()} {platform.machine()})"


def _package(name: str) -> Finding:
    try:
        return "ok", name, importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "fail", name, f"not installed: pip install {name}"


def _mind(seat: SeatConfig) -> Finding:
    from council.config.build_minds import build_mind

    what = f"seat {seat.name}"
    try:
        build_mind(seat)
    except CouncilError as error:
        return "fail", what, line(error.message)
    return "ok", what, str(seat.mind)


def _tool(name: str, command: list[str], why: str, *, level: str = "fail") -> Finding:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return level, name, f"can't be run ({line(str(error), 100)}); {why}"
    if done.returncode != 0:
        return level, name, f"can't be run ({line(done.stderr, 100)}); {why}"
    words = done.stdout.split("\n")[0].split()  # "ruff 0.17.5", "git version 2.39.5"
    return "ok", name, line(words[-1], 40) if words else "runs"


def _state_folder() -> Finding:
    from council.config.human_keys import state_dir

    path = state_dir()
    if not path.exists():
        above = next(parent for parent in path.parents if parent.exists())
        if os.access(above, os.W_OK):
            return "ok", "state folder", f"{path} (not there yet)"
        return "fail", "state folder", f"{path} can't be made in {above}: set XDG_STATE_HOME"
    if not os.access(path, os.W_OK | os.X_OK):
        return "fail", "state folder", f"{path} can't be written: mend its mode, or set XDG_STATE_HOME"
    open_ones = [each for each in _secrets_in(path) if stat.S_IMODE(each.stat().st_mode) & 0o077]
    if open_ones:
        return "fail", "state folder", f"{open_ones[0]} is open to others: chmod 600 {open_ones[0]}"
    return "ok", "state folder", str(path)


def _token_file() -> Iterator[Finding]:
    from council.cluster import admission

    path = admission.token_file()
    if path is not None:
        wrong = admission.open_to_others(path)
        yield ("ok", "Ray's token", str(path)) if wrong is None else ("warn", "Ray's token", line(wrong))


def _secrets_in(path: Path) -> list[Path]:
    return [*path.glob("humans/*.key"), *path.glob("councils/*.json")]


def _memory() -> Finding:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(each.split()[1]) * 1024 for each in lines if each.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return "warn", "memory", "this system does not say how much is free"
    said = f"{free / 2**30:.1f} GB free"
    if free < MEMORY_NEEDED:
        return "warn", "memory", f"{said}; a council on Ray takes {MEMORY_NEEDED / 2**30:.1f}: use --inline"
    return "ok", "memory", said


def _disk() -> Finding:
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return "fail", "disk", f"{folder}: {error.strerror}: set TMPDIR, or RAY_TMPDIR"
    level, hint = ("ok", "") if free >= DISK_NEEDED else ("warn", "; Ray wants more for its session")
    return level, "disk", f"{free / 2**30:.1f} GB free in {folder}{hint}"


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
        file = _found_here(where, seat)
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
