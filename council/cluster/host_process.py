"""The process that keeps a council and its local Ray up after ``council up`` has returned.

``python -m council.cluster.host_process REPORT LOG`` reads the configuration as JSON from its input. It writes one
line of JSON to the descriptor REPORT: ``{"ready": ...}``, or ``{"error": ...}`` if it failed. It then stays until
SIGTERM, removes the file by which the council is found, and closes the council and Ray. If the council dies, the file
stays. LOG is the file of its output, recorded so that commands can name it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from council.agents.messaging import logs
from council.cluster import known, reaper
from council.cluster.socket_server import SocketServer, place
from council.config.files import lock
from council.config.settings import CouncilConfig
from council.protocol.errors import CouncilDied, CouncilError, InternalError, NameTaken, OperatorError
from council.runtime.questions import AskStatus

if TYPE_CHECKING:
    from council.cluster.port import RayPort

log = logs.get_logger("council.host")

# How often it checks whether the coordinator lives. If that is dead, this process ends.
LOOK_S = 5.0
# The coordinator cancels its tasks and kills its seats in less than a second.
CLOSE_TIMEOUT_S = 15.0


def main(argv: list[str]) -> int:
    """Hosts one council; the exit code is 0 after SIGTERM, else 1."""
    if len(argv) != 2 or not argv[0].isdigit():
        sys.stderr.write("this process is started by council up\n")
        return 2
    os.umask(0o077)
    logs.configure()
    with os.fdopen(int(argv[0]), "w", encoding="utf-8") as report:
        try:
            config = CouncilConfig.model_validate_json(sys.stdin.buffer.read())
            with _only_one(config.name):
                return _host(config, report, argv[1])
        except CouncilError as error:
            _report(report, {"error": _as_data(error)})
            log.error("not started", why=error.message)
            return 1
        except Exception as error:
            _report(report, {"error": _as_data(InternalError(f"{type(error).__name__}: {error}"))})
            raise


def _as_data(error: CouncilError) -> dict[str, str]:
    return {"code": error.code, "type": type(error).__name__, "message": error.message}


def _report(report: IO[str], line: dict[str, Any]) -> None:
    if not report.closed:
        with contextlib.suppress(OSError):  # the process that started it may have ended
            report.write(json.dumps(line) + "\n")
            report.close()


@contextlib.contextmanager
def _only_one(name: str) -> Iterator[None]:
    """Holds the name while this process lives; the system releases it in any case."""
    path = known.folder() / f"{name}.lock"
    try:
        file = path.open("a")
        locked = lock(file.fileno())
    except OSError as error:
        raise OperatorError(f"{path} can't be locked: {error.strerror}") from error
    with file:
        if not locked:
            raise NameTaken(
                f"a council named {name!r} runs already, or is starting: see council status, take it down "
                "with council down, or choose another --name",
                name=name,
            )
        yield


def _host(config: CouncilConfig, report: IO[str], log_path: str) -> int:
    token = secrets.token_hex(32)
    # Ray reads these when it is imported, below. The token is its own: it is stored where only its owner can read it.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
    from council.cluster import connection, panel_actor
    from council.cluster import port as ray_side

    port = ray_side.launch(config, detached=True)
    try:
        seen = asyncio.run(panel_actor.places(port.ask))
        entry = known.Known(
            name=config.name,
            namespace=config.ray_namespace,
            address=connection.here(),
            machine=socket.gethostname(),
            since_wall_s=time.time(),
            pid=os.getpid(),
            started=reaper.process_started(os.getpid()),
            token=token,
            log=log_path,
            panel=seen["panel"],
            dashboard=seen["dashboard"],
            ray=reaper.noted(connection.raylet()),
        )
        ready = {"name": entry.name, "address": entry.address, "pid": entry.pid, **seen}
        return asyncio.run(_stay(port, entry, report, ready))
    finally:
        port.release()
        log.info("closed", council=config.name)


async def _stay(port: RayPort, entry: known.Known, report: IO[str], ready: dict[str, Any]) -> int:
    """Returns at SIGTERM, or when the coordinator dies."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)  # after Ray, which sets its own handlers
    server, why = await _listening(port, entry.name)
    if server is None:
        log.warning("no socket", why=why)
        ready = ready | {
            "notice": "; ".join(filter(None, (ready["notice"], f"commands connect through Ray: {why}")))
        }
    else:
        entry = replace(entry, socket=str(server.path))
    known.write(entry)
    _report(report, {"ready": ready})
    log.info("ready", council=entry.name, address=entry.address)
    try:
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), LOOK_S)
                break
            try:
                await asyncio.wait_for(port.ask(AskStatus()), 6 * LOOK_S)
            except CouncilDied as error:
                log.error("the coordinator died", why=error.message)
                return 1
            except (CouncilError, TimeoutError) as error:
                log.warning("the coordinator does not answer", why=str(error))
        log.info("closing", council=entry.name)
        known.forget(entry.name)  # a file that stays shows that the council crashed
        return 0
    finally:
        with contextlib.suppress(CouncilError, TimeoutError):
            await asyncio.wait_for(port.close(), CLOSE_TIMEOUT_S)
        if server is not None:
            await server.close()


async def _listening(port: RayPort, name: str) -> tuple[SocketServer | None, str]:
    """The socket for this user's processes; None, and the reason, if there can be none."""
    try:
        server = SocketServer(port, name, place(name))
        await server.open()
    except OperatorError as error:
        return None, error.message
    return server, ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
