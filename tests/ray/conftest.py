"""One Ray for all tests of this folder: local, small, its own; nothing attaches to a Ray that happens to run."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector import Collector
from tests.hold import shapes_on_ray
from tests.patience import HANG_S, until
from tests.ray.shells import Document, Ended, First, opened

ROOT = Path(__file__).parent.parent.parent
# A seat whose process died is seen to be gone while it is built anew.
FIRST = """
name = "first"
heartbeat_s = 0.5
inactivity_s = 60.0

[seats.lite]
mind = "tests.ray.minds:SlowToBuild"
options = { seconds = 2.0 }
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
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[First]:
    """A council on a Ray with its dashboard, which commands brought up, looked at, and were told of."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "council.toml").write_text(FIRST, encoding="utf-8")
    browser, seen = folder / "browser", folder / "seen"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o700)
    with opened(folder) as shell:
        shell.env["BROWSER"] = f"{browser} %s"
        told = [Document(*each) for each in shapes_on_ray.told(shapes_on_ray.FIRST, shell.run)]
        yield First(shell, told, seen)


@pytest.fixture(scope="package")
def ended(first: First) -> Ended:
    """The same, taken down while somebody watched: the last of it, so that nothing of it runs any more."""
    watching = first.shell.start("watch", "--since", "0")
    assert watching.stdout is not None
    until(lambda: "approved" in watching.stdout.readline())  # type: ignore[union-attr]
    first.look()
    told = [Document(*each) for each in shapes_on_ray.told(shapes_on_ray.LAST, first.shell.run)]
    _, err = watching.communicate(timeout=HANG_S)
    return Ended(first, [*first.documents, *told], watching.returncode, err)


@pytest.fixture
def name() -> str:
    """A council name that no other test has."""
    return f"t-{uuid.uuid4().hex[:8]}"


def own_ray(item: pytest.Item) -> bool:
    """Whether it has a Ray of its own, and none in this process."""
    module = item.getparent(pytest.Module)
    return module is not None and "a_ray" in vars(module.obj)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One Ray after another: those that share the first one, those that have their own, and this folder's last."""
    places = [at for at, item in enumerate(items) if Path(item.path).parent == Path(__file__).parent]
    ours = [items[at] for at in places]
    used = {item: getattr(item, "fixturenames", ()) for item in ours}
    ours.sort(key=lambda item: (not own_ray(item), "first" not in used[item], "ended" in used[item]))
    for at, item in zip(places, ours, strict=True):
        items[at] = item
        item.add_marker(pytest.mark.ray)
