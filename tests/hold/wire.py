"""One envelope of each type and kind, with the bytes it has on the wire: ``python -m tests.hold.wire --write``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from council import Envelope
from tests.hold import doors

FILE = Path(__file__).parent / "wire.json"
COUNCIL_ID = "council.0123456789abcdef"
KEY = bytes(range(32))
PROPOSED = "b6a9f42e00112233"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

_HEAD: dict[str, Any] = {
    "msg_id": "00ff00ff00ff00ff",
    "parent_id": None,
    "timestamp": "2026-03-01T12:00:00.123456Z",
    "sender": "lite",
    "role": "voter",
    "confidence": 0.87,
    "risk_level": "low",
}
_ACTION = {"tool": "rm", "args": {"f": 1}}
_TURNS = [{"role": "user", "text": "Please."}, {"role": "tool", "text": ""}]
_CONTROL = {"intent": {"category": "/query"}, "safety_gates": {"requires_user_approval": True}}
_OVERRUN = {"packet": PROPOSED, "field": "history", "limit": 9, "before": 12, "after": 8, "how": "tf-idf"}


def _vote(**content: Any) -> dict[str, Any]:
    said = {"proposal_id": PROPOSED, "vote": "yes", "reason": "they are old", **content}
    return {**_HEAD, "type": "VOTE", "parent_id": PROPOSED, "content": said}


def _proposal(**content: Any) -> dict[str, Any]:
    return {**_HEAD, "type": "PROPOSAL", "content": {"summary": "x", **content}}


def _info(kind: str, text: str = "", *, role: str = "voter", **data: Any) -> dict[str, Any]:
    content = {"kind": kind, "text": text, "data": data}
    return {**_HEAD, "type": "INFO", "parent_id": PROPOSED, "role": role, "content": content}


_REST = {"type": "ESCALATION", "content": {"proposal_id": PROPOSED, "reason": "it pays somebody"}}
EXAMPLES: dict[str, dict[str, Any]] = {
    "proposal": _proposal(),
    "proposal with an action": _proposal(action=_ACTION),
    "proposal with a history": _proposal(action=_ACTION, history=_TURNS),
    "proposal with all": {
        **_proposal(
            summary="Ümläut, 漢字, 𝄞",
            body="# Why\nIt is old.",
            action={"tool": "rm", "args": {"b": [1, -1, 1.0, 2**63, True, None], "a": {"z": "", "y": {}}}},
            wait_for="decisive",
            time_budget_s=0.5,
            supersedes="0123456789abcdef",
            history=_TURNS,
        ),
        "role": "proposer",
        "risk_level": "high",
        "metadata": {"traceparent": PARENT, "tracestate": "vendor=t61rcWkgMzE,other=1"},
    },
    "proposal with a requester": _proposal(
        action=_ACTION,
        requester={
            "agent": "deploy-bot",
            "user": "ada",
            "host": "web-3",
            "folder": "~/shop",
            "repository": "shop.git",
        },
    ),
    "proposal with an authorization": _proposal(
        action={
            **_ACTION,
            "authorization": {
                "executor": "bob.exec",
                "operations": ["write", "modify"],
                "resources": ["file:/srv/x"],
                "uses": 2,
                "ttl_s": 60.0,
                "timeout_s": 5.0,
            },
        },
    ),
    "vote": _vote(),
    "vote with a control packet": _vote(vote="abstain", control_packet=_CONTROL),
    "vote within a trace": {**_vote(vote="no"), "metadata": {"traceparent": PARENT}},
    "ids of odd and other lengths": {**_HEAD, **_REST, "msg_id": "abcdef012", "parent_id": "01234567"},
    "escalation": {**_HEAD, **_REST, "parent_id": PROPOSED},
    "heartbeat": {
        **_HEAD,
        **{"type": "HEARTBEAT", "parent_id": "00000001"},
        "content": {"beat": 12, "busy_with": PROPOSED, "uptime_s": 360.5},
    },
    "idle heartbeat": {
        **_HEAD,
        "type": "HEARTBEAT",
        "content": {"beat": 2**40, "busy_with": None, "uptime_s": 0.0},
    },
    "note": _info("note", "Markdown.", role="proposer"),
    "cancel": _info("cancel", "not needed any more", role="proposer"),
    "answer": _info("answer", "I was there", role="human", approve=True),
    "identity_change": _info(
        "identity_change", "why", role="human", identity="{}", before="00", emergency="", agreed=""
    ),
    "outcome": _info("outcome", "it went well", role="proposer", stage="act", ok=True),
    "executor": {**_info("executor", role="executor", run="0f"), "parent_id": None},
    "use": _info(
        "use",
        role="executor",
        run="0f",
        token=f"token_{PROPOSED}",
        tool="rm",
        operations=["delete"],
        resources=["file:/srv/x"],
        arguments="00",
    ),
    "result": _info(
        "result",
        "gone",
        role="executor",
        use=PROPOSED,
        outcome="ok",
        sandbox="none",
        exit_code=0,
        output="00",
    ),
    "revoke": _info("revoke", "the plan changed", role="human"),
    "fault": _info("fault", "it raised", task="ballot", overruns=[_OVERRUN]),
    "reserve": _info("reserve", task="ballot", model="small-1", tokens=300, microusd=600, prompt="ballot"),
    "settle": _info("settle", call=PROPOSED, tokens=120, microusd=240, error=""),
    "stream": _info("stream", "PLAN: first …", stage="plan", round=1, at=0, whole=False),
    "observation": _info(
        "observation", "step two is missing", stream="codemind", interrupt=True, stage="plan", round=1
    ),
    "ruling": _info("ruling", "it is sound", proposal_id=PROPOSED, ruling="confirm"),
}


def kept() -> dict[str, dict[str, Any]]:
    """By name: the ``envelope`` as JSON, its ``payload``, and the sender's ``signature``; ``told``: the council's."""
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def payload(name: str) -> bytes:
    return bytes.fromhex(kept()[name]["payload"])


def described(text: str) -> dict[str, Any]:
    """What is held of an envelope."""
    envelope = Envelope.from_json(text)
    data = doors.encoded(envelope)
    sealed = doors.sealed(envelope, KEY, COUNCIL_ID)
    told = doors.sealed_to(data, KEY, COUNCIL_ID, "lite")
    assert sealed.endswith(data)
    assert told.endswith(data)
    return {
        "envelope": json.loads(envelope.to_json()),
        "payload": data.hex(),
        "signature": sealed[: -len(data)].hex(),
        "told": told[: -len(data)].hex(),
    }


if __name__ == "__main__" and "--write" in sys.argv:
    found = {name: described(json.dumps(example)) for name, example in EXAMPLES.items()}
    FILE.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
