"""One server of llama.cpp for the tests of this folder, and its key in the environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.models.llama.server import KEY, KEYS_VARIABLE, Llama, llama


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    with llama(tmp_path_factory.mktemp("llama")) as running:
        yield running


@pytest.fixture(autouse=True)
def _its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, KEY)
