"""The recoveries of ``tests/runtime/test_recovery.py``, on a real server: there, no test may open a socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runtime import test_recovery as recovery

pytestmark = pytest.mark.parametrize("engine", ["postgresql"])
ALIKE = [
    recovery.test_a_proposal_in_flight_is_decided_once_by_the_same_bytes,
    recovery.test_what_waits_for_a_human_waits_on_and_is_answered,
]
LONG = [
    recovery.test_what_was_decided_stands_and_is_told_again,
    recovery.test_a_deadline_counts_the_time_that_the_council_was_up,
    recovery.test_the_old_ones_word_counts_no_more,
    recovery.test_a_council_that_is_closed_twice_or_in_the_middle_leaves_a_whole_journal,
    recovery.test_other_seats_and_another_prime_go_on_with_what_is_open,
    recovery.test_who_asks_while_nothing_can_be_kept_hears_why,
]


@pytest.mark.parametrize(
    "scenario",
    [*ALIKE, *(pytest.param(each, marks=pytest.mark.long) for each in LONG)],
    ids=lambda each: each.__name__,
)
def test_on_a_server(scenario: Any, address: str) -> None:
    scenario(address)


@pytest.mark.parametrize(("down_s", "waits"), [(86_000.0, True), (86_401.0, False)])
def test_a_humans_time(address: str, down_s: float, waits: bool) -> None:
    recovery.test_a_humans_time_runs_while_everything_is_down(address, down_s, waits)


def test_what_takes_a_folder_or_other_settings(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        recovery.test_a_quiet_council_signs_what_came_last(address, tmp_path, patched)


@pytest.mark.long
def test_many_short_lives(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recovery.test_a_long_life_of_many_short_ones_is_one(address, monkeypatch)
