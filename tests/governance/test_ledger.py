"""Budgets: those of the first Decision, what counts, warnings, refusals, and what follows when one is exceeded."""

from __future__ import annotations

from typing import Any

import pytest

from council.governance import machine
from council.governance.ledger import Budgets, arguments_digest
from council.protocol.omen import Packet
from tests.governance.episodes import built, played, reread, rules, writer

USED = "payload.execution_metadata."


def read_with(tokens: int, time_ms: int = 0, **about: Any) -> list[Packet]:
    packets = built("C", token_budget=100, time_budget_s=10, **about)
    used = {USED + "tokens_used": tokens, USED + "execution_time_ms": time_ms}
    packets[4] = reread(packets[4], used)
    return packets


def test_budgets_are_those_of_the_first_decision() -> None:
    packets = built("A", token_budget=1, tool_call_budget=2, time_budget_s=3)
    more = reread(writer().decide("ACT"), {"mcp.budgets.token_budget": 1_000})
    episode, _ = played([*packets, more])
    assert episode.ledger.budgets == Budgets(1, 2, 3)
    assert played(packets[:2])[0].ledger.uses() == ()


@pytest.mark.parametrize(
    ("tokens", "time_ms", "found", "state"),
    [
        (79, 7_999, set(), "S7_REVIEW"),
        (80, 0, {"LEDGER-80 WARNING"}, "S7_REVIEW"),
        (0, 8_000, {"LEDGER-80 WARNING"}, "S7_REVIEW"),
        (100, 10_000, {"LEDGER-80 WARNING"}, "S7_REVIEW"),
        (101, 0, {"LEDGER-EXCEEDED WARNING"}, "S9_SAFEMODE"),
        (0, 10_001, {"LEDGER-EXCEEDED WARNING"}, "S9_SAFEMODE"),
    ],
)
def test_a_result_is_counted_and_warned_of(tokens: int, time_ms: int, found: set[str], state: str) -> None:
    packets = read_with(tokens, time_ms)
    if state == "S9_SAFEMODE":
        packets = packets[:5]
    episode, results = played(packets)
    assert (episode.state, rules(results)) == (state, found)
    assert (episode.ledger.tokens, episode.ledger.time_ms, episode.ledger.tool_calls) == (tokens, time_ms, 1)


def test_a_result_that_exceeds_a_budget_revokes_every_token() -> None:
    packets = built("D", token_budget=100)
    packets[5] = reread(packets[5], {USED + "tokens_used": 101})
    episode, _ = played(packets[:6])
    assert (episode.state, [each.is_revoked for each in episode.tokens.values()]) == ("S9_SAFEMODE", [True])


@pytest.mark.parametrize(
    ("calls", "found"), [(2, {"LEDGER-80 WARNING"}), (1, {"LEDGER-80 WARNING", "LEDGER-BUDGET"})]
)
def test_a_directive_past_its_budget_is_refused(calls: int, found: set[str]) -> None:
    packets = built("G", tool_call_budget=calls)
    episode, results = played(packets[:7])
    assert rules(results) == found
    assert (episode.ledger.tool_calls, len(episode.directives)) == (calls, calls)
    refused = [each for each in results if each.severity == "ERROR"]
    assert {(each.path, each.expected) for each in refused} <= {
        ("mcp.budgets.tool_call_budget", "at most 1 used")
    }


def test_a_budget_of_nothing_allows_no_call() -> None:
    assert rules(played(built("C", tool_call_budget=0)[:4])[1]) == {"LEDGER-BUDGET"}


def test_after_an_exceeded_budget_an_escalation_comes_first() -> None:
    """Invariant 005: an escalation of it, or approval of layer 1; another trigger does not do."""
    packets = read_with(101)[:5]
    episode, _ = played(packets)
    to = writer()
    belief, approval = to.believe("a", 1), to.believe("approved", 1, layer=1)
    other = to.escalate("user_override_required", packets[2])
    escalation = to.escalate("budget_insufficient", packets[2])
    refused = machine.step(episode, belief)
    assert (refused.episode, rules(refused.results)) == (episode, {"INV-005"})
    still = machine.step(episode, other).episode
    assert rules(machine.step(still, belief).results) == {"INV-005"}
    for excuse in (escalation, approval):
        excused = machine.step(episode, excuse)
        assert excused.results == ()
        assert machine.step(excused.episode, belief).is_accepted


def test_after_an_exceeded_budget_no_directive_is_accepted() -> None:
    packets, to = read_with(101)[:5], writer()
    more = [to.believe("approved", 1, layer=1), to.observe({"a": 1}), to.believe("a", 1), to.decide("ACT")]
    episode, _ = played([*packets, *more])
    assert episode.state == "S3_DECIDE"
    refused = machine.step(episode, to.direct())
    assert [(each.rule, each.severity, each.path) for each in refused.results] == [
        ("LEDGER-BUDGET", "ERROR", "mcp.budgets.token_budget")
    ]


def test_a_token_is_issued_once() -> None:
    packets = built("D")
    again = reread(packets[3], {"header.packet_id": "pkt_again", "payload.max_usage_count": 9})
    episode, results = played([*packets[:4], again])
    assert [(each.layer, each.rule, each.path) for each in results] == [
        ("ledger", "LEDGER-TOKEN", "payload.token_id")
    ]
    assert episode.tokens[packets[3].payload.token_id].uses_max == 1


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ({"a": 1, "b": [True, None]}, {"b": [True, None], "a": 1}, True),
        ({}, None, True),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": "é"}, {"a": "e\u0301"}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
    ],
)
def test_a_digest_is_of_the_canonical_arguments(one: Any, other: Any, alike: bool) -> None:
    assert (arguments_digest(one) == arguments_digest(other)) == alike
