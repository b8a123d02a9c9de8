"""Builders of valid episodes: the templates A to H (rules 5).

Each function takes ``ids``, an iterator of new ids without a prefix, and ``clock``, a function that returns the time
of the next packet; it returns the packets in their order. ``about`` says what the episode is about. ``Writer`` writes
single packets, for episodes of another form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec
from msgspec import field

from council.governance.ledger import arguments_digest
from council.protocol.models import time_text
from council.protocol.omen import Packet, read_packet, stakes_level

Ids = Iterator[str]
Clock = Callable[[], datetime]
Layer = int | str


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode is about. ``tier`` is that of action; times are in seconds."""

    summary: str = "Look at the service before a change"
    correlation_id: str = "corr_1"
    tool_id: str = "shell"
    tool_params: Mapping[str, Any] = field(
        default_factory=lambda: {"command": ["systemctl", "status", "web"]}
    )
    operations: tuple[str, ...] = ("write",)
    impact: str = "LOW"
    irreversibility: str = "REVERSIBLE"
    uncertainty: str = "LOW"
    adversariality: str = "BENIGN"
    tier: str = "PAR"
    tools_state: str = "tools_ok"
    token_budget: int = 4_096
    tool_call_budget: int = 8
    time_budget_s: int = 600
    token_life_s: int = 300


class Writer:
    """Writes the packets of one episode. Each packet names the one before it."""

    def __init__(self, ids: Ids, clock: Clock, about: About) -> None:
        self.packets: list[Packet] = []
        self._ids = ids
        self._clock = clock
        self._about = about
        self._evidence: dict[str, Any] | None = None

    def observe(self, data: Mapping[str, Any], *, tool: str | None = None) -> Packet:
        """An Observation: of a tool's output if ``tool`` is given, else of what the user says."""
        payload: dict[str, Any] = {
            "observation_type": "tool_output" if tool else "user_input",
            "data": dict(data),
        }
        if tool:
            payload["source_tool"] = tool
        packet = self.write("ObservationPacket", 6, payload)
        self._evidence = {
            "ref_type": "tool_output" if tool else "user_observation",
            "ref_id": packet.header.packet_id,
            "timestamp": time_text(packet.header.created_at),
        }
        return packet

    def believe(self, key: str, value: object, *, layer: Layer = 5, domain: str = "episode") -> Packet:
        """A BeliefUpdate with one new belief."""
        change = {"domain": domain, "key": key, "new_value": value, "prior_value": None}
        payload = {"update_type": "new_belief", "belief_changes": [change]}
        return self.write("BeliefUpdatePacket", layer, payload)

    def decide(self, outcome: str, summary: str | None = None) -> Packet:
        """A Decision whose checks are all satisfied."""
        payload = {
            "decision_outcome": outcome,
            "decision_summary": summary or f"{outcome}: {self._about.summary}",
            "constraints_satisfied": {"constitutional_check": True, "budget_check": True, "tier_check": True},
        }
        return self.write("DecisionPacket", 5, payload)

    def plan(self, decision: Packet, assumption: str) -> Packet:
        """A VerificationPlan with one target, for a Decision VERIFY_FIRST."""
        target = {
            "target_id": "target_1",
            "description": assumption,
            "assumption_text": assumption,
            "is_load_bearing": True,
            "verification_method": "run the tool and compare its output",
            "success_criteria": "the output agrees",
            "failure_action": "escalate",
        }
        payload = {
            "plan_id": f"plan_{next(self._ids)}",
            "triggering_decision_id": decision.header.packet_id,
            "plan_summary": assumption,
            "targets": [target],
            "max_verification_time_seconds": self._about.time_budget_s,
            "max_tool_calls": self._about.tool_call_budget,
            "on_all_success": "decide again",
            "on_any_failure": "escalate",
        }
        return self.write("VerificationPlanPacket", 5, payload)

    def grant(self, decision: Packet) -> Packet:
        """A token for one use of the tool with exactly the arguments of ``about``."""
        about = self._about
        resources = {
            "arguments_sha256": arguments_digest(about.tool_params),
            "decision_packet_id": decision.header.packet_id,
        }
        now = self._clock()
        payload = {
            "token_id": f"token_{next(self._ids)}",
            "authorized_scope": {
                "tool_ids": [about.tool_id],
                "operation_types": list(about.operations),
                "resource_constraints": resources,
            },
            "expiry": time_text(now + timedelta(seconds=about.token_life_s)),
            "max_usage_count": 1,
            "issuer_layer": 5,
            "rationale": about.summary,
        }
        return self.write("ToolAuthorizationToken", 5, payload, now=now)

    def direct(self, task_type: str = "tool_read", *, token: Packet | None = None) -> Packet:
        """A TaskDirective to run the tool: READ, or WRITE with a token."""
        method = {
            "method": "tool",
            "tool_id": self._about.tool_id,
            "tool_params": dict(self._about.tool_params),
        }
        payload: dict[str, Any] = {
            "task_id": f"task_{next(self._ids)}",
            "task_type": task_type,
            "execution_method": method,
            "tool_safety_class": "WRITE" if token else "READ",
        }
        if token:
            payload["authorization_token_id"] = token.payload.token_id
        return self.write("TaskDirectivePacket", 5, payload)

    def answer(self, directive: Packet, data: object = "done") -> Packet:
        """The TaskResult SUCCESS of a directive."""
        payload = {
            "task_id": directive.payload.task_id,
            "directive_packet_id": directive.header.packet_id,
            "result_status": "SUCCESS",
            "result_data": data,
            "execution_metadata": {"execution_time_ms": 10, "tokens_used": 0, "tool_calls_used": 1},
        }
        return self.write("TaskResultPacket", 6, payload)

    def escalate(self, trigger: str, decision: Packet, options: Sequence[Mapping[str, Any]] = ()) -> Packet:
        """An Escalation of a decision. ``options`` are 2 or 3 complete ones; by default, to go on or to stop."""
        summary = self._about.summary
        default = (
            option("go_on", f"Go on: {summary}", "it is done", "nobody has verified it"),
            option("stop", f"Stop: {summary}", "nothing changes", "it is not done"),
        )
        payload = {
            "escalation_trigger": trigger,
            "top_options": [dict(each) for each in options or default],
            "evidence_gaps": [{"gap": "whether it is safe", "impact_if_unknown": "it can't be decided"}],
            "recommended_next_step": {"step": "ask a human", "rationale": "the council may not decide it"},
            "blocking_decision_packet_id": decision.header.packet_id,
        }
        return self.write("EscalationPacket", 5, payload)

    def write(
        self, packet_type: str, layer: Layer, payload: Mapping[str, Any], *, now: datetime | None = None
    ) -> Packet:
        """Any packet, with the episode's MCP. Raises EnvelopeError if the payload is not valid."""
        header: dict[str, Any] = {
            "packet_id": f"pkt_{next(self._ids)}",
            "packet_type": packet_type,
            "created_at": time_text(now or self._clock()),
            "layer_source": layer,
            "correlation_id": self._about.correlation_id,
        }
        if self.packets:
            header["previous_packet_id"] = self.packets[-1].header.packet_id
        packet = read_packet({"header": header, "mcp": self._mcp(), "payload": dict(payload)})
        self.packets.append(packet)
        return packet

    def _mcp(self) -> dict[str, Any]:
        about = self._about
        axes = {
            "impact": about.impact,
            "irreversibility": about.irreversibility,
            "uncertainty": about.uncertainty,
            "adversariality": about.adversariality,
        }
        return {
            "intent": {"summary": about.summary, "scope": about.correlation_id},
            "stakes": {**axes, "stakes_level": stakes_level(axes)},
            "quality": {
                "quality_tier": about.tier,
                "satisficing_mode": about.tier != "SUPERB",
                "definition_of_done": {"text": about.summary, "checks": ["the result is observed"]},
                "verification_requirement": {"SUBPAR": "OPTIONAL", "PAR": "VERIFY_ONE"}.get(
                    about.tier, "VERIFY_ALL"
                ),
            },
            "budgets": {
                "token_budget": about.token_budget,
                "tool_call_budget": about.tool_call_budget,
                "time_budget_seconds": about.time_budget_s,
                "risk_budget": {"envelope": about.impact, "max_loss": "none that can't be undone"},
            },
            "epistemics": {
                "status": "OBSERVED",
                "confidence": 0.9,
                "calibration_note": "as observed",
                "freshness_class": "OPERATIONAL",
                "assumptions": [],
            },
            "evidence": {
                "evidence_refs": [self._evidence] if self._evidence else [],
                "evidence_absent_reason": None if self._evidence else "nothing is observed yet",
            },
            "routing": {"task_class": "VERIFY", "tools_state": about.tools_state},
        }


def option(option_id: str, description: str, pro: str, con: str) -> dict[str, Any]:
    """An option of a human, with its one advantage and its one risk."""
    return {
        "option_id": option_id,
        "description": description,
        "pros": [pro],
        "cons": [con],
        "risk_summary": con,
    }


def _begun(ids: Ids, clock: Clock, about: About) -> Writer:
    """A Writer that has observed and believes."""
    writer = Writer(ids, clock, about)
    writer.observe({"request": about.summary})
    writer.believe("request", about.summary)
    return writer


def _carried_out(writer: Writer, directive: Packet) -> None:
    """The directive's result, and its observation."""
    result = writer.answer(directive)
    writer.observe({"result": result.header.packet_id}, tool=directive.payload.execution_method.tool_id)


class Template(Protocol):
    """A function that builds an episode."""

    def __call__(self, ids: Ids, clock: Clock, about: About = ...) -> list[Packet]: ...


DEFAULT = About()


def grounding(ids: Ids, clock: Clock, about: About = DEFAULT) -> list[Packet]:
    """A: Observation, BeliefUpdate, Decision ACT."""
    writer = _begun(ids, clock, about)
    writer.decide("ACT")
    return writer.packets


def verify(ids: Ids, clock: Clock, about: About = DEFAULT) -> list[Packet]:
    """B: grounding with a verify loop before its Decision ACT."""
    return _verified(ids, clock, about, ("verification",))


def read(ids: Ids, clock: Clock, about: About = DEFAULT) -> list[Packet]:
    """C: grounding, then a READ directive, its result, Observation, BeliefUpdate."""
    writer = _begun(ids, clock, about)
    writer.decide("ACT")
    _carried_out(writer, writer.direct())
    writer.believe("result", "done")
    return writer.packets


def write(ids: Ids, clock: Clock, about: About = DEFAULT) -> list[Packet]:
    """D: grounding at SUPERB, then a token, a WRITE directive, its result, Observation, BeliefUpdate."""
    writer = _begun(ids, clock, msgspec.structs.replace(about, tier="SUPERB"))
    token = writer.grant(writer.decide("ACT"))
    _carried_out(writer, writer.direct("tool_write", token=token))
    writer.believe("result", "done")
    return writer.packets


def escalate(
    ids: Ids, clock: Clock, about: About = DEFAULT, *, trigger: str = "high_stakes_high_uncertainty"
) -> list[Packet]:
    """E: Observation, BeliefUpdate, Decision ESCALATE, Escalation."""
    writer = _begun(ids, clock, about)
    writer.escalate(trigger, writer.decide("ESCALATE"))
    return writer.packets


def degraded(ids: Ids, clock: Clock, about: About = DEFAULT) -> list[Packet]:
    """F: as E, while tools are partly or all down; partly, if ``about`` says that they work."""
    state = "tools_partial" if about.tools_state == "tools_ok" else about.tools_state
    about = msgspec.structs.replace(about, tools_state=state)
    return escalate(ids, clock, about, trigger="tools_degraded_critical")


def compile_(ids: Ids, clock: Clock, about: About = DEFAULT) -> list[Packet]:
    """G: as B at SUPERB, with two directives, to generate and to test."""
    return _verified(
        ids, clock, msgspec.structs.replace(about, tier="SUPERB"), ("computation", "verification")
    )


def mission(ids: Ids, clock: Clock, about: About = DEFAULT) -> list[Packet]:
    """H: grounding with beliefs of layers 3, 2 and 4, a READ directive, its result, and beliefs of layers 5 to 1."""
    writer = _begun(ids, clock, about)
    for layer in (3, 2, 4):
        writer.believe(f"layer_{layer}", "ready", layer=layer)
    writer.decide("ACT")
    writer.answer(writer.direct())
    for layer in (5, 4, 3, 2, 1):
        writer.believe(f"layer_{layer}", "done", layer=layer)
    return writer.packets


def _verified(ids: Ids, clock: Clock, about: About, tasks: Sequence[str]) -> list[Packet]:
    """A verify loop with a directive for each task type, and the Decision ACT after it."""
    writer = _begun(ids, clock, about)
    writer.decide("VERIFY_FIRST")
    for task_type in tasks:
        _carried_out(writer, writer.direct(task_type))
    writer.believe("verified", value=True)
    writer.decide("ACT")
    return writer.packets


TEMPLATES: dict[str, Template] = {
    "A": grounding,
    "B": verify,
    "C": read,
    "D": write,
    "E": escalate,
    "F": degraded,
    "G": compile_,
    "H": mission,
}
