"""The fields of an answer and their limits: the ten sections of a control packet 1.2.0, and the ballot beside it.

``read`` finds them in a text, and applies them to a ballot.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import (
    ConfigDict,
    Field,
    model_validator,
)

from council.protocol.answer.mangle import ATOM_CHARS_MAX
from council.protocol.envelope import MsgId, Reason, RiskLevel, VoteWord
from council.protocol.models import (
    AS_TUPLE,
    Confidence,
    Length,
    NotNegative,
    Open,
    refusal,
)
from council.protocol.packet import Moment, Word
from council.protocol.values import FrozenDict, freeze
from council.protocol.wording import matching

# rules 6.1
ATOMS_MAX = 2_000
OPERATIONS_MAX = 500
TRACE_CHARS_MAX = 50_000
TRANSITIONS_MAX = 500
# Files, dependencies and tests of one change; a path has about a hundred characters.
NAMES_MAX = 1_000
# Some paragraphs: a value to remember, a warning, a hypothesis.
TEXT_CHARS_MAX = 20_000

# rules 6.2
VERBS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        f"/{category}": frozenset(f"/{verb}" for verb in verbs.split())
        for category, verbs in {
            "query": "analyze assault audit benchmark converse debug diff dream explain explore greet help "
            "knowledge lint list_tools profile read research review review_enhance search security shadow stats "
            "tool_status",
            "mutation": "build campaign commit create delete deploy document fix format generate_tool git init "
            "migrate multi_step optimize refactor refine_tool run scaffold test write",
            "instruction": "configure forget remember",
        }.items()
    }
)


Text = Annotated[str, Length(TEXT_CHARS_MAX)]
Trace = Annotated[str, Length(TRACE_CHARS_MAX)]
Update = Annotated[str, Length(ATOM_CHARS_MAX, 1)]
# rules 6.5: kind:name
Key = Annotated[Word, matching(r"^[A-Za-z][A-Za-z0-9_.-]*:[^\n]+$", "one line like kind:name")]
Names = Annotated[tuple[Text, ...], Field(max_length=NAMES_MAX), AS_TUPLE]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Section(Open):
    """A part of an answer."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    def data(self) -> FrozenDict:
        """The section as a frozen JSON object for an envelope: the given fields only."""
        return freeze(self.model_dump(mode="json", by_alias=True, exclude_unset=True))


class IntentClassification(Section):
    """Section 1: what the model understood. An unknown verb is kept, with a warning."""

    category: Literal["/query", "/mutation", "/instruction"]
    verb: Word
    target: Text = ""
    constraint: Text = "none"
    confidence: Confidence | None = None


class MemoryOperation(Section):
    """An entry of section 3: a directive to the memory. Forgetting needs no value."""

    op: Literal["promote_to_long_term", "store_vector", "note", "forget"]
    key: Key
    value: Text = ""


class SelfCorrection(Section):
    """Section 4: the model found its own error."""

    triggered: bool = False
    hypothesis: Text = ""
    recovery_action: Text = ""
    confidence: Confidence | None = None


class ExecutionMetadata(Section):
    """Section 6. ``tokens_used`` is the model's claim: recorded, but nothing is settled by it (rules 6.6)."""

    shard_type: Word | None = None
    execution_time_ms: Count | NotNegative | None = None
    tokens_used: Count | None = None
    retry_count: Count | None = None
    blocked_by_constitution: bool = False


class StateTransition(Section):
    """An entry of section 7: ``from`` (here ``from_``) and ``to`` are atoms; empty if there was or is nothing."""

    from_: Annotated[str, Length(ATOM_CHARS_MAX)] = Field(alias="from")
    to: Annotated[str, Length(ATOM_CHARS_MAX)]
    timestamp: Moment | None = None
    reason: Text = ""

    @model_validator(mode="before")
    @classmethod
    def _one_beginning(cls, value: object) -> object:
        if isinstance(value, dict) and {"from", "from_"} <= value.keys():
            raise refusal("is given beside from", field="from_")
        return value


class ImpactAnalysis(Section):
    """Section 8: what the action would affect."""

    files_affected: Names = ()
    dependencies_broken: Names = ()
    tests_impacted: Names = ()
    estimated_scope: Literal["trivial", "minor", "major", "critical"] | None = None


class SafetyGates(Section):
    """Section 9: a point at which the constitution stopped the model, or requires a human."""

    requires_user_approval: bool = False
    chesterton_fence_warning: Text | None = None
    dangerous_action_blocked: Text | None = None
    constitutional_override: Text | None = None


class LearningSignals(Section):
    """Section 10: what may be learned from the case; kept with the decision (rules 6.6)."""

    pattern_id: Word | None = None
    success: bool | None = None
    user_accepted: bool | None = None
    rejection_reason: Text | None = None
    should_promote_to_learned: bool = False


class ControlPacket(Section):
    """The hidden half of an answer. ``mangle_updates`` is section 2, and ``reasoning_trace`` is section 5."""

    intent_classification: IntentClassification | None = None
    mangle_updates: Annotated[tuple[Update, ...], Field(max_length=ATOMS_MAX), AS_TUPLE] = ()
    memory_operations: Annotated[tuple[MemoryOperation, ...], Field(max_length=OPERATIONS_MAX), AS_TUPLE] = ()
    self_correction: SelfCorrection | None = None
    reasoning_trace: Trace | None = None
    execution_metadata: ExecutionMetadata | None = None
    state_transitions: Annotated[
        tuple[StateTransition, ...], Field(max_length=TRANSITIONS_MAX), AS_TUPLE
    ] = ()
    impact_analysis: ImpactAnalysis | None = None
    safety_gates: SafetyGates | None = None
    learning_signals: LearningSignals | None = None


class BallotSection(Section):
    """The third key of an answer (rules 6.6). All its fields are required, because nothing is guessed for a vote.

    ``proposal_id`` is for a model that names its proposal; the caller compares it.
    """

    vote: VoteWord
    reason: Reason
    confidence: Confidence
    risk_level: RiskLevel
    proposal_id: MsgId | None = None
