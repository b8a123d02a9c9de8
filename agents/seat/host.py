"""Hosts a mind: shows it cases, and signs its opinions as ballots.

A mind that raises, hangs past the deadline or returns an invalid value loses that ballot, and the council learns why.
Nothing that a mind does ends its seat. The council's messages to a seat are envelopes too: PROPOSAL, and INFO of the
kinds ``checked``, ``ask_again``, ``withdraw``, ``ruling_request``, ``granted`` and ``denied`` (``budget_client``),
``interrupt`` (``plan_stream``), ``observe`` and ``stream`` (``observed_cases``).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from council.agents.messaging import seat_messages
from council.agents.messaging import spans as tracing
from council.agents.mind import (
    CHECK_ROLE,
    CLAIMED_ROLE,
    Action,
    Case,
    Checked,
    Mind,
    Observation,
    ObservingMind,
    Opinion,
    PacketMind,
    ShownBallot,
    SpeakingMind,
    SpendingMind,
    Turn,
)
from council.agents.seat.budget_client import Denial, SeatBudgetClient
from council.agents.seat.case_packets import CasePackets
from council.agents.seat.heartbeat import HeartbeatSender
from council.agents.seat.observed_cases import ObservedCases, ObservedStage
from council.agents.seat.outgoing import SeatSigner, SentMessages
from council.agents.seat.plan_stream import SeatPlanStream
from council.agents.seat.threads import MindRunner, Policy, short
from council.agents.seat.workload import WorkItem, Workload
from council.protocol.envelope import Envelope, Info, Proposal
from council.protocol.errors import CouncilError
from council.protocol.values import plain


class SeatHost:
    """A seat of the council: ``receive`` takes what the council sends, ``attend`` is its heartbeat.

    ``say`` is given each signed envelope that the seat has for the council; the host of the seat sets it.
    ``wall`` gives aware UTC, ``uptime`` monotonic seconds, ``new_id`` fresh message ids. ``receive`` runs
    on one event loop; ``attend`` may run on another, so that a busy mind does not stop the heartbeat. ``policy``
    says what becomes of a case before its mind is asked. If it ``keeps_packets``, the cognition packet of a case is
    sent to the council each time a task on the case ends.
    """

    def __init__(
        self,
        name: str,
        mind: Mind,
        key: bytes,
        council_id: str,
        *,
        wall: Callable[[], datetime],
        uptime: Callable[[], float],
        new_id: Callable[[], str],
        heartbeat_s: float = 30.0,
        concurrent_max: int = 16,
        spans: tracing.Spans | None = None,
        policy: Policy | None = None,
        keeps_packets: bool = False,
    ) -> None:
        self.name = name
        self.say: Callable[[bytes], None]
        self._uptime = uptime
        self._spans = spans
        self._signer = SeatSigner(name, key, council_id, wall, new_id)
        self._sent = SentMessages()
        self._packets = CasePackets(
            name, mind, wall=wall, uptime=uptime, new_id=new_id, keeps=keeps_packets, send=self._send_packet
        )
        if isinstance(mind, PacketMind):
            mind.set_packets(self._packets)
        self._budget = SeatBudgetClient(self._signer, lambda sealed: self.say(sealed))  # ``say`` is set later
        if isinstance(mind, SpendingMind):
            self._budget.hand_to(mind)
        run = MindRunner(name, mind, spans, policy).run
        self._work = Workload(
            concurrent_max, self._budget, run, self._send_result, self._send_fault, self._ended
        )
        self._stream = SeatPlanStream(self._work.has_ballot, self._send_stream_piece)
        if isinstance(mind, SpeakingMind):
            mind.set_plan_stream(self._stream)
        self._observed = ObservedCases(hears=isinstance(mind, ObservingMind))
        self._heartbeat = HeartbeatSender(self._signer, self._work.oldest, uptime, heartbeat_s)

    async def attend(self, boot: int, send: Callable[[bytes, str], Awaitable[None]]) -> None:
        """Sends heartbeats until a later attendance begins, or ``send`` raises.

        ``boot`` is the number of this run of the seat, which each heartbeat names. ``send`` is given the signed
        heartbeat and a name for it that people can read.
        """
        self._stream.begin_run(boot)
        await self._heartbeat.attend(boot, send)

    def is_busy(self) -> bool:
        """Whether the seat will have something to say."""
        return bool(self._work) or self._budget.busy or bool(self._packets)

    def close(self) -> None:
        """Ends the heartbeat and gives up all work."""
        self._heartbeat.close()
        self._budget.closed = True
        self._packets.close()
        self._work.close()

    # What arrives

    def receive(self, message: bytes) -> None:
        """Takes one message of the council's (``seat_messages``). An invalid one is ignored."""
        try:
            envelope, about, time_left_s = seat_messages.read(message)
        except CouncilError:
            return
        content, proposal_id = envelope.content, envelope.parent_id
        if self._spans is not None and isinstance((shown := about or envelope).content, Proposal):
            self._spans.remember(shown.msg_id, shown.metadata)
        if isinstance(content, Proposal):
            self._begin_review(_case_of(envelope, time_left_s))
        elif isinstance(content, Info) and proposal_id is not None:
            checks = plain(content.data).get("checks", ())
            if content.kind == "ruling_request" and about is not None:
                ballots = tuple(ShownBallot(**shown) for shown in plain(content.data)["ballots"])
                self._begin(_case_of(about, time_left_s, checks), "ruling", ballots)
            elif content.kind == "checked" and about is not None:
                self._work.give_up(proposal_id)  # what it thought without the result of the check
                self._begin_review(_case_of(about, time_left_s, checks))
            elif content.kind == "ask_again" and about is not None:
                case = _case_of(about, time_left_s, checks)
                self._sent.forget(_round(case), "ballot")
                self._begin_review(case)
            elif content.kind in ("granted", "denied"):
                granted, anew = content.kind == "granted", content.data.get("anew") is True
                self._budget.answered(
                    content.data.get("call"), None if granted else Denial(content.text, anew)
                )
            elif content.kind == "observe" and about is not None:
                self._observed.add_case(_case_of(about, time_left_s, checks), self._uptime())
            elif content.kind == "interrupt":
                self._stream.interrupt(proposal_id, content.data["round"], content.text)
                self._packets.interrupt(proposal_id, content.text)
            elif content.kind == "stream":
                self._observed.add(proposal_id, content.text, content.data)
                self._start_observations()
            elif content.kind == "withdraw":
                self._observed.forget(proposal_id)
                self._work.give_up(proposal_id)

    def _begin_review(self, case: Case) -> None:
        self._observed.add_case(case, self._uptime())
        self._begin(case, "ballot")

    def _begin(self, case: Case, task_name: str, *more: Any) -> None:
        sent = self._sent.answer(_round(case), task_name)
        for each in sent:
            self.say(each)
        if not sent:
            self._packets.begin(case.proposal_id, task_name)
            self._work.start(WorkItem(case, task_name, more))

    def _start_observations(self) -> None:
        """Starts observations of other seats while the mind has spare capacity."""
        while self._work.has_room and not self._budget.closed:
            found = self._observed.next_due(self._uptime())
            if found is None:
                return
            stage, case = found
            name = f"observation of {stage.seat} {stage.stage}"
            self._work.start(WorkItem(case, name, (stage.begin_observation(),), stage))

    # What the seat says

    def _send_result(self, item: WorkItem, thought: Any) -> None:
        if item.observed is not None:
            self._send_observation(item, item.observed, thought)
            return
        checks = len(item.case.checks)
        sealed = [self._signer.thought(item.proposal_id, item.task_name, thought, checks)]
        if isinstance(thought, Opinion) and thought.escalate:
            # It is sent before the ballot, which may decide the proposal: then it would be too late (rules 1.8).
            sealed.insert(0, self._signer.escalation(item.proposal_id, thought.escalate))
        self._remember_and_say(item, sealed)
        self._end_round(item, thought)

    def _send_observation(self, item: WorkItem, stage: ObservedStage, thought: Any) -> None:
        if not isinstance(thought, Observation):
            raise TypeError(f"its mind returned {short(thought)}, expected Observation")
        if not isinstance(thought.interrupt, bool):
            raise TypeError(
                f"its mind returned {short(thought.interrupt)} as interrupt, expected True or False"
            )
        number, whole = stage.look
        data = {"stream": stage.seat, "stage": stage.stage, "round": number, "whole": whole}
        data["interrupt"] = thought.interrupt
        sealed = self._signer.info(item.proposal_id, "observation", data, thought.reason)
        stage.looked(interrupt=thought.interrupt)
        # It is sent even if the round is over: the council counts every halt of a seat, not only its newest.
        self.say(sealed)

    def _send_fault(self, item: WorkItem, why: str, overruns: Sequence[Mapping[str, Any]]) -> None:
        # The journal keeps the overruns, also when no call was made with that prompt (rules 2.4).
        data = {"task": item.kind} | ({"overruns": overruns} if overruns else {})
        sealed = self._signer.info(item.proposal_id, "fault", data, why)
        if item.observed is None:
            self._remember_and_say(item, [sealed])
            self._end_round(item, why=why)
        else:
            self.say(sealed)

    def _ended(self, item: WorkItem) -> None:
        if item.observed is None:
            self._end_round(item, why="its work was withdrawn")
        if item.task_name == "ballot":
            self._stream.close(item.proposal_id)
        elif item.observed is not None:
            self._observed.finish(item.observed)
        self._start_observations()

    def _send_packet(self, proposal_id: str, data: Mapping[str, Any]) -> None:
        self.say(self._signer.info(proposal_id, "packet", data))

    def _end_round(self, item: WorkItem, thought: Any = None, why: str = "") -> None:
        self._packets.finish(item, self._budget.spent(item), thought, why)

    def _send_stream_piece(self, proposal_id: str, text: str, data: Mapping[str, Any]) -> None:
        self.say(self._signer.info(proposal_id, "stream", data, text))

    def _remember_and_say(self, item: WorkItem, sealed: Sequence[bytes]) -> None:
        self._sent.add(_round(item.case), item.task_name, sealed)
        for each in sealed:
            self.say(each)


def _round(case: Case) -> str:
    """The name of the round of voting that a case is in: a check begins a new one."""
    return f"{case.proposal_id} {len(case.checks)}" if case.checks else case.proposal_id


def _case_of(envelope: Envelope, time_left_s: float, checks: Sequence[Mapping[str, Any]] = ()) -> Case:
    """The case of a PROPOSAL envelope, after these checks."""
    content = envelope.content
    assert isinstance(content, Proposal)
    asks = content.requester
    done = tuple(Checked(**each) for each in checks)
    turns = [
        Turn(CLAIMED_ROLE if turn.role == CHECK_ROLE else turn.role, turn.text) for turn in content.history
    ]
    turns += [Turn(CHECK_ROLE, f"{each.tool} {json.dumps(each.args)}:\n{each.output}") for each in done]
    return Case(
        proposal_id=envelope.msg_id,
        proposer=envelope.sender,
        summary=content.summary,
        body=content.body,
        action=Action.of(plain(content.action.model_dump())) if content.action is not None else None,
        confidence=envelope.confidence,
        risk_level=envelope.risk_level,
        time_left_s=time_left_s,
        history=tuple(turns),
        requester=tuple(filter(None, (asks.agent, asks.user))) if asks else (),
        checks=done,
    )
