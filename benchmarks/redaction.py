"""Redaction of 100 KB: prose, code and logs, and the worst of hostile texts, beside a search for each shape."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.job import Load
from benchmarks.measure import Row, cpu, in_turn, times_row
from council.action.redact import redact
from council.agents.scan.secrets import shapes

CHARS = 100_000
MB_PER_S, WORST_MS = 5, 50
ROOT = Path(__file__).parent.parent
# What makes each step work: names with values, encodings, seams, numbers, and as many real values as can be.
HOSTILE = (
    "secret=", "secret_access_key=", "password=a", "token: ", "--password ", "a@b.co ", "ab@firma.de ", "fuck ",
    "4111 1111 1111 1111 ", "DE44 ", "+1 2", "1 ", "1", "bsn pesel tfn 1 ", "a\n", "a1\nb2 ", "\\n", "%41", "\\u0041",
    "\uff21", "\u200b", "é", "A1b2C3d4", "aGVsbG8gd29ybGQ=\n", "0a", "://a:b@", '"', " ", "eyJ.", "ghp_",
    "-----BEGIN PRIVATE KEY-----\n", '"kty":"RSA"', "pwd=a1b2c3 ", "user=a;", "curl -u a:b1c2d3 ", "glpat-", "gldt-",
    "xoxb-", "sk-",
)  # fmt: skip


def redaction_rows(scale: float = 1.0) -> list[Row]:
    """MB/s of plain texts, then the CPU of the worst hostile text."""
    turns = max(int(20 * scale), 3)
    rows = [_row(name, text, turns) for name, text in plain_texts().items()]
    once = {unit: cpu(partial(redact, filled(unit))).cpu_s for unit in HOSTILE for _ in range(2)}
    worst = max(once, key=lambda unit: once[unit])
    (mine,) = in_turn([lambda: cpu(lambda: redact(filled(worst)))], turns)
    row = times_row("redaction", f"the worst of {len(HOSTILE)} hostile texts, of {worst!r}", mine)
    return [*rows, replace(row, bound=f"p50 ≤ {WORST_MS} ms", holds=row.figure <= WORST_MS)]


def _row(name: str, text: str, turns: int) -> Row:
    size_mb = len(text.encode()) / 1e6
    works: list[Callable[[], Load]] = [
        lambda: cpu(lambda: redact(text)),
        lambda: cpu(lambda: each_shape(text)),
    ]
    mine, theirs = in_turn(works, turns)
    found = times_row("redaction", name, mine, theirs)
    assert found.floor is not None
    rate, their_rate = size_mb / found.figure * 1e3, size_mb / found.floor * 1e3
    return Row(
        "redaction", f"100,000 characters of {name}", rate, "MB/s", their_rate, rate / their_rate,
        f"≥ {MB_PER_S} MB/s", rate >= MB_PER_S, found.p50_ms, found.p99_ms,
    )  # fmt: skip


def each_shape(text: str) -> int:
    """How many matches the shapes have, each searched in the whole text: nothing is validated, decoded or joined."""
    return sum(1 for shape in shapes().values() for _ in shape.pattern.finditer(text))


def filled(unit: str) -> str:
    return (unit * (CHARS // len(unit) + 1))[:CHARS]


def plain_texts() -> dict[str, str]:
    """This project's documents and code, and made-up logs."""
    chance = random.Random(7)
    lines = (
        json.dumps({
            "ts": f"2026-01-{at % 28 + 1:02}T03:{at % 60:02}:05.{chance.randrange(10**6):06}Z", "level": "info",
            "trace": f"{chance.getrandbits(128):032x}", "path": f"/v1/items/{chance.randrange(10**9)}",
            "status": 200, "ms": chance.random() * 100, "user": chance.randrange(10**8),
        })
        for at in range(700)
    )  # fmt: skip
    return {
        "prose": filled(_joined("docs/*.md")),
        "code": filled(_joined("council/**/*.py")),
        "JSON logs": filled("\n".join(lines)),
    }


def _joined(pattern: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(pattern)))
