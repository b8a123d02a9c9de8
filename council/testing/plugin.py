"""The fixtures of ``council.testing``. pytest loads this module wherever the package is installed, so it is light."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from council.testing import approving, escalating, rejecting

if TYPE_CHECKING:
    from council.api.client import Council


@pytest.fixture
def council_approves() -> Iterator[Council]:
    """A council in this process that approves everything."""
    with approving() as council:
        yield council


@pytest.fixture
def council_rejects() -> Iterator[Council]:
    """A council in this process that rejects everything."""
    with rejecting() as council:
        yield council


@pytest.fixture
def council_escalates() -> Iterator[Council]:
    """A council in this process that asks a human about everything."""
    with escalating() as council:
        yield council
