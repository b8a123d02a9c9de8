"""Writes the messages for seats.

Messages in ``to_seats`` must arrive. If they do not, the seat is sent all open proposals when it is back. A lost halt
is not sent again; if it is still needed, the observer calls another. ``perishable`` are pieces of streams, which may
be dropped if a seat is slow to take its messages.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from council.agents.messaging import seat_messages
from council.core import effects as do
from council.core.state import Ballot, CouncilState, Proposal
from council.protocol import codec
from council.protocol.envelope import REASON_CHARS_MAX, Envelope
from council.runtime.senders import COORDINATOR
from council.runtime.streams import StreamPiece

# Effects that go to one seat and are not announced.
ToOne = do.RequestRuling | do.InterruptSeat | do.GrantCall | do.DenyCall
TO_ONE = (do.RequestRuling, do.InterruptSeat, do.GrantCall, do.DenyCall)
# The characters of a ballot's reason that are shown to Prime: 15 of them must fit one envelope.
SHOWN_REASON_MAX = 4_000
# Kinds of INFO that a seat can't use without the proposal, which it may have lost in a restart.
_WITH_PROPOSAL = ("withdraw", "ask_again", "observe", "ruling_request", "checked")


class Outbox:
    """Messages that wait to be sent to seats. The driver sets ``payloads``, the bytes of the open proposals."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self.payloads: dict[str, bytes] = {}
        self.to_seats: deque[tuple[str, bytes]] = deque()
        self.perishable: deque[tuple[str, bytes]] = deque()
        self._new_id = new_id

    def write(self, effect: do.Think | ToOne, state: CouncilState, now: tuple[float, float]) -> None:
        """Writes the message of an effect for its seat."""
        proposal_id, text = effect.proposal_id, ""
        data: dict[str, Any] = {}
        checks = _checks_of(state.open.get(proposal_id))
        match effect:
            case do.DeliverProposal(again="") if checks:
                kind = "checked"
            case do.DeliverProposal(again=""):
                message = self._message(proposal_id, self.payloads[proposal_id], state, now, beside=False)
                self.to_seats.append((effect.seat, message))
                return
            case do.DeliverProposal(again=why):
                kind, text = "ask_again", why
            case do.WithdrawProposal():
                kind = "withdraw"
            case do.LetObserve():
                kind = "observe"
            case do.RequestRuling(ballots=ballots, escalated_for=reasons):
                proposal = state.open.get(proposal_id)
                if proposal is None or proposal.stage != "ruling":
                    return  # it went on while the request waited for the journal
                kind, text, data = (
                    "ruling_request",
                    "; ".join(reasons),
                    {"ballots": _ballots_for_prime(ballots)},
                )
            case do.InterruptSeat(observer=observer, round=number):
                kind, text, data = "interrupt", effect.why, {"observer": observer, "round": number}
            case do.GrantCall(call_id=call_id):
                kind, data = "granted", {"call": call_id}
            case do.DenyCall(call_id=call_id, anew=anew):
                kind, text, data = "denied", effect.why, {"call": call_id, "anew": anew}
        if checks and kind in _WITH_PROPOSAL:
            data = {**data, "checks": checks}
        payload = self._info(proposal_id, kind, text, data, now)
        message = self._message(proposal_id, payload, state, now, beside=kind in _WITH_PROPOSAL)
        self.to_seats.append((effect.seat, message))

    def relay(self, piece: StreamPiece, observer: str, state: CouncilState, now: tuple[float, float]) -> None:
        """Hands a piece of a stream to the seat that observes it."""
        data = {"seat": piece.seat, "stage": piece.stage, "round": piece.round, "at": piece.at}
        payload = self._info(piece.proposal_id, "stream", piece.text, {**data, "whole": piece.whole}, now)
        message = self._message(piece.proposal_id, payload, state, now, beside=False)
        self.perishable.append((observer, message))

    def _info(
        self, proposal_id: str, kind: str, text: str, data: dict[str, Any], now: tuple[float, float]
    ) -> bytes:
        envelope = Envelope.build(
            msg_id=self._new_id(),
            parent_id=proposal_id,
            timestamp=datetime.fromtimestamp(now[1], UTC),
            sender=COORDINATOR,
            role="coordinator",
            type="INFO",
            content={"kind": kind, "text": text[:REASON_CHARS_MAX], "data": data},
        )
        return codec.encode(envelope)

    def _message(
        self, proposal_id: str, payload: bytes, state: CouncilState, now: tuple[float, float], *, beside: bool
    ) -> bytes:
        """A message; with the proposal ``beside`` it if that is still open."""
        proposal = state.open.get(proposal_id)
        left_s = 0.0 if proposal is None else max(proposal.deadline_s - now[0], 0.0)
        about = self.payloads.get(proposal_id, b"") if beside and proposal is not None else b""
        return seat_messages.write(payload, about, left_s)


def _checks_of(proposal: Proposal | None) -> list[dict[str, Any]]:
    """The checks of a proposal that have a result, as seats are shown them."""
    done = () if proposal is None else (each for each in proposal.all_checks if each.outcome == "ok")
    return [{"tool": each.tool, "args": json.loads(each.args), "output": each.text} for each in done]


def _ballots_for_prime(ballots: tuple[Ballot, ...]) -> list[dict[str, Any]]:
    """Ballots as Prime is shown them."""
    return [
        {
            "seat": ballot.seat,
            "vote": ballot.vote,
            "reason": ballot.reason[:SHOWN_REASON_MAX],
            "confidence": ballot.confidence,
            "risk_level": ballot.risk_level,
        }
        for ballot in ballots
    ]
