"""The enumerations of a cognition packet, with their written values. Any other value is an error."""

from __future__ import annotations

from enum import StrEnum

VERSION = "0.3"


class PersonaRole(StrEnum):
    """The purpose of a persona."""

    DEFAULT = "Default"
    ASSISTANT = "assistant"
    CODEMIND = "CodeMind"
    ANALYST = "Analyst"
    GISEA = "GISEA"
    NARRATOR = "Narrator"
    OTHER = "Other"


class Origin(StrEnum):
    """The creator of the packet."""

    USER = "user"
    SYSTEM = "system"
    AGENT = "agent"
    SIDECAR = "sidecar"


class TargetEngine(StrEnum):
    """The engine that thinks about it."""

    PRIME = "Prime"
    LITE = "Lite"
    CODEMIND = "CodeMind"
    COUNCIL = "Council"


class SystemTask(StrEnum):
    """The task of the packet."""

    INTENT_DETECTION = "IntentDetection"
    RESEARCH = "Research"
    GENERATE_DRAFT = "GenerateDraft"
    REFINE = "Refine"
    VALIDATE = "Validate"
    DECISION = "Decision"
    STREAM = "Stream"
    TRIGGER_ACTION = "TriggerAction"
    TOOL_ROUTING = "ToolRouting"
    TOOL_EXECUTION = "ToolExecution"


class ToolExecutionStatus(StrEnum):
    """The state of the requested tool."""

    PENDING = "pending"
    AWAITING_CONFIDENCE = "awaiting_confidence"
    APPROVED = "approved"
    EXECUTED = "executed"
    FAILED = "failed"
    SKIPPED = "skipped"
    USER_DENIED = "user_denied"
    AWAITING_APPROVAL = "awaiting_approval"


class PacketState(StrEnum):
    """The state of the packet."""

    INITIALIZED = "initialized"
    PROCESSING = "processing"
    AWAITING_TOOL = "awaiting_tool"
    AWAITING_HUMAN = "awaiting_human"
    READY_TO_STREAM = "ready_to_stream"
    COMPLETED = "completed"
    ABORTED = "aborted"


class OutputDestination(StrEnum):
    """The destination of its answer."""

    CLI = "cli"
    WEB = "web"
    DISCORD = "discord"
    API = "api"
    WEBHOOK = "webhook"
    LOG = "log"
    BROADCAST = "broadcast"
    AUDIO = "audio"


class GoalConfidence(StrEnum):
    """The confidence that a goal is the user's."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
