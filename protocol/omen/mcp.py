"""The header of every packet, and its MCP: intent, stakes, quality, budgets, epistemics, evidence and routing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field

from council.protocol.omen.parts import (
    AS_TUPLE,
    LIST_MAX,
    CampaignId,
    Count,
    EpisodeId,
    Layer,
    Moment,
    Needs,
    PacketId,
    Part,
    RuledPart,
    Share,
    SomeText,
    Text,
    TextOrNumber,
    TextOrObject,
)
from council.protocol.omen.vocabulary import (
    Adversariality,
    EpistemicStatus,
    EvidenceType,
    FreshnessClass,
    Irreversibility,
    Level,
    PacketType,
    QualityTier,
    TaskClass,
    ToolsState,
    Uncertainty,
    VerificationRequirement,
)

_POINTS = {
    **{"LOW": 1, "REVERSIBLE": 1, "BENIGN": 1, "MEDIUM": 2, "PARTIAL": 2, "HIGH": 3, "CONTESTED": 3},
    **{"CRITICAL": 4, "IRREVERSIBLE": 4, "HOSTILE": 4},
}
AXES = ("impact", "irreversibility", "uncertainty", "adversariality")
LEVELS: tuple[Level, ...] = ("LOW", "MEDIUM", "HIGH", "CRITICAL")


class PacketHeader(Part):
    """Who made a packet, when, and in which episode (``correlation_id``). ``layer_source`` is 1 to 6 or Integrity."""

    packet_id: PacketId
    packet_type: PacketType
    created_at: Moment
    layer_source: Layer
    correlation_id: EpisodeId
    campaign_id: CampaignId | None = None
    previous_packet_id: PacketId | None = None


class Intent(Part):
    """What the packet is for. ``scope`` bounds it, as a text or an object."""

    summary: SomeText
    scope: TextOrObject


class Stakes(Part):
    """What is at stake, on four axes, and the level that follows from them (``stakes_level``; invariant 012)."""

    impact: Level
    irreversibility: Irreversibility
    uncertainty: Uncertainty
    adversariality: Adversariality
    stakes_level: Level

    @classmethod
    def of(
        cls,
        impact: Level,
        irreversibility: Irreversibility,
        uncertainty: Uncertainty,
        adversariality: Adversariality,
    ) -> Self:
        """The stakes of these axes, with their level computed."""
        axes = dict(zip(AXES, (impact, irreversibility, uncertainty, adversariality), strict=True))
        return cls.checked({**axes, "stakes_level": stakes_level(axes)})


def stakes_level(axes: Stakes | Mapping[str, str]) -> Level:
    """The level that the four axes justify, but no more than two of them alone may raise it (rules 5).

    ``axes`` has impact, irreversibility, uncertainty and adversariality; a declared level in it is not read.
    """
    words: dict[str, str] = dict(axes)
    points = [_POINTS[words[axis]] for axis in AXES]
    high, medium = sum(each >= 3 for each in points), sum(each >= 2 for each in points)
    if 4 in points:
        justified = 3
    elif high >= 2:
        justified = 2
    else:
        justified = 1 if high or medium >= 2 else 0
    return LEVELS[min(justified, max(points[0] - 1, 1))]


class DefinitionOfDone(Part):
    """When the work is done: in words, and as conditions that a machine can check."""

    text: SomeText
    checks: Annotated[tuple[SomeText, ...], Field(min_length=1, max_length=LIST_MAX), AS_TUPLE]


class Quality(Part):
    """How good the work must be, and how much of it is verified."""

    quality_tier: QualityTier
    satisficing_mode: bool
    definition_of_done: DefinitionOfDone
    verification_requirement: VerificationRequirement


class RiskBudget(Part):
    """The risk that is accepted: its posture in words, and the largest loss."""

    envelope: Text
    max_loss: TextOrNumber


class Budgets(Part):
    """What an episode may spend: tokens, calls of tools, seconds, risk."""

    token_budget: Count
    tool_call_budget: Count
    time_budget_seconds: Count
    risk_budget: RiskBudget


class Epistemics(Part):
    """How the packet's content is known, how surely (0 to 1), and how fresh it must be."""

    status: EpistemicStatus
    confidence: Share
    calibration_note: SomeText
    freshness_class: FreshnessClass
    stale_if_older_than_seconds: Count | None = None
    assumptions: Annotated[tuple[Text, ...], Field(max_length=LIST_MAX), AS_TUPLE]


class EvidenceRef(Part):
    """One piece of evidence, by its URI or id. ``reliability_score`` is 0 to 1."""

    ref_type: EvidenceType
    ref_id: SomeText
    timestamp: Moment
    reliability_score: Share | None = None


class Evidence(RuledPart):
    """The evidence, or the reason why there is none."""

    RULES = (Needs("evidence_refs", ((),), "evidence_absent_reason"),)

    evidence_refs: Annotated[tuple[EvidenceRef, ...], Field(max_length=LIST_MAX), AS_TUPLE]
    evidence_absent_reason: SomeText | None = None


class McpRouting(Part):
    """The class of the task, and which tools work."""

    task_class: TaskClass
    tools_state: ToolsState


class MCP(Part):
    """What a consequential packet must state before it may take effect (OMEN 9.2)."""

    intent: Intent
    stakes: Stakes
    quality: Quality
    budgets: Budgets
    epistemics: Epistemics
    evidence: Evidence
    routing: McpRouting
