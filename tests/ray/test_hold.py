"""The commands that need Ray print what they printed: see tests/hold."""

from __future__ import annotations

import pytest

from tests.hold import shapes_on_ray, texts

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]


@pytest.fixture(scope="package", autouse=True)
def a_ray() -> None:
    """No Ray in this process: the command starts one."""


def test_what_commands_on_ray_print_has_its_shape() -> None:
    texts.compare("shapes_on_ray", shapes_on_ray.lines())
