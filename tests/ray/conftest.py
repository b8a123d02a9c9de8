"""One Ray for all tests of this folder: local, small, its own; nothing attaches to a Ray that happens to run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="package", autouse=True)
def a_ray() -> Iterator[None]:
    import ray

    from council.runtime import ray_side

    with pytest.MonkeyPatch.context() as patch:  # while Ray starts, for the seats import tests.ray.minds
        patch.setenv("PYTHONPATH", str(ROOT))
        release = ray_side.ensure_ray(None)
    assert release is not None, "a Ray runs in this process already"
    assert ray.is_initialized()
    yield
    release()


@pytest.fixture
def name() -> str:
    """A council name that no other test has."""
    return f"t-{uuid.uuid4().hex[:8]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.ray)
