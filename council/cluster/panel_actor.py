"""The panel on Ray: its actor, Ray's dashboard and its folders.

The panel's actor is ``<council>/panel``, in its own process. It takes no time from decisions, holds no key, and stays
up while the coordinator restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import http.client
import json
import os
import random
import secrets
import socket
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import ray
from ray import exceptions as ray_errors
from ray._private import parameter, services
from ray._private.authentication.http_token_authentication import get_auth_headers_if_auth_enabled
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from council.agents.messaging import logs
from council.cluster import admission, raw_answers
from council.config.settings import CouncilConfig
from council.gateway.grafana import FILE, UID, put
from council.protocol.errors import CouncilError, OperatorError, Unreachable
from council.runtime import answers
from council.runtime.questions import AskStatus, to_bytes

log = logs.get_logger("council.panel")

PART = "panel"
# How often the actor checks whether its council exists, and whether a port that was in use is free.
LOOK_S = 2.0
# A process starts within this time, also on a busy machine.
START_S = 20.0
STARTING = "the panel is starting"
# A status does not wait longer for the panel. Its address is shown once it is known.
ADDRESS_WAIT_S = 0.2
# A Grafana on this machine answers within a fraction of this.
GRAFANA_TIMEOUT_S = 1.0
DASHBOARD_TIMEOUT_S = 10.0
# Ports above those of Ray's workers, and below those that Linux and others give to programs that ask for any.
FREE_PORTS, PORTS_TRIED = range(20_000, 32_768), 50
HEAD = "node:__internal_head__"  # a resource that only the head node has
# The errors of an address at which nothing answers, or another service than the expected one.
NO_ANSWER = (OSError, http.client.HTTPException, ValueError)
# The address that Ray assumes for Grafana if none is set.
GRAFANA_USUAL = "http://localhost:3000"
# Ray's errors for an actor that is dead for good; the second is for one whose node, which it may not leave, is gone.
PERMANENT = (ray_errors.ActorDiedError, ray_errors.ActorUnschedulableError)
# A head that comes back may not know yet that a node exists. So one report of the second kind proves nothing.
MIN_CONFIRMATIONS = 2

_remote: Any = ray.remote
STATUS = to_bytes(AskStatus())


class Watched:
    """A coordinator whose end must be noticed by an actor. The actor asks now and then."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self._asked: Any = None
        self._unschedulable = 0

    def ended(self, within_s: float) -> bool:
        """Whether it is dead for good; not if it is starting, slow or unreachable for now."""
        if self._asked is None:  # one question at a time, because a frozen coordinator would collect them
            self._asked = self._coordinator.hello.remote()
        if not ray.wait([self._asked], timeout=within_s)[0]:
            return False
        answered, self._asked = self._asked, None
        try:
            ray.get(answered)
        except ray_errors.ActorDiedError:
            return True
        except ray_errors.ActorUnschedulableError:
            self._unschedulable += 1
            return self._unschedulable >= MIN_CONFIRMATIONS
        except (ray_errors.RayError, CouncilError):
            pass  # it is there, or can't be reached for now
        self._unschedulable = 0
        return False


@_remote(num_cpus=0, max_restarts=-1, max_task_retries=0)
class PanelActor:
    """Serves the panel. Ends with its council."""

    def __init__(
        self,
        name: str,
        council_id: str,
        coordinator: Any,
        token: str,
        host: str,
        port: int,
        log_settings: logs.LogSettings,
    ) -> None:
        logs.configure(log_settings)
        self._title = f"Panel of {council_id}"
        self._name, self._coordinator, self._token = name, coordinator, token
        self._host, self._port = host, port
        self._server: Any = None
        self._notice = ""
        self._serve()
        threading.Thread(target=self._watch, name="panel-watch", daemon=True).start()

    def __repr__(self) -> str:
        return self._title

    def about(self) -> bytes:
        """The panel's address, or why there is none; and the token that gives access to proposals' content."""
        url = None if self._server is None else self._server.url
        return answers.answer({"url": url, "notice": self._notice, "token": self._token})

    def pid(self) -> int:
        return os.getpid()

    def _serve(self) -> None:
        from council.gateway.panel import Server  # the web server's modules, which only the panel needs

        try:
            util: Any = ray.util  # it has no types
            self._server = Server(
                self._ask,
                self._name,
                self._token,
                self._host,
                self._port,
                reached_at=util.get_node_ip_address(),
                framed_by=[] if (dashboard := dashboard_url()) is None else [dashboard.rstrip("/")],
            )
            self._notice = ""
        except OperatorError as error:
            if error.message != self._notice:
                log.warning("no panel", council=self._name, why=error.message)
            self._notice = error.message

    async def _ask(self) -> Mapping[str, Any]:
        try:
            answer = await asyncio.wrap_future(self._coordinator.ask.remote(STATUS).future())
            return answers.result_or_raise(answer, dict[str, Any])
        except ray_errors.RayError as error:
            why = f"is away ({type(error).__name__}); it may be restarting"
            raise Unreachable(f"the coordinator of {self._name} {why}", name=self._name) from None

    def _watch(self) -> None:
        me = ray.get_runtime_context().current_actor
        coordinator, pause = Watched(self._coordinator), threading.Event()
        while not pause.wait(LOOK_S):
            if self._server is not None and not self._server.alive():
                self._server.close()
                self._server = None
            if self._server is None:
                self._serve()
            if coordinator.ended(LOOK_S):
                ray.kill(me, no_restart=True)
                return


class Panel:
    """A coordinator's panel: created if the configuration wants one. Its failure never affects the council."""

    def __init__(
        self, config: CouncilConfig, council_id: str, coordinator: Any, log_settings: logs.LogSettings
    ) -> None:
        self._actor: Any = None
        self._about: dict[str, Any] = {"url": None, "notice": STARTING, "token": ""}
        self._asking: asyncio.Future[Any] | None = None
        self._wanted = bool(config.panel)
        if not self._wanted:
            return
        name = f"{config.name}/{PART}"
        with contextlib.suppress(ValueError):  # otherwise it would outlive the coordinator before this one
            self._actor = raw_answers.find(name, config.ray_namespace, PanelActor)
            return
        actors: Any = PanelActor
        options = actors.options(
            name=name,
            namespace=config.ray_namespace,
            lifetime="detached",
            scheduling_strategy=NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=True
            ),
        )
        try:
            self._actor = options.remote(
                config.name,
                council_id,
                coordinator,
                secrets.token_urlsafe(24),
                config.panel_host,
                config.panel_port or free_port(config.panel_host),
                log_settings,
            )
        except (ray_errors.RayError, ValueError, OSError) as error:
            log.warning("no panel", council=config.name, why=str(error))
            self._about["notice"] = f"the panel can't be made: {error}; see panel_host and panel_port"

    async def status(self) -> dict[str, Any] | None:
        """The panel's address, or why there is none; None if none is wanted."""
        if not self._wanted:
            return None
        if self._actor is not None and self._about["url"] is None:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.ensure_future(self._ask())
            await asyncio.wait({self._asking}, timeout=ADDRESS_WAIT_S)
        return {"url": self._about["url"], "notice": self._about["notice"]}

    async def _ask(self) -> None:
        try:
            answer = await asyncio.wrap_future(self._actor.about.remote().future())
            self._about = answers.result_or_raise(answer, dict[str, Any])
        except (ray_errors.RayError, CouncilError) as error:
            self._about["notice"] = f"the panel does not answer: {type(error).__name__}"


def about_panel(config: CouncilConfig, timeout_s: float) -> dict[str, Any] | None:
    """The address of a council's panel, with its token; None if it has none. For a connected process."""
    try:
        actor: Any = raw_answers.find(f"{config.name}/{PART}", config.ray_namespace, PanelActor)
        answer: Any = ray.get(actor.about.remote(), timeout=timeout_s)
        return answers.result_or_raise(answer, dict[str, Any])
    except (ValueError, ray_errors.RayError):
        return None


def pages(config: CouncilConfig, *, install: bool) -> dict[str, Any]:
    """The answer to ``AskPages``, in a process that is connected to the council's Ray. Raises OperatorError."""
    installed = install_dashboard() if install else None
    url = dashboard_url()
    return {
        "panel": about_panel(config, config.call_timeout_s),
        "dashboard": url,
        "grafana": None if url is None else grafana(url),
        "installed": installed,
    }


def free_port(host: str) -> int:
    """A port that is free now, outside the range that systems give to programs that ask for any, such as Ray."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in random.sample(FREE_PORTS, PORTS_TRIED):
        try:
            with socket.create_server((host, port), family=family):
                return port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    with socket.create_server((host, 0), family=family) as made:
        return int(made.getsockname()[1])


async def places(ask: Callable[[AskStatus], Awaitable[Mapping[str, Any]]]) -> dict[str, str | None]:
    """The web pages of a council that has just been launched: panel, dashboard.

    ``notice`` names what is missing: its panel, its metrics' endpoint.
    """
    ends = time.monotonic() + START_S
    nothing: dict[str, Any] = {"url": None, "notice": None}
    seen = metrics = nothing
    with contextlib.suppress(CouncilError):
        while True:
            status = await ask(AskStatus())
            seen, metrics = status["panel"] or nothing, status["metrics"] or nothing
            if seen["notice"] != STARTING or time.monotonic() >= ends:
                break
            await asyncio.sleep(ADDRESS_WAIT_S)
    notice = "; ".join(each["notice"] for each in (seen, metrics) if each["notice"])
    return {"panel": seen["url"], "notice": notice, "dashboard": dashboard_url()}


# Ray's dashboard


def dashboard_url() -> str | None:
    """The address of the dashboard of this process's Ray; None if it has none."""
    try:
        place: str | None = cast(Any, services).get_webui_url_from_internal_kv()
    except (ray_errors.RayError, RuntimeError):
        return None
    return f"http://{place}/" if place else None


def with_panel(config: CouncilConfig, *, dashboard: bool) -> CouncilConfig:
    """The configuration with the panel's open settings filled in.

    If there is a dashboard, there is a panel too, unless it is turned off; its port is one that the dashboard can
    know.
    """
    wanted = dashboard if config.panel is None else config.panel
    port = config.panel_port
    if wanted and dashboard and not port and config.ray_address in (None, "local"):
        with contextlib.suppress(OSError):  # serving it reports the error
            port = free_port(config.panel_host)
    return config.model_copy(update={"panel": wanted, "panel_port": port})


@contextlib.contextmanager
def for_dashboard(config: CouncilConfig, *, dashboard: bool) -> Iterator[None]:
    """Sets what Ray's dashboard needs, for a Ray that is started within this context, if there is a dashboard.

    Its Metrics tab shows the panel, unless there is a Grafana, for which that tab is made. This relies on
    undocumented behaviour of Ray (``council.gateway.panel``).
    """
    if not dashboard or config.ray_address not in (None, "local") or ray.is_initialized():
        yield
        return
    params: Any = parameter
    usual = params.RayParams
    # The default port may belong to another Ray's agents on this machine. Without a port the Logs tab is empty, and
    # ray.init has no argument for it.
    params.RayParams = functools.partial(usual, dashboard_agent_listen_port=None)
    try:
        with admission.environment({} if _grafana_is_there() else _metrics_tab(config)):
            yield
    finally:  # it is not meant for other Rays of this process
        params.RayParams = usual


def _metrics_tab(config: CouncilConfig) -> Mapping[str, str]:
    """The environment variables that make Ray's dashboard show the panel."""
    if not config.panel or not config.panel_port:
        return {}
    host = "127.0.0.1" if config.panel_host in ("0.0.0.0", "::") else config.panel_host
    place = f"http://{f'[{host}]' if ':' in host else host}:{config.panel_port}"
    variables = {"RAY_GRAFANA_HOST": place, "RAY_GRAFANA_DEFAULT_DASHBOARD_UID": UID}
    return {"RAY_PROMETHEUS_HOST": os.environ.get("RAY_PROMETHEUS_HOST", place), **variables}


def _grafana_is_there() -> bool:
    """Whether Ray is configured for a Grafana, or one answers at Ray's default address."""
    if "RAY_GRAFANA_HOST" in os.environ:
        return True
    try:
        with urllib.request.urlopen(f"{GRAFANA_USUAL}/api/health", timeout=GRAFANA_TIMEOUT_S) as answer:
            health = json.load(answer)
    except NO_ANSWER:
        return False
    return isinstance(health, dict) and health.get("database") == "ok"


def logs_folder() -> Path:
    """The folder of this node's logs, which the dashboard's Logs tab shows."""
    return Path(ray._private.worker._global_node.get_logs_dir_path())  # type: ignore[attr-defined]


def grafana(url: str) -> dict[str, str | None]:
    """The content of the Metrics tab of Ray's dashboard at ``url``: ``host``, None if nothing answers there."""
    asked = urllib.request.Request(f"{url}api/grafana_health", headers=get_auth_headers_if_auth_enabled({}))
    try:
        with urllib.request.urlopen(asked, timeout=DASHBOARD_TIMEOUT_S) as answer:
            found = json.load(answer)["data"]
            return {"host": found["grafanaHost"] if found.get("dashboardUids") else None}
    except (*NO_ANSWER, KeyError, TypeError):  # another version of Ray, or nothing there
        return {"host": None}


def install_dashboard() -> dict[str, str]:
    """Writes the dashboard into the folder of Ray's head node that its Grafana reads. Returns what was done.

    Raises OperatorError if there is a foreign file, or if the folder can't be written.
    """
    nodes: Any = ray.nodes  # it has no types
    heads = [each["NodeID"] for each in nodes() if each["Alive"] and HEAD in each["Resources"]]
    if not heads:
        raise OperatorError("this Ray has no head node that lives: its dashboards' folder can't be reached")
    there = NodeAffinitySchedulingStrategy(heads[0], soft=False)
    putting: Any = _remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(_put_dashboard)
    try:
        done: dict[str, str] = ray.get(putting.remote(FILE.read_text("utf-8")), timeout=START_S)
    except ray_errors.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, CouncilError):  # of ``put``
            raise cause from None
        raise OperatorError(f"this Ray's head node did not put it there: {error!r}") from None
    return done


def _put_dashboard(text: str) -> dict[str, str]:
    """Runs on the head node, in the environment of Ray's dashboard."""
    session = logs_folder().parent
    settings = Path(os.environ.get("RAY_METRICS_OUTPUT_ROOT", session / "metrics")) / "grafana"
    folder = Path(os.environ.get("RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR", settings / "dashboards"))
    path, how = put(text, folder)
    return {
        "path": str(path),
        "how": how,
        "host": socket.gethostname(),
        "settings": str(settings / "grafana.ini"),
    }
