"""This process's connection to Ray: a process can have only one.

Several councils may share it. It ends with the last council that holds it; if it was made elsewhere, it is left
alone. A connection whose Ray is gone is ended and replaced. Handles of the old one must not be used with the new one.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import platform
import re
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict, Unpack

import ray
from ray import exceptions as ray_errors
from ray._private import services
from ray._raylet import AuthenticationTokenLoader, Config, GcsClient  # type: ignore[attr-defined]
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from council import __version__
from council.cluster import admission, reaper
from council.cluster.placement import Node, node_check, refuse_unequal
from council.protocol.errors import ConfigError, CouncilDied, OperatorError, Unreachable, VersionMismatch

ACTORS = "council.cluster.actors"  # each node must be able to import it
# Ray ends the whole process, with exit code 1, once its head has been away for a minute. A program must get an error
# instead, so Ray is given a week. It keeps this time in milliseconds.
RECONNECT_S = 7 * 86_400
# How long Ray tries to reach a cluster's head.
CONNECT_TIMEOUT_S = 30
# A thread that waits for Ray checks at least this often whether an answer is still possible.
SLICE_S = 2.0
# How long the end of the connection waits for calls that are inside Ray.
END_S = 20.0
# Shared memory is not used by small messages; Ray's default takes a third of the machine.
OBJECT_STORE_BYTES = 100 * 2**20
# Ray has no error class for a cluster of another version, only this RuntimeError of check_version_info.
_OTHER_VERSION = re.compile(r"Version mismatch: The cluster was started with:\s+Ray: (\S+)\s+Python: (\S+)")
# The same for a machine that runs no node of it; the text is from get_node_to_connect_for_driver.
_NO_NODE = "No node info found matching attributes"
_WARN = ("authentication.authentication_token_setup", "worker")
# Linux ends a local Ray with the thread that started it, and a caller's thread may end at once. This one stays.
_starter = ThreadPoolExecutor(1, "council-ray")
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}


class Dropped(ConnectionError):
    """This process has ended the connection of a call."""


class RayLink:
    """Counts the users of the connection. Making or ending one takes the lock ``changing``."""

    def __init__(self) -> None:
        self.changing = threading.RLock()
        self.token: str | None = None  # made here for a local Ray, and in the environment while that runs
        self._made: Any = None  # the connection that was made here last
        self._ending: Any = None
        self._calls = threading.Condition()
        self._inside = 0
        self._holders = 0

    @contextlib.contextmanager
    def used(self, connection: object) -> Iterator[None]:
        """Keeps that connection while Ray is called. Raises Dropped if it has ended or is about to."""
        with self._calls:
            if connection is not current() or connection is self._ending:
                raise Dropped("this process has ended its connection to the council's Ray")
            self._inside += 1
        try:
            yield
        finally:
            with self._calls:
                self._inside -= 1
                self._calls.notify_all()

    def result(self, connection: object, call: Any, timeout_s: float) -> Any:
        """The result of a call over that connection. Raises Dropped, Ray's errors, and Unreachable if Ray is gone."""
        ends_s = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, ends_s - time.monotonic())
            with self.used(connection):
                try:
                    return ray.get(call, timeout=min(left_s, SLICE_S))
                except ray_errors.GetTimeoutError:
                    if left_s <= SLICE_S:
                        raise
                    refuse_if_gone()

    def hold(self) -> Callable[[], None] | None:
        """Holds the connection. Returns the function that releases it; None if it was not made here."""
        if not self._made_here():
            return None
        self._holders += 1
        return self._let_go

    def _let_go(self) -> None:
        with self.changing:
            self._holders -= 1
            if self._holders == 0 and self._made_here():
                self._end()

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Takes ``changing``, and ends a connection whose Ray is gone.

        Raises CouncilDied if it was not made here, and Unreachable if a call over it does not end.
        """
        with self.changing:
            try:
                refuse_if_gone()
            except Unreachable as error:
                if not self._made_here():
                    raise CouncilDied(
                        f"the Ray that this process is connected to is gone ({error.message}): call ray.shutdown(), "
                        "then connect again"
                    ) from error
                self._end()
            yield

    def refuse_another(self, address: str | None, *, held: bool) -> None:
        """Raises Unreachable if this process is connected to another Ray than that at ``address``.

        If only the caller holds that connection (``held``), it is ended instead.
        """
        ours = here()
        util: Any = ray.util  # it has no types
        own = util.get_node_ip_address()
        if address in (None, "auto", "local") or admission.same_place(str(address), ours, own):
            return
        if not held or self._holders != 1 or not self._made_here():
            raise Unreachable(
                f"this process is connected to the Ray at {ours} and can't use the one at {address} as well: "
                "call ray.shutdown() first, or leave the address out (and RAY_ADDRESS)",
                address=address,
            )
        self._end()

    def connected(self) -> None:
        """Records that this process has just connected to Ray."""
        self._made = current()

    def _made_here(self) -> bool:
        return self._made is not None and self._made is current()

    def _end(self) -> None:
        with self._calls:  # if a call is inside Ray, ray.shutdown() ends the calling thread or the process
            self._ending = self._made
            if not self._calls.wait_for(lambda: not self._inside, END_S):
                self._ending = None
                raise Unreachable(f"a call to Ray did not end within {END_S:g} s, which keeps the connection")
        ray.shutdown()
        self.forget_token()
        _read_again()

    def forget_token(self) -> None:
        """Removes the token of a local Ray that has ended from the environment: it is of no use for another Ray."""
        if self.token is not None and os.environ.get(admission.TOKEN) == self.token:
            del os.environ[admission.TOKEN]
        self.token = None


link = RayLink()


class Joining(TypedDict, total=False):
    """The options for joining or starting a Ray.

    A remote Ray is shown ``token``, by default the environment's; if it demands none, it is refused, unless
    ``insecure``. ``ship`` sends this package to its nodes. ``dashboard`` is for a local Ray that is started.
    """

    token: str | None
    insecure: bool
    ship: bool
    dashboard: bool


def ensure_ray(address: str | None, **how: Unpack[Joining]) -> Callable[[], None] | None:
    """Like ``connect``, and holds the connection. Returns the function that releases it; None if made elsewhere."""
    connect(address, **how)
    return link.hold()


def connect(address: str | None, *, held: bool = False, **how: Unpack[Joining]) -> None:
    """Connects this process to Ray. If ``address`` is None and no Ray is in use yet, starts a local one.

    A local Ray demands a token made for it alone, because its ports are open to the network. Call it within
    ``link.renewed()`` if this process may have a connection already; with ``held``, the caller holds that. Raises
    Unreachable, VersionMismatch, OperatorError, ConfigError.
    """
    if ray.is_initialized():
        link.refuse_another(address, held=held)
    if ray.is_initialized():
        if how.get("ship"):
            why = (
                "ray_ship: this process is connected to its Ray already: give py_modules to ray.init instead"
            )
            raise ConfigError(why, problems=[why])
        return
    link.forget_token()  # of a Ray that failed to start, or that its user has shut down
    # Ray reads this when it connects. A local Ray must not end this process either.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(RECONNECT_S))
    if address in (None, "local"):
        _start(how.get("dashboard", False))
        reaper.watch(raylet(), ray.shutdown)
    else:
        _join(_resolved(str(address)), how)
    worker: Any = ray._private.worker.global_worker
    worker.threads_stopped.set()  # the one that prints errors keeps a core busy once Ray's head is gone
    link.connected()


def raylet() -> int | None:
    """The id of the raylet that this process has started, if any."""
    started = current().all_processes.get("raylet")
    return started[0].process.pid if started else None


def current() -> Any:
    """This process's connection, a new object of Ray's for each one; None without one."""
    worker: Any = ray._private.worker
    return worker._global_node


def refuse_if_gone() -> None:
    """Raises Unreachable if the Ray of this process's connection is gone, or another has taken its address."""
    if not ray.is_initialized():
        return
    address = here()
    admission.refuse_if_nobody_listens(address)
    try:
        head = GcsClient(address=address, cluster_id=current().cluster_id.hex())
        head.check_alive([], timeout=admission.PROBE_TIMEOUT_S)
    except ray_errors.AuthenticationError as error:
        raise Unreachable(f"by now another Ray runs at {address}", address=address) from error
    except ray_errors.RpcError:
        pass  # something listens there but did not answer in time; that does not prove that the Ray is gone


def here() -> str:
    """The address of the Ray that this process is connected to."""
    return str(ray.get_runtime_context().gcs_address)


def _read_again() -> None:
    """Makes Ray read its authentication from the environment again; by itself it reads it once."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _start(dashboard: bool) -> None:
    # Ray turns its token on for a local cluster. If a token is set, Ray does not write one to the home folder. The
    # token stays in the environment while that Ray runs, for processes that are started from here and connect to it.
    given = {admission.TOKEN, admission.TOKEN_PATH} & set(os.environ)
    if os.environ.get(admission.MODE, "token") == "token" and not given:
        link.token = os.environ[admission.TOKEN] = secrets.token_hex(32)
    begin = functools.partial(
        ray.init,
        address="local",
        include_dashboard=dashboard,
        object_store_memory=OBJECT_STORE_BYTES,
        _temp_dir=_temp_dir(),
        **_QUIET,
    )
    try:
        with _quiet():
            _read_again()
            if threading.current_thread() is threading.main_thread():
                begin()
            else:
                _starter.submit(begin).result()
    except Exception as error:  # Ray raises Exception itself where a process of its own is not up in its 30 s
        raise Unreachable(
            f"Ray did not start on this machine: {error}. If it ran out of time, try again when the machine is less "
            f"busy. Ray's logs are in {_temp_dir()}/session_latest/logs"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps Ray from warning that its token is on, and that it sets no signal handler outside the main thread."""
    warn = [logging.getLogger(f"ray._private.{name}") for name in _WARN]
    levels = [each.level for each in warn]
    for each in warn:
        each.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for each, level in zip(warn, levels, strict=True):
            each.setLevel(level)


def _join(address: str, how: Joining) -> None:
    auth = admission.probe_auth(address, how.get("token"))
    if not (auth.demands_token or how.get("insecure", True)):
        raise admission.insecure(address)
    local: Any = services  # it has no types
    if not local.find_gcs_addresses():  # Ray would search for a minute, and not report this
        raise admission.no_node(address)
    os.environ.setdefault("RAY_gcs_rpc_server_connect_timeout_s", str(CONNECT_TIMEOUT_S))
    package = {"py_modules": [str(Path(__file__).parents[1])], "excludes": ["__pycache__"]}
    traced = vars(ray).get("__traced__", False)
    try:
        with auth.mode(), _quiet():
            _read_again()
            # Otherwise Ray imports and calls the function that the head names as its tracing hook.
            vars(ray)["__traced__"] = True
            ray.init(address=address, runtime_env=package if how.get("ship") else None, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError, ray_errors.RayError, OSError) as error:
        other = _OTHER_VERSION.match(str(error))
        if other is not None:
            raise mismatch(f"the Ray at {address}", {"ray": other[1], "python": other[2]}) from error
        if _NO_NODE in str(error):
            raise admission.no_node(address) from error
        raise Unreachable(
            f"no Ray answers at {address}: {error}; see that it runs there, and that RAY_AUTH_TOKEN is its own",
            address=address,
        ) from error
    finally:
        vars(ray)["__traced__"] = traced
        if not ray.is_initialized():
            _read_again()


def refuse_other_versions(what: str, theirs: dict[str, Any]) -> None:
    """Raises VersionMismatch if this process is not compatible with what runs on the versions ``theirs``."""
    same_python = versions()["python"].rsplit(".", 1)[0] == str(theirs["python"]).rsplit(".", 1)[0]
    if versions()["ray"] != theirs["ray"] or not same_python:
        raise mismatch(what, theirs)


def mismatch(what: str, theirs: dict[str, Any]) -> VersionMismatch:
    """The error for what runs on other versions."""
    ours = versions()
    return VersionMismatch(
        f"{what} runs on Ray {theirs['ray']} and Python {theirs['python']}, this process on {ours['ray']} and "
        f"{ours['python']}: use the same",
        ours=ours,
        theirs=theirs,
    )


def _resolved(address: str) -> str:
    """The address behind ``auto``: the Ray of this machine."""
    if address != "auto":
        return address
    try:
        return str(services.canonicalize_bootstrap_address_or_die("auto"))
    except (ConnectionError, ValueError) as error:
        raise Unreachable(
            f"no Ray was found on this machine: {error}; start one, or give its address", address=address
        ) from error


def _temp_dir() -> str:
    """Ray's folder for sockets needs a short path, which the system's temporary folder usually has."""
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return os.path.join(folder, "ray")


def alive() -> list[Node]:
    """The cluster's live nodes, as Ray reports them to this process."""
    nodes: Any = ray.nodes  # it has no types
    return [
        Node(
            node["NodeID"],
            node["NodeManagerHostname"],
            dict(node.get("Labels") or {}),
            dict(node["Resources"]),
        )
        for node in nodes()
        if node["Alive"]
    ]


def check_nodes(limit_s: float) -> None:
    """Raises OperatorError or VersionMismatch that names the nodes on which a seat could not run."""
    looking: Any = ray.remote(num_cpus=0, max_retries=0)(node_check(ACTORS))
    found: dict[str, tuple[str | None, str]] = {}
    ends_s = time.monotonic() + limit_s
    while left := [node for node in alive() if node.label not in found]:
        asked = {looking.options(scheduling_strategy=on_node(node.node_id)).remote(): node for node in left}
        ray.wait(list(asked), num_returns=len(asked), timeout=max(0.0, ends_s - time.monotonic()))
        for each, node in asked.items():
            # A node may have left meanwhile, or have just joined and not be known everywhere. It is looked for again.
            with contextlib.suppress(
                ray_errors.NodeDiedError, ray_errors.TaskUnschedulableError, ray_errors.GetTimeoutError
            ):
                found[node.label] = ray.get(each, timeout=SLICE_S)
        if time.monotonic() > ends_s:
            hosts = ", ".join(node.label for node in left)
            raise OperatorError(f"no process starts within {limit_s:g} s on {hosts}: see Ray's logs")
    refuse_unequal(found, __version__)


def on_node(node_id: str) -> Any:
    """A strategy for that node alone, while it lives."""
    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def versions() -> dict[str, str]:
    """The versions that must be equal at a client and the cluster."""
    return {"ray": ray.__version__, "python": platform.python_version()}
