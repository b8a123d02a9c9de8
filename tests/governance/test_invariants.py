"""The invariants 001 to 012: each is broken by one change of a valid episode, and kept by its neighbour."""

from __future__ import annotations

from typing import Any

import pytest

from council.governance import invariants, machine
from tests.governance.episodes import built, changed, played, reread, rules, writer

REF = {"ref_id": "x", "timestamp": "2026-11-26T12:00:00Z"}
DERIVED = {"mcp.evidence.evidence_refs": [{"ref_type": "derived_calc", **REF}]}
INFERRED = {**DERIVED, "mcp.epistemics.status": "INFERRED"}
ASSUMED = [{"assumption": "it is idle", "verified": False}]
BOTH = [*ASSUMED, {"assumption": "it is backed up", "verified": True}]
HIGH = {"mcp.stakes.impact": "HIGH", "mcp.stakes.uncertainty": "HIGH", "mcp.stakes.stakes_level": "HIGH"}
SUPERB = {"mcp.quality.quality_tier": "SUPERB"}
PAR = {"mcp.quality.quality_tier": "PAR"}
ASSUMPTIONS = "payload.load_bearing_assumptions"
EVIDENCE = "mcp.evidence.evidence_refs"
BUDGET_CHECK = "payload.constraints_satisfied.budget_check"
STATE = "mcp.routing.tools_state"
OPTION = "payload.top_options.0."

# Template, number of the packet, the changes, the rule that finds it (None: nothing does), the path it names.
BROKEN: list[tuple[str, int, dict[str, Any], str | None, str]] = [
    ("A", 2, {"mcp.quality.definition_of_done.text": " "}, "INV-001", "mcp.quality.definition_of_done.text"),
    ("D", 4, {"mcp.quality.definition_of_done.checks": [" "]}, "INV-001", "mcp.quality.definition_of_done.checks"),
    ("E", 3, {"mcp.quality.definition_of_done.text": "\t"}, "INV-001", "mcp.quality.definition_of_done.text"),
    ("A", 1, {"mcp.quality.definition_of_done.text": " "}, None, ""),
    ("A", 2, {"mcp.quality.quality_tier": "SUBPAR"}, "INV-002", "mcp.quality.quality_tier"),
    ("C", 3, {"mcp.quality.quality_tier": "SUBPAR"}, "INV-002", "mcp.quality.quality_tier"),
    ("D", 3, {"mcp.quality.quality_tier": "SUBPAR"}, "INV-002", "mcp.quality.quality_tier"),
    ("E", 2, {"mcp.quality.quality_tier": "SUBPAR"}, None, ""),
    ("A", 2, {**HIGH}, "INV-003", "mcp.quality.quality_tier"),
    ("A", 2, {**HIGH, **SUPERB}, None, ""),
    ("A", 2, {**HIGH, **SUPERB, ASSUMPTIONS: BOTH}, "INV-003", f"{ASSUMPTIONS}[0].verified"),
    ("A", 2, {**PAR, ASSUMPTIONS: ASSUMED}, "INV-003", ASSUMPTIONS),
    ("A", 2, {**PAR, ASSUMPTIONS: BOTH}, None, ""),
    ("A", 2, {**SUPERB, ASSUMPTIONS: ASSUMED}, None, ""),
    ("E", 2, {**HIGH}, None, ""),
    ("A", 2, INFERRED, "INV-004", EVIDENCE),
    ("A", 1, {**INFERRED, "mcp.epistemics.status": "UNKNOWN"}, "INV-004", EVIDENCE),
    ("A", 2, {**INFERRED, "mcp.epistemics.status": "HYPOTHESIZED"}, "INV-004", EVIDENCE),
    ("A", 2, {**INFERRED, "mcp.epistemics.freshness_class": "REALTIME"}, "INV-004", EVIDENCE),
    ("A", 2, {**INFERRED, "mcp.epistemics.freshness_class": "STRATEGIC"}, None, ""),
    ("A", 2, {**INFERRED, "mcp.epistemics.status": "REMEMBERED"}, None, ""),
    ("A", 2, {"mcp.epistemics.status": "INFERRED"}, None, ""),
    ("A", 2, {**INFERRED, EVIDENCE: [{"ref_type": "tool_output", **REF}]}, None, ""),
    ("B", 2, INFERRED, None, ""),
    ("B", 3, INFERRED, None, ""),
    ("B", 7, INFERRED, "INV-004", EVIDENCE),
    *[
        ("A", 2, {f"payload.constraints_satisfied.{check}": False}, rule, path)
        for check, rule, path in (
            ("constitutional_check", "INV-006", "payload.constraints_satisfied.constitutional_check"),
            ("budget_check", "INV-006", "payload.constraints_satisfied.budget_check"),
            ("tier_check", None, ""),
        )
    ],
    ("E", 2, {BUDGET_CHECK: False}, "INV-006", BUDGET_CHECK),
    ("E", 3, {OPTION + "description": " "}, "INV-009", "payload.top_options[0].description"),
    ("E", 3, {OPTION + "risk_summary": " "}, "INV-009", "payload.top_options[0].risk_summary"),
    ("E", 3, {OPTION + "pros": [" "]}, "INV-009", "payload.top_options[0].pros"),
    ("E", 3, {OPTION + "cons": [" "]}, "INV-009", "payload.top_options[0].cons"),
    ("E", 3, {"payload.evidence_gaps.0.gap": " "}, "INV-009", "payload.evidence_gaps"),
    ("E", 3, {"payload.recommended_next_step.step": " "}, "INV-009", "payload.recommended_next_step.step"),
    ("A", 2, {STATE: "tools_down"}, "INV-010", STATE),
    ("A", 2, {STATE: "tools_partial"}, None, ""),
    ("D", 4, {STATE: "tools_partial"}, "INV-010", STATE),
    ("D", 4, {STATE: "tools_down"}, "INV-010", STATE),
    ("C", 3, {STATE: "tools_down"}, None, ""),
    ("E", 2, {STATE: "tools_down"}, None, ""),
    ("A", 1, {"mcp.stakes.impact": "HIGH"}, "INV-012", "mcp.stakes.stakes_level"),
    ("A", 1, {"mcp.stakes.stakes_level": "HIGH"}, "INV-012 WARNING", "mcp.stakes.stakes_level"),
    ("A", 1, {"mcp.stakes.impact": "MEDIUM"}, None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("template", "number", "changes", "rule", "path"), BROKEN)
def test_a_broken_invariant_is_named(
    template: str, number: int, changes: dict[str, Any], rule: str | None, path: str
) -> None:
    """Mutation: an invariant removed, or one word of its condition. Its form may refuse the packet as well."""
    packets = built(template)
    episode, _ = played(packets[:number])
    found = machine.step(episode, changed(packets[number], changes))
    named = rules(found.results) - {"INV-008 WARNING"}
    if rule is None:
        assert (found.is_accepted, named) == (True, set())
        return
    layers = {each.layer for each in found.results}
    assert path in {each.path for each in found.results}
    assert named == ({"SCHEMA"} if layers == {"schema"} else {rule})
    assert found.is_accepted == rule.endswith("WARNING")


def test_each_invariant_says_its_rule() -> None:
    documented = [(find.__doc__ or "")[:4] for find in invariants.INVARIANTS.values()]
    assert documented == [f"{name.removeprefix('INV-')}:" for name in invariants.INVARIANTS]
    assert len(documented) == 12


def test_an_mcp_is_needed_where_it_has_consequences() -> None:
    """Each kind is refused without one, by its form or by 001."""
    for template, number in (("A", 2), ("D", 3), ("D", 4), ("E", 3)):
        packets = built(template)
        episode, _ = played(packets[:number])
        found = machine.step(episode, changed(packets[number], {"mcp": ...}))
        assert not found.is_accepted
        assert {each.path for each in found.results} == {"mcp"}


# 007: the token of template D. The changes of the token, those of the directive, and the path that is named


SCOPE = "payload.authorized_scope."
BOUND = SCOPE + "resource_constraints"
PARAMS = "payload.execution_method.tool_params"
TOKEN = "payload.authorization_token_id"


@pytest.mark.parametrize(
    ("token", "directive", "path"),
    [
        ({}, {}, None),
        ({}, {f"{PARAMS}.command": ["systemctl", "status", "wec"]}, PARAMS),
        ({}, {f"{PARAMS}.more": None}, PARAMS),
        ({}, {PARAMS: {}}, PARAMS),
        ({}, {"payload.execution_method.tool_id": "shall"}, "payload.execution_method.tool_id"),
        ({SCOPE + "operation_types": ["read"]}, {}, "payload.tool_safety_class"),
        ({SCOPE + "operation_types": ["delete"]}, {}, None),
        ({}, {"payload.tool_safety_class": "MIXED"}, "payload.tool_safety_class"),
        ({SCOPE + "operation_types": ["read", "write"]}, {"payload.tool_safety_class": "MIXED"}, None),
        ({BOUND: {}}, {f"{PARAMS}.operation": "delete"}, f"{PARAMS}.operation"),
        ({BOUND: {}}, {f"{PARAMS}.operation": "write"}, None),
        ({BOUND: {}}, {f"{PARAMS}.command": "anything"}, None),
        ({BOUND: {"host": "a"}}, {f"{PARAMS}.host": "a"}, None),
        ({BOUND: {"host": "a"}}, {f"{PARAMS}.host": "b"}, f"{PARAMS}.host"),
        ({BOUND: {"host": "a"}}, {}, f"{PARAMS}.host"),
        ({BOUND: {"host": ["a", "b"]}}, {f"{PARAMS}.host": "b"}, None),
        ({BOUND: {"host": ["a", "b"]}}, {f"{PARAMS}.host": ["b", "c"]}, f"{PARAMS}.host"),
        ({BOUND: {"rows": {"max": 10}}}, {f"{PARAMS}.rows": 10}, None),
        ({BOUND: {"rows": {"max": 10}}}, {f"{PARAMS}.rows": 11}, f"{PARAMS}.rows"),
        ({BOUND: {"rows": {"min": 1}}}, {f"{PARAMS}.rows": 0}, f"{PARAMS}.rows"),
        ({BOUND: {"rows": {"max": 10}}}, {f"{PARAMS}.rows": True}, f"{PARAMS}.rows"),
        ({BOUND: {"rows": {"max": 10}}}, {f"{PARAMS}.rows": "1"}, f"{PARAMS}.rows"),
        ({BOUND: {"force": True}}, {f"{PARAMS}.force": 1}, f"{PARAMS}.force"),
        ({BOUND: {"decision_packet_id": "pkt_other"}}, {}, TOKEN),
        ({"payload.expiry": "2026-11-26T12:00:01Z"}, {}, TOKEN),
        ({"payload.expiry": "2026-11-26T13:00:00Z"}, {"header.created_at": "2026-11-26T13:00:00Z"}, TOKEN),
        ({"payload.expiry": "2026-11-26T13:00:00.000001Z"}, {"header.created_at": "2026-11-26T13:00:00Z"}, None),
        ({"payload.revoked": True}, {}, TOKEN),
        ({"payload.usage_count": 1}, {}, TOKEN),
        ({"payload.usage_count": 1, "payload.max_usage_count": 2}, {}, None),
        ({"payload.token_id": "token_other"}, {}, TOKEN),
        ({}, {TOKEN: ...}, TOKEN),
        ({}, {"payload.tool_safety_class": ..., TOKEN: ...}, TOKEN),
        ({}, {"payload.tool_safety_class": "READ", TOKEN: ...}, TOKEN),
    ],
)  # fmt: skip
def test_a_directive_stays_within_its_token(
    token: dict[str, Any], directive: dict[str, Any], path: str | None
) -> None:
    """Mutation: a bound that is not compared, or compared with the wrong end included."""
    packets: list[Any] = [*built("D")]
    packets[3] = reread(packets[3], token)
    packets[4] = changed(packets[4], directive)
    episode, _ = played(packets[:4])
    found = machine.step(episode, packets[4])
    if path is None:
        assert (found.is_accepted, found.results) == (True, ())
        return
    assert not found.is_accepted
    assert {each.rule for each in found.results} <= {"INV-007", "SCHEMA"}
    assert {each.rule for each in found.results} == {"SCHEMA"} or path in {
        each.path for each in found.results
    }


def test_a_token_is_used_as_often_as_it_says() -> None:
    packets = built("D")
    again = reread(packets[4], {"header.packet_id": "pkt_again", "payload.task_id": "task_again"})
    episode, results = played([*packets[:5], again])
    token_id = packets[3].payload.token_id
    assert [(each.rule, each.found) for each in results] == [("INV-007", f"{token_id}, used 1 of 1")]
    assert episode.tokens[token_id].uses == 1


def test_a_token_stands_on_its_decision() -> None:
    """A later ACT, for something else, does not let an unused token through."""
    packets = built("D")
    episode, results = played([*packets[:4], writer().decide("ACT"), packets[4]])
    assert [(each.rule, each.path) for each in results] == [("INV-007", TOKEN)]
    assert packets[2].header.packet_id in results[0].found
    assert episode.state == "S3_DECIDE"


def test_a_retry_policy_of_a_write_is_warned_of() -> None:
    packets = built("D")
    policy = {"max_retries": 2, "backoff_multiplier": 2.0}
    packets[4] = reread(packets[4], {"payload.retry_policy": policy})
    assert rules(played(packets)[1]) == {"INV-007 WARNING"}
