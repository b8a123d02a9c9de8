"""One Ray for all tests of this folder: local, small, its own; nothing attaches to a Ray that happens to run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector import Collector

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="package", autouse=True)
def a_ray(collector: Collector) -> Iterator[None]:
    import ray

    from council.runtime import ray_side

    with pytest.MonkeyPatch.context() as patch:  # while Ray starts, for the seats import tests.ray.minds
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.endpoint}/v1/traces")
        release = ray_side.ensure_ray(None)
    assert release is not None, "a Ray runs in this process already"
    assert ray.is_initialized()
    yield
    release()


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    """Where the spans of councils go that make any."""
    with Collector() as running:
        yield running


@pytest.fixture
def name() -> str:
    """A council name that no other test has."""
    return f"t-{uuid.uuid4().hex[:8]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First those that have a Ray of their own, so that this folder's does not run beside them."""
    places = [at for at, item in enumerate(items) if Path(item.path).parent == Path(__file__).parent]
    ours = [items[at] for at in places]
    ours.sort(key=lambda item: "a_ray" not in vars(item.getparent(pytest.Module).obj))
    for at, item in zip(places, ours, strict=True):
        items[at] = item
        item.add_marker(pytest.mark.ray)
