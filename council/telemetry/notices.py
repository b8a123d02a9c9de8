"""Notices to people: ``[notify]`` of the settings.

There is a notice when a proposal begins to wait for a human, a reminder while it waits, and one at its end (rules
1.9). There is one, too, when the result of an approved action is not known (rules 5). All are sent after their event
is on the record (rules 4.7). A coordinator that starts sends a reminder of each proposal that waits, because the one
before it may have ended before it sent any notice.

Secrets and personal data are redacted (rules 3.4). Without ``content = true`` a notice has ids, words of the council,
times and names of humans, and nothing that a proposal, a mind or a human says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from council.action.redact import Filter
from council.core import effects as do
from council.core.state import Decision, Escalation, UseResult, plain, token_id_of
from council.protocol import codec
from council.protocol.envelope import Proposal
from council.protocol.errors import CouncilError
from council.telemetry.delivery import Channel, redacting, to_command, to_webhook
from council.telemetry.watcher import Announced, Watcher

if TYPE_CHECKING:
    from council.config.notify import Receivers
    from council.runtime.coordinator import Coordinator, View

Kind = Literal["waiting", "reminder", "answered", "expired", "cancelled"]
# The text of each kind of notice, after the council's name and the escalation's id.
_TEXTS: dict[Kind, str] = {
    "waiting": "waits for a human",
    "reminder": "still waits for a human",
    "answered": "was answered",
    "expired": "has expired without an answer and is deferred",
    "cancelled": "was cancelled and needs no answer",
}


@dataclass(slots=True)
class _Waiting:
    """An escalation that waits, and when the next reminder is due (Unix seconds)."""

    escalation: Escalation
    remind_wall_s: float


class Notices(Watcher):
    """Sends the notices of one coordinator. ``how`` says how to answer an escalation, with ``{id}`` in it."""

    def __init__(
        self, council: str, coordinator: Coordinator, receivers: Receivers, how: str = "council answer {id}"
    ) -> None:
        self._council = council
        self._content, self._remind_s, self._how = receivers.content, receivers.remind_s, how
        self._waiting: dict[str, _Waiting] = {}
        self._channels = channels(receivers)
        try:
            super().__init__(coordinator)
        except BaseException:
            self._close_channels()
            raise

    def begin(self, view: View) -> None:
        for escalation in view.driver.escalations():
            self._waiting[escalation.escalation_id] = _Waiting(escalation, view.now[1] + self._remind_s)
            self._send("reminder", escalation, view)

    def see(self, announced: Announced, view: View) -> None:
        for _, effect in announced:
            match effect:
                case do.AnnounceEscalation(escalation) | do.AskOutcome(escalation):
                    due = escalation.asked_wall_s + self._remind_s
                    self._waiting[escalation.escalation_id] = _Waiting(escalation, due)
                    self._send("waiting", escalation, view)
                case do.AnnounceDecision(decision):
                    if (found := self._waiting.pop(decision.escalation_id or "", None)) is not None:
                        self._send(_end_of(decision), found.escalation, view, decision)
                case do.AnnounceResult(result) if result.outcome == "unknown":
                    self._send_unknown(result)
                case do.AnnounceResult(result):
                    self._end_questions(result.proposal_id, view, result)
                case do.RaiseAlert(proposal_id, "outcome_unanswered"):
                    self._end_questions(proposal_id, view, None)
        wall_s = view.now[1]
        for waiting in self._waiting.values():
            if waiting.remind_wall_s <= wall_s:
                waiting.remind_wall_s = wall_s + self._remind_s
                self._send("reminder", waiting.escalation, view)

    async def closed(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(channel.close) for channel in self._channels))

    def _close_channels(self) -> None:
        for channel in self._channels:
            channel.close()

    def _send(self, kind: Kind, escalation: Escalation, view: View, decision: Decision | None = None) -> None:
        notice = self._notice(kind, escalation, decision, view.now[1])
        if self._content:
            notice |= _content(escalation, decision, view)
        for channel in self._channels:
            channel.send(notice)

    def _send_unknown(self, result: UseResult) -> None:
        text = f"council {self._council!r}: the outcome of an approved action is unknown, and it is not run again"
        notice = {
            "id": f"{result.use_id}.outcome_unknown",
            "kind": "outcome_unknown",
            "council": self._council,
            "proposal_id": result.proposal_id,
            "token_id": token_id_of(result.proposal_id),
            "text": f"{text}: council show {result.proposal_id} says what it may have changed",
        }
        if self._content:
            notice["detail"] = result.text
        for channel in self._channels:
            channel.send(notice)

    def _end_questions(self, proposal_id: str, view: View, result: UseResult | None) -> None:
        """The end of each question about an outcome of this proposal that waits no more: by a result, or expired."""
        still = {each.escalation_id for each in view.driver.escalations()}
        over = [
            each.escalation
            for name, each in self._waiting.items()
            if each.escalation.proposal_id == proposal_id and name not in still
        ]
        for question in over:
            del self._waiting[question.escalation_id]
            notice = self._notice("expired" if result is None else "answered", question, None, view.now[1])
            text = f"council {self._council!r}: {question.escalation_id} "
            if result is None:
                notice["text"] = f"{text}has expired without an answer: whether the action ran stays unknown"
            else:
                notice |= {"outcome": result.outcome, "answered_by": result.executor}
                notice["text"] = f"{text}was answered by {result.executor}: {result.outcome}"
            del notice["to_answer"]
            for channel in self._channels:
                channel.send(notice)

    def _notice(
        self, kind: Kind, escalation: Escalation, decision: Decision | None, wall_s: float
    ) -> dict[str, Any]:
        identity = escalation.escalation_id
        at = f".{int(wall_s)}" if kind == "reminder" else ""
        notice: dict[str, Any] = {
            "id": f"{identity}.{kind}{at}",
            "kind": kind,
            "council": self._council,
            "escalation_id": identity,
            "proposal_id": escalation.proposal_id,
            "risk": escalation.risk_level,
            "reason": escalation.reason,
            "asked_at": _time(escalation.asked_wall_s),
            "expires_at": _time(escalation.expires_wall_s),
        }
        text = f"council {self._council!r}: {identity} {_TEXTS[kind]}"
        if decision is None:
            how = self._how.format(id=identity)
            text += f" (risk {escalation.risk_level}) until {notice['expires_at']}. To answer: {how}"
            return {**notice, "to_answer": how, "text": text}
        notice["outcome"] = decision.outcome
        if decision.answer is not None:
            notice["answered_by"] = decision.answer.human
            text += f" by {decision.answer.human}: {decision.outcome}"
        return {**notice, "text": text}


def channels(receivers: Receivers) -> Sequence[Channel]:
    """The channels of those receivers that the settings name."""
    found, redactor = [], Filter()
    if receivers.command:
        deliver = to_command(receivers.command, receivers.timeout_s)
        found.append(Channel("command", redacting(deliver, redactor)))
    if receivers.webhook:
        deliver = to_webhook(receivers.webhook, receivers.key, receivers.timeout_s)
        found.append(Channel("webhook", redacting(deliver, redactor)))
    return found


def _end_of(decision: Decision) -> Kind:
    if decision.answer is not None:
        return "answered"
    return "cancelled" if decision.outcome == "cancelled" else "expired"


def _content(escalation: Escalation, decision: Decision | None, view: View) -> dict[str, Any]:
    """The content of the proposal, and the human's reason."""
    content: dict[str, Any] = {"summary": escalation.summary, "detail": escalation.detail}
    payload = view.driver.outbox.payloads.get(escalation.proposal_id)
    if payload is not None:
        try:
            proposal = codec.decode(payload).content
        except CouncilError:  # a notice without it is better than none
            proposal = None
        if isinstance(proposal, Proposal) and proposal.action is not None:
            content["action"] = proposal.action.model_dump(mode="json")
    if decision is not None and decision.answer is not None:
        content["answer_reason"] = decision.answer.reason
    told: dict[str, Any] = plain(content)
    return told


def _time(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="seconds")
