"""When a coordinator writes, tells and says that it can't: the policy alone, with a hand on its clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

from council.runtime.commit import LINGERS_MAX, TROUBLE_CHECK_S, Commit

LINGER_S = 0.01


@dataclass
class Work:
    """What a driver has done, by hand."""

    position: int = 1
    awaits_saving: bool = True
    hurries: bool = False
    deliberates: bool = True


def test_what_somebody_waits_for_is_written_at_once_and_all_with_it() -> None:
    commit, work = Commit(0, LINGER_S), Work()
    assert not commit.writes(work, 1.0)
    assert commit.lingers
    work.position, work.hurries = 3, True
    assert commit.writes(work, 1.001)
    commit.began(3, 1.001)
    assert not commit.lingers
    commit.written(3, 1.003)
    assert commit.kept_position == 3
    assert commit.write_s == 1.003 - 1.001


def test_where_nothing_may_linger_all_is_written_at_once() -> None:
    assert Commit(0, 0.0).writes(Work(), 1.0)


def test_nothing_is_written_where_there_is_nothing() -> None:
    commit = Commit(0, 0.0)
    assert not commit.writes(Work(awaits_saving=False), 1.0)
    assert commit.next_due == math.inf


def test_what_comes_in_while_one_write_runs_is_written_by_the_next() -> None:
    commit, work = Commit(0, 0.0), Work(hurries=True)
    commit.began(1, 1.0)
    work.position = 4
    assert not commit.writes(work, 1.001)
    commit.written(1, 1.002)
    assert commit.writes(work, 1.002)


def test_a_write_lingers_until_its_time_and_no_longer() -> None:
    """Mutation: it never is written, where nobody ever waits for it."""
    commit, work = Commit(0, LINGER_S), Work()
    assert not commit.writes(work, 1.0)
    assert commit.next_due == 1.0 + LINGER_S
    assert not commit.writes(work, 1.005)
    assert commit.writes(work, commit.next_due)


def test_a_write_lingers_while_more_comes_and_no_longer_than_its_limit() -> None:
    """Mutation: it is written a fixed time after the first came, and the next decision waits until that is over."""
    commit, work, now = Commit(0, LINGER_S), Work(), 1.0
    while not commit.writes(work, now):
        now = commit.next_due
        work.position += 1
    assert LINGERS_MAX * LINGER_S <= now - 1.0 <= (LINGERS_MAX + 1) * LINGER_S


def test_where_nothing_is_deliberated_a_write_waits_for_the_next_decision() -> None:
    commit = Commit(0, LINGER_S)
    assert not commit.writes(Work(deliberates=False), 1.0)
    assert commit.next_due == 1.0 + LINGERS_MAX * LINGER_S


def test_who_asks_ends_a_linger_now_or_once_the_write_under_way_is_over() -> None:
    commit, work = Commit(0, LINGER_S), Work()
    assert not commit.writes(work, 1.0)
    commit.hurry(1)
    assert commit.writes(work, 1.0)
    commit.began(1, 1.0)
    work.position = 2
    commit.hurry(2)
    commit.written(1, 1.001)
    assert commit.writes(work, 1.001)
    commit.began(2, 1.001)
    commit.written(2, 1.002)
    work.position = 3
    assert not commit.writes(work, 1.002), "nobody asked for this one"


def test_after_a_write_that_failed_nothing_is_due() -> None:
    commit, work = Commit(0, 0.0), Work(hurries=True)
    commit.began(1, 1.0)
    commit.fail()
    assert not commit.writes(work, 2.0)
    assert not commit.stall_due(2.0)
    assert commit.next_due == math.inf


def test_who_waits_hears_once_of_a_stall_and_once_of_its_end() -> None:
    """Rules 4.7. Mutation: it is told at each look, twice a second, for as long as the disk is full."""
    commit, now = Commit(0, 0.0), 1.0
    commit.began(1, now)
    heard = []
    for owed, stalls in (
        ({"a"}, False),
        ({"a"}, True),
        ({"a", "b"}, True),
        ({"a", "b"}, True),
        ({"b"}, False),
        ({"b"}, False),
    ):
        assert commit.next_due == now + TROUBLE_CHECK_S
        now = commit.next_due
        assert commit.stall_due(now)
        heard.append(commit.looked(now, owed, stalls=stalls))
    assert heard == [set(), {"a"}, {"b"}, set(), {"a", "b"}, set()]


def test_who_heard_of_a_stall_hears_of_its_end_though_the_write_is_over() -> None:
    commit = Commit(0, 0.0)
    commit.began(1, 1.0)
    assert commit.looked(1.5, {"a"}, stalls=True) == {"a"}
    commit.written(1, 1.6)
    assert commit.next_due == 1.6  # before another stall may begin, of which it would not hear
    assert commit.looked(1.6, (), stalls=False) == {"a"}
    assert commit.next_due == math.inf
