"""What holds for every test: no Ray outside tests/ray, a state folder of its own, no settings from outside."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).resolve().parent
# Helpers are imported as tests.<folder>.<module>, whatever directory pytest is started in.
if str(TESTS.parent) not in sys.path:
    sys.path.insert(0, str(TESTS.parent))

# A busy machine makes any example slow now and then; that is no fault of the code.
settings.register_profile("council", deadline=None)
settings.load_profile("council")


def _ray_runs() -> bool:
    """Whether Ray is initialised in this process; never imports it."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


@pytest.fixture(autouse=True)
def _no_ray(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test outside tests/ray that starts Ray fails, and is cleaned up after."""
    if (TESTS / "ray") in Path(request.path).parents:
        yield
        return
    before = _ray_runs()
    yield
    if _ray_runs() and not before:
        sys.modules["ray"].shutdown()
        pytest.fail("this test initialised Ray; such tests belong into tests/ray", pytrace=False)


@pytest.fixture(autouse=True)
def _own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys and known councils go to a folder of the test's own; COUNCIL_* of whoever runs it do not count."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in [name for name in os.environ if name.startswith("COUNCIL_")]:
        monkeypatch.delenv(name)
