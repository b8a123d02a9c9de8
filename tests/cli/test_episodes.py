"""``council show --omen`` prints an episode that ``council validate`` takes."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import pytest

from council.agents.mind import Opinion, Ruling
from council.api.client import Council

from .conftest import Chair, Cli, council_of

ASKS = Chair(
    Opinion.yes("fine", confidence=0.9, risk_level="high"),
    Ruling("human", "a person must see it", 0.8, "high"),
)
Up = Callable[[Council], Council]


class Piped:
    """A standard input that holds what a command printed."""

    def __init__(self, text: str) -> None:
        self.buffer = io.BytesIO(text.encode())


def test_an_episode_is_shown_and_validated(cli: Cli, up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    council = up(council_of(prime=ASKS))
    waiting = council.propose("Drop the table")
    shown = cli("show", waiting.proposal_id[:8], "--omen")
    assert shown.code == 3, shown.err
    packets = [json.loads(line) for line in shown.out.splitlines()]
    assert packets == council.episode(waiting.proposal_id)
    monkeypatch.setattr(sys, "stdin", Piped(shown.out))
    said = cli("validate", "-", "--json")
    assert said.code == 0, said.out
    found = json.loads(said.out)
    assert (found["valid"], found["packets"], found["warnings"]) == (True, len(packets), 0)
    assert [each["state"] for each in found["episodes"]] == ["S8_ESCALATED"]
    monkeypatch.setattr(sys, "stdin", Piped("\n".join(shown.out.splitlines()[1:])))
    assert cli("validate", "-").code == 1


def test_it_is_of_one_proposal_and_in_one_form(cli: Cli, up: Up) -> None:
    council = up(council_of())
    decided = council.propose("Add a page", wait_for="all")
    assert cli("show", "#3", "--omen").out == cli("show", decided.proposal_id, "--omen").out
    assert cli("show", "#1", "--omen").code == 2
    both = cli("show", decided.proposal_id, "--omen", "--json")
    assert both.code == 2
    assert "leave one of them out" in both.out
