"""Says in words what stands in a journal's record: in a line, and in the parts of one. Knows nothing of journals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from rich.text import Text

from council.cli import show
from council.cli.text import clean, count, line
from council.journal.entries import Entry

KINDS = {  # where a kind's own name is long
    "ballot_unreadable": "unreadable",
    "cancellation": "taken back",
    "identity_change": "identity",
    "seat_back": "seat back",
    "seat_died": "seat died",
    "seat_silent": "seat silent",
}
KIND_CELLS = 11  # "observation"
ID_SHOWN = 8
PLACE_CELLS = 7
DETAIL_CHARS_MAX = 300
_STYLES = {
    "proposal": "bold",
    "ballot_unreadable": "yellow",
    "fault": "yellow",
    "escalation": "yellow",
    "ruling": "yellow",
    "answer": "cyan",
    "identity_change": "cyan",
    "refusal": "yellow",
    "expiry": "yellow",
    "seat_back": "green",
    "seat_died": "red",
    "seat_silent": "red",
    "damaged": "bold red",
    "start": show.DIM,
    "deadline": show.DIM,
    "call": show.DIM,
    "settlement": show.DIM,
}


class Words(NamedTuple):
    """What happened: who did what in short, and the rest of it."""

    act: str
    detail: str = ""


def row(entry: Entry, *, dated: bool) -> Text:
    """A record on one line: when, where it stands, kind, proposal, what, and what came of it."""
    at = entry.at.astimezone()
    when = at.isoformat(timespec="seconds") if dated else f"{at:%H:%M:%S}"
    ended = [each.proposal_id for each in entry.decisions] + [e.proposal_id for e in entry.escalations]
    about = (entry.proposal_id or (ended[0] if len(ended) == 1 and not entry.more else ""))[:ID_SHOWN]
    return Text.assemble(
        (f"{when} {'#' + str(entry.position):>{PLACE_CELLS}} ", show.DIM),
        (f"{KINDS.get(entry.kind, entry.kind):<{KIND_CELLS}} ", style(entry)),
        (f"{clean(about):<{ID_SHOWN}} ", show.DIM),
        said(entry),
    )


def style(entry: Entry) -> str:
    """The colour of a record's kind."""
    if entry.kind == "ballot":
        return show.VOTE_STYLES[entry.data["ballot"]["vote"]]
    if entry.kind == "outcome":
        return "green" if entry.data["report"]["ok"] else "red"
    return _STYLES.get(entry.kind, "")


def said(entry: Entry) -> Text:
    """What happened and what came of it, on one line."""
    words = told(entry)
    found = Text(line(words.act, DETAIL_CHARS_MAX))
    found.append_text(came_to(entry))
    if words.detail:
        found.append(
            f": {line(words.detail, DETAIL_CHARS_MAX)}" if words.act else line(words.detail, DETAIL_CHARS_MAX)
        )
    return found


def came_to(entry: Entry) -> Text:
    """What was decided or escalated by it, if anything was."""
    if entry.more or len(entry.decisions) + len(entry.escalations) > 1:
        ends = Counter(str(each.outcome) for each in entry.decisions)
        ends.update("to a human" if end is None else end for end in entry.more.values())
        ends.update("to a human" for _ in entry.escalations)
        told = ", ".join(f"{number:,} {end}" for end, number in ends.items())
        return Text(f" → {told}", "bold")
    for decision in entry.decisions:
        how = show.word(decision)
        found = Text.assemble(" → ", (how, f"bold {show.OUTCOME_STYLES[how]}"))
        # What a human, a client or Prime said stands in the record itself.
        return (
            found
            if entry.kind in ("answer", "cancellation")
            else found.append(f", {line(decision.reason, 120)}")
        )
    for escalation in entry.escalations:
        # Why a seat gives nothing stands in the record itself.
        why = escalation.detail.removesuffix(f": {entry.data.get('why')}")
        return Text.assemble(" → ", ("to a human", "bold yellow"), f", {line(why, 120)}")
    return Text()


def told(entry: Entry) -> Words:
    """What happened, in words."""
    data = entry.data
    match entry.kind:
        case "proposal":
            what = data["what"]
            risk = "" if what["risk_level"] == "low" else f", {what['risk_level']} risk"
            revises = f"revises {what['supersedes'][:ID_SHOWN]}: " if what["supersedes"] else ""
            return Words(f"{revises}{line(what['summary'], 200)} ({what['proposer']}{risk})")
        case "ballot" | "ruling":
            return _judged(data["ballot" if entry.kind == "ballot" else "ruling"])
        case "answer":
            answer = data["answer"]
            return Words(
                f"{answer['human']} {'approves' if answer['approve'] else 'rejects'}", answer["reason"]
            )
        case "observation":
            return Words(observed(data), data["text"])
        case "fault":
            return Words(f"{data['seat']} gives no {data['task']}", data["why"] + _shortened(data))
        case "ballot_unreadable" | "seat_died":
            return Words(data["seat"], data["why"])
        case "escalation":
            return Words(f"{data['seat']} calls for Prime", data["reason"])
        case "cancellation":
            return Words(data["sender"], data["reason"])
        case "outcome":
            return Words(step(data["report"]), data["report"]["text"])
        case "call":
            call = data["call"]
            worst = f"at worst {show.cost(call['worst'])}{_shortened(data)}"
            return Words(f"{call['seat']} asks for a call to {call['model']} for its {call['task']}", worst)
        case "settlement":
            used, error = data["used"], data["error"]
            cost = "usage unknown" if used is None else show.cost(used)
            return Words(f"{data['seat']} settles a call", f"{cost}; failed ({error})" if error else cost)
        case "identity_change":
            change = data["change"]
            return Words(changed(change), f"{change['why']}; {change['reason']}")
        case "refusal":
            return Words(f"{data['sender']} {data['code']}", data["why"])
        case _:
            return _of_no_sender(entry.kind, data)


def step(report: Mapping[str, Any]) -> str:
    """What was told of one step of an approved action."""
    well = {"act": "ran it", "verify": "verified it", "revert": "reverted it"}
    badly = {"act": "ran it, and it failed", "verify": "could not verify it", "revert": "could not revert it"}
    return f"{report['sender']} {(well if report['ok'] else badly)[report['stage']]}"


def observed(data: Mapping[str, Any]) -> str:
    """Who watched whom, at which stage where that is told, and whether it called a halt."""
    halts = "calls a halt on" if data["interrupt"] else "observes"
    stage = f"'s {data['stage']}" if data.get("stage") else ""
    return f"{data['observer']} {halts} {data['stream']}{stage}"


def changed(change: Mapping[str, Any]) -> str:
    """Who changed the identity, or withdrew what had been changed."""
    before, after = (each[:ID_SHOWN] for each in (change["before"], change["after"]["hash"]))
    withdrawn = change["before"] == change["after"]["hash"]
    does = (
        "withdraws the change of the identity" if withdrawn else f"changes the identity {before} to {after}"
    )
    return f"{change['human']} {does}"


def _shortened(data: Mapping[str, Any]) -> str:
    """What was done to make the prompt fit, where anything was; older records tell nothing of it."""
    overruns = data.get("overruns")
    return f"; shortened: {show.overruns(overruns)}" if overruns else ""


def _of_no_sender(kind: str, data: Mapping[str, Any]) -> Words:
    match kind:
        case "seat_silent":
            return Words(data["seat"], "no heartbeat for too long")
        case "seat_back":
            return Words(data["seat"], "it is heard again")
        case "deadline":
            return Words("the time is up")
        case "expiry":
            return Words("no human answered in time")
        case "start":
            rules = data["rules"]
            seats = f"{count(len(rules['seats']), 'seat')}, quorum {rules['quorum']}"
            seats += f", identity {rules['identity']['hash'][:ID_SHOWN]}" if rules["identity"]["hash"] else ""
            return Words(f"coordinator of epoch {data['epoch']}", f"{seats}; {data['council_id']}")
        case "damaged":
            return Words("", data["why"])
    return Words("", str(dict(data)))


def _judged(act: Mapping[str, Any]) -> Words:
    """A ballot or a ruling."""
    risk = "" if act["risk_level"] == "low" else f", {act['risk_level']} risk"
    return Words(
        f"{act['seat']} {act.get('vote') or act['ruling']} {act['confidence']:.2f}{risk}", act["reason"]
    )


def day(at: datetime) -> Text:
    """A line between the records of two days."""
    return Text(f"── {at.astimezone():%A, %Y-%m-%d} ──", show.DIM)
