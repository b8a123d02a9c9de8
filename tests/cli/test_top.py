"""``council top``: spending as it happens, on a screen and in lines."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console, Group

from council.agents.mind import BudgetClient, Case, Cost, Opinion
from council.api.client import Council
from council.cli import render
from council.cli.operate import live
from council.cli.operate.live import Top
from council.cli.report import Report
from council.config.settings import SeatConfig
from tests.patience import HANG_S

from .conftest import Cli, council_of
from .test_live import Up


class Spender:
    """Reserves and settles what its case's summary names, and how its call failed where that does."""

    def set_budget(self, purse: BudgetClient) -> None:
        self.purse = purse

    async def review(self, case: Case) -> Opinion:
        used = int(case.summary.split()[1])
        call_id = await self.purse.reserve(case.proposal_id, "ballot", "small-1", Cost(used + 500, 50))
        self.purse.settle(call_id, Cost(used, used * 10), *case.summary.split()[2:])
        return Opinion.yes("it said so")


def spenders() -> Council:
    seats = [SeatConfig(name=name, mind=Spender()) for name in ("prime", "lite", "codemind")]
    return Council.inline(seats=seats, council_tokens_max=10_000)


def drawn(top: Top, council: Council) -> str:
    for event in council.events(follow=False):
        top.wants(event)
    out = io.StringIO()
    Console(file=out, width=100).print(Group(*top.parts(council.status(), 40)))
    return out.getvalue()


def test_the_screen_has_each_seats_spending_its_pace_and_the_costliest_proposals() -> None:
    with spenders() as council:
        assert "no model has been called" in drawn(Top(council, Report()), council)
        council.propose("spend 100", wait_for="all")
        dear = council.propose("spend 900", wait_for="all").proposal_id
        text = drawn(Top(council, Report()), council)
    lines = text.splitlines()
    (prime,) = [line.split() for line in lines if line.startswith("prime ")]
    assert prime[1:4] == ["2", "1,000", "1,000"]
    (both,) = [line.split() for line in lines if line.startswith("all together")]
    assert both[2:7] == ["6", "3,000", "3,000", "0", "7,000"]
    assert "a minute" in text
    assert "no model" not in text
    costliest = lines[next(n for n, line in enumerate(lines) if "costliest" in line) :]
    (first,) = [n for n, line in enumerate(costliest) if line.startswith(dear)]
    assert costliest[first].split() == [dear, "3", "2,700", "$0.0270"]
    assert costliest[first + 1].split()[2] == "300"


def test_the_pace_is_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    with spenders() as council:
        council.propose("spend 100", wait_for="all")
        top = Top(council, Report())
        assert " 100 " in drawn(top, council)
        assert [event.kind for event in council.events(follow=False) if top.wants(event)] == ["spending"] * 3
        monkeypatch.setattr(live, "PACE", timedelta(0))
        (prime,) = [line.split() for line in drawn(top, council).splitlines() if line.startswith("prime ")]
        assert prime[1:4] == ["1", "100", "0"]


def test_as_json_it_says_each_call_until_it_is_ended(
    cli: Cli, up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    council = up(spenders())
    proposing = threading.Thread(target=lambda: council.propose("spend 70", wait_for="all"))
    watch, told, calls = Top._events, Report.print_json, list[Mapping[str, Any]]()

    async def begun(top: Top, cursor: int) -> None:
        proposing.start()  # from here on it sees whatever happens
        await watch(top, cursor)

    def interrupted(report: Report, document: Mapping[str, Any]) -> bool:
        calls.append(document)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return told(report, document)

    monkeypatch.setattr(Top, "_events", begun)
    monkeypatch.setattr(Report, "print_json", interrupted)
    said = cli("top", "--json")
    proposing.join(HANG_S)
    assert said.code == 0
    found = [json.loads(line) for line in said.out.splitlines()]
    assert [(each["kind"], each["data"]["spent"]["tokens"]) for each in found] == [("spending", 70)] * 3


def test_without_a_terminal_it_is_printed_once(cli: Cli, up: Up) -> None:
    """Mutation: lines without end, which a script waits for in vain."""
    council = up(spenders())
    dear = council.propose("spend 70", wait_for="all").proposal_id
    said = cli("top")
    assert said.code == 0
    lines = said.out.splitlines()
    (prime,) = [line.split() for line in lines if line.startswith("prime ")]
    assert prime[1:4] == ["1", "70", "70"]
    assert any(line.startswith(dear) for line in lines)
    assert said.out.count("spending") == 3


@pytest.mark.parametrize("command", ["top", "budget"])
def test_without_spending_it_says_so_and_ends(cli: Cli, up: Up, command: str) -> None:
    """Mutation: a table of zeros, or a screen that shows nothing."""
    up(council_of()).propose("Rotate the key")
    said = cli(command)
    assert (said.code, said.out) == (0, "nothing spent: no model has been called\n")


def test_a_call_that_failed_is_told_as_one(cli: Cli, up: Up) -> None:
    council = up(spenders())
    council.propose("spend 70 429", wait_for="all")
    events = [render.row(event).plain for event in council.events(follow=False) if event.kind == "spending"]
    assert [each.endswith("on small-1 for its ballot, and failed (429)") for each in events] == [True] * 3
    assert cli("log").out.count("70 tokens, $0.000700; failed (429)") == 3


def test_one_decision_shows_what_each_stage_cost(cli: Cli, up: Up) -> None:
    council = up(spenders())
    decision = council.propose("spend 70", wait_for="all")
    said = cli("show", decision.proposal_id)
    shown = said.out[said.out.index("what its models cost, by stage") :]
    assert shown.splitlines()[1].split()[0] == "ballot"
    words = " ".join(shown.split())
    for seat in ("prime", "lite", "codemind"):
        assert f"{seat} 70 tokens, $0.000700 in 1 call" in words
