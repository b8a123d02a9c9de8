"""The commands that need Ray print what they printed: see tests/hold."""

from __future__ import annotations

import pytest

from tests.hold import shapes, texts
from tests.ray.shells import Ended

pytestmark = pytest.mark.ray


@pytest.fixture(scope="package", autouse=True)
def a_ray() -> None:
    """No Ray in this process: the command starts one."""


def test_what_commands_on_ray_print_has_its_shape(ended: Ended) -> None:
    texts.compare("shapes_on_ray", shapes.lines(ended.documents))
