"""Describes a decision in plain words: in one line, in a few lines, in a table for notebooks.

``decision`` is a ``Decision`` of ``council.core.state``, which imports this module. Models and strangers write
reasons and summaries, so characters that are not printable are shown as numbers.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from typing import Any

from council.agents.static.marks import NO_OBJECTION, without_marks

# Characters of a reason or summary, in one line and in an explanation.
SHORT, LONG = 160, 1_000
# The kinds of notes in control packets, as people are shown them.
NOTE_LABELS = {"chesterton_fence": "fence", "override": "override", "learning": "learned"}


def one_line(decision: Any) -> str:
    """The outcome, or what it waits for; the tally; and why: ``rejected (1 yes, 2 no, 0 abstained): lite: no``."""
    return f"{_how(decision)} ({decision.tally}): {because(decision)}"


def because(decision: Any, chars_max: int = SHORT) -> str:
    """The reason for the outcome, and who objected."""
    against = [f"{who}: {_text(why, chars_max)}" for who, why in objections(decision)]
    if decision:
        dissent = f"; against it {'; '.join(against)}" if against else ""
        return f"{NO_OBJECTION if decision.static_only else _text(decision.reason, chars_max)}{dissent}"
    if decision.outcome == "rejected" and against:
        return "; ".join(against)
    asked = [_text(why, chars_max) for why in _why_human(decision)]
    return "; ".join([_text(decision.reason, chars_max), *asked, *against])


def objections(decision: Any) -> list[tuple[str, str]]:
    """The objections, each with its author: the human first, then Prime's ruling, then ballots.

    Each reason occurs once.
    """
    found: dict[str, str] = {}
    if decision.answer is not None and not decision.answer.approve:
        found[decision.answer.reason or "no reason was given"] = decision.answer.human
    if decision.ruling is not None and decision.ruling.ruling == "reject":
        found.setdefault(decision.ruling.reason, decision.ruling.seat)
    for ballot in decision.ballots:
        if ballot.vote == "no":
            found.setdefault(ballot.reason, ballot.seat)
    return [(who, why) for why, who in found.items()]


def _why_human(decision: Any) -> list[str]:
    """The reason why Prime left it to a human, if it did, unless that is also an objection."""
    ruling = decision.ruling
    if ruling is None or ruling.ruling != "human":
        return []
    return [ruling.reason] if all(why != ruling.reason for _, why in objections(decision)) else []


def explained(decision: Any) -> str:
    """Explains the decision and what can be done, one sentence on a line, for a person or for the agent's model."""
    lines = [
        f"Proposal {decision.proposal_id} is {_how(decision)}: {_text(decision.summary, SHORT)}",
        f"Votes: {decision.tally}. Reason: {_text(decision.reason, LONG)}.",
    ]
    if decision.static_only:
        lines.append(f"Note: {NO_OBJECTION}.")
    lines += [
        f"Question of {decision.ruling.seat} to a human: {_text(why, LONG)}" for why in _why_human(decision)
    ]
    lines += [f"Objection of {who}: {_text(why, LONG)}" for who, why in objections(decision)]
    lines += [
        f"Abstention of {ballot.seat}: {_text(ballot.reason, LONG)}"
        for ballot in decision.ballots
        if ballot.vote == "abstain" and ballot.reason not in _why_human(decision)
    ]
    lines += [f"No vote of {seat}: {_text(why, LONG)}" for seat, why in decision.missing if not decision]
    lines += [f"Check of {_text(said, LONG)}" for _, said in checks(decision)]
    lines += [
        f"Note ({label}) of {_text(said, LONG)}"
        for label, said in notes(decision.ballots)
        if label != NOTE_LABELS["learning"]
    ]
    return "\n".join([*lines, _next(decision)])


def checks(decision: Any) -> list[tuple[str, str]]:
    """The checks that were run before the decision, each with a label, who asked for it, and its result (rules 5)."""
    return [("checked", f"{each.seat}: {each}") for each in decision.checks or ()]


def notes(ballots: Iterable[Any]) -> list[tuple[str, str]]:
    """What the ballots' control packets note beside the votes, each with its label and its author (rules 6.6)."""
    return [
        (NOTE_LABELS.get(kind, kind), f"{ballot.seat}: {text}")
        for ballot in ballots
        for kind, text in ballot.notes or ()
    ]


def table(decision: Any) -> str:
    """An HTML table with the line, the summary and each vote. Everything that it quotes is escaped."""
    cells = [("outcome", one_line(decision)), ("summary", _text(decision.summary, LONG))]
    cells += [(f"{each.seat}: {each.vote}", _text(each.reason, LONG)) for each in decision.ballots]
    cells += [(f"{seat}: no vote", _text(why, LONG)) for seat, why in decision.missing]
    cells += [("next", _next(decision)), ("id", decision.proposal_id)]
    return f"<table>{''.join(_rows(cells))}</table>"


def _rows(cells: list[tuple[str, str]]) -> Iterator[str]:
    for label, said in cells:
        left = 'style="text-align: left"'
        yield f"<tr><th {left}>{html.escape(label)}</th><td {left}>{html.escape(said)}</td></tr>"


def _how(decision: Any) -> str:
    if not decision.final:
        return f"waiting for a human as {decision.escalation_id}"
    by = f" by {decision.answer.human}" if decision.answer is not None else ""
    return f"{decision.outcome}{by}"


def _next(decision: Any) -> str:
    """The next step."""
    if decision:
        return "It may be done once, exactly as it was proposed."
    if not decision.final:
        return (
            "It must not be done before a human approves it. "
            f"The human, and nobody else, answers: {decision.how_to_answer}"
        )
    if decision.outcome == "cancelled":
        return "It must not be done. It was cancelled, for the reason above."
    if decision.outcome == "deferred":
        return "It must not be done. No human answered in time. It may be proposed again."
    return (
        "It must not be done. To have it approved, change what is objected to, and propose the changed one; "
        "the same one again will meet the same objections."
    )


def _text(text: str, chars_max: int) -> str:
    """``text`` on one line, without the marks of static checks, cut, and with what is not printable as numbers."""
    flat = without_marks(" ".join(text[: 4 * chars_max].split()))
    flat = "".join(char if char.isprintable() else _numbered(ord(char)) for char in flat)
    return f"{flat[: chars_max - 1]}…" if len(flat) > chars_max else flat


def _numbered(point: int) -> str:
    """A character that can't be shown, as Python writes it."""
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
