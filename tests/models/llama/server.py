"""llama.cpp's own server with a model of random weights, in a process of its own, for as long as it is needed.

``python -m tests.models.llama.server FILE KEY`` serves the file until its input ends, so that it never outlives who
started it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.models.llama import weights

ROOT = Path(__file__).resolve().parents[3]
NAME, KEY, KEYS_VARIABLE = "random-weights", "sk-llama-0123456789", "LLAMAS_KEY"
# Of each of the three that may be asked at a time: our longest prompt here has some 3,100 tokens, and an answer that
# is not cut off some hundreds.
CONTEXT, OUTPUT, PLACES = 8_192, 1_500, 3
STOPS_WITHIN_S = 20.0


@dataclass(frozen=True)
class Llama:
    """A server that runs."""

    base_url: str

    @property
    def seat(self) -> dict[str, Any]:
        """The keys of a seat that is backed by it."""
        return {
            "model": NAME,
            "base_url": self.base_url,
            "api_key_env": KEYS_VARIABLE,
            "tokenizer": str(weights.TOKENIZER),
            "max_output_tokens": OUTPUT,
        }


@contextlib.contextmanager
def llama(folder: Path) -> Iterator[Llama]:
    """A server whose model is written into ``folder``; it is ended with the block."""
    file = folder / f"{NAME}.gguf"
    weights.write(file, context=CONTEXT)
    command = [sys.executable, "-m", "tests.models.llama.server", str(file), KEY]
    with (
        (folder / "llama.log").open("wb") as log,
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address, (folder / "llama.log").read_text(errors="replace")[-2_000:]
            yield Llama(f"{address}/v1")
        finally:
            process.stdin.close()
            try:
                process.wait(STOPS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _serve(file: str, key: str) -> None:
    import xllamacpp

    given = xllamacpp.CommonParams()
    given.model.path, given.model_alias, given.api_keys = file, {NAME}, [key]
    given.n_ctx, given.n_parallel = PLACES * CONTEXT, PLACES
    # One core, and nothing that it does not need: other tests run beside it.
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
    given.fit_params = given.ui = given.warmup = False
    given.cache_ram_mib, given.offline = 0, True
    server = xllamacpp.Server(given)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # its threads have nothing to save


if __name__ == "__main__":
    _serve(*sys.argv[1:])
