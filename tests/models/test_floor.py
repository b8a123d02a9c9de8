"""The static floor under seats with a model, in a whole council in process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from council import Council, Decision
from council.agents.scan import scan as scanning
from council.agents.scan import tools
from tests.agents.test_lite import change
from tests.models.stub import Entry, Stub, ballot, for_each, plan, ruling, says
from tests.patience import HANG_S

SEATS = ("prime", "lite", "codemind")
FLOORED: dict[str, dict[str, Any]] = {seat: {} for seat in SEATS}
BARE = {seat: {"scan": "off"} for seat in SEATS}
EVAL = change("app/a.py", ["def f(x):", "    return eval(x)"])
FINE = change("app/a.py", ["x = 1"])
OWN = """\
- {id: no-debug, family: config, weight: stop, paths: ["*.ini"], match: '^debug = on', message: Debugging is on.}
"""


def agrees(word: str) -> Sequence[Entry]:
    """A model that votes yes, rules ``word``, and interrupts nobody."""
    tasks: dict[str, Sequence[Entry]] = {
        "plan": [says(plan())],
        "ballot": [says(ballot("yes", "it was agreed"))],
        "ruling": [says(ruling(word, reason="I would do it"))],
        "observe": [says('{"interrupt": null}')],
    }
    return [for_each(**tasks)]


@contextmanager
def council(
    seats: Mapping[str, Mapping[str, Any]], *, word: str = "confirm", **more: Any
) -> Iterator[tuple[Council, Stub]]:
    """A council in which ``seats``, by name with further settings, have a model that agrees; Prime rules ``word``."""
    with Stub({seat: agrees(word) for seat in SEATS}) as stub:
        tables = {seat: {"model": seat, "base_url": stub.base_url, **given} for seat, given in seats.items()}
        with Council.inline(seats=tables, **more) as running:
            yield running, stub


def decided(running: Council, body: str) -> Decision:
    return running.propose("Change it", body, wait_for="all", timeout_s=HANG_S)


def texts_of(stub: Stub) -> list[str]:
    return [json.dumps(call.body["messages"]) for call in stub.requests]


def votes(decision: Decision) -> dict[str, tuple[str, str]]:
    return {each.seat: (each.vote, each.risk_level) for each in decision.ballots}


@pytest.mark.parametrize(
    ("word", "outcome", "standing"), [("reject", "rejected", "decided"), ("confirm", None, "escalated")]
)
def test_three_models_that_agree_do_not_undo_a_stop(word: str, outcome: str | None, standing: str) -> None:
    """A model of Prime hears both sides. It may reject the proposal; if it would confirm it, a human decides."""
    with council(FLOORED, word=word) as (running, stub):
        decision = decided(running, EVAL)
        asked = texts_of(stub)
    assert (decision.outcome, decision.standing) == (outcome, standing)
    assert votes(decision) == dict.fromkeys(SEATS, ("no", "high"))
    for each in decision.ballots:
        assert "(py-eval-of-data)" in each.reason, "the checks' reason"
        assert "it was agreed" in each.reason, "the model's reason"
    assert all("py-eval-of-data" in text for text in asked if "eval(x)" in text)


def test_a_models_yes_to_what_nothing_stops_is_its_own() -> None:
    with council(FLOORED) as (running, _):
        decision = decided(running, FINE)
    assert decision.outcome == "approved"
    assert {each.reason for each in decision.ballots} == {"it was agreed"}


def test_a_model_primes_confirmation_of_a_stop_goes_to_a_human() -> None:
    """Lite and CodeMind have no floor, so that the proposal is escalated, and not rejected by three."""
    with council({"prime": {}, "lite": {"scan": "off"}, "codemind": {"scan": "off"}}) as (running, _):
        decision = decided(running, EVAL)
    assert votes(decision) == {"prime": ("no", "high"), "lite": ("yes", "low"), "codemind": ("yes", "low")}
    assert (decision.outcome, decision.standing) == (None, "escalated")
    assert decision.ruling is not None
    assert decision.ruling.ruling == "human"
    assert "(py-eval-of-data)" in decision.ruling.reason
    assert "I would do it" in decision.ruling.reason


def test_a_seat_with_its_scan_off_is_shown_no_finding_and_keeps_its_yes() -> None:
    with council(BARE) as (running, stub):
        decision = decided(running, EVAL)
        asked = texts_of(stub)
    assert decision.outcome == "approved"
    assert {each.reason for each in decision.ballots} == {"it was agreed"}
    assert [text for text in asked if "eval(x)" in text]
    assert not [text for text in asked if "py-eval-of-data" in text]


def test_the_users_own_rules_are_under_the_models_too(tmp_path: Path) -> None:
    folder = tmp_path / "council.rules"
    folder.mkdir()
    (folder / "own.yml").write_text(OWN, encoding="utf-8")
    body = change("app/a.ini", ["debug = on"])
    for given, outcome in (({"rules": str(folder)}, "rejected"), ({}, "approved")):
        with council(FLOORED, word="reject", **given) as (running, stub):
            decision = decided(running, body)
            asked = texts_of(stub)
        assert decision.outcome == outcome, given
        shown = [text for text in asked if "no-debug" in text]
        assert bool(shown) is bool(given)
        assert all(("(no-debug)" in each.reason) is bool(given) for each in decision.ballots)


def test_a_model_is_told_of_an_analyzer_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_kept", type(scanning._kept)())

    def find(name: str) -> str:
        raise tools.ToolFailed(f"{name} is not installed")

    monkeypatch.setattr(tools, "find", find)
    with council(FLOORED) as (running, stub):
        decided(running, FINE)
        asked = [text for text in texts_of(stub) if "x = 1" in text]
    assert asked
    assert all("not read: ast-grep is not installed" in text for text in asked)
    assert all("not read: ruff is not installed" in text for text in asked)
