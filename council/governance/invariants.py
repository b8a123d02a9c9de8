"""The invariants 001 to 012 of an episode (rules 5). An ERROR rejects the packet, a WARNING is for the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from council.governance import ledger
from council.governance.episode import Episode, safety_of
from council.governance.results import Result, Severity
from council.protocol.omen import Packet, stakes_level

CONSEQUENTIAL = frozenset(
    {"DecisionPacket", "TaskDirectivePacket", "ToolAuthorizationToken", "EscalationPacket"}
)
_LEVELS = ("LOW", "MEDIUM", "HIGH", "CRITICAL")
_FRESH = ("REALTIME", "OPERATIONAL")
_UNGROUNDED = ("INFERRED", "HYPOTHESIZED", "UNKNOWN")
_LEAVES_LOOP = ("ESCALATE", "DEFER", "CANCEL")


class Fault(NamedTuple):
    """What an invariant found: the dotted path, what was expected and what was found."""

    path: str
    expected: str
    found: str
    severity: Severity = "ERROR"


def check(episode: Episode, packet: Packet, now: datetime) -> Iterator[Result]:
    """What the invariants find in the packet, in their order. ``now`` is an aware time."""
    for rule, find in INVARIANTS.items():
        for path, expected, found, severity in find(episode, packet, now):
            yield Result(packet.header.packet_id, "invariants", rule, severity, path, expected, found)


def _whole_mcp(episode: Episode, packet: Packet, now: datetime) -> Iterator[Fault]:
    """001: a consequential packet has an MCP, a definition of done, and evidence or the reason why there is none."""
    if packet.header.packet_type not in CONSEQUENTIAL:
        return
    if packet.mcp is None:
        yield Fault("mcp", f"an MCP in a {packet.header.packet_type}", "none")
        return
    done, path = packet.mcp.quality.definition_of_done, "mcp.quality.definition_of_done"
    if not done.text.strip():
        yield Fault(f"{path}.text", "a text", "nothing but blanks")
    if not any(each.strip() for each in done.checks):
        yield Fault(f"{path}.checks", "at least one check", "none")
    evidence = packet.mcp.evidence
    if not evidence.evidence_refs and not (evidence.evidence_absent_reason or "").strip():
        yield Fault("mcp.evidence.evidence_absent_reason", "a reason, because evidence_refs is empty", "none")


def _no_subpar_action(episode: Episode, packet: Packet, now: datetime) -> Iterator[Fault]:
    """002: SUBPAR never authorizes action."""
    acts = packet.header.packet_type in ("TaskDirectivePacket", "ToolAuthorizationToken") or _is_act(packet)
    if acts and packet.mcp is not None and packet.mcp.quality.quality_tier == "SUBPAR":
        yield Fault("mcp.quality.quality_tier", "PAR or SUPERB, because it authorizes action", "SUBPAR")


def _verified_assumptions(episode: Episode, packet: Packet, now: datetime) -> Iterator[Fault]:
    """003: ACT at high stakes needs SUPERB and every assumption verified; ACT at PAR one of them."""
    if not _is_act(packet) or packet.mcp is None:
        return
    tier, level = packet.mcp.quality.quality_tier, packet.mcp.stakes.stakes_level
    assumptions = packet.payload.load_bearing_assumptions or ()
    verified, path = [each.verified for each in assumptions], "payload.load_bearing_assumptions"
    if level in ("HIGH", "CRITICAL"):
        if tier != "SUPERB":
            yield Fault("mcp.quality.quality_tier", f"SUPERB, because stakes_level is {level}", str(tier))
        for number, is_verified in enumerate(verified):
            if not is_verified:
                yield Fault(f"{path}[{number}].verified", f"true, because stakes_level is {level}", "false")
    elif tier == "PAR" and verified and not any(verified):
        yield Fault(path, "at least one verified, because quality_tier is PAR", f"0 of {len(verified)}")


def _grounded(episode: Episode, packet: Packet, now: datetime) -> Iterator[Fault]:
    """004: what is not observed but fresh needs a reference to a tool's output or a user.

    A Decision VERIFY_FIRST is exempt, and the plans and directives of its loop, which go and get the evidence.
    """
    mcp, kind = packet.mcp, packet.header.packet_type
    if mcp is None or (kind == "DecisionPacket" and packet.payload.decision_outcome == "VERIFY_FIRST"):
        return
    if episode.state == "S4_VERIFY" and kind in ("VerificationPlanPacket", "TaskDirectivePacket"):
        return
    status, freshness = mcp.epistemics.status, mcp.epistemics.freshness_class
    kinds = {each.ref_type for each in mcp.evidence.evidence_refs}
    if status in _UNGROUNDED and freshness in _FRESH and not kinds & {"tool_output", "user_observation"}:
        yield Fault(
            "mcp.evidence.evidence_refs",
            f"a tool_output or user_observation, because it is {status} and {freshness}",
            ", ".join(sorted(kinds)) or "none",
        )


def _excused_budget(episode: Episode, packet: Packet, now: datetime) -> Iterator[Fault]:
    """005: an exceeded budget needs an escalation or layer-1 approval."""
    books = episode.ledger
    if not books.is_exceeded or books.is_excused or _is_never_refused(packet):
        return
    for use in books.uses():
        if use.is_exceeded:
            expected = "an escalation budget_insufficient, or approval of layer 1, before anything else"
            yield Fault(f"mcp.budgets.{use.name}", expected, f"{use.used:g} of {use.budget:g} used")


def _checked_decision(episode: Episode, packet: Packet, now: datetime) -> Iterator[Fault]:
    """006: a Decision has passed the checks of constitution and budget."""
    if packet.header.packet_type == "DecisionPacket":
        satisfied = packet.payload.constraints_satisfied
        for name in ("constitutional_check", "budget_check"):
            if not getattr(satisfied, name):
                yield Fault(f"payload.constraints_satisfied.{name}", "true", "false")


def _authorized(episode: Episode, packet: Packet, now: datetime) -> Iterator[Fault]:
    """007: a WRITE or MIXED directive has a valid token of this episode, and stays within it."""
    if packet.header.packet_type != "TaskDirectivePacket":
        return
    safety, token_id = safety_of(packet), packet.payload.authorization_token_id
    if safety == "READ":
        return
    grant = episode.tokens.get(token_id or "")
    if grant is None:
        found = "none" if token_id is None else f"{token_id}, which is no token of this episode"
        yield Fault("payload.authorization_token_id", f"a token, because the directive is {safety}", found)
        return
    for breach in ledger.breaches(grant, packet, safety, episode.decision_id):
        yield Fault(*breach)
    retry = packet.payload.retry_policy
    if retry is not None and retry.max_retries:
        expected = f"0, because a {safety} directive is never run again"
        yield Fault("payload.retry_policy.max_retries", expected, str(retry.max_retries), "WARNING")


def _closed_loop(episode: Episode, packet: Packet, now: datetime) -> Iterator[Fault]:
    """008: a verify loop is complete before the next decision. A missing plan is a warning."""
    if packet.header.packet_type != "DecisionPacket" or not episode.is_verifying:
        return
    if packet.payload.decision_outcome in _LEAVES_LOOP:
        return
    loop = episode.loop
    parts = {
        "a READ directive": loop.reads > 0,
        "a TaskResult SUCCESS": loop.successes > 0,
        "an Observation with status OBSERVED": loop.is_observed,
        "a BeliefUpdate": loop.is_believed,
        "a result for each directive": not any(episode.open_directives()),
    }
    for part, is_there in parts.items():
        if not is_there:
            expected = f"{part} after VERIFY_FIRST, before the next decision"
            yield Fault("payload.decision_outcome", expected, f"{packet.payload.decision_outcome} without it")
    if not loop.is_planned:
        expected = "a VerificationPlan after VERIFY_FIRST"
        yield Fault("payload.decision_outcome", expected, "a decision without it", "WARNING")


def _complete_escalation(episode: Episode, packet: Packet, now: datetime) -> Iterator[Fault]:
    """009: an Escalation has 2 or 3 complete options, a gap and a next step."""
    if packet.header.packet_type != "EscalationPacket":
        return
    options, gaps, following = (
        packet.payload.top_options,
        packet.payload.evidence_gaps,
        packet.payload.recommended_next_step,
    )
    if not 2 <= len(options) <= 3:
        yield Fault("payload.top_options", "2 or 3 options", str(len(options)))
    for number, option in enumerate(options):
        for name in ("option_id", "description", "risk_summary"):
            if not (getattr(option, name) or "").strip():
                yield Fault(f"payload.top_options[{number}].{name}", "a text", "nothing")
        for name in ("pros", "cons"):
            if not any(each.strip() for each in getattr(option, name) or ()):
                yield Fault(f"payload.top_options[{number}].{name}", "at least one", "none")
    if not any(each.gap.strip() for each in gaps):
        yield Fault("payload.evidence_gaps", "at least one gap", "none")
    if not following.step.strip():
        yield Fault("payload.recommended_next_step.step", "a text", "nothing but blanks")


def _tools_work(episode: Episode, packet: Packet, now: datetime) -> Iterator[Fault]:
    """010: no ACT while tools are down, and no WRITE or MIXED directive unless all work."""
    if packet.mcp is None:
        return
    tools, path = packet.mcp.routing.tools_state, "mcp.routing.tools_state"
    if _is_act(packet) and tools == "tools_down":
        yield Fault(path, "tools_ok or tools_partial, because the decision is ACT", "tools_down")
    if packet.header.packet_type == "TaskDirectivePacket" and tools != "tools_ok":
        safety = safety_of(packet)
        if safety != "READ":
            yield Fault(path, f"tools_ok, because the directive is {safety}", str(tools))


def _in_time(episode: Episode, packet: Packet, now: datetime) -> Iterator[Fault]:
    """011: no directive is open past its timeout. Escalations, alerts and layer 1 still pass."""
    if _is_never_refused(packet):
        return
    for each in episode.overdue(now):
        expected = f"a result of {each.packet_id} by {each.due.isoformat()}, or an EscalationPacket"
        yield Fault("header.packet_type", expected, f"{packet.header.packet_type} at {now.isoformat()}")


def _honest_stakes(episode: Episode, packet: Packet, now: datetime) -> Iterator[Fault]:
    """012: stakes_level agrees with its axes. A lower one is an error, a higher one a warning."""
    if packet.mcp is None:
        return
    stakes = packet.mcp.stakes
    computed, declared = stakes_level(vars(stakes)), stakes.stakes_level
    if declared != computed:
        is_lower = _LEVELS.index(declared) < _LEVELS.index(computed)
        expected = f"{computed}, by its axes"
        yield Fault("mcp.stakes.stakes_level", expected, str(declared), "ERROR" if is_lower else "WARNING")


INVARIANTS: dict[str, Callable[[Episode, Packet, datetime], Iterator[Fault]]] = {
    "INV-001": _whole_mcp,
    "INV-002": _no_subpar_action,
    "INV-003": _verified_assumptions,
    "INV-004": _grounded,
    "INV-005": _excused_budget,
    "INV-006": _checked_decision,
    "INV-007": _authorized,
    "INV-008": _closed_loop,
    "INV-009": _complete_escalation,
    "INV-010": _tools_work,
    "INV-011": _in_time,
    "INV-012": _honest_stakes,
}


def _is_act(packet: Packet) -> bool:
    return packet.header.packet_type == "DecisionPacket" and packet.payload.decision_outcome == "ACT"


def _is_never_refused(packet: Packet) -> bool:
    """Whether neither an exceeded budget nor an overdue directive may stop it."""
    kinds = ("EscalationPacket", "IntegrityAlertPacket", "QueueUpdatePacket")
    return packet.header.packet_type in kinds or packet.header.layer_source == 1
