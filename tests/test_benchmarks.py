"""The benchmarks of seats that think with models: the proposals they use, and all of it once at a small scale."""

from __future__ import annotations

import json

from benchmarks import thinking
from benchmarks.proposals import Planted, load
from council.agents.mind import Case
from council.agents.prompting.answer_schema import SCHEMA_TEXTS
from council.agents.prompting.builder import case_text
from council.agents.prompting.tokens import counter_for
from tests.cases import each

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
        *thinking.counting_rows(PROPOSALS, 1, ("o200k_base",)),
    ]
    assert all(row.figure > 0 and row.group == "thinking" for row in rows)
    assert {row.bound for row in rows} == {"", "≤ 5 ms", "≤ 250 ms", "ratio ≤ 0.6", "≥ 95%"}
    assert all((row.holds is None) == (row.bound == "") for row in rows)
