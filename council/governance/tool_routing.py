"""What became of the tool of a cognition packet, derived from the records of its proposal in the journal.

The council's decision approves the tool, as it issues the token (rules 5). A confidence below 0.7 does not stand in
its way: by itself, no review approves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from council.core.state import Decision
from council.governance.from_council import Kept
from council.protocol.cognition.lifecycle import executed
from council.protocol.cognition.packet import CognitionPacket
from council.protocol.cognition.parts import ToolExecutionResult, ToolRoutingState
from council.protocol.cognition.vocabulary import ToolExecutionStatus as Status

__all__ = ["Kept", "routed"]


def routed(packet: CognitionPacket, proposal_id: str, records: Iterable[Kept]) -> CognitionPacket:
    """The packet with its tool's state after these records, which are in the order of the journal.

    Records of other proposals change nothing, except those of its executor, which may show that a run has ended.
    """
    if packet.tool_routing is None or packet.tool_routing.selected_tool is None:
        return packet
    course = _Course(proposal_id, packet.tool_routing)
    for record in records:
        course.follow(record)
    return packet.model_copy(update={"tool_routing": course.routing})


class _Course:
    """The state of a tool, record by record."""

    def __init__(self, proposal_id: str, routing: ToolRoutingState) -> None:
        self.routing = routing
        self._id = proposal_id
        self._uses: dict[
            str, tuple[str, str, float]
        ] = {}  # under way: executor, its run, when it was counted

    def follow(self, record: Kept) -> None:
        if any(each.proposal_id == self._id for each in record.escalations):
            self._set(Status.AWAITING_APPROVAL)
        for decision in record.decisions:
            if decision.proposal_id == self._id:
                self._decided(decision)
        if self._id in record.more:
            outcome = record.more[self._id]
            self._set(Status.AWAITING_APPROVAL if outcome is None else _of_outcome(outcome))
        data, own = record.data, record.proposal_id == self._id
        match record.kind:
            case "executor":
                self._run_began(data["executor"], data["run"], record)
            case "use":
                request = data["request"]
                self._run_began(request["executor"], request["run"], record)
                if request["proposal_id"] == self._id:
                    self._uses[request["use_id"]] = request["executor"], request["run"], record.at_s
            case "result" if own:
                self._result(data["result"], record)
            case "use_timeout" if own:
                self._over(data["use_id"], "no result came in time", record)
            case "outcome" if own and data["report"]["stage"] == "act":  # its proposer ran it
                self._executed(data["report"]["ok"], data["report"]["text"], 0)
            case "revocation" if own and self.routing.execution_status == Status.APPROVED:
                self._set(Status.SKIPPED)

    def _decided(self, decision: Decision) -> None:
        """The review of the tool is the council's: its confidence is the lowest that the approval stands on."""
        outcome, human = decision.outcome or "", decision.answer
        acts = [each.confidence for each in decision.ballots if each.vote == "yes"]
        acts += [decision.ruling.confidence] if decision.ruling is not None else []
        denied = human is not None and not human.approve
        self.routing = self.routing.model_copy(
            update={
                "review_confidence": 1.0 if human is not None else min(acts, default=0.0),
                "review_reasoning": decision.reason,
                "execution_status": Status.USER_DENIED if denied else _of_outcome(outcome),
            }
        )

    def _result(self, result: Mapping[str, Any], record: Kept) -> None:
        if result["outcome"] == "unknown":
            self._over(result["use_id"], f"its outcome is unknown: {result['text']}", record)
        elif (use := self._uses.pop(result["use_id"], None)) is not None:
            if result["outcome"] == "cancelled":
                self._set(Status.SKIPPED)
            else:
                self._executed(result["outcome"] == "ok", result["text"], record.at_s - use[2])

    def _run_began(self, executor: str, run: str, record: Kept) -> None:
        """A new run of the executor ends what an earlier one had under way."""
        for use_id, (by, before, _) in list(self._uses.items()):
            if by == executor and before != run:
                self._over(use_id, f"its outcome is unknown: {executor} restarted before it reported", record)

    def _over(self, use_id: str, why: str, record: Kept) -> None:
        if (use := self._uses.pop(use_id, None)) is not None:
            self._executed(False, why, record.at_s - use[2])

    def _executed(self, success: bool, text: str, seconds: float) -> None:
        result = ToolExecutionResult(
            success=success,
            output=text if success else None,
            error=None if success else text,
            execution_time_ms=max(0, round(seconds * 1_000)),
        )
        self.routing = executed(self.routing, result)

    def _set(self, status: Status) -> None:
        self.routing = self.routing.model_copy(update={"execution_status": status})


def _of_outcome(outcome: str) -> Status:
    return Status.APPROVED if outcome == "approved" else Status.SKIPPED
