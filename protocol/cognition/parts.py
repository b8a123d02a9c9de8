"""The parts of a cognition packet: every field, its type and its default."""

from __future__ import annotations

from typing import Annotated

from council.protocol.cognition.fields import BY_VALUE, JsonObject, Many, Number, Part, Whole
from council.protocol.cognition.vocabulary import (
    GoalConfidence,
    Origin,
    OutputDestination,
    PacketState,
    PersonaRole,
    SystemTask,
    TargetEngine,
    ToolExecutionStatus,
)
from council.protocol.models import EMPTY, Anything
from council.protocol.models import LongText as Text

# Header


class Persona(Part):
    """The persona that answers the packet."""

    identity_id: Text = "gaia"
    persona_id: Text = "gaia"
    role: Annotated[PersonaRole, BY_VALUE] = PersonaRole.DEFAULT
    tone_hint: Text | None = "concise"
    safety_profile_id: Text | None = None
    traits: JsonObject = EMPTY


class Routing(Part):
    """The engine that thinks about it, and its urgency."""

    target_engine: Annotated[TargetEngine, BY_VALUE] = TargetEngine.PRIME
    allow_parallel: bool = False
    priority: Whole = 5
    deadline_iso: Text | None = None
    queue_id: Text | None = None


class DestinationTarget(Part):
    """One destination of the answer."""

    destination: Annotated[OutputDestination, BY_VALUE]
    channel_id: Text | None = None
    user_id: Text | None = None
    reply_to_message_id: Text | None = None
    persona_override: Text | None = None
    format_hint: Text | None = None
    metadata: JsonObject = EMPTY


class OutputRouting(Part):
    """The destinations of the answer, and the source of the question."""

    primary: DestinationTarget
    secondary: Many[DestinationTarget] = ()
    suppress_echo: bool = False
    addressed_to_gaia: bool = True
    source_destination: Annotated[OutputDestination, BY_VALUE] | None = None


class Model(Part):
    """The language model of the packet, and its limits in tokens."""

    name: Text = "thinker"
    provider: Text = "vllm"
    context_window_tokens: Whole = 8192
    max_output_tokens: Whole | None = None
    response_buffer_tokens: Whole | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    seed: Whole | None = None
    stop: Many[Text] = ()
    tool_permissions: Many[Text] = ()
    allow_tools: bool = True


class OperationalStatus(Part):
    """The status for a display."""

    status: Text | None = None
    model: Text | None = None
    observer: Text | None = None
    confidence: Number | None = None
    intent: Text | None = None


class Header(Part):
    """The packet's ids, sender and destination. ``datetime`` is ISO 8601, as its writer wrote it."""

    session_id: Text
    packet_id: Text
    persona: Persona = Persona()
    routing: Routing = Routing()
    model: Model = Model()
    origin: Annotated[Origin, BY_VALUE] = Origin.USER
    datetime: Text
    sub_id: Text
    parent_packet_id: Text | None = None
    lineage: Many[Text] = ()
    output_routing: OutputRouting | None = None
    operational_status: OperationalStatus | None = None


# Intent and context


class Intent(Part):
    """The user's wish, and the task that follows from it. ``confidence`` is 0 to 1."""

    user_intent: Text = "chat"
    system_task: Annotated[SystemTask, BY_VALUE] = SystemTask.STREAM
    confidence: Number = 1.0
    tags: Many[Text] = ()


class SessionHistoryRef(Part):
    """The place of the session's history."""

    type: Text = "local"
    value: Text = "active"


class RelevantHistorySnippet(Part):
    """A turn of the session's history, or a part of it."""

    id: Text
    role: Text
    summary: Text


class Cheatsheet(Part):
    """A sheet of knowledge, by reference."""

    id: Text = "default"
    title: Text = "GAIA Protocol"
    version: Text = "0.3"
    pointer: Text = "core"
    ref_type: Text | None = None


class Constraints(Part):
    """The limits of thinking about it."""

    max_tokens: Whole = 2048
    time_budget_ms: Whole = 60000
    safety_mode: Text = "strict"
    policies: Many[Text] = ()


class Context(Part):
    """The context that the model needs besides the prompt."""

    session_history_ref: SessionHistoryRef = SessionHistoryRef()
    cheatsheets: Many[Cheatsheet] = ()
    constraints: Constraints = Constraints()
    relevant_history_snippet: Many[RelevantHistorySnippet] = ()
    available_mcp_tools: Many[Text] | None = None


# Content


class DataField(Part):
    """A named value that came with the prompt."""

    key: Text
    value: Anything
    type: Text | None = None
    source: Text | None = None
    vector_refs: Many[Text] = ()


class Attachment(Part):
    """A file that came with the prompt, by its hash; ``bytes`` is its size."""

    name: Text
    mime: Text
    content_hash: Text
    bytes: Whole | None = None
    location: Text | None = None


class TimelineEvent(Part):
    """Something that happened while the user spoke."""

    timestamp: Text
    event_type: Text
    content: Text | None = None
    metadata: JsonObject = EMPTY


class Content(Part):
    """The user's input, word for word, and its attachments."""

    original_prompt: Text
    data_fields: Many[DataField] = ()
    attachments: Many[Attachment] = ()
    timeline: Many[TimelineEvent] = ()
    intent: Intent | None = None


# Reasoning and response


class ReflectionLog(Part):
    """A step of reasoning."""

    step: Text
    summary: Text
    confidence: Number | None = None


class Sketchpad(Part):
    """A note between two steps."""

    slot: Text
    content: Anything
    content_type: Text | None = None
    expires_at: Text | None = None


class Evaluation(Part):
    """A check of the answer, and its result."""

    name: Text
    passed: bool
    score: Number | None = None
    notes: Text | None = None


class Reasoning(Part):
    """The steps that led to the answer."""

    reflection_log: Many[ReflectionLog] = ()
    sketchpad: Many[Sketchpad] = ()
    evaluations: Many[Evaluation] = ()


class SelectedTool(Part):
    """A tool, its arguments, and why."""

    tool_name: Text
    params: JsonObject = EMPTY
    selection_reasoning: Text = ""
    selection_confidence: Number = 0.0


class ToolExecutionResult(Part):
    """The result of a tool's call."""

    success: bool
    output: Anything = None
    error: Text | None = None
    execution_time_ms: Whole = 0
    raw_source_data: Anything = None


class ToolRoutingState(Part):
    """The state of the packet's tool."""

    needs_tool: bool = False
    routing_requested: bool = False
    selected_tool: SelectedTool | None = None
    alternative_tools: Many[SelectedTool] = ()
    review_confidence: Number = 0.0
    review_reasoning: Text = ""
    execution_status: Annotated[ToolExecutionStatus, BY_VALUE] = ToolExecutionStatus.PENDING
    execution_result: ToolExecutionResult | None = None
    reinjection_count: Whole = 0
    max_reinjections: Whole = 3


class ToolCall(Part):
    """A call in the answer."""

    name: Text
    args: JsonObject | None = None
    dry_run: bool = True


class SidecarAction(Part):
    """An action besides the answer; ``action_type`` names the tool."""

    action_type: Text
    params: JsonObject | None = None


class Response(Part):
    """The current answer. ``confidence`` is 0 to 1."""

    candidate: Text = ""
    confidence: Number = 1.0
    stream_proposal: bool = False
    tool_calls: Many[ToolCall] = ()
    sidecar_actions: Many[SidecarAction] = ()


# Governance


class Safety(Part):
    """The actions that the packet permits."""

    execution_allowed: bool = False
    allowed_commands_whitelist_id: Text | None = None
    dry_run: bool = True


class Signatures(Part):
    """The hashes of header and content, and who signed them."""

    header_hash: Text | None = None
    content_hash: Text | None = None
    signed_by: Text | None = None
    signature: Text | None = None


class Audit(Part):
    """The people or programs that made, changed and reviewed it."""

    created_by: Text | None = None
    created_at: Text | None = None
    modified_at: Text | None = None
    reviewers: Many[Text] = ()
    decision: Text | None = None


class Privacy(Part):
    """The personal data that was found in it."""

    pii_detected: bool | None = None
    pii_notes: Text | None = None
    pii_redactions: Many[JsonObject] = ()


class SecurityScanResult(Part):
    """One finding of a scanner; ``severity`` is INFO, WARN or BLOCK."""

    scanner: Text = ""
    rule_id: Text = ""
    severity: Text = "INFO"
    redacted_excerpt: Text = ""
    timestamp: Text = ""


class SecurityScan(Part):
    """The findings of the scanners."""

    ran: bool = False
    passed: bool = True
    scan_results: Many[SecurityScanResult] = ()
    injection_score: Number = 0.0


class Governance(Part):
    """Safety, signatures, audit, privacy and scans."""

    safety: Safety = Safety()
    signatures: Signatures = Signatures()
    audit: Audit = Audit()
    privacy: Privacy = Privacy()
    security_scan: SecurityScan = SecurityScan()


# What watches over it


class LoopAttempt(Part):
    """A way that was tried and led into a loop."""

    approach_summary: Text
    failed_at: Text


class LoopState(Part):
    """The current or last loop of the work."""

    detected_at: Text | None = None
    loop_type: Text | None = None
    pattern: Text | None = None
    pattern_hash: Text | None = None
    reset_count: Whole = 0
    confidence: Number = 0.0
    previous_attempts: Many[LoopAttempt] = ()
    recovery_context: Text | None = None
    triggered_by: Many[Text] = ()
    in_recovery: bool = False
    warned: bool = False
    override_active: bool = False


class DetectedGoal(Part):
    """The user's goal. ``source`` is fast_path, session_carry or llm."""

    goal_id: Text
    description: Text
    confidence: Annotated[GoalConfidence, BY_VALUE]
    detected_at: Text
    source: Text


class GoalState(Part):
    """The user's goal over the turns of a session."""

    current_goal: DetectedGoal | None = None
    previous_goals: Many[DetectedGoal] = ()
    turn_count: Whole = 0
    goal_shifts: Whole = 0


class CouncilMessage(Part):
    """A message of one agent; ``target`` is user, counterpart or all."""

    agent: Text
    content: Text
    timestamp: Text
    target: Text = "counterpart"


class Vote(Part):
    """One agent's vote; ``decision`` is approve, reject or abstain."""

    agent: Text
    decision: Text
    reason: Text = ""
    confidence: Number = 0.0


class Council(Part):
    """A debate inside the packet; ``mode`` is solo, debate or consensus."""

    mode: Text | None = "solo"
    participants: Many[Text] = ()
    votes: Many[Vote] = ()
    thread: Many[CouncilMessage] = ()
    iteration_count: Whole = 0
    max_iterations: Whole = 3


# Metrics and status


class TokenUsage(Part):
    """The tokens used, and those that the answer is expected to use."""

    prompt_tokens: Whole = 0
    completion_tokens: Whole = 0
    total_tokens: Whole = 0
    projected_tokens: Whole | None = None


class SystemResources(Part):
    """The load of the machine, in percent."""

    cpu_usage_percent: Number = 0.0
    memory_usage_percent: Number = 0.0
    disk_usage_percent: Number = 0.0
    gpu_usage: JsonObject = EMPTY
    hardware_profile: JsonObject = EMPTY


class Metrics(Part):
    """The resources that it used."""

    token_usage: TokenUsage = TokenUsage()
    latency_ms: Whole = 0
    cost_estimate: Number | None = None
    errors: Many[Text] = ()
    resources: SystemResources | None = None
    semantic_probe: JsonObject | None = None


class Status(Part):
    """The state of the packet."""

    finalized: bool = False
    state: Annotated[PacketState, BY_VALUE] = PacketState.PROCESSING
    next_steps: Many[Text] = ()
    observer_trace: Many[Text] = ()
