"""The benchmarks: the job that all of them do, their tables, and each that needs no Ray once at a small scale."""

from __future__ import annotations

import ast
import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import acting, durable, job, measure, minds, peers, pure, running, sight, thinking
from benchmarks.floor import Batched
from benchmarks.measure import Row
from benchmarks.peers import __main__ as table
from benchmarks.peers import child, ours
from benchmarks.proposals import Planted, load
from council import Council
from council.action.sandbox import SandboxMissing, level_for
from council.agents.mind import Case
from council.agents.prompting.answer_schema import SCHEMA_TEXTS
from council.agents.prompting.builder import case_text
from council.agents.prompting.tokens import counter_for
from tests.cases import each

PEERS = Path(peers.__file__).parent
PROPOSALS = load()
COUNT = counter_for("gpt-4o")


def _session_tokens(proposal: Planted) -> int:
    return sum(COUNT(turn.text) for turn in proposal.history)


def test_there_are_twenty_with_sessions_of_every_length() -> None:
    sizes = sorted(map(_session_tokens, PROPOSALS))
    assert len(PROPOSALS) == len({proposal.summary for proposal in PROPOSALS}) == 20
    assert sizes[0] == 0
    assert sizes[-1] > 20_000
    # Else nothing would have to be left out.
    assert sum(size > thinking.MTU for size in sizes) >= 5


@each("proposal", PROPOSALS)
def test_facts_stand_where_they_are_said_to_and_nowhere_else(proposal: Planted) -> None:
    own = case_text(Case("", "", proposal.summary, proposal.body, proposal.action))
    session = "\n".join(turn.text for turn in proposal.history)
    assert "«" not in own + session
    assert len(proposal.in_proposal) >= 3
    assert bool(proposal.in_history) == bool(proposal.history)
    for fact in proposal.in_proposal:
        assert (own.count(fact), session.count(fact)) == (1, 0)
    for fact in proposal.in_history:
        assert (own.count(fact), session.count(fact)) == (0, 1)


def test_what_each_way_reads_is_counted_from_what_arrived() -> None:
    """The longest session and none: the group chat sees all of it, a seat that is not given it no fact of it."""
    two = (PROPOSALS[0], PROPOSALS[-1])
    naive = thinking.naive_way(two)
    assert (naive.calls, naive.kept(), naive.in_schemas) == (6, 1.0, 0)
    assert naive.tokens[1] > 3 * _session_tokens(two[1]) > 3 * 20_000
    without = thinking.council_way(two, with_history=False, stages="one")
    assert (without.calls, without.kept(True), without.kept(False)) == (6, 1.0, 0.0)
    assert without.in_schemas == 6 * COUNT(SCHEMA_TEXTS["ballot"])
    ours = thinking.council_way(two, stages="one")
    assert (ours.calls, ours.kept(True)) == (6, 1.0)
    assert ours.kept(False) > 0.5
    assert abs(without.tokens[0] - ours.tokens[0]) < 100  # nonces and canaries
    assert without.tokens[1] < ours.tokens[1] <= 3 * (thinking.MTU + 300) < naive.tokens[1]
    assert ours.by_task.total() == sum(ours.tokens) > ours.in_schemas > 0


def test_a_request_is_its_messages_and_its_schema_and_the_worst_informed_seat_counts() -> None:
    schema = {"type": "object", "properties": {"plan": {"type": "array"}}}
    body = {"messages": [{"content": "hello world"}, {"content": "hello"}]}
    assert thinking.read_by(body, COUNT) == 3
    asked = body | {"response_format": {"json_schema": {"name": "plan", "schema": schema}}}
    assert thinking.read_by(asked, COUNT) == 3 + COUNT(json.dumps(schema))
    spent = thinking.Spent(shown={"a": [(True, True), (False, True)], "b": [(True, True), (False, False)]})
    assert (spent.kept(), spent.kept(True), spent.kept(False)) == (0.5, 1.0, 0.0)


def test_the_seats_of_both_ways_are_asked_in_their_own_form() -> None:
    with thinking.answering(COUNT) as stub:
        chat = thinking.GroupChat(stub.base_url, thinking.MODELS)
        assert chat.decide(PROPOSALS[0], plans=True)
        chat.close()
    bodies = [call.body for call in stub.requests]
    assert [body["model"] for body in bodies] == 2 * list(thinking.MODELS.values())
    last = json.dumps(bodies[-1]["messages"])
    assert last.count('VOTE: yes"') == 2  # the ballots of those who spoke before
    assert "VOTE" not in json.dumps(bodies[2]["messages"])


def test_all_of_it_runs() -> None:
    """Once each, with one proposal: every figure is one, and what is bound has a bound."""
    few = (PROPOSALS[4],)
    rows = [
        *thinking.assembly_rows(PROPOSALS, 1),
        *thinking.share_rows(PROPOSALS, 1),
        *thinking.spending_rows(few),
    ]
    assert all(row.figure > 0 and row.group == "thinking" for row in rows)
    assert {row.bound for row in rows} == {"", "p50 ≤ 5 ms", "p50 ≤ 250 ms", "ratio ≤ 0.6", "≥ 95%"}
    assert all((row.holds is None) == (row.bound == "") for row in rows)


# The job


def test_three_voters_disagree_on_a_third_of_the_proposals_and_the_majority_is_what_is_expected() -> None:
    ballots = [[job.votes_yes(voter, number) for voter in job.VOTERS] for number in range(36)]
    split = [number for number, votes in enumerate(ballots) if len(set(votes)) == 2]
    assert len(split) == 12
    assert [sum(votes) > 1 for votes in ballots] == [job.approved(number) for number in range(36)]
    against = [job.VOTERS[ballots[n].index(not job.approved(n))] for n in split]
    assert {voter: against.count(voter) for voter in job.VOTERS} == dict.fromkeys(job.VOTERS, 4)
    assert {job.approved(number) for number in split} == {True, False}


def test_each_proposal_has_a_body_of_its_own_of_2_kb() -> None:
    bodies = [job.body(number) for number in range(100)]
    assert {len(body.encode()) for body in bodies} == {2_048}
    assert len(set(bodies)) == 100
    assert [job.number_of(job.summary(number)) for number in (0, 7, 1_000)] == [0, 7, 1_000]


def test_a_load_has_so_many_in_flight_and_refuses_a_wrong_decision() -> None:
    under_way, most = 0, 0

    async def decide(number: int) -> bool:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return job.approved(number)

    found = measure.loaded(decide, 50, 8)
    assert (len(found.each_s), most) == (50, 8)
    assert 0 < found.p50 <= found.p99 <= found.total_s

    async def always(number: int) -> bool:
        return True

    with pytest.raises(AssertionError, match="proposal 0 was decided wrongly"):
        measure.loaded(always, 10, 1)


def test_the_minds_vote_as_the_job_says_and_the_council_decides_so() -> None:
    with Council.inline(seats=minds.seats(5), store="memory") as council:
        for number in range(6):
            decision = council.propose(job.summary(number), job.body(number), wait_for="all")
            votes = {ballot.seat: ballot.vote == "yes" for ballot in decision.ballots}
            assert votes == {seat.name: job.votes_yes(seat.name, number) for seat in minds.seats(5)}
            assert bool(decision) == job.approved(number)


# Rows and tables


def test_works_are_measured_in_turn_and_a_rate_stands_beside_its_floors() -> None:
    order: list[str] = []

    def work(name: str, seconds: float) -> Callable[[], job.Load]:
        def run() -> job.Load:
            order.append(name)
            return job.Load([seconds] * 10, seconds * 10)

        return run

    found = measure.in_turn([work("a", 0.001), work("b", 0.002), work("c", 0.0005)], 2)
    assert "".join(order) == "abc" + "abc" + "cba"
    row = measure.rate_row("g", "n", *found, grew_mb=1.5)
    assert (round(row.figure), row.p50_ms, row.p99_ms, row.grew_mb) == (1_000, 1.0, 1.0, 1.5)
    assert (row.ratio, row.second_ratio) == (pytest.approx(2.0), pytest.approx(0.5))
    times = measure.times_row("g", "n", *found[:2])
    assert (times.figure, times.floor, times.ratio) == (1.0, 2.0, pytest.approx(0.5))


def test_a_hundredth_part_lies_above_the_99th_percentile() -> None:
    assert job.percentile_99([float(n) for n in range(1, 201)]) == 198.0
    assert job.percentile_99([3.0, 1.0]) == 3.0


def test_rows_are_shown_as_markdown_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    measure.show(
        [
            Row(
                "g",
                "one",
                1234.5,
                "/s",
                500.0,
                2.469,
                "ratio > 1",
                True,
                0.47,
                1.234,
                cpu_ms=0.31,
                grew_mb=12.0,
            )
        ]
    )
    head, line, row, data = capsys.readouterr().out.splitlines()
    assert (
        row
        == "| g | one | 1,234 /s | 0.47; 1.23 ms | 0.31 ms | 500 /s | 2.47 |  |  | 12 MB | ratio > 1: yes |"
    )
    assert head.count("|") == line.count("|") == row.count("|")
    assert json.loads(data)["p99_ms"] == 1.234


# The benchmarks that need no Ray


@pytest.mark.long
def test_the_start_of_an_action_is_timed_beside_a_bare_one() -> None:
    if not os.environ.get("CI"):  # in CI there must be a sandbox
        try:
            level_for(None)
        except SandboxMissing as missing:
            pytest.skip(str(missing))
    (row,) = acting.acting_rows(0.1)
    assert row.floor is not None
    assert row.p99_ms is not None
    assert row.p99_ms >= row.figure > row.floor > 0


@pytest.mark.long
def test_the_rows_in_process_have_percentiles_a_floor_and_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "LEVELS", (1, 10))
    monkeypatch.setattr(running, "TURNS", 1)
    monkeypatch.setattr(pure, "INNER", 5)
    rows = [*running.inline_rows(0.05), *pure.codec_rows(0.1)]
    assert all(row.figure > 0 and row.p50_ms is not None and row.p99_ms is not None for row in rows)
    assert [row.grew_mb is not None and row.ratio is not None for row in rows if row.unit == "/s"] == [
        True,
        True,
    ]


def test_bare_commits_are_as_many_as_the_council_made_and_as_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = tmp_path / "kept.db"
    with Council.inline(seats=minds.STUBS, name="kept", store=str(store), metrics_port=0) as council:
        written, bare = durable.Written(council, store), durable.Bare(tmp_path / "bare.db")
        running.level_of(council)(40, 1)
        bare.commits, bare.bytes = written.since()
        assert 40 <= bare.commits <= 200  # what nobody waits for goes with what comes next
        assert bare.bytes > 40 * job.BODY_BYTES
        found = bare.level(40, 1)
        assert len(found.each_s) == 40
        assert bare.kept() == (bare.commits, bare.bytes // bare.commits * bare.commits)


@pytest.mark.long
def test_metrics_and_traces_are_set_beside_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sight, "DECISIONS", 20)
    assert [row.floor is not None and row.figure > 0 for row in sight.sight_rows(0.1)] == [True, True]


# The peers


def test_a_peer_measures_each_level(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(job, "LEVELS", (1, 10))
    monkeypatch.setattr(child, "TOTALS", {1: 10, 10: 20})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = asyncio.run(child.measured(ours.durable, tmp_path, 1.0))
    assert list(found["levels"]) == ["1", "10"]
    assert all(value > 0 for level in found["levels"].values() for value in level.values())
    assert (tmp_path / "council.db").exists()


def _round(rates: dict[str, float]) -> table.Round:
    level = {"p50": 1.0, "p99": 2.5, "cpu": 0.4}
    return {
        name: {"levels": {str(n): {**level, "rate": rate} for n in job.LEVELS}, "rss": 80.2, "grew": 9.0}
        for name, rate in rates.items()
    }


def test_the_tables_have_medians_with_their_spread_and_the_ratio_of_each_round() -> None:
    peer = "autogen-core"
    rounds = [_round({table.MEMORY: 1_000, peer: 500}), _round({table.MEMORY: 4_000, peer: 1_000})]
    lines = table.tables([*rounds, _round({table.MEMORY: 2_000, peer: 800})]).splitlines()
    assert f"| {peer} | 1; 2.5 | 1; 2.5 | 1; 2.5 | 1; 2.5 | 0.4 × 1.00 ms |" in lines
    (told,) = (line for line in lines if line.startswith(f"| {peer}") and " to " in line)
    assert told.split(" | ")[1] == "800 (500 to 1,000) × 0.40"
    assert told.endswith(" | 80.2; 9 MB |")
    (own,) = (line for line in lines if line.startswith(f"| {table.MEMORY}") and " to " in line)
    assert own.split(" | ")[1] == "2,000 (1,000 to 4,000)"


def test_every_peer_has_its_job_and_an_environment_with_pinned_versions() -> None:
    names = {peer.name for peer in table.PEERS}
    for peer in table.PEERS:
        module, _, function = peer.opened.partition(":")
        defined = ast.parse((PEERS / f"{module}.py").read_text()).body
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        assert function in {each.name for each in defined if isinstance(each, functions)}
        assert peer.beside in names
        if peer.environment is not None:
            pins = (PEERS / f"{peer.environment}.txt").read_text().splitlines()
            assert all(pin.count("==") == 1 for pin in pins)
            assert "psutil" in {pin.partition("==")[0] for pin in pins}


def test_the_batched_floor_calls_with_all_that_waits_and_tells_each_its_own_answer() -> None:
    calls: list[int] = []

    async def decide_all(proposals: list[tuple[int, str]]) -> list[bool]:
        calls.append(len(proposals))
        await asyncio.sleep(0)
        return [job.approved(number) for number, _ in proposals]

    async def decided() -> job.Load:
        return await job.load(Batched(decide_all).decide, 100, 10)

    assert len(asyncio.run(decided()).each_s) == 100
    assert sum(calls) == 100
    assert max(calls) == 10
