"""A full sample of each OMEN packet, as JSON values: every field is given."""

from __future__ import annotations

import copy
from typing import Any

TIME = "2026-03-01T12:00:00Z"

MCP: dict[str, Any] = {
    "intent": {"summary": "rotate the key", "scope": {"system": "staging"}},
    "stakes": {
        "impact": "MEDIUM",
        "irreversibility": "REVERSIBLE",
        "uncertainty": "LOW",
        "adversariality": "BENIGN",
        "stakes_level": "LOW",
    },
    "quality": {
        "quality_tier": "PAR",
        "satisficing_mode": False,
        "definition_of_done": {"text": "the new key works", "checks": ["login succeeds"]},
        "verification_requirement": "VERIFY_ONE",
    },
    "budgets": {
        "token_budget": 4096,
        "tool_call_budget": 3,
        "time_budget_seconds": 60,
        "risk_budget": {"envelope": "low", "max_loss": 10.5},
    },
    "epistemics": {
        "status": "OBSERVED",
        "confidence": 0.9,
        "calibration_note": "two seats agree",
        "freshness_class": "OPERATIONAL",
        "stale_if_older_than_seconds": 3600,
        "assumptions": ["staging is up"],
    },
    "evidence": {
        "evidence_refs": [
            {"ref_type": "tool_output", "ref_id": "log:1", "timestamp": TIME, "reliability_score": 0.8}
        ],
        "evidence_absent_reason": "none is absent",
    },
    "routing": {"task_class": "VERIFY", "tools_state": "tools_ok"},
}

PAYLOADS: dict[str, dict[str, Any]] = {
    "ObservationPacket": {
        "observation_type": "tool_output",
        "data": {"lines": 3},
        "source_tool": "read_log",
        "query_params": {"since": "1h"},
        "reliability_metadata": {"tool_success": True, "latency_ms": 12.5, "partial_result": False},
    },
    "BeliefUpdatePacket": {
        "update_type": "contradiction_resolved",
        "belief_changes": [
            {"domain": "keys", "key": "age", "new_value": 2, "prior_value": None, "epistemic_upgrade": True}
        ],
        "evidence_integration": ["pkt_1"],
        "contradiction_details": {
            "conflicting_packet_ids": ["pkt_1", "pkt_2"],
            "resolution_method": "prefer_fresh",
        },
    },
    "DecisionPacket": {
        "decision_outcome": "ACT",
        "decision_summary": "approved by 3 of 3",
        "constraints_satisfied": {
            "constitutional_check": True,
            "budget_check": True,
            "tier_check": True,
            "verification_check": True,
        },
        "chosen_option": {
            "option_id": "a",
            "description": "rotate now",
            "expected_value": "high",
            "risk_profile": "low",
        },
        "rejected_alternatives": [{"option_id": "b", "rejection_reason": "too slow"}],
        "load_bearing_assumptions": [
            {"assumption": "a backup exists", "verified": True, "verification_packet_id": "pkt_3"}
        ],
        "failure_modes": [{"mode": "lock-out", "mitigation": "keep the old key for a day"}],
    },
    "VerificationPlanPacket": {
        "plan_id": "plan 1",
        "triggering_decision_id": "pkt_4",
        "plan_summary": "look at the backup",
        "targets": [
            {
                "target_id": "t1",
                "description": "the backup",
                "assumption_text": "a backup exists",
                "is_load_bearing": True,
                "verification_method": "list the files",
                "tool_id": "list_files",
                "tool_safety": "READ",
                "expected_evidence_type": "tool_output",
                "success_criteria": "a file of today",
                "failure_action": "escalate",
            }
        ],
        "execution_order": ["t1"],
        "parallel_allowed": False,
        "max_verification_time_seconds": 60,
        "max_tool_calls": 1,
        "on_all_success": "decide again",
        "on_any_failure": "escalate",
        "partial_success_acceptable": False,
    },
    "ToolAuthorizationToken": {
        "token_id": "token_1",
        "authorized_scope": {
            "tool_ids": ["rotate_key"],
            "operation_types": ["write", "modify"],
            "resource_constraints": {"host": "staging"},
        },
        "expiry": "2026-03-01T13:00:00+01:00",
        "max_usage_count": 1,
        "issuer_layer": 5,
        "usage_count": 0,
        "revoked": False,
        "rationale": "approved",
    },
    "TaskDirectivePacket": {
        "task_id": "task_1",
        "task_type": "tool_write",
        "execution_method": {
            "method": "tool",
            "tool_id": "rotate_key",
            "tool_params": {"host": "staging"},
            "code_ref": "main.py",
            "code_params": {"x": 1},
        },
        "tool_safety_class": "WRITE",
        "authorization_token_id": "token_1",
        "timeout_seconds": 30,
        "retry_policy": {"max_retries": 0, "backoff_multiplier": 1.5},
    },
    "TaskResultPacket": {
        "task_id": "task_1",
        "directive_packet_id": "pkt_5",
        "result_status": "FAILURE",
        "result_data": {"code": 1},
        "error_details": {
            "error_code": "E1",
            "error_message": "refused",
            "is_transient": False,
            "retry_recommended": False,
        },
        "execution_metadata": {
            "execution_time_ms": 2.5,
            "tokens_used": 1,
            "tool_calls_used": 1,
            "retry_count": 0,
        },
        "observation_packet_id": "pkt_6",
    },
    "EscalationPacket": {
        "escalation_trigger": "user_override_required",
        "top_options": [
            {
                "option_id": "a",
                "description": "wait",
                "pros": ["safe"],
                "cons": ["slow"],
                "risk_summary": "low",
            },
            {
                "option_id": "b",
                "description": "go",
                "pros": ["quick"],
                "cons": [],
                "risk_summary": "high",
            },
        ],
        "evidence_gaps": [
            {"gap": "no backup seen", "impact_if_unknown": "loss", "verification_method": "look"}
        ],
        "recommended_next_step": {
            "step": "look",
            "rationale": "cheap",
            "estimated_cost": {"time_seconds": 5, "tokens": 10, "tool_calls": 1},
        },
        "blocking_decision_packet_id": "pkt_4",
    },
    "IntegrityAlertPacket": {
        "alert_id": "alert 1",
        "alert_type": "budget_warning",
        "severity": "WARNING",
        "summary": "80 % of tokens used",
        "detected_at": TIME,
        "detection_method": "ledger",
        "affected_components": ["budgets"],
        "metrics": {"used": 80},
        "threshold_violated": 0.8,
        "recommended_actions": ["ask for more"],
        "auto_action_taken": "none",
        "related_episode_id": "corr_1",
        "related_packet_ids": ["pkt_1"],
        "requires_immediate_attention": False,
    },
    "QueueUpdatePacket": {
        "queue_id": "q1",
        "items": [{"item_id": "i1", "packet_id": "pkt_1", "priority": 0, "state": "queued"}],
        "reason": "a new item",
    },
}


def sample(packet_type: str) -> dict[str, Any]:
    """A new full sample, which may be changed."""
    header = {
        "packet_id": "pkt_7",
        "packet_type": packet_type,
        "created_at": TIME,
        "layer_source": 5,
        "correlation_id": "corr_1",
        "campaign_id": "camp_1",
        "previous_packet_id": "pkt_6",
    }
    return copy.deepcopy({"header": header, "mcp": MCP, "payload": PAYLOADS[packet_type], "_note": {"a": 1}})
