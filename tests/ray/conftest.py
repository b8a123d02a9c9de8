"""One Ray for all tests of this folder: local, small, its own; nothing attaches to a Ray that happens to run."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="package", autouse=True)
def a_ray() -> Iterator[None]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)  # the seats import tests.ray.minds
    import ray

    from council.runtime import ray_side

    release = ray_side.ensure_ray(None)
    assert release is not None, "a Ray runs in this process already"
    assert ray.is_initialized()
    try:
        yield
    finally:
        release()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@pytest.fixture
def name() -> str:
    """A council name that no other test has."""
    return f"t-{uuid.uuid4().hex[:8]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.ray)
