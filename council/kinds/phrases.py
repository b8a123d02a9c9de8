"""Describes what happened in a phrase, if a template can't. A phrase may hold any text from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from council.agents.static.marks import without_marks
from council.core.state import Decision, Spend
from council.kinds.row import Data, Phrase
from council.kinds.text import council_text, count, line

ID_SHOWN = 8


def certainty(confidence: float, risk_level: str) -> str:
    """The confidence of a ballot or ruling, and its risk if that is not low."""
    return f"{confidence:.2f}{_risk(risk_level)}"


def _risk(risk_level: str) -> str:
    return "" if risk_level == "low" else f", {risk_level} risk"


def ended(data: Data) -> str:
    """The outcome of a decision, or ``escalated``."""
    return str(data["decision"]["outcome"] or data["decision"]["standing"])


def decided_by(decision: Decision) -> str:
    """The way it was decided: by a human, a ruling, a tie-break, an early majority, all ballots, or not at all."""
    if decision.answer is not None:
        return "human"
    if decision.outcome in ("deferred", "cancelled"):
        return "nobody"
    if decision.ruling is not None:
        return "ruling"
    if decision.tie_break is not None:
        return "tie_break"
    return "early" if decision.early else "all_ballots"


def proposal(data: Data) -> Phrase:
    what = data["what"]
    revises = f"revises {what['supersedes'][:ID_SHOWN]}: " if what["supersedes"] else ""
    return Phrase(f"{revises}{line(what['summary'], 200)} ({what['proposer']}{_risk(what['risk_level'])})")


def ballot(data: Data) -> Phrase:
    return _judged(data["ballot"], data["ballot"]["vote"], "late: " if data.get("late") else "")


def ruling(data: Data) -> Phrase:
    return _judged(data["ruling"], data["ruling"]["ruling"])


def _judged(act: Data, chosen: str, late: str = "") -> Phrase:
    how = certainty(act["confidence"], act["risk_level"])
    if check := act.get("check"):
        how += f", asks to check {line(check['tool'], 80)} first"
    return Phrase(f"{late}{act['seat']} {chosen} {how}", without_marks(act["reason"]))


def answer(data: Data) -> Phrase:
    answer = data["answer"]
    if "use" in answer:
        says = "ran" if answer["approve"] else "did not run"
        return Phrase(f"{answer['human']} answers that use {answer['use']} {says}", answer["reason"])
    return Phrase(f"{answer['human']} {'approves' if answer['approve'] else 'rejects'}", answer["reason"])


def observation(data: Data) -> Phrase:
    halts = "calls a halt on" if data["interrupt"] else "observes"
    stage = f"'s {data['stage']}" if data.get("stage") else ""
    return Phrase(f"{data['observer']} {halts} {data['stream']}{stage}", data["text"])


def failure(data: Data) -> Phrase:
    again = ", and is asked again" if data.get("retrying") else ""
    return Phrase(f"{data['seat']} gives no {data['task']}{again}", data["why"] + _shortened(data))


def outcome(data: Data) -> Phrase:
    """A reported step of an approved action."""
    report = data["report"]
    well = {"act": "ran it", "verify": "verified it", "revert": "reverted it"}
    badly = {"act": "ran it, and it failed", "verify": "could not verify it", "revert": "could not revert it"}
    return Phrase(f"{report['sender']} {(well if report['ok'] else badly)[report['stage']]}", report["text"])


def call(data: Data) -> Phrase:
    call = data["call"]
    asked = f"{call['seat']} asks for a call to {_model(data)} for its {call['task']}"
    return Phrase(asked, f"at worst {_cost(call['worst'])}{_shortened(data)}")


def settlement(data: Data) -> Phrase:
    used, error = data["used"], data["error"]
    spent = "usage unknown" if used is None else _cost(used)
    return Phrase(f"{data['seat']} settles a call", f"{spent}; failed ({error})" if error else spent)


def spending(data: Data) -> Phrase:
    call = data["call"]
    unknown = " (as reserved: its usage is unknown)" if data["assumed"] else ""
    failed = f", and failed ({data['error']})" if data["error"] else ""
    spent = f"{call['seat']} spent {_cost(data['spent'])} on {_model(data)}"
    return Phrase(f"{spent} for its {call['task']}{failed}{unknown}")


def overrun(data: Data) -> Phrase:
    return Phrase(f"{data['call']['seat']} shortened what {_model(data)} is shown", _steps(data["overruns"]))


def denial(data: Data) -> Phrase:
    return Phrase(f"{data['call']['seat']} may not call {_model(data)}", data["why"])


def identity_change(data: Data) -> Phrase:
    """The human who changed the identity, or withdrew the change."""
    change = data["change"]
    before, after = change["before"], change["after"]["hash"]
    does = f"changes the identity {before[:ID_SHOWN]} to {after[:ID_SHOWN]}"
    if before == after:
        does = "withdraws the change of the identity"
    return Phrase(f"{change['human']} {does}", f"{change['why']}; {change['reason']}")


def start(data: Data) -> Phrase:
    if "rules" not in data:
        return Phrase(f"the coordinator started anew, with {count(data['open'], 'open proposal')}")
    rules = data["rules"]
    seats = f"{count(len(rules['seats']), 'seat')}, quorum {rules['quorum']}"
    seats += f", identity {rules['identity']['hash'][:ID_SHOWN]}" if rules["identity"]["hash"] else ""
    return Phrase(f"coordinator of epoch {data['epoch']}", f"{seats}; {council_text(data['council_id'])}")


def _model(data: Data) -> str:
    return line(data["call"]["model"], 80)


def _cost(spend: Mapping[str, Any]) -> str:
    return str(Spend(spend["tokens"], spend["microusd"]))


def _shortened(data: Data) -> str:
    """The steps that made a prompt fit; empty for none, and for older records, which do not hold them."""
    found = data.get("overruns")
    return f"; shortened: {_steps(found)}" if found else ""


def _steps(overruns: Sequence[Data]) -> str:
    """The steps that made a prompt fit, in words (rules 2.4)."""
    return ", ".join(
        f"{one['field']} {one['before']:,} → {one['after']:,} ({one['how']})" for one in overruns
    )


def token(data: Data) -> Phrase:
    token = data["token"]
    terms = token["terms"]
    scope = ", ".join((*terms["operations"], *terms["resources"]))
    allows = f"{terms['executor']} may run {line(token['tool'], 80)}"
    return Phrase(f"{allows} {count(terms['uses'], 'time')}", f"within {terms['ttl_s']:g} s; {scope}")


def use(data: Data) -> Phrase:
    request = data["request"]
    scope = ", ".join((*request["operations"], *request["resources"]))
    return Phrase(f"{request['executor']} runs {line(request['tool'], 80)}", scope)


def use_result(data: Data) -> Phrase:
    result = data["result"]
    level = f", sandbox {result['sandbox']}" if result["sandbox"] else ""
    code = f", exit code {result['exit_code']}" if result["exit_code"] is not None else ""
    who = "nobody" if result["assumed"] else result["executor"]
    return Phrase(f"{result['outcome']}, {who} reports{level}{code}", result["text"])


def revocation(data: Data) -> Phrase:
    if "why" in data:
        return Phrase("the token is revoked", data["why"])
    return Phrase(f"{data['sender']} revokes the token", data["reason"])
