"""The codec and the core by themselves, in process: no council runs."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime

import msgpack

from benchmarks.measure import Row, median_s, pairs
from council.core import events as ev
from council.core.state import Ballot, CouncilState, Moment, Rules, Submission, found
from council.core.step import step
from council.protocol import codec, signing
from council.protocol.envelope import Envelope

COUNCIL = "bench.0123456789abcdef"
KEY = bytes(range(32))


def _vote() -> Envelope:
    return Envelope.build(
        msg_id="0123456789abcdef",
        parent_id="fedcba9876543210",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        sender="prime",
        role="voter",
        type="VOTE",
        confidence=0.9,
        risk_level="low",
        content={"proposal_id": "fedcba9876543210", "vote": "yes", "reason": "x" * 800},
    )


def codec_rows() -> list[Row]:
    """Encoding, decoding, signing and opening one VOTE of 800 characters; beside msgpack of a plain dict."""
    envelope = _vote()
    data = codec.encode(envelope)
    plain = json.loads(envelope.to_json())
    packed = msgpack.packb(plain)
    keyring = signing.Keyring()
    keyring.add("prime", KEY)
    sealed = signing.sign(envelope, KEY, COUNCIL)

    def timed(name: str, work: object, floor: object) -> Row:
        a, b, ratio = pairs(lambda: median_s(work, 5, 500), lambda: median_s(floor, 5, 500), 10)  # type: ignore[arg-type]
        return Row("codec", name, a * 1e6, "µs", b * 1e6, ratio)

    return [
        timed(
            "encode, beside msgpack.packb(dict)", lambda: codec.encode(envelope), lambda: msgpack.packb(plain)
        ),
        timed(
            "decode and validate, beside unpackb", lambda: codec.decode(data), lambda: msgpack.unpackb(packed)
        ),
        timed(
            "sign, beside packb", lambda: signing.sign(envelope, KEY, COUNCIL), lambda: msgpack.packb(plain)
        ),
        timed(
            "verify, decode and validate, beside unpackb",
            lambda: keyring.open(sealed, COUNCIL),
            lambda: msgpack.unpackb(packed),
        ),
        Row(
            "codec",
            "bytes of it, beside JSON",
            len(data),
            "bytes",
            len(envelope.to_json()),
            len(data) / len(envelope.to_json()),
        ),
    ]


def _decide(state: CouncilState, first: int, count: int) -> None:
    for number in range(first, first + count):
        at = Moment(number * 1e-3, number * 1e-3, 3 * number + 1)
        proposal_id = f"{number:016x}"
        what = Submission(proposal_id, "client", proposal_id, "x", 60.0)
        state, _ = step(state, ev.ProposalSubmitted(what), at)
        for seat in ("prime", "lite", "codemind"):
            ballot = Ballot(proposal_id, seat, "yes", "agreed", 1.0, "low", proposal_id, seat + proposal_id)
            state, _ = step(state, ev.BallotCast(ballot), at)


def core_rows() -> list[Row]:
    """Steps a second of the core alone, fresh and with 100,000 decisions behind it."""
    rules = Rules(seats=("prime", "lite", "codemind"), prime="prime", inactivity_limit_s=1e9)
    fresh, laden = found(rules, Moment(0.0, 0.0, 0)), found(rules, Moment(0.0, 0.0, 0))
    _decide(laden, 0, 100_000)
    done = {"fresh": 0, "laden": 100_000}

    def run(name: str, state: CouncilState) -> float:
        def work() -> None:
            _decide(state, done[name], 500)
            done[name] += 500

        return median_s(work, 3) / 2_000

    a, b, ratio = pairs(lambda: run("laden", laden), lambda: run("fresh", fresh), 10)
    return [
        Row("core", "steps a second", 1 / b, "/s"),
        Row(
            "core",
            "a step after 100,000 decisions, beside a fresh council's",
            a * 1e6,
            "µs",
            b * 1e6,
            ratio,
            "ratio ≤ 1.25",
            ratio <= 1.25,
        ),
    ]


def import_rows() -> list[Row]:
    """What ``from council import Council`` adds to an empty interpreter."""

    def run(code: str) -> float:
        return median_s(lambda: subprocess.run([sys.executable, "-c", code], check=True), 3)

    ours, empty, _ = pairs(lambda: run("from council import Council"), lambda: run("pass"), 10)
    return [
        Row(
            "import",
            "from council import Council, over an empty interpreter",
            ours - empty,
            "s",
            None,
            None,
            "≤ 0.3 s",
            ours - empty <= 0.3,
        )
    ]
