"""A proposal's OMEN episode, derived from its records in the journal alone (rules 5).

The entry point is ``episode_of``. Every packet passes ``machine.step``. If the machine's state does not admit a fact,
such as a late ballot while a human is asked, the fact is written as an IntegrityAlert, which every state admits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import msgspec

from council.core.state import (
    CHECKS_MAX,
    ActionReport,
    Answer,
    Ballot,
    Check,
    Decision,
    Escalation,
    Ruling,
    Submission,
    Terms,
    UseRequest,
    UseResult,
    token_id_of,
    total,
    unsure,
)
from council.governance import machine, payloads
from council.governance.episode import Episode
from council.governance.invariants import CONSEQUENTIAL
from council.governance.payloads import Case
from council.governance.templates import option
from council.protocol.errors import Refused
from council.protocol.models import time_text
from council.protocol.omen import Packet, read_packet

OUTCOMES: Mapping[str, str] = {
    "approved": "ACT",
    "rejected": "CANCEL",
    "cancelled": "CANCEL",
    "deferred": "DEFER",
}
_STATUS = {"ok": "SUCCESS", "failed": "FAILURE", "cancelled": "CANCELLED"}
_TELLS_BELIEFS = ("S1_SENSE", "S2_MODEL", "S3_DECIDE", "S7_REVIEW")


class Kept(Protocol):
    """The attributes that are read here of a journal record, as ``Council.history`` returns it."""

    @property
    def position(self) -> int: ...
    @property
    def at_s(self) -> float: ...
    @property
    def kind(self) -> str: ...
    @property
    def proposal_id(self) -> str | None: ...
    @property
    def data(self) -> dict[str, Any]: ...
    @property
    def decisions(self) -> tuple[Decision, ...]: ...
    @property
    def escalations(self) -> tuple[Escalation, ...]: ...
    @property
    def more(self) -> dict[str, str | None]: ...


def episode_of(proposal_id: str, records: Iterable[Kept]) -> list[Packet]:
    """The episode of a proposal, from its records in the order of the journal.

    Records of other proposals change nothing, except those of its executor, which may show that a run has ended.
    Raises Refused if the record of its submission is not there.
    """
    telling = _Telling(proposal_id)
    for record in records:
        telling.tell(record)
    return telling.packets


class _Use(msgspec.Struct):
    """A counted use of the token, and its directive. ``check`` is the check that it runs, if it is for one."""

    request: UseRequest
    directive: Packet
    is_over: bool = False
    check: Check | None = None


class _Telling:
    """Writes the packets of one episode, record by record."""

    def __init__(self, proposal_id: str) -> None:
        self.packets: list[Packet] = []
        self._id = proposal_id
        self._episode = Episode(f"corr_{proposal_id}")
        self._what: Submission | None = None
        self._case = Case()  # its facts so far
        self._told: dict[str, str] = {}  # the packets of the ballots and acts, by their messages' ids
        self._decision: Packet | None = None
        self._is_revoked = False
        self._uses: dict[str, _Use] = {}
        self._record: Kept | None = None
        self._written = 0  # packets of this record

    # Records

    def tell(self, record: Kept) -> None:
        """Writes what a record says."""
        self._record, self._written = record, 0
        if record.kind == "damaged":
            summary = f"record #{record.position} can't be trusted: {record.data.get('why', '')}"
            self._alert("journal_damaged", "ERROR", summary, "run council verify")
            return
        if self._what is None:
            if record.kind == "proposal" and record.proposal_id == self._id:
                self._observed()
                return
            raise Refused(
                f"the record of the submission of {self._id} is not kept, so its episode can't be told",
                code="not_kept",
                proposal_id=self._id,
            )
        own = record.proposal_id == self._id
        if own or record.kind in ("executor", "use"):
            read = _READERS.get(record.kind)
            if read is not None:
                read(self, record.data)
        for asked in record.escalations:
            if asked.proposal_id == self._id:
                self._escalated(asked)
        for decided in record.decisions:
            if decided.proposal_id == self._id:
                case = Case(
                    decided.ballots, decided.ruling, decided.answer, total(decided.spent), decided.missing
                )
                self._decided(decided.outcome, decided.reason, case)
        if self._id in record.more:
            self._swept(record.more[self._id])

    def _observed(self) -> None:
        """What was proposed."""
        assert self._record is not None
        what = self._what = msgspec.convert(self._record.data["what"], Submission)
        data: dict[str, Any] = {
            "summary": what.summary,
            "proposer": what.proposer,
            "digest": what.digest,
            "confidence": what.confidence,
            "risk_level": what.risk_level,
            "tool": what.tool,
            "supersedes": what.supersedes,
        }
        if isinstance(what.terms, Terms):
            data["terms"] = msgspec.to_builtins(what.terms)
        self._write("ObservationPacket", 6, {"observation_type": "user_input", "data": data})

    def _ballot(self, data: Mapping[str, Any]) -> None:
        """A ballot. A late one that would have escalated the proposal is an alert too, and revokes (rules 1.7)."""
        ballot = msgspec.convert(data["ballot"], Ballot)
        value = payloads.said(ballot) | {"vote": ballot.vote}
        is_late = self._decision is not None
        told = self._believe("council", ballot.seat, value)
        if told is not None:
            self._told[ballot.msg_id] = told.header.packet_id
        if not is_late:
            self._case = msgspec.structs.replace(self._case, ballots=(*self._case.ballots, ballot))
        grave = ballot.risk_level == "high" or unsure(ballot.confidence) or ballot.asks_human
        if is_late and (grave or told is None):
            summary = f"{ballot.seat} voted {ballot.vote} after the vote had ended: {ballot.reason}"
            severity = "WARNING" if grave else "INFO"
            self._alert("contradiction_detected", severity, summary, "weigh it beside the decision")
        if grave and self._episode.tokens and not self._is_revoked and not self._uses:
            self._revoke(f"by the late ballot of {ballot.seat}")

    def _ruling(self, data: Mapping[str, Any]) -> None:
        ruling = msgspec.convert(data["ruling"], Ruling)
        told = self._believe("council", "ruling", payloads.said(ruling) | {"ruling": ruling.ruling})
        if told is not None:
            self._told[ruling.msg_id] = told.header.packet_id
        self._case = msgspec.structs.replace(self._case, ruling=ruling)

    def _answer(self, data: Mapping[str, Any]) -> None:
        answer = msgspec.convert(data["answer"], Answer)
        if isinstance(answer.use, int):
            self._outcome_answered(answer, answer.use)
            return
        value = {"approve": answer.approve, "human": answer.human, "reason": answer.reason}
        self._told[answer.msg_id] = self._believe_of_1("answer", value).header.packet_id

    def _outcome_answered(self, answer: Answer, number: int) -> None:
        """A human's word for whether the action ran. Nothing more is run, which is the decision that follows."""
        said = (
            f"{answer.human} answered that it {'ran' if answer.approve else 'did not run'}: {answer.reason}"
        )
        if any(self._episode.overdue(self._at)):  # its directive times out into an escalation
            own = [each for each in self._uses.values() if each.check is None]
            for use in own[number - 1 :][:1]:
                self._ask_outcome(use.request, f"the outcome of {use.request.tool} is still unknown")
        self._believe_of_1("outcome", {"ran": answer.approve, "human": answer.human, "reason": answer.reason})
        if self._episode.state == "S8_ESCALATED":
            self._decide("CANCEL", f"nothing is run again: {said}")

    def _use(self, data: Mapping[str, Any]) -> None:
        """A use of the token is a directive. A new run of the executor ends what an earlier one had under way."""
        request = msgspec.convert(data["request"], UseRequest)
        self._run_began({"executor": request.executor, "run": request.run})
        if request.proposal_id != self._id:
            return
        _, terms = self._terms()
        if request.token_id != token_id_of(self._id):
            self._check_begun(request)
            return
        if self._episode.state not in ("S5_AUTHORIZE", "S6_EXECUTE"):
            summary = f"the token is used again, in {self._episode.state}"
            self._alert("contract_violation", "WARNING", summary, "look at what the tool changes")
            return
        payload = payloads.directive(request, terms)
        self._uses[request.use_id] = _Use(request, self._write("TaskDirectivePacket", 5, payload))

    def _check_begun(self, request: UseRequest) -> None:
        """A use for a check before the decision: the decision VERIFY_FIRST, its plan, and a READ directive."""
        acts = (self._case.ruling, *self._case.ballots)
        asked = (act.check for act in acts if act is not None and isinstance(act.check, Check))
        wanted = request.tool, request.arguments
        check = next((each for each in asked if (each.tool, each.digest) == wanted), None)
        if check is None or self._episode.state not in ("S1_SENSE", "S2_MODEL"):
            summary = f"{request.tool} is run for a check, in {self._episode.state}"
            self._alert("contract_violation", "WARNING", summary, "look at who asked for the check")
            return
        why = f"{check.seat} asks for a check first: {check.why}"
        self._decide("VERIFY_FIRST", why)
        assert self._decision is not None
        plan = payloads.check_plan(request, check, why, self._decision.header.packet_id)
        self._write("VerificationPlanPacket", 5, plan)
        payload = payloads.check_directive(request, check)
        directive = self._write("TaskDirectivePacket", 5, payload)
        self._uses[request.use_id] = _Use(request, directive, check=check)

    def _check_ended(self, use: _Use, outcome: str, text: str) -> None:
        """What a check came to. If it succeeded, the voting begins again; else a human is asked."""
        use.is_over = True
        assert use.check is not None
        status = {"ok": "SUCCESS", "failed": "FAILURE"}.get(outcome, "CANCELLED")
        payload = payloads.result(use.directive, status)
        if status == "FAILURE":
            payload["error_details"] = payloads.error(text)
        self._write("TaskResultPacket", 6, payload)
        if status != "SUCCESS":
            return
        found = {"outcome": outcome, "text": text, "asked_by": use.check.seat}
        observed = {"observation_type": "tool_output", "data": found, "source_tool": use.request.tool}
        self._write("ObservationPacket", 6, observed, observed=True)
        self._write("BeliefUpdatePacket", 5, payloads.belief("action", "check", found))
        self._case, self._decision = Case(), None

    def _result(self, data: Mapping[str, Any]) -> None:
        """The executor's report. If the outcome is already unknown, the report becomes an alert."""
        result = msgspec.convert(data["result"], UseResult)
        use = self._uses.get(result.use_id)
        if use is not None and use.check is not None and not use.is_over:
            self._check_ended(use, result.outcome, result.text)
            return
        if use is not None and not use.is_over and any(self._episode.overdue(self._at)):
            self._unknown(use, "no result came within its time")
        if use is not None and not use.is_over and result.outcome == "unknown":
            self._unknown(use, result.text)
            return
        if use is None or use.is_over:
            summary = f"{result.executor} reports a result after its time: {result.outcome}: {result.text}"
            self._alert("contract_violation", "INFO", summary, "compare it with what the tool changed")
            return
        use.is_over = True
        found = {
            "outcome": result.outcome,
            "text": result.text,
            "sandbox": result.sandbox,
            "exit_code": result.exit_code,
            "output_sha256": result.output,
        }
        payload = payloads.result(use.directive, _STATUS[result.outcome])
        if result.outcome == "ok":
            payload["result_data"] = found
        elif result.outcome == "failed":
            payload["error_details"] = payloads.error(result.text)
        self._write("TaskResultPacket", 6, payload)
        observed = {"observation_type": "tool_output", "data": found, "source_tool": use.request.tool}
        self._write("ObservationPacket", 6, observed)
        own = [each for each in self._uses.values() if each.check is None]
        if len(own) >= self._terms()[1].uses and all(each.is_over for each in own):
            change = {"outcome": result.outcome, "executor": result.executor}
            self._write("BeliefUpdatePacket", 5, payloads.belief("action", "outcome", change))

    def _timed_out(self, data: Mapping[str, Any]) -> None:
        use = self._uses.get(data["use_id"])
        if use is not None and not use.is_over:
            self._unknown(use, "no result came in time")

    def _run_began(self, data: Mapping[str, Any]) -> None:
        for use in self._uses.values():
            earlier = use.request.executor == data["executor"] and use.request.run != data["run"]
            if earlier and not use.is_over:
                self._unknown(use, f"{use.request.executor} restarted before it reported a result")

    def _unknown(self, use: _Use, why: str) -> None:
        """The outcome of a use is unknown: it is escalated, and the action is never run again (rules 5)."""
        if use.check is not None:
            self._check_ended(use, "unknown", why)
            return
        use.is_over = True
        summary = (
            f"the outcome of {use.request.tool} is unknown: {why}. It may have run, and is not run again"
        )
        self._alert("contract_violation", "ERROR", summary, "look at what the tool changes", grave=True)
        self._ask_outcome(use.request, summary)

    def _ask_outcome(self, request: UseRequest, summary: str) -> None:
        tool, where = request.tool, payloads.named(request.resources) or "what the tool changes"
        options = [
            option("approve", f"Confirm that {tool} ran", "its result counts as ok", "it may not be done"),
            option("reject", f"{tool} did not run", "it may be proposed again", "it may be done twice"),
        ]
        gaps = [{"gap": f"whether {tool} ran", "impact_if_unknown": "it may be done twice, or not at all"}]
        step = {"step": f"Look at {where}", "rationale": summary}
        self._escalate("tools_degraded_critical", options, gaps, step)

    def _revoked(self, data: Mapping[str, Any]) -> None:
        self._revoke(f"by {data['sender']}" + (f": {data['reason']}" if data["reason"] else ""))

    def _revoke(self, why: str) -> None:
        self._is_revoked = True
        summary = f"the token is revoked {why}"
        self._alert(
            "token_revoked", "WARNING", summary, "propose it again if it is wanted", token_id_of(self._id)
        )

    def _reported(self, data: Mapping[str, Any]) -> None:
        """The proposer's report of one step of an action that it ran itself (rules 3.1)."""
        report = msgspec.convert(data["report"], ActionReport)
        value = {"ok": report.ok, "text": report.text, "reported_by": report.sender}
        told = self._believe("action", report.stage, value)
        if not report.ok or told is None:
            severity, how = ("INFO", "went well") if report.ok else ("WARNING", "failed")
            summary = f"{report.sender} reports that {report.stage} {how}: {report.text}"
            self._alert("contract_violation", severity, summary, "look at what the action changed")

    # Decisions and escalations

    def _swept(self, outcome: str | None) -> None:
        """The proposal is one of many that a record ended. ``outcome`` None means that a human is asked."""
        why = "a change of the roll left too few seats"
        if outcome is not None:
            self._decided(outcome, why, self._case)
            return
        self._grounded()
        self._decide("ESCALATE", why)
        options = [
            option("approve", "Approve it", "what was asked for is done", "no seat stands behind it"),
            option("reject", "Reject it", "nothing is changed", "what was asked for is not done"),
        ]
        gaps = [{"gap": "what the missing seats would say", "impact_if_unknown": why}]
        self._escalate("contradiction_unresolved", options, gaps, {"step": "Decide it", "rationale": why})

    def _escalated(self, asked: Escalation) -> None:
        """The case for a human: the decision ESCALATE, and its Escalation."""
        self._case = msgspec.structs.replace(self._case, ballots=asked.ballots, ruling=asked.ruling)
        self._grounded()
        self._decide("ESCALATE", asked.detail)
        options, gaps, step = payloads.choice(asked)
        self._escalate(payloads.trigger(asked), options, gaps, step)

    def _decided(self, outcome: str | None, reason: str, case: Case) -> None:
        """The one decision, and the token that an approval of an action issues."""
        assert outcome is not None, "a decision of a record is final"
        self._case = case
        if self._episode.state == "S8_ESCALATED" and case.answer is None:
            self._believe_of_1("answer", {"approve": None, "reason": reason})
        self._grounded()
        self._decide(OUTCOMES[outcome], reason)
        assert self._what is not None
        if outcome == "approved" and self._what.tool is not None and isinstance(self._what.terms, Terms):
            self._grant()

    def _grounded(self) -> None:
        """A decision needs a belief. If there is no ballot, the belief says so."""
        if self._episode.state == "S1_SENSE":
            missing = [f"{seat}: {why}" for seat, why in self._case.missing]
            self._write("BeliefUpdatePacket", 5, payloads.belief("council", "ballots", {"none": missing}))

    def _decide(self, outcome: str, reason: str) -> None:
        case = self._case
        payload: dict[str, Any] = {
            "decision_outcome": outcome,
            "decision_summary": reason or outcome,
            "constraints_satisfied": {
                "constitutional_check": True,
                "budget_check": True,
                "tier_check": True,
            },
        }
        if outcome == "ACT":
            payload["load_bearing_assumptions"] = self._assumptions()
            payload["constraints_satisfied"]["verification_check"] = True
        against = {"ACT": "no", "CANCEL": "yes"}.get(outcome)
        payload["rejected_alternatives"] = [
            {"option_id": f"{each.vote}_of_{each.seat}", "rejection_reason": reason or outcome}
            for each in case.ballots
            if each.vote == against
        ]
        self._decision = self._write("DecisionPacket", 5, payload)

    def _assumptions(self) -> list[dict[str, Any]]:
        """The assumptions of an approval: the judgement of each seat in favour, and of the human."""
        case = self._case
        stands = [(f"as {b.seat} judged it: {b.reason}", b.msg_id) for b in case.ballots if b.vote == "yes"]
        if case.answer is not None:
            stands.append((f"as {case.answer.human} judged it: {case.answer.reason}", case.answer.msg_id))
        sure = {b.msg_id: not unsure(b.confidence) for b in case.ballots}
        return [
            {
                "assumption": text,
                "verified": case.is_confirmed or sure.get(msg_id, True),
                **({"verification_packet_id": self._told[msg_id]} if msg_id in self._told else {}),
            }
            for text, msg_id in stands
        ]

    def _grant(self) -> None:
        what, terms = self._terms()
        assert self._decision is not None
        assert self._record is not None
        # In the council its last moment still counts; in the machine a token is expired at its expiry.
        ends = _time(self._record.at_s + terms.ttl_s) + timedelta(microseconds=1)
        payload = payloads.token(what, terms, self._decision.header.packet_id, ends)
        self._write("ToolAuthorizationToken", 5, payload)

    def _escalate(
        self,
        trigger: str,
        options: Sequence[dict[str, Any]],
        gaps: Sequence[dict[str, Any]],
        step: dict[str, Any],
    ) -> None:
        assert self._decision is not None
        payload = {
            "escalation_trigger": trigger,
            "top_options": list(options),
            "evidence_gaps": list(gaps),
            "recommended_next_step": step,
            "blocking_decision_packet_id": self._decision.header.packet_id,
        }
        self._write("EscalationPacket", 5, payload)

    # Packets

    def _believe(self, domain: str, key: str, value: Mapping[str, Any]) -> Packet | None:
        """A belief of layer 5; None where the state does not admit one."""
        if self._episode.state not in _TELLS_BELIEFS:
            return None
        return self._write("BeliefUpdatePacket", 5, payloads.belief(domain, key, value))

    def _believe_of_1(self, key: str, value: Mapping[str, Any]) -> Packet:
        return self._write("BeliefUpdatePacket", 1, payloads.belief("council", key, value))

    def _alert(
        self, kind: str, severity: str, summary: str, action: str, *affected: str, grave: bool = False
    ) -> None:
        assert self._record is not None
        payload = {
            "alert_id": f"alert_{self._id}-{self._record.position}",
            "alert_type": kind,
            "severity": severity,
            "summary": summary,
            "detected_at": time_text(self._at),
            "detection_method": f"record #{self._record.position} of the journal",
            "affected_components": list(affected),
            "recommended_actions": [action],
            "related_episode_id": f"corr_{self._id}",
            "related_packet_ids": [self._decision.header.packet_id] if self._decision is not None else [],
            "requires_immediate_attention": grave,
        }
        self._write("IntegrityAlertPacket", "Integrity", payload)

    @property
    def _at(self) -> datetime:
        assert self._record is not None
        return _time(self._record.at_s)

    def _terms(self) -> tuple[Submission, Terms]:
        what = self._what
        assert what is not None
        assert isinstance(what.terms, Terms), "a token is issued on terms"
        return what, what.terms

    def _write(
        self, packet_type: str, layer: int | str, payload: Mapping[str, Any], *, observed: bool = False
    ) -> Packet:
        """A packet of this record. Its id is the proposal's, the record's position, and a number behind the first."""
        assert self._record is not None
        self._written += 1
        number = f"-{self._written}" if self._written > 1 else ""
        header: dict[str, Any] = {
            "packet_id": f"pkt_{self._id}-{self._record.position}{number}",
            "packet_type": packet_type,
            "created_at": time_text(self._at),
            "layer_source": layer,
            "correlation_id": f"corr_{self._id}",
        }
        if self.packets:
            header["previous_packet_id"] = self.packets[-1].header.packet_id
        given = {"header": header, "payload": dict(payload)}
        if packet_type in CONSEQUENTIAL:
            given["mcp"] = self._mcp(is_act=payload.get("decision_outcome") == "ACT")
        elif observed:
            mcp = self._mcp(is_act=False)
            given["mcp"] = {**mcp, "epistemics": {**mcp["epistemics"], "status": "OBSERVED"}}
        packet = read_packet(given)
        self._episode = machine.step(self._episode, packet).episode
        self.packets.append(packet)
        return packet

    def _mcp(self, *, is_act: bool) -> dict[str, Any]:
        what, case = self._what, self._case
        assert what is not None
        terms = what.terms if isinstance(what.terms, Terms) else None
        sure = [each.confidence for each in case.ballots]
        tier = "SUPERB" if case.is_confirmed else "PAR"
        risk = payloads.risk_of(what, case)
        return {
            "intent": {"summary": what.summary or "a proposal", "scope": f"proposal {self._id}"},
            "stakes": payloads.stakes(what, terms, case, risk),
            "quality": {
                "quality_tier": tier,
                "satisficing_mode": tier != "SUPERB",
                "definition_of_done": {
                    "text": "each seat's ballot is heard, and the decision follows from them",
                    "checks": ["the decision is in the journal", "an action runs on its token alone"],
                },
                "verification_requirement": "VERIFY_ALL" if tier == "SUPERB" else "VERIFY_ONE",
            },
            "budgets": {
                "token_budget": case.spent.tokens,
                "tool_call_budget": self._calls_max(),
                "time_budget_seconds": math.ceil(what.time_budget_s),
                "risk_budget": {
                    "envelope": f"{risk} risk",
                    "max_loss": payloads.named(terms.resources if terms is not None else ()) or "not stated",
                },
            },
            "epistemics": {
                "status": "DERIVED" if sure else "UNKNOWN",
                "confidence": min(sure, default=0.0),
                "calibration_note": "the lowest confidence of the counted ballots" if sure else "no ballot",
                "freshness_class": "OPERATIONAL",
                "assumptions": [each["assumption"] for each in self._assumptions()] if is_act else [],
            },
            "evidence": {"evidence_refs": self._evidence()},
            "routing": {
                "task_class": "CREATE" if terms is not None else "VERIFY",
                "tools_state": "tools_ok",
            },
        }

    def _calls_max(self) -> int:
        """The uses that its terms allow, and the checks, if one was asked for."""
        what, acts = self._what, (*self._case.ballots, self._case.ruling)
        if what is None or not isinstance(what.terms, Terms):
            return 0
        checks = any(act is not None and isinstance(act.check, Check) for act in acts)
        return what.terms.uses + (CHECKS_MAX if checks else 0)

    def _evidence(self) -> list[dict[str, Any]]:
        """What was proposed, and the ballots and acts that count."""
        case, times = self._case, {each.header.packet_id: each.header.created_at for each in self.packets}
        acts: list[tuple[str, str, float | None]] = [
            ("derived_calc", each.msg_id, each.confidence) for each in case.ballots
        ]
        if case.ruling is not None:
            acts.append(("derived_calc", case.ruling.msg_id, case.ruling.confidence))
        if case.answer is not None:
            acts.append(("user_observation", case.answer.msg_id, None))
        proposed = self.packets[0].header.packet_id
        refs: list[tuple[str, str, float | None]] = [("user_observation", proposed, None)]
        refs += [(kind, self._told[msg_id], share) for kind, msg_id, share in acts if msg_id in self._told]
        return [
            {
                "ref_type": kind,
                "ref_id": packet_id,
                "timestamp": time_text(times[packet_id]),
                **({} if share is None else {"reliability_score": share}),
            }
            for kind, packet_id, share in refs
        ]


_READERS = {
    "ballot": _Telling._ballot,
    "ruling": _Telling._ruling,
    "answer": _Telling._answer,
    "use": _Telling._use,
    "result": _Telling._result,
    "use_timeout": _Telling._timed_out,
    "executor": _Telling._run_began,
    "revocation": _Telling._revoked,
    "outcome": _Telling._reported,
}


def _time(wall_s: float) -> datetime:
    return datetime.fromtimestamp(wall_s, UTC)
