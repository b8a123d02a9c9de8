"""Brings up councils that outlive the shell, and takes them down again.

On a local Ray, ``council.cluster.host_process`` is the process that keeps the council up. On another cluster the
council consists of detached actors, and no process stays here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from council.cli import reach
from council.cli.report import Interrupted, Report
from council.cluster import known
from council.config.settings import CouncilConfig
from council.kinds.text import line, span
from council.protocol.errors import ConfigError, CouncilError, NameTaken, OperatorError, Unreachable

if TYPE_CHECKING:
    from council.cluster.known import Known

# Ray itself takes up to 30 s on a busy machine, the seats up to 150 (ray_side.START_TIMEOUT_S).
READY_TIMEOUT_S = 240.0
# The host closes the council (15 s) and Ray (a few seconds); one that takes longer hangs.
END_TIMEOUT_S = 40.0
LOOK_S = 0.2
LOG_LINES_SHOWN = 15


def up(config: CouncilConfig, report: Report) -> Known:
    """A council that outlives this process. Raises NameTaken, MindError, ConfigError, Unreachable, ..."""
    config = config.model_copy(update={"panel": config.panel is not False})
    if config.ray_address not in (None, "local"):
        return _up_on_cluster(config, report)
    kept = known.read(config.name)
    if kept is not None and kept.stale():
        forget(kept)
    elif kept is not None:
        raise NameTaken(
            f"a council named {config.name!r} is up already, since {span(max(0.0, time.time() - kept.since_wall_s))} "
            "ago: use it, take it down with council down, or choose another --name",
            name=config.name,
        )
    with reach.waiting(report, f"starting Ray and the council {config.name!r}"):
        reach.neutral_folder()
        ready = _host(config)
    if ready["notice"]:
        report.note(f"notice: {ready['notice']}")
    found = known.running(config.name)
    if found is None:
        raise OperatorError(f"council {config.name!r} ended just after it was ready; see {_log(config.name)}")
    return found


def _log(name: str) -> Path:
    return known.folder() / f"{name}.log"


def notes_on(found: Known, config: CouncilConfig) -> list[str]:
    """Notes on where the council runs, the addresses of its pages, and the limits that its cluster sets."""
    lines = [f"process {found.pid}, log {found.log}" if found.pid else f"on the cluster at {found.address}"]
    lines += [f"panel {found.panel}"] if found.panel else []
    if found.dashboard:
        # Ray's own dialog names a command of Ray's, which does not know the token of the council's Ray.
        token = "" if found.token is None else "; it asks for a token, which council dashboard --token prints"
        lines.append(f"Ray's dashboard {found.dashboard}{token}")
    if found.pid is not None:
        return lines
    from council.cluster.placement import pinned

    if pinned(config):
        lines.append(
            f"its journal is a file on this node, {found.machine}, and its coordinator stays with it: without the "
            'node there is no council. With store = "postgresql://…" it would move to another'
        )
    if config.ray_insecure:
        lines.append("the cluster demands no token, so anybody who reaches its ports can do anything there")
    return lines


def _up_on_cluster(config: CouncilConfig, report: Report) -> Known:
    from council.cluster import admission

    kept = known.running(config.name)
    if kept is not None and (kept.pid is not None or kept.namespace != config.ray_namespace):
        raise NameTaken(
            f"a council named {config.name!r} was brought up from here already, at {kept.address} in namespace "
            f"{kept.namespace}: take it down with council down, or choose another --name",
            name=config.name,
        )
    path = admission.token_file()
    warning = None if path is None else admission.open_to_others(path)
    if warning is not None:
        report.note(f"warning: {warning}")
    reach.neutral_folder()
    # council down takes down only what is remembered.
    known.refuse_unwritable(config.name)
    with reach.waiting(report, f"starting council {config.name!r} at {config.ray_address}"):
        from council.cluster import connection, panel_actor
        from council.cluster import port as ray_side

        port = ray_side.launch(config, detached=True)
        try:
            found = known.Known(
                name=config.name,
                namespace=config.ray_namespace,
                address=connection.here(),
                machine=socket.gethostname(),
                since_wall_s=time.time(),
            )
            _remember(found, report)  # at once, in case this is interrupted
            seen = asyncio.run(panel_actor.places(port.ask))
            found = replace(found, panel=seen["panel"], dashboard=seen["dashboard"])
            with contextlib.suppress(OperatorError):  # the council's status has them too
                known.write(found)
        finally:
            port.release()
    if seen["notice"]:
        report.note(f"notice: {seen['notice']}")
    return found


def _remember(found: Known, report: Report) -> None:
    """Remembers a council. If that fails it stays up, and can be found only by its address."""
    try:
        known.write(found)
    except OperatorError as error:
        report.note(
            f"warning: council {found.name!r} is up at {found.address}, in namespace {found.namespace}, but is not "
            f"remembered here: {error.message}. Give its --address to reach it; council down does not know it: "
            f'Council.connect("{found.address}", "{found.name}", ray_namespace="{found.namespace}").end() ends it'
        )


def _host(config: CouncilConfig) -> dict[str, Any]:
    """Starts the host process, and returns its report. If that fails, nothing is left running."""
    given = config.model_dump_json()
    # By their values: the content of the files that it names is read again there.
    if CouncilConfig.model_validate_json(given).model_dump() != config.model_dump():
        raise ConfigError(
            "a seat's options hold what JSON can't (a date, perhaps): write it as text",
            problems=["seats: options that JSON can't hold"],
        )
    log_path = _log(config.name)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reported, _log_file(log_path) as log:
        # -P: modules are not searched for in the working folder, which may hold anybody's.
        command = [sys.executable, "-P", "-m", "council.cluster.host_process", str(writing), str(log_path)]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(writing,),
                start_new_session=True,
            )
        finally:
            os.close(writing)
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                pipe.write(given.encode())
            answer = _answer(reported, log_path)
        except BaseException as error:
            _end_child(process)
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted("the council was still starting; nothing of it is left running") from None
            raise
    if "ready" not in answer:
        try:
            process.wait(END_TIMEOUT_S)  # it closes what it has opened
        except subprocess.TimeoutExpired:
            _end_child(process)
        raise _start_error(answer, log_path)
    ready: dict[str, Any] = answer["ready"]
    return ready


@contextlib.contextmanager
def _log_file(path: Path) -> Iterator[IO[bytes]]:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise OperatorError(f"{path} can't be written: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.truncate(0)  # of an earlier run; a process that still writes to it goes on appending
        yield file


def _answer(reported: IO[bytes], log_path: Path) -> dict[str, Any]:
    """The one line that the host reports; {} if it ended without one."""
    if not select.select([reported], [], [], READY_TIMEOUT_S)[0]:
        late = f"the council was not ready within {span(READY_TIMEOUT_S)}, and was ended"
        raise OperatorError(f"{late}{_end_of_log(log_path)}")
    answer = reported.readline()
    return dict(json.loads(answer)) if answer.endswith(b"\n") else {}


def _start_error(answer: dict[str, Any], log_path: Path) -> CouncilError:
    from council.runtime.messages import Failed

    reported = answer.get("error")
    if reported is None:
        return OperatorError(f"the council's process ended while it was starting{_end_of_log(log_path)}")
    error = Failed("", reported["code"], reported["type"], reported["message"]).error()
    if error.code in ("name_taken", "mind", "config", "version_mismatch"):
        return error  # the log would add nothing
    return type(error)(f"{error.message}{_end_of_log(log_path)}")


def _end_of_log(path: Path) -> str:
    """The end of the log, for an error's message."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            shown = deque((f"  {line(each)}" for each in file if each.strip()), maxlen=LOG_LINES_SHOWN)
    except OSError:
        return ""
    return "\n".join([f"; the end of {path}:", *shown]) if shown else f"; its log {path} is empty"


def _end_child(process: subprocess.Popen[bytes]) -> None:
    """Ends a host that is still starting."""
    process.terminate()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def down(kept: Known, report: Report) -> str:
    """Ends a council that was brought up from here; returns how. Raises OperatorError, Unreachable."""
    if kept.pid is None:
        from council.api.client import Council

        with reach.waiting(report, f"ending council {kept.name!r}"):
            reach.neutral_folder()
            try:
                Council.connect(kept.address, kept.name, ray_namespace=kept.namespace).end()
            except Unreachable as error:
                path = known.folder() / f"{kept.name}.json"
                raise Unreachable(f"{error.message}; if it is gone for good, remove {path}") from error
        known.forget(kept.name)
        return "its actors on the cluster are gone"
    if kept.machine != socket.gethostname():
        raise OperatorError(f"council {kept.name!r} was brought up on {kept.machine}: take it down there")
    with reach.waiting(report, f"ending council {kept.name!r}"):
        return _end_host(kept)


def forget(kept: Known) -> None:
    """Ends the Ray of a council whose host is gone, and forgets the council. Raises OperatorError."""
    from council.cluster import reaper

    left = reaper.end(kept.ray)
    if left:
        pids = ", ".join(map(str, left))
        raise OperatorError(f"processes {pids} of council {kept.name!r}'s Ray do not end: end them by hand")
    known.forget(kept.name)


def _end_host(kept: Known) -> str:
    """Ends the host by its id, after checking each time that the id is still that process's."""
    assert kept.pid is not None
    for number, limit_s, said in (
        (signal.SIGTERM, END_TIMEOUT_S, "its process and its Ray have ended"),
        # Ray's own processes are bound to it; ``forget`` ends what these leave.
        (signal.SIGKILL, LOOK_S * 20, f"its process did not end within {span(END_TIMEOUT_S)} and was killed"),
    ):
        until = time.monotonic() + limit_s
        with contextlib.suppress(ProcessLookupError):
            if not kept.stale():
                os.kill(kept.pid, number)
        while time.monotonic() < until:
            if kept.stale():
                forget(kept)
                return said
            time.sleep(LOOK_S)
    raise OperatorError(f"process {kept.pid} of council {kept.name!r} does not end")
