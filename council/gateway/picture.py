"""Selects from a council's status what the panel shows, with or without the content of proposals.

Each field is named here, so that no other field of a status is shown. Without content there are only ids, stages,
outcomes, ages and figures, and no text by a proposal, a mind or a human (rules 1.14).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Rows of a list; the counts beside it are of all.
ROWS_MAX = 50


def picture(status: Mapping[str, Any], wall_s: float, *, content: bool) -> dict[str, Any]:
    """A council's ``status``, taken at ``wall_s`` (Unix seconds), as the panel's page wants it."""
    return {
        "at": wall_s,
        "content": content,
        "name": status["name"],
        "council_id": status["council_id"],
        "epoch": status["epoch"],
        "uptime_s": status["uptime_s"],
        "position": status["position"],
        "journal_lag": status["journal_lag"],
        "durable": status["durable"],
        "quorum": status["quorum"],
        "inactivity_limit_s": status["inactivity_limit_s"],
        "seats": [_seat(each, status["prime"], content) for each in status["seats"]],
        "open": {
            "count": status["open_count"],
            "with_human": status["with_human"],
            "stages": dict(status["stages"]),
            "rows": [_open(each, content) for each in status["open"][:ROWS_MAX]],
        },
        "decided": dict(status["decided"]),
        "decisions": [_decision(each, content) for each in status["decisions"][:ROWS_MAX]],
        "escalations": [_escalation(each, content) for each in status["waiting"][:ROWS_MAX]],
        "refused": sum(status["refused"].values()),
        "budget": _budget(status["budget"]),
    }


def _seat(seat: Mapping[str, Any], prime: str, content: bool) -> dict[str, Any]:
    names = ("name", "active", "heartbeat_age_s", "heartbeats", "restarts", "busy")
    why = str(seat["why"])
    # The text after a colon may quote a mind, which may quote a proposal.
    return {
        **{key: seat[key] for key in names},
        "prime": seat["name"] == prime,
        "why": why if content else why.split(":")[0],
    }


def _open(proposal: Mapping[str, Any], content: bool) -> dict[str, Any]:
    names = ["proposal_id", "stage", "age_s", "time_left_s"]
    names += ["summary", "proposer", "risk_level", "voted", "escalated_for"] if content else []
    return {key: proposal[key] for key in names} | {"ballots": len(proposal["voted"])}


def _decision(decision: Mapping[str, Any], content: bool) -> dict[str, Any]:
    names = ["proposal_id", "outcome", "decided_by", "degraded", "seconds", "at"]
    return {key: decision[key] for key in names + (["summary", "reason"] if content else [])}


def _escalation(escalation: Mapping[str, Any], content: bool) -> dict[str, Any]:
    names = ["escalation_id", "proposal_id", "asked_wall_s", "expires_wall_s"]
    if content:
        names += ["summary", "risk_level", "reason", "detail", "next_step"]
        names += ["action", "requester", "votes", "command", "ballots", "ruling", "body"]
    return {key: escalation[key] for key in names}


def _budget(budget: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "council": _account(budget["council"]),
        "seats": {name: _account(each) for name, each in budget["seats"].items()},
    }


def _account(account: Mapping[str, Any]) -> dict[str, Any]:
    """The spent and the reserved amount, and what a cap leaves, in tokens and in micro-dollars."""
    found: dict[str, Any] = {"calls": account["calls"]}
    for unit in ("tokens", "microusd"):
        spent, held, cap = (account[part][unit] for part in ("spent", "held", "caps"))
        left = None if cap is None else max(cap - spent - held, 0)
        found[unit] = {"spent": spent, "held": held, "cap": cap, "left": left}
    return found
