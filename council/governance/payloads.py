"""The payloads of a proposal's OMEN packets, from the facts of its records (rules 5). All functions are pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from council.core.escalation import RISKS
from council.core.state import (
    CHECK_S,
    RESULT_GRACE_S,
    Answer,
    Ballot,
    Check,
    Escalation,
    RiskLevel,
    Ruling,
    Spend,
    Submission,
    Terms,
    UseRequest,
    token_id_of,
    unsure,
)
from council.governance.ledger import WRITING
from council.protocol.models import time_text
from council.protocol.omen import Packet, stakes_level

# The triggers of some reasons for which a human is asked. ``trigger`` has those of all reasons.
TRIGGERS = {
    "tie": "contradiction_unresolved",
    "quorum_lost": "contradiction_unresolved",
    "budget_unmet": "budget_insufficient",
    "user_approval": "user_override_required",
    "check_failed": "tools_degraded_critical",
}
# A confidence below this is a medium uncertainty; below the core's floor it is a high one.
SURE = 0.7
NAMED_MAX = 20
_IMPACT = {"low": "LOW", "med": "MEDIUM", "high": "HIGH"}


class Case(msgspec.Struct, frozen=True):
    """The grounds of a decision or an escalation."""

    ballots: tuple[Ballot, ...] = ()
    ruling: Ruling | None = None
    answer: Answer | None = None
    spent: Spend = Spend()
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def is_confirmed(self) -> bool:
        """Whether Prime confirmed it, or a human approved it."""
        by_prime = self.ruling is not None and self.ruling.ruling == "confirm" and self.answer is None
        return by_prime or (self.answer is not None and self.answer.approve)


def directive(request: UseRequest, terms: Terms) -> dict[str, Any]:
    """The directive of an action's use."""
    allowed = set(request.operations)
    writes = bool(allowed & WRITING)
    params = {"arguments_digest": request.arguments, "resources": list(request.resources)}
    return {
        "task_id": f"task_{request.use_id}",
        "task_type": "tool_write" if writes else "tool_read",
        "execution_method": {"method": "tool", "tool_id": request.tool, "tool_params": params},
        "tool_safety_class": ("MIXED" if "read" in allowed else "WRITE") if writes else "READ",
        "authorization_token_id": request.token_id,
        "timeout_seconds": math.ceil(terms.timeout_s + RESULT_GRACE_S),
        "retry_policy": {"max_retries": 0},
    }


def check_plan(request: UseRequest, check: Check, why: str, decision: str) -> dict[str, Any]:
    """The plan of a check before the decision; ``decision`` is the id of the packet VERIFY_FIRST."""
    target = {
        "target_id": f"target_{request.use_id}",
        "description": str(check),
        "assumption_text": check.why or why,
        "is_load_bearing": True,
        "verification_method": "run the tool and show all seats its output",
        "tool_id": request.tool,
        "tool_safety": "READ",
        "success_criteria": "the tool succeeds",
        "failure_action": "escalate",
    }
    return {
        "plan_id": f"plan_{request.use_id}",
        "triggering_decision_id": decision,
        "plan_summary": why,
        "targets": [target],
        "max_verification_time_seconds": math.ceil(CHECK_S),
        "max_tool_calls": 1,
        "on_all_success": "decide again",
        "on_any_failure": "escalate",
    }


def check_directive(request: UseRequest, check: Check) -> dict[str, Any]:
    """The directive of a check's use."""
    params = {"arguments_digest": request.arguments, "arguments": check.args}
    return {
        "task_id": f"task_{request.use_id}",
        "task_type": "tool_read",
        "execution_method": {"method": "tool", "tool_id": request.tool, "tool_params": params},
        "tool_safety_class": "READ",
        "timeout_seconds": math.ceil(CHECK_S + RESULT_GRACE_S),
        "retry_policy": {"max_retries": 0},
    }


def result(of: Packet, status: str) -> dict[str, Any]:
    """The result of the directive ``of``, without its data."""
    return {
        "task_id": of.payload.task_id,
        "directive_packet_id": of.header.packet_id,
        "result_status": status,
        "execution_metadata": {"tool_calls_used": 1, "retry_count": 0},
    }


def token(what: Submission, terms: Terms, decision: str, ends: datetime) -> dict[str, Any]:
    """The token that an approval issues; ``decision`` is the id of the decision's packet."""
    return {
        "token_id": token_id_of(what.proposal_id),
        "authorized_scope": {
            "tool_ids": [what.tool],
            "operation_types": list(terms.operations),
            "resource_constraints": {
                "arguments_digest": terms.digest,
                "resources": list(terms.resources),
                "decision_packet_id": decision,
                "executor": terms.executor,
            },
        },
        "expiry": time_text(ends),
        "max_usage_count": terms.uses,
        "issuer_layer": 5,
        "rationale": what.summary or "approved",
    }


def choice(asked: Escalation) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """What a human is shown: the options, what is not known, and the next step."""
    options = [
        {
            "option_id": each.name,
            "description": f"{each.name.capitalize()}: {asked.summary}",
            "pros": list(each.pros),
            "cons": list(each.cons),
            "risk_summary": f"{asked.risk_level} risk; {each.cons[0]}",
        }
        for each in asked.options
    ]
    gaps = [{"gap": each, "impact_if_unknown": asked.detail} for each in asked.gaps]
    return options, gaps, {"step": asked.next_step, "rationale": asked.detail}


def said(act: Ballot | Ruling) -> dict[str, Any]:
    """What a ballot or a ruling says besides its vote."""
    return {"reason": act.reason, "confidence": act.confidence, "risk": act.risk_level}


def belief(domain: str, key: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """A new belief."""
    change = {"domain": domain, "key": key, "new_value": dict(value), "prior_value": None}
    return {"update_type": "new_belief", "belief_changes": [change]}


def error(text: str) -> dict[str, Any]:
    """The error of an action that failed. It is not tried again."""
    return {
        "error_code": "action_failed",
        "error_message": text,
        "is_transient": False,
        "retry_recommended": False,
    }


def named(resources: Sequence[str]) -> str:
    """The first ``NAMED_MAX`` resources, and how many there are beside them; the token has them all."""
    more = len(resources) - NAMED_MAX
    return ", ".join(resources[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def trigger(asked: Escalation) -> str:
    """The trigger of an escalation: what sent it to Prime, if Prime passed it on."""
    risky = asked.risk_level == "high" or any(unsure(each.confidence) for each in asked.ballots)
    risky = risky or asked.reason in ("ruling_unsure", "no_ruling")
    return TRIGGERS.get(asked.reason, "high_stakes_high_uncertainty" if risky else "user_override_required")


def risk_of(what: Submission, case: Case) -> RiskLevel:
    """The highest risk that the proposal, a counted ballot or the ruling names."""
    risks = {what.risk_level, *(each.risk_level for each in case.ballots)}
    if case.ruling is not None:
        risks.add(case.ruling.risk_level)
    return max(risks, key=RISKS.index)


def stakes(what: Submission, terms: Terms | None, case: Case, risk: RiskLevel) -> dict[str, Any]:
    """The stakes: impact by risk, irreversibility by operations, uncertainty by confidence, objections."""
    allowed = terms.operations if terms is not None else ()
    if "delete" in allowed:
        irreversibility = "IRREVERSIBLE"
    else:
        reads = what.tool is None or (bool(allowed) and set(allowed) == {"read"})
        irreversibility = "REVERSIBLE" if reads else "PARTIAL"
    sure = [what.confidence, *(each.confidence for each in case.ballots)]
    sides = {each.vote for each in case.ballots} - {"abstain"}
    if not case.ballots or any(unsure(each) for each in sure):
        uncertainty = "HIGH"
    else:
        uncertainty = "MEDIUM" if min(sure) < SURE or len(sides) > 1 else "LOW"
    is_contested = any(each.vote == "no" and each.risk_level == "high" for each in case.ballots)
    axes = {
        "impact": _IMPACT[risk],
        "irreversibility": irreversibility,
        "uncertainty": uncertainty,
        "adversariality": "CONTESTED" if is_contested else "BENIGN",
    }
    return {**axes, "stakes_level": stakes_level(axes)}
