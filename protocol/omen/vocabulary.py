"""The words of OMEN v0.7: the enumerations of the schema index and of rules 5."""

from __future__ import annotations

from typing import Literal

PacketType = Literal[
    "ObservationPacket",
    "BeliefUpdatePacket",
    "DecisionPacket",
    "VerificationPlanPacket",
    "ToolAuthorizationToken",
    "TaskDirectivePacket",
    "TaskResultPacket",
    "EscalationPacket",
    "IntegrityAlertPacket",
    "QueueUpdatePacket",
]

Level = Literal["LOW", "MEDIUM", "HIGH", "CRITICAL"]
Irreversibility = Literal["REVERSIBLE", "PARTIAL", "IRREVERSIBLE"]
Uncertainty = Literal["LOW", "MEDIUM", "HIGH"]
Adversariality = Literal["BENIGN", "CONTESTED", "HOSTILE"]
QualityTier = Literal["SUBPAR", "PAR", "SUPERB"]
VerificationRequirement = Literal["OPTIONAL", "VERIFY_ONE", "VERIFY_ALL"]
EpistemicStatus = Literal["OBSERVED", "DERIVED", "REMEMBERED", "INFERRED", "HYPOTHESIZED", "UNKNOWN"]
FreshnessClass = Literal["REALTIME", "OPERATIONAL", "STRATEGIC", "ARCHIVAL"]
EvidenceType = Literal["tool_output", "user_observation", "memory_item", "derived_calc"]
TaskClass = Literal["FIND", "LOOKUP", "SEARCH", "CREATE", "VERIFY", "COMPILE"]
ToolsState = Literal["tools_ok", "tools_partial", "tools_down"]

ObservationType = Literal[
    "tool_output", "user_input", "system_telemetry", "character_state", "market_signal", "intel_update"
]
UpdateType = Literal[
    "new_belief", "revision", "contradiction_resolved", "confidence_adjustment", "staleness_refresh"
]
ResolutionMethod = Literal["prefer_fresh", "prefer_higher_reliability", "escalated", "manual_override"]
DecisionOutcome = Literal["VERIFY_FIRST", "ACT", "ESCALATE", "DEFER", "CANCEL"]
FailureAction = Literal["escalate", "defer", "retry", "abort"]
TaskType = Literal["tool_read", "tool_write", "computation", "verification", "memory_lookup"]
Method = Literal["tool", "code", "llm_call", "memory_query"]
ToolSafety = Literal["READ", "WRITE", "MIXED"]
OperationType = Literal["read", "write", "delete", "modify"]
ResultStatus = Literal["SUCCESS", "FAILURE", "CANCELLED"]
EscalationTrigger = Literal[
    "high_stakes_high_uncertainty",
    "constitutional_boundary",
    "contradiction_unresolved",
    "budget_insufficient",
    "tools_degraded_critical",
    "user_override_required",
]
AlertType = Literal[
    "budget_warning",
    "budget_exceeded",
    "token_expired",
    "token_revoked",
    "constitutional_veto",
    "contract_violation",
    "contradiction_detected",
    "safe_mode_triggered",
    "journal_damaged",
]
Severity = Literal["INFO", "WARNING", "ERROR", "CRITICAL"]
QueueState = Literal["queued", "running", "done", "dropped"]
