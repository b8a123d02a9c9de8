"""What the Python API says of wrong arguments and settings: the whole text of the error."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic_core import core_schema
from pydantic_core._pydantic_core import list_all_errors

from council import Council, CouncilConfig, SeatConfig
from council.cluster import port
from council.config.settings import SEAT_KEYS
from council.journal import hold
from council.protocol.errors import CallerError, ConfigError, CouncilError, JournalHeld
from council.protocol.wording import fault_text
from tests.patience import HANG_S

ROOT = Path(__file__).parent.parent
ID = "an id: 8 to 32 of the characters 0-9 and a-f"
NAMES = "1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
SHAPE = (
    'expected Action(tool, args) or a mapping {"tool": ..., "args": {...}}, '
    'for example Action("shell", {"command": "ls"})'
)


@pytest.fixture(scope="module")
def council() -> Iterator[Council]:
    with Council.inline() as made:
        yield made


Call = Callable[[Council], object]
ARGUMENTS: list[tuple[Call, str]] = [
    (lambda c: c.propose(""), "summary: is empty"),
    (lambda c: c.propose(3), "summary: must be a text; found 3"),  # type: ignore[arg-type]
    (lambda c: c.propose("x", body=b""), "body: must be a text; found bytes"),  # type: ignore[arg-type]
    (lambda c: c.propose("x", timeout_s=0), "timeout_s: must be more than 0 seconds; found 0"),
    (lambda c: c.propose("x", timeout_s="1"), "timeout_s: must be a number; found '1'"),  # type: ignore[arg-type]
    (lambda c: c.propose("x", risk="hgh"), "risk: must be one of 'low', 'med' or 'high'; found 'hgh'"),  # type: ignore[arg-type]
    (lambda c: c.propose("x", wait_for="any"), "wait_for: must be one of 'decisive' or 'all'; found 'any'"),  # type: ignore[arg-type]
    (lambda c: c.propose("x", confidence=2), "confidence: must be at most 1; found 2"),
    (lambda c: c.propose("x", supersedes="nope"), f"supersedes: must be {ID}; found 'nope'"),
    (lambda c: c.propose("x", action=("rm", {})), f"action is ('rm', {{}}), {SHAPE}"),  # type: ignore[arg-type]
    (lambda c: c.propose("x", action="rm"), f"action is 'rm', {SHAPE}"),  # type: ignore[arg-type]
    (
        lambda c: c.propose("x", action={"tool": "rm", "args": {}, "sudo": True}),
        f"action is {{'tool': 'rm', 'args': {{}}, 'sudo': True}}, {SHAPE}",
    ),
    (
        lambda c: c.propose("", timeout_s=0),
        "summary: is empty (and 1 more, see problems)",
    ),
    (lambda c: c.cancel("nope"), f"proposal_id: must be {ID}; found 'nope'"),
    (lambda c: c.report("nope", ok=True), f"proposal_id: must be {ID}; found 'nope'"),
    (lambda c: c.cancel("00000000", reason=3), "reason: must be a text; found 3"),  # type: ignore[arg-type]
    (
        lambda c: c.cancel(None),  # type: ignore[arg-type]
        "None is not an id: expected a text, as in decision.proposal_id or escalation.escalation_id",
    ),
    (
        lambda c: c.decision(3),  # type: ignore[arg-type]
        "3 is not an id: expected a text, as in decision.proposal_id or escalation.escalation_id",
    ),
    (
        lambda c: c.decision("00000000"),
        "this council has no proposal with the id '00000000'; council log lists the ids",
    ),
    (lambda c: c.history(limit="ten"), "limit: expected a whole number, found a text"),  # type: ignore[arg-type]
    (lambda c: c.history(limit=0), "limit is 0, expected 1 to 1,000"),
]


@pytest.mark.parametrize(("call", "told"), ARGUMENTS, ids=[told[:40] for _, told in ARGUMENTS])
def test_a_wrong_argument(council: Council, call: Call, told: str) -> None:
    with pytest.raises(CallerError) as caught:
        call(council)
    assert str(caught.value) == told


def test_all_faults_are_in_problems_by_argument(council: Council) -> None:
    with pytest.raises(CallerError) as caught:
        council.propose("", timeout_s=0, risk="hgh")  # type: ignore[arg-type]
    assert caught.value.problems == (
        "risk: must be one of 'low', 'med' or 'high'; found 'hgh'",
        "summary: is empty",
        "timeout_s: must be more than 0 seconds; found 0",
    )


SETTINGS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: SeatConfig(name="Bad Name", mind="a.b:C"),
        f"SeatConfig has 1 problem:\n  name: found 'Bad Name', expected {NAMES}",
    ),
    (
        lambda: SeatConfig(name="a", mind="a.b:C", max_concurrent=0),
        "SeatConfig has 1 problem:\n  max_concurrent: found 0, expected a whole number from 1 to 256",
    ),
    (
        lambda: SeatConfig(name="a", mind="a.b:C", ttl=1),  # type: ignore[call-arg]
        f"SeatConfig has 1 problem:\n  ttl: unknown key, expected one of name, {', '.join(SEAT_KEYS)}",
    ),
    (
        lambda: SeatConfig(name="a", base_url="http://127.0.0.1/v1"),
        "SeatConfig has 1 problem:\n  model: not given, and a seat that is backed by a model needs it: a text of "
        "1 to 128 characters",
    ),
    (
        lambda: CouncilConfig(quorum=9, prime="lit"),
        "CouncilConfig has 2 problems:\n  prime: prime is 'lit', expected one of the seats: prime, lite, codemind; "
        "did you mean lite?\n  quorum: quorum is 9, expected at most 3: there are 3 seats",
    ),
    (
        lambda: CouncilConfig(store="postgresql://user:secret@host/db"),
        "CouncilConfig has 1 problem:\n  store: found 'postgresql://…', expected /path, ~/path, sqlite:////path, "
        "postgresql://user@host/database (a password in ~/.pgpass), or 'memory', which keeps nothing",
    ),
    (
        lambda: Council.inline(quorum=0),
        "the configuration has 1 problem:\n  quorum: found 0, expected a whole number from 2 to 15",
    ),
    (
        lambda: Council.inline(call_timeout_s=-1, seats={"my-seat": {"max_concurrent": 0, "mind": "a.b:C"}}),
        "the configuration has 2 problems:\n"
        "  call_timeout_s: found -1, expected a number of seconds from 0.001 to 3600\n"
        "  seats.my-seat.max_concurrent: found 0, expected a whole number from 1 to 256",
    ),
]


@pytest.mark.parametrize(("make", "told"), SETTINGS, ids=[told[:60] for _, told in SETTINGS])
def test_a_wrong_setting(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == told
    assert list(caught.value.problems) == [line.strip() for line in told.splitlines()[1:]]


def test_every_fault_that_pydantic_knows_is_in_our_words() -> None:
    """Mutation: a new type of constraint, and pydantic's own words are printed."""
    known = list_all_errors()
    assert {each["type"] for each in known} <= set(get_args(core_schema.ErrorType))
    for each in known:
        context = each.get("example_context") or {}
        told = fault_text(each["type"], context, "abc", "timeout_s", each["example_message_python"])
        assert not re.search(r"Input|String should|Value error|valid|dictionary|\^|Extra inputs", told), told
        if each["type"] not in ("value_error", "assertion_error"):
            assert told != each["example_message_python"]


def test_a_held_journal_is_found_before_ray_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(port, "ensure_ray", started)
    monkeypatch.setattr(hold, "PAUSE_S", 0)
    store = str(tmp_path / "s.db")
    with Council.inline(store=store), pytest.raises(JournalHeld, match=r"Council\.connect\(name='council'\)"):
        Council.launch(store=store)


def test_no_error_of_the_api_has_a_pattern_in_it(council: Council) -> None:
    for call, _ in ARGUMENTS:
        with pytest.raises(CouncilError) as caught:
            call(council)
        assert not re.search(r"\[0-9|\^|content\.|Input should|should match", str(caught.value))


def test_the_example_of_a_pool_prints_its_decision() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    codes = [code for text in texts for code in re.findall(r"```python\n(.*?)```", text, re.S)]
    (code,) = [each for each in codes if "CouncilPool.inline" in each]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stdout == "approved by checks.0\n"
