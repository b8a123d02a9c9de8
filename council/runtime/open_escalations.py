"""The escalations that wait for a human, each with its proposal's action, arguments and requester.

The core has only the proposal's summary. The rest is in the proposal's envelope, which is sent with the escalation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import asdict

from council.agents.static import marks
from council.core.state import Ballot, Escalation, RiskLevel, Ruling, plain
from council.kinds.text import exact, line
from council.protocol import codec
from council.protocol.envelope import Action, Envelope, Proposal, Requester
from council.protocol.values import plain as thawed

# Of the proposals in one answer. An answer has room for four times as much (``socket_port.ANSWER_BYTES_MAX``).
PROPOSALS_BYTES_MAX = 64 * 2**20


class Waiting(Escalation, frozen=True):
    """An escalation and the canonical bytes of its proposal, as the coordinator hands them to a client."""

    proposal: bytes = b""


class OpenEscalation(Escalation, frozen=True):
    """An escalation that waits for a human, with the contents of its proposal.

    ``proposer`` is the client that proposed it, ``requester`` who asks, as that client says. ``action`` is None if
    the proposal names no tool. ``body`` is the proposal's text, often a change to review. If the proposal was not
    sent with it (``packed``), ``proposer`` is empty, and the action and the body are not known.
    """

    proposer: str = ""
    requester: Requester | None = None
    action: Action | None = None
    body: str = ""

    @property
    def risk(self) -> RiskLevel:
        """The highest risk that the proposal, a ballot or the ruling names."""
        return self.risk_level

    @property
    def command(self) -> str:
        """The command that shows it and asks for the answer."""
        return answering(self.escalation_id)

    def age_s(self, now_s: float) -> float:
        """For how many seconds it has waited at ``now_s``, in Unix seconds."""
        return max(0.0, now_s - self.asked_wall_s)

    def time_left_s(self, now_s: float) -> float:
        """The seconds that are left to answer it at ``now_s``, in Unix seconds."""
        return max(0.0, self.expires_wall_s - now_s)

    def document(self, now_s: float) -> dict[str, Any]:
        """All of it as plain data, as it stands at ``now_s``."""
        fields, action, requester = asdict(self), self.action, self.requester
        del fields["action"], fields["requester"]
        args = None if action is None else thawed(action.args)
        return {
            **plain(fields),
            "action": None if action is None else {"tool": action.tool, "args": args},
            "args": args,
            "requester": None if requester is None else {"name": str(requester), **requester.model_dump()},
            "risk": self.risk,
            "age_s": self.age_s(now_s),
            "time_left_s": self.time_left_s(now_s),
            "votes": [
                {"seat": each.seat, "vote": each.vote, "reason": reason_of(each)} for each in self.ballots
            ],
            "command": self.command,
        }


def answering(escalation_id: str) -> str:
    """The command that shows an escalation and asks for the answer."""
    return f"council answer {escalation_id}"


def tool_text(action: Action) -> str:
    """An action's tool on one line. Its name may hold anything, as it comes from outside."""
    return json.dumps(action.tool, ensure_ascii=False)[1:-1]


def args_text(action: Action) -> str:
    """An action's arguments as JSON on one line."""
    return json.dumps(thawed(action.args), ensure_ascii=False)


def allows_text(action: Action) -> str:
    """What an approval of an action lets the council run, on one line; empty if it runs nothing."""
    allows = action.authorization
    if allows is None:
        return ""
    times = "once" if allows.uses == 1 else f"{allows.uses} times"
    on = f" {', '.join(map(exact, allows.resources))}" if allows.resources else ""
    return f"{allows.executor} may {', '.join(allows.operations)}{on}, {times}, within {allows.ttl_s:g} s"


def argument_texts(name: str, value: Any) -> tuple[str, str]:
    """An argument's name and value as a human is shown them, exactly: as JSON, invisible characters as numbers.

    The name has no quotation marks, except where it could pass for a name and a value without them.
    """
    shown = exact(json.dumps(name, ensure_ascii=False))
    if name and " " not in name and "=" not in name:
        shown = shown[1:-1]
    return shown, exact(json.dumps(thawed(value), ensure_ascii=False))


def waiting_text(summary: str, escalation_id: str) -> str:
    """One line that says what waits for a human, and the command that answers it."""
    return f"waits for a human: {line(summary, 200)}; to answer: {answering(escalation_id)}"


def with_proposal(escalation: Escalation, envelope: Envelope | None) -> OpenEscalation:
    """An escalation with the contents of its proposal; without an ``envelope``, only its summary is known."""
    known = {name: getattr(escalation, name) for name in Escalation.__struct_fields__}
    content = None if envelope is None else envelope.content
    if envelope is None or not isinstance(content, Proposal):
        return OpenEscalation(**known)
    return OpenEscalation(
        **known,
        proposer=envelope.sender,
        requester=content.requester,
        action=content.action,
        body=content.body,
    )


def packed(
    waiting: Sequence[Escalation], proposals: Mapping[str, bytes], bytes_max: int = PROPOSALS_BYTES_MAX
) -> list[Waiting]:
    """Escalations for a client, oldest first, with the canonical bytes of their proposals.

    An escalation has no bytes if they are no longer kept, or if those of newer ones fill ``bytes_max``.
    """
    found = list[Waiting]()
    for escalation in reversed(waiting):
        known = {name: getattr(escalation, name) for name in Escalation.__struct_fields__}
        proposal = proposals.get(escalation.proposal_id, b"")
        if len(proposal) > bytes_max:
            proposal = b""
        bytes_max -= len(proposal)
        found.append(Waiting(**known, proposal=proposal))
    return found[::-1]


def opened(waiting: Waiting) -> OpenEscalation:
    """An escalation as a client gets it."""
    envelope = codec.decode(waiting.proposal, canonical=True) if waiting.proposal else None
    return with_proposal(waiting, envelope)


def reason_of(act: Ballot | Ruling) -> str:
    """The reason of a ballot or a ruling, without the words for a seat that has no model."""
    return marks.without_marks(act.reason)


def is_static(ballot: Ballot) -> bool:
    """Whether a seat without a model cast it."""
    return marks.is_static(ballot.reason)
