"""One Ray for all tests of this folder: local, small, its own; nothing attaches to a Ray that happens to run."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from council import Council
from tests.collector import Collector
from tests.hold import shapes_on_ray
from tests.patience import until
from tests.ray.shells import SLOW, Document, Ended, First, Killed, Up, opened

ROOT = Path(__file__).parent.parent.parent
# A seat whose process died is seen to be gone for as long as its gate is not there.
FIRST = """
name = "first"
heartbeat_s = 0.5
inactivity_s = 60.0

[seats.lite]
mind = "tests.ray.minds:LetIn"
options = {{ gate = "{gate}" }}
"""
# A program that waits for a decision, once it is told to.
WAITS = """
import sys
from council import Council
from council.protocol.errors import CouncilDied
with Council.connect(name='headless') as council:
    print("connected", flush=True)
    sys.stdin.readline()
    try:
        council.propose("Wait for me", wait_for="all", timeout_s=3600)
    except CouncilDied:
        print("died", flush=True)
print("still here", flush=True)
"""


@pytest.fixture(scope="package", autouse=True)
def a_ray(collector: Collector) -> Iterator[None]:
    import ray

    from council.cluster import port

    before = os.environ.get("RAY_AUTH_TOKEN")
    with pytest.MonkeyPatch.context() as patch:  # while Ray starts, for the seats import tests.ray.minds
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.endpoint}/v1/traces")
        patch.setenv("RAY_metrics_report_interval_ms", "2000")  # Ray's own is ten seconds
        release = port.ensure_ray(None)
    assert release is not None, "a Ray runs in this process already"
    assert ray.is_initialized()
    yield
    release()
    assert os.environ.get("RAY_AUTH_TOKEN") == before, (
        "the token of a Ray that has ended outranks the user's own"
    )


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    """Where the spans of councils go that make any."""
    with Collector() as running:
        yield running


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Council]:
    """A council with its journal on disk, named as if of a pool.

    No test closes it. Only those of test_recovery, which come last, kill its coordinator.
    """
    from tests.ray.test_council_on_ray import launch

    with launch("shared.0", store=str(tmp_path_factory.mktemp("shared") / "s.db")) as council:
        yield council


@pytest.fixture(scope="package")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[First]:
    """A council on a Ray with its dashboard, which commands brought up, looked at, and were told of."""
    folder = tmp_path_factory.mktemp("first")
    browser, seen, gate = folder / "browser", folder / "seen", folder / "gate"
    (folder / "council.toml").write_text(FIRST.format(gate=gate), encoding="utf-8")
    gate.touch()
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o700)
    with opened(folder) as shell:
        shell.env["BROWSER"] = f"{browser} %s"
        told = [Document(*each) for each in shapes_on_ray.told(shapes_on_ray.FIRST, shell.run)]
        yield First(shell, told, seen, gate)


@pytest.fixture(scope="package")
def ended(first: First) -> Ended:
    """The same, taken down while somebody watched: the last of it, so that nothing of it runs any more."""
    watching = first.shell.start("watch", "--since", "0")
    assert watching.stdout is not None
    until(lambda: "approved" in watching.stdout.readline())  # type: ignore[union-attr]
    first.look()
    told = [Document(*each) for each in shapes_on_ray.told(shapes_on_ray.LAST, first.shell.run)]
    return Ended(first, [*first.documents, *told], watching)


@pytest.fixture(scope="package")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A council that decides nothing; its host is killed in the end."""
    with opened(tmp_path_factory.mktemp("slow")) as shell:
        settings = shell.folder / "council.toml"
        settings.write_text(SLOW, encoding="utf-8")
        found = Up(shell, shell.told("up", "--name", "headless")["up"])
        settings.unlink()
        yield found


@pytest.fixture(scope="package")
def killed(slow: Up) -> Killed:
    """The same, whose host was killed while a program and a command waited for it."""
    shell = slow.shell
    program = shell.program(WAITS)
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "connected\n"
    program.stdin.write("\n")
    program.stdin.flush()
    command = shell.start(
        "propose", "Wait too", "--name", "headless", "--wait-for", "all", "--timeout", "3600"
    )
    until(lambda: shell.told("status", "--name", "headless")["open_count"] == 2)
    slow.kill()
    return Killed(slow, program, command)


@pytest.fixture
def at_last() -> None:
    """For a test that is run after all others, since what it looks at takes its time: half a minute, mostly."""


@pytest.fixture
def name() -> str:
    """A council name that no other test has."""
    return f"t-{uuid.uuid4().hex[:8]}"


def own_ray(item: pytest.Item) -> bool:
    """Whether it has a Ray of its own, and none in this process."""
    module = item.getparent(pytest.Module)
    return module is not None and "a_ray" in vars(module.obj)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One Ray after another: those of single tests' own, of which the killed one is first, and this folder's last.

    First of all come those that may run in any process: none of them may follow this folder's Ray in its process.
    """
    places = [at for at, item in enumerate(items) if Path(item.path).parent == Path(__file__).parent]
    ours = [items[at] for at in places]

    def place(item: pytest.Item) -> list[bool]:
        used = getattr(item, "fixturenames", ())
        steps = (
            not item.nodeid.startswith("tests/ray/test_reconnect.py"),
            "at_last" in used,
            not own_ray(item),
            "slow" not in used,
            "killed" in used,
            "first" not in used,
        )
        return [*steps, "ended" in used]

    ours.sort(key=place)
    for at, item in zip(places, ours, strict=True):
        items[at] = item
        item.add_marker(pytest.mark.ray)
