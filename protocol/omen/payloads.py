"""The payloads of the ten packet types.

Where the schema index lists a field without "optional", it is required. The fields of ``reliability_metadata``,
``execution_metadata``, ``retry_policy`` and ``estimated_cost`` are optional, as the index has such metadata.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from council.protocol.omen.parts import (
    AS_TUPLE,
    LIST_MAX,
    Anything,
    AtLeastOne,
    Count,
    EpisodeId,
    JsonObject,
    Layer,
    Moment,
    Name,
    Needs,
    Number,
    PacketId,
    Part,
    RuledPart,
    SomeObject,
    SomeText,
    TaskId,
    Text,
    TextOrNumber,
    TokenId,
)
from council.protocol.omen.vocabulary import (
    AlertType,
    DecisionOutcome,
    EscalationTrigger,
    FailureAction,
    Method,
    ObservationType,
    OperationType,
    QueueState,
    ResolutionMethod,
    ResultStatus,
    Severity,
    TaskType,
    ToolSafety,
    UpdateType,
)

_MANY = Field(max_length=LIST_MAX)
_SOME = Field(min_length=1, max_length=LIST_MAX)
Texts = Annotated[tuple[Text, ...], _MANY, AS_TUPLE]
PacketIds = Annotated[tuple[PacketId, ...], _MANY, AS_TUPLE]


class ReliabilityMetadata(Part):
    """How the tool did that made an observation. ``latency_ms`` is in milliseconds."""

    tool_success: bool | None = None
    latency_ms: Number | None = None
    partial_result: bool | None = None


class Observation(Part):
    """What was observed, raw or normalized (layer 6)."""

    observation_type: ObservationType
    data: SomeObject
    source_tool: Name | None = None
    query_params: JsonObject | None = None
    reliability_metadata: ReliabilityMetadata | None = None


class BeliefChange(Part):
    """One belief before and after. ``prior_value`` is null if the belief is new."""

    domain: Name
    key: Name
    new_value: Anything
    prior_value: Anything
    epistemic_upgrade: bool | None = None


class ContradictionDetails(Part):
    """Which packets contradict each other, and how that was resolved."""

    conflicting_packet_ids: PacketIds
    resolution_method: ResolutionMethod


class BeliefUpdate(RuledPart):
    """What is believed now."""

    RULES = (Needs("update_type", ("contradiction_resolved",), "contradiction_details"),)

    update_type: UpdateType
    belief_changes: Annotated[tuple[BeliefChange, ...], _SOME, AS_TUPLE]
    evidence_integration: PacketIds | None = None
    contradiction_details: ContradictionDetails | None = None


class ConstraintsSatisfied(Part):
    """Which checks a decision has passed. Invariant 006 needs the first two to be true."""

    constitutional_check: bool
    budget_check: bool
    tier_check: bool
    verification_check: bool | None = None


class ChosenOption(Part):
    """The option that was chosen."""

    option_id: Name
    description: SomeText
    expected_value: TextOrNumber
    risk_profile: Text


class RejectedAlternative(Part):
    """An option that was not chosen, and why."""

    option_id: Name
    rejection_reason: SomeText


class LoadBearingAssumption(Part):
    """An assumption that the decision stands on, and whether it is verified."""

    assumption: SomeText
    verified: bool
    verification_packet_id: PacketId | None = None


class FailureMode(Part):
    """How it may fail, and what is done against that."""

    mode: SomeText
    mitigation: SomeText


class Decision(Part):
    """What is decided (layer 5)."""

    decision_outcome: DecisionOutcome
    decision_summary: SomeText
    constraints_satisfied: ConstraintsSatisfied
    chosen_option: ChosenOption | None = None
    rejected_alternatives: Annotated[tuple[RejectedAlternative, ...], _MANY, AS_TUPLE] | None = None
    load_bearing_assumptions: Annotated[tuple[LoadBearingAssumption, ...], _MANY, AS_TUPLE] | None = None
    failure_modes: Annotated[tuple[FailureMode, ...], _MANY, AS_TUPLE] | None = None


class ExecutionMethod(RuledPart):
    """How a task is executed."""

    RULES = (
        Needs("method", ("tool",), "tool_id"),
        Needs("method", ("code",), "code_ref"),
    )

    method: Method
    tool_id: Name | None = None
    tool_params: JsonObject | None = None
    code_ref: SomeText | None = None
    code_params: JsonObject | None = None


class RetryPolicy(Part):
    """How often a READ task is tried again. WRITE and MIXED are never (rules 5)."""

    max_retries: Count | None = None
    backoff_multiplier: Number | None = None


class TaskDirective(RuledPart):
    """A task to execute. WRITE and MIXED need a token."""

    RULES = (Needs("tool_safety_class", ("WRITE", "MIXED"), "authorization_token_id"),)

    task_id: TaskId
    task_type: TaskType
    execution_method: ExecutionMethod
    tool_safety_class: ToolSafety | None = None
    authorization_token_id: TokenId | None = None
    timeout_seconds: AtLeastOne | None = None
    retry_policy: RetryPolicy | None = None


class ErrorDetails(Part):
    """Why a task failed."""

    error_code: Name
    error_message: Text
    is_transient: bool
    retry_recommended: bool


class ExecutionMetadata(Part):
    """What a task used. ``execution_time_ms`` is in milliseconds."""

    execution_time_ms: Number | None = None
    tokens_used: Count | None = None
    tool_calls_used: Count | None = None
    retry_count: Count | None = None


class TaskResult(RuledPart):
    """The result of a task. ``result_data`` is null if it failed or was cancelled."""

    RULES = (Needs("result_status", ("FAILURE",), "error_details"),)

    task_id: TaskId
    directive_packet_id: PacketId
    result_status: ResultStatus
    result_data: Anything = None
    error_details: ErrorDetails | None = None
    execution_metadata: ExecutionMetadata | None = None
    observation_packet_id: PacketId | None = None


class AuthorizedScope(Part):
    """What a token allows."""

    tool_ids: Annotated[tuple[Name, ...], _SOME, AS_TUPLE]
    operation_types: Annotated[tuple[OperationType, ...], _SOME, AS_TUPLE]
    resource_constraints: JsonObject | None = None


class TokenGrant(Part):
    """An authorization: which tools and operations, until when, how often."""

    token_id: TokenId
    authorized_scope: AuthorizedScope
    expiry: Moment
    max_usage_count: AtLeastOne
    issuer_layer: Layer
    usage_count: Count = 0
    revoked: bool = False
    rationale: SomeText | None = None


class EscalationOption(Part):
    """An option that a human may choose."""

    option_id: Name
    description: SomeText
    pros: Texts
    cons: Texts
    risk_summary: SomeText


class EvidenceGap(Part):
    """What is not known, and what that may cost."""

    gap: SomeText
    impact_if_unknown: SomeText
    verification_method: SomeText | None = None


class EstimatedCost(Part):
    """What a step would cost."""

    time_seconds: Number | None = None
    tokens: Count | None = None
    tool_calls: Count | None = None


class NextStep(Part):
    """What is recommended to do next."""

    step: SomeText
    rationale: SomeText
    estimated_cost: EstimatedCost | None = None


class Escalation(Part):
    """A question to a human: 2 or 3 options, the gaps in the evidence, and a next step."""

    escalation_trigger: EscalationTrigger
    top_options: Annotated[tuple[EscalationOption, ...], Field(min_length=2, max_length=3), AS_TUPLE]
    evidence_gaps: Annotated[tuple[EvidenceGap, ...], _SOME, AS_TUPLE]
    recommended_next_step: NextStep
    blocking_decision_packet_id: PacketId | None = None


class VerificationTarget(Part):
    """One assumption to verify."""

    target_id: Name
    description: SomeText
    assumption_text: SomeText
    is_load_bearing: bool = True
    verification_method: SomeText
    tool_id: Name | None = None
    tool_safety: ToolSafety | None = None
    expected_evidence_type: Name | None = None
    success_criteria: SomeText
    failure_action: FailureAction


class VerificationPlan(Part):
    """How a decision's assumptions are verified. ``execution_order`` lists ids of targets."""

    plan_id: Name
    triggering_decision_id: PacketId
    plan_summary: SomeText
    targets: Annotated[tuple[VerificationTarget, ...], _SOME, AS_TUPLE]
    execution_order: Annotated[tuple[Name, ...], _MANY, AS_TUPLE] | None = None
    parallel_allowed: bool = False
    max_verification_time_seconds: AtLeastOne
    max_tool_calls: AtLeastOne
    on_all_success: SomeText
    on_any_failure: SomeText
    partial_success_acceptable: bool = False


class IntegrityAlert(Part):
    """Something is wrong with the episode, a token or the journal."""

    alert_id: Name
    alert_type: AlertType
    severity: Severity
    summary: SomeText
    detected_at: Moment
    detection_method: SomeText
    affected_components: Texts
    metrics: JsonObject | None = None
    threshold_violated: Anything = None
    recommended_actions: Texts
    auto_action_taken: Text | None = None
    related_episode_id: EpisodeId | None = None
    related_packet_ids: PacketIds
    requires_immediate_attention: bool = False


class QueueItem(Part):
    """One item of a queue. A lower ``priority`` comes first."""

    item_id: Name
    packet_id: PacketId | None = None
    priority: Count
    state: QueueState


class QueueUpdate(Part):
    """How a queue stands now (rules 5)."""

    queue_id: Name
    items: Annotated[tuple[QueueItem, ...], _MANY, AS_TUPLE]
    reason: SomeText
