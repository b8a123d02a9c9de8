"""The life of the council whose journal is kept in this folder: each kind of event once or more, in two epochs.

Clocks, ids and keys are fixed, so that the same story always gives the same records, byte for byte.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tests.hold import doors
from tests.journal.journals import Drawn
from tests.runtime.harness import COUNCIL_ID

__all__ = ["COUNCIL_ID"]

NAME = "hold"
SEATS = ("prime", "lite", "codemind")
JOURNAL_KEY = bytes(range(32))  # signs the journal's checkpoints and snapshots
SETTINGS: dict[str, Any] = {
    "name": NAME,
    "humans": {"ada": "kept"},
    "creator": "ada",
    "proposal_tokens_max": 1_000,
}
CORE_RULE = "Never delete what nobody has a copy of"  # in force during the second epoch

# Packets of users, in the store beside the journal: each names those that it was made from.
PACKETS: list[dict[str, Any]] = [
    {
        "packet_id": UUID(int=1),
        "packet_type": "note",
        "payload": {"text": "the staging key is from 2019", "numbers": [1, 1.5, True, None, 2**63]},
        "tags": ["keys", "staging"],
        "timestamp": datetime(2023, 11, 14, tzinfo=UTC),
        "metadata": {"agent": "ada", "domain": "ops"},
    },
    {
        "packet_id": UUID(int=2),
        "packet_type": "note",
        "payload": {"text": "Ümläut, 漢字, 𝄞"},
        "tags": ["keys"],
        "timestamp": datetime(2023, 11, 15, 1, 2, 3, 456_789, UTC),
        "thread_id": UUID(int=7),
        "lineage": {"parent_ids": [UUID(int=1)], "derivation_type": "inference"},
    },
    {
        "packet_id": UUID(int=3),
        "packet_type": "summary",
        "payload": {"of": 2},
        "timestamp": datetime(2023, 11, 16, tzinfo=UTC),
        "ttl": datetime(2500, 1, 1, tzinfo=UTC),
        "lineage": {"parent_ids": [UUID(int=1), UUID(int=2)], "derivation_type": "merge"},
    },
]


class Council(Drawn):
    """The council in hand, and what its seats and people do."""

    def __init__(self, identity: Any = None, **options: Any) -> None:
        rules = doors.rules_of(SETTINGS) | options
        if identity is not None:
            rules["identity"] = identity
        super().__init__(rules.pop("seats"), **rules)
        self.beats = 0

    def votes(self, proposal_id: str, **said: Any) -> None:
        """Each seat's vote, an eighth of a second after the other; a dict has more of the ballot."""
        for seat, vote in said.items():
            self.wait(0.125)
            more = vote if isinstance(vote, dict) else {"vote": vote}
            self.receive(self.vote(seat, proposal_id, **more))

    def beat(self, *seats: str) -> None:
        self.beats += 1
        content = {"beat": self.beats, "busy_with": None, "uptime_s": self.t}
        for seat in seats or SEATS:
            boot = f"{self.driver.boot(seat):08x}"
            self.receive(self.sealed(self.envelope(seat, "HEARTBEAT", content, parent_id=boot)))

    def passes(self, seconds: float, *silent: str) -> None:
        """Time passes, and all seats beat but the silent ones."""
        while seconds > 0:
            self.wait(min(seconds, 30.0))
            self.save()
            self.beat(*(seat for seat in SEATS if seat not in silent))
            seconds -= 30.0

    def reserves(self, seat: str, proposal_id: str, tokens: int, **more: Any) -> str:
        data = {"task": "ballot", "model": "small-1", "tokens": tokens, "microusd": 2 * tokens, **more}
        content = {"kind": "reserve", "text": "", "data": data}
        envelope = self.envelope(seat, "INFO", content, parent_id=proposal_id)
        self.receive(self.sealed(envelope))
        return envelope.msg_id

    def reports(self, proposal_id: str, stage: str, ok: bool) -> None:
        content = {"kind": "outcome", "text": f"{stage} went on", "data": {"stage": stage, "ok": ok}}
        envelope = self.envelope("client", "INFO", content, parent_id=proposal_id, role="proposer")
        self.receive(self.sealed(envelope))

    def changes_identity(self, before: str, after: Any, why: str) -> None:
        data = {"identity": after.text, "before": before, "emergency": "", "agreed": ""}
        content = {"kind": "identity_change", "text": why, "data": data}
        self.receive(self.sealed(self.envelope("ada", "INFO", content)))


def first_epoch() -> tuple[Council, dict[str, str]]:
    """The council until its first coordinator ends, and its proposals' ids by what became of them."""
    hand, ids = Council(), {}
    hand.driver.begin(1, hand.rules, hand.now)
    hand.save()

    ids["approved"] = hand.propose(summary="Rotate the staging key", body="Old: 2019.\nNew: today.")
    hand.votes(ids["approved"], prime="yes", lite="yes", codemind="no")  # the last one is late
    ids["rejected"] = hand.propose(summary="Drop the table", risk_level="med")
    hand.votes(ids["rejected"], prime="no", lite="yes", codemind="no")
    ids["late_alert"] = hand.propose(summary="Widen the firewall", confidence=0.75)
    grave = {"vote": "no", "risk_level": "high", "confidence": 0.25}
    hand.votes(ids["late_alert"], prime="yes", lite="yes", codemind=grave)

    ids["tie_broken"] = hand.propose(summary="Rename the bucket", wait_for="all")
    hand.votes(ids["tie_broken"], prime="yes", lite="no", codemind="abstain")
    ids["confirmed"] = hand.propose(summary="Pay the invoice", risk_level="high", time_budget_s=30.0)
    hand.votes(ids["confirmed"], prime="yes", lite="yes", codemind="no")
    hand.receive(hand.ruling(ids["confirmed"], "confirm"))
    ids["ruled_against"] = hand.propose(summary="Pay it twice", risk_level="high")
    hand.votes(ids["ruled_against"], prime="yes", lite="yes", codemind="yes")
    hand.receive(hand.ruling(ids["ruled_against"], "reject"))

    ids["answered"] = hand.propose(summary="Open the door", risk_level="high")
    hand.votes(ids["answered"], prime="yes", lite="no", codemind="yes")
    hand.receive(hand.ruling(ids["answered"], "human"))
    hand.passes(61.5)
    hand.receive(hand.info("ada", ids["answered"], "answer", "I was there", approve=True))
    hand.receive(hand.info("ada", ids["answered"], "answer", "I changed my mind", approve=False))  # refused

    ids["quorum_lost"] = hand.propose(summary="Nobody is there")
    hand.votes(ids["quorum_lost"], prime="yes")
    hand.passes(61.5)
    ids["degraded"] = hand.propose(summary="Two are enough", wait_for="all", time_budget_s=20.0)
    hand.votes(ids["degraded"], prime="yes", codemind="yes")
    hand.passes(21.0)

    ids["asks_human"] = hand.propose(summary="Mail all customers")
    gates = {"control_packet": {"safety_gates": {"requires_user_approval": True}}}
    hand.votes(ids["asks_human"], prime="yes", lite={"vote": "yes", "content": gates})
    ids["called_for_prime"] = hand.propose(summary="Move the cluster")
    content = {"proposal_id": ids["called_for_prime"], "reason": "it pays somebody"}
    raised = hand.envelope("lite", "ESCALATION", content, parent_id=ids["called_for_prime"])
    hand.receive(hand.sealed(raised))
    hand.votes(ids["called_for_prime"], prime="yes", lite="yes", codemind="yes")
    hand.receive(hand.ruling(ids["called_for_prime"], "confirm", confidence=0.5))

    ids["observed"] = hand.propose(summary="Rewrite the parser", body="In three steps.")
    for number in (1, 2, 3):
        data = {"stream": "codemind", "interrupt": True, "stage": "plan", "round": number, "whole": True}
        hand.receive(hand.info("lite", ids["observed"], "observation", "step two is missing", **data))
    hand.votes(ids["observed"], prime="no", lite="no", codemind="yes")
    hand.receive(hand.ruling(ids["observed"], "reject"))

    spent = ids["spent"] = hand.propose(summary="Ask three models")
    overrun = {"packet": spent, "field": "history", "limit": 100, "before": 150, "after": 90, "how": "tf-idf"}
    hand.reserves("prime", spent, 400, prompt="ballot", overruns=[overrun])
    call = hand.reserves("lite", spent, 300)
    hand.receive(hand.info("lite", spent, "settle", call=call, tokens=120, microusd=240))
    failed = hand.reserves("lite", spent, 250)
    hand.receive(hand.info("lite", spent, "settle", call=failed, tokens=None, error="timeout"))
    hand.reserves("codemind", spent, 900)  # denied
    hand.receive(hand.info("codemind", spent, "fault", "its budget is spent", task="ballot"))
    hand.votes(spent, prime="yes", lite="yes")

    acted = ids["acted"] = hand.propose(
        summary="Archive the logs", action={"tool": "archive", "args": {"service": "billing", "keep": 3}}
    )
    hand.votes(acted, prime="yes", lite="yes", codemind="yes")
    hand.reports(acted, "act", True)
    hand.reports(acted, "verify", False)
    hand.reports(acted, "revert", True)

    ids["cancelled"] = hand.propose(summary="Take it back")
    hand.receive(hand.info("client", ids["cancelled"], "cancel", "not needed any more"))
    said = [{"role": "user", "text": "Please ship."}, {"role": "tool", "text": "3 tests passed\n"}]
    ids["revised"] = hand.propose(summary="Ship it", history=said)
    ids["revision"] = hand.propose(summary="Ship half of it", supersedes=ids["revised"])
    hand.receive(hand.unreadable_vote("lite", ids["revision"]))
    hand.votes(ids["revision"], prime="no", lite="no")
    hand.votes(ids["revised"], prime="yes", codemind="yes")

    hand.receive(hand.sealed(hand.envelope("client", "INFO", {"kind": "note"}), key=bytes(32)))  # forged
    hand.receive(hand.info("lite", None, "note", "of no kind that the council acts on"))
    hand.receive(hand.info("client", ids["revision"], "answer", "me too", approve=True))  # no human
    hand.receive(hand.vote("lite", ids["revision"], "yes"))  # a second ballot

    hand.driver.seat_died("codemind", hand.driver.boot("codemind"), "its actor died", hand.now)
    hand.save()
    hand.beat("codemind")
    ids["expired"] = hand.propose(summary="Ask somebody who is on leave", risk_level="high")
    hand.votes(ids["expired"], prime="yes", lite="yes", codemind="yes")
    hand.receive(hand.ruling(ids["expired"], "human"))
    hand.passes(120.0, "lite")  # falls silent
    hand.beat("lite")
    hand.wait(86_500.0)  # all fall silent, and nobody answers in time
    hand.save()
    hand.beat()
    hand.changes_identity(hand.rules.identity.hash, doors.identity_with(CORE_RULE), "we lost a disk")
    ids["handed_on"] = hand.propose(summary="Wait for the next coordinator", time_budget_s=3_600.0)
    hand.votes(ids["handed_on"], lite="yes")
    return hand, ids


def second_epoch(before: Council, ids: dict[str, str], journal: Any) -> tuple[Council, dict[str, str]]:
    """The next coordinator, which ``journal`` hands what the first kept; its charter has the new identity."""
    hand, ids = Council(doors.identity_with(CORE_RULE), decided=journal.decided), dict(ids)
    journal.recover(hand.driver)
    hand.ids, hand.t, hand.wall = before.ids, before.t + 5.0, before.wall + 3_600.0
    hand.driver.begin(2, hand.rules, hand.now)
    hand.save()
    hand.votes(ids["handed_on"], prime="no", codemind="no")
    hand.changes_identity(hand.rules.identity.hash, before.rules.identity, "we have copies now")
    ids["with_human"] = hand.propose(summary="Wait for a human", risk_level="high")
    hand.votes(ids["with_human"], prime="yes", lite="yes", codemind="no")
    hand.receive(hand.ruling(ids["with_human"], "human"))
    ids["open"] = hand.propose(summary="Count the backups", body="Twice.", time_budget_s=600.0)
    hand.votes(ids["open"], lite="yes")
    return hand, ids
