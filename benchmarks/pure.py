"""What needs no council: one envelope on the wire, and the import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import msgpack  # type: ignore[import-untyped]

from benchmarks import job
from benchmarks.job import Load
from benchmarks.measure import Row, cpu, in_turn, timed, times_row
from council import Envelope
from council.protocol import signing

COUNCIL = "bench.0123456789abcdef"
KEY = bytes(range(32))
INNER = 100


def codec_rows(scale: float = 1.0) -> list[Row]:
    """Sealing and opening one PROPOSAL of 2 kB, as both its ends do; beside msgpack of a plain dict, unchecked."""
    envelope = Envelope.build(
        msg_id="0123456789abcdef",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        sender="ada",
        role="proposer",
        type="PROPOSAL",
        confidence=1.0,
        risk_level="low",
        content={"summary": job.summary(0), "body": job.body(0), "time_budget_s": 60.0},
    )
    plain = {"id": envelope.msg_id, "sender": "ada", "summary": job.summary(0), "body": job.body(0)}
    keyring, sealed, packed = signing.Keyring(), signing.sign(envelope, KEY, COUNCIL), msgpack.packb(plain)
    keyring.add("ada", KEY)
    turns = max(int(10 * scale), 2)

    def row(name: str, work: Callable[[], object], floor: Callable[[], object]) -> Row:
        mine, theirs = in_turn([partial(_repeated, each) for each in (work, floor)], turns)
        return times_row("codec", name, mine, theirs)

    return [
        row(
            "CPU to sign a proposal of 2 kB and encode it",
            lambda: signing.sign(envelope, KEY, COUNCIL),
            lambda: msgpack.packb(plain),
        ),
        row(
            "CPU to verify, decode and validate it",
            lambda: keyring.open(sealed, COUNCIL),
            lambda: msgpack.unpackb(packed),
        ),
    ]


def _repeated(work: Callable[[], object]) -> Load:
    """The CPU time of one, 100 times from ``INNER`` calls: one alone is too short to be timed."""
    found = [cpu(lambda: [work() for _ in range(INNER)]).total_s / INNER for _ in range(100)]
    return Load(found, sum(found))


def import_rows(scale: float = 1.0) -> list[Row]:
    """What ``from council import Council`` adds to an empty interpreter, in time and in memory."""
    memory = "import psutil; print(psutil.Process().memory_info().rss)"

    def run(code: str) -> Load:
        return timed(lambda: subprocess.run([sys.executable, "-c", code], check=True), 3)

    def rss(code: str) -> float:
        command = [sys.executable, "-c", f"{code}; {memory}"]
        return int(subprocess.run(command, check=True, capture_output=True).stdout) / 2**20

    codes = ("from council import Council", "pass")
    ours, empty = in_turn([partial(run, code) for code in codes], max(int(10 * scale), 2))
    over = [
        Load([a - b for a, b in zip(x.each_s, y.each_s, strict=True)], 1.0)
        for x, y in zip(ours, empty, strict=True)
    ]
    row = times_row("import", "from council import Council, over an empty interpreter", over)
    grew_mb = rss(codes[0]) - rss(codes[1])
    return [replace(row, grew_mb=grew_mb, bound="p50 ≤ 300 ms", holds=row.figure <= 300)]
