"""Draws one case for ``council watch``: what was proposed, by whom, what the seats say, and how to answer it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from council.cli import render
from council.cli.record.story import Story
from council.cli.render import DIM, text
from council.core.state import Ballot
from council.kinds.phrases import certainty
from council.kinds.text import span
from council.protocol.envelope import Proposal
from council.protocol.values import plain

BODY_CHARS_MAX = 20_000  # of a proposal's text; council show --json has all of it


def case_view(story: Story, now_s: float) -> RenderableType:
    """A case in full, for a terminal of any width. ``now_s`` are Unix seconds."""
    parts: list[RenderableType] = [_standing(story, now_s), *_proposed(story)]
    decided, waiting = story.decision, story.escalation
    if waiting is not None and _waits(story):
        parts.append(
            Text.assemble(("to answer: ", DIM), text(f"council answer {waiting.escalation_id}", "bold"))
        )
    if waiting is not None:
        parts += _under("why a human", [text(waiting.detail)])
    elif decided is not None:
        parts += _under("why", [text(decided.reason)])
    parts += _under("votes", _votes(story))
    ruling = (decided and decided.ruling) or (waiting and waiting.ruling)
    if ruling:
        sure = certainty(ruling.confidence, ruling.risk_level)
        said = Text.assemble(text(ruling.seat, "bold"), f" {ruling.ruling} ({sure})")
        parts += _under("ruling", [said, _indented(text(ruling.reason))])
    if decided is not None and (answer := decided.answer) is not None:
        how = "approved" if answer.approve else "rejected"
        parts += _under("answer", [text(f"{answer.human} {how} it: {answer.reason or 'no reason given'}")])
    parts += _body(story)
    return Group(*parts, "", text(f"proposal {story.proposal_id}", DIM))


def _waits(story: Story) -> bool:
    return story.decision is None or not story.decision.final


def _standing(story: Story, now_s: float) -> Text:
    """How it stands, its risk, its age and its time left, on one line."""
    decided, waiting = story.decision, story.escalation
    if waiting is not None and _waits(story):
        ages = f"asked {span(now_s - waiting.asked_wall_s)} ago"
        left = f"{span(max(0.0, waiting.expires_wall_s - now_s))} left"
        style = render.RISK_STYLES[waiting.risk_level]
        risk = (f"{waiting.risk_level} risk", f"bold {style}")
        return Text.assemble(("waits for a human", "bold yellow"), "  ", risk, f"  {ages}, {left}")
    if decided is None:
        return Text("the seats still deliberate", "bold yellow")
    how = render.standing_word(decided)
    said = f"  {decided.tally}, {span(decided.seconds)}"
    return Text.assemble((how, f"bold {render.OUTCOME_STYLES[how]}"), (said, DIM))


def _proposed(story: Story) -> Iterator[RenderableType]:
    """The action with its arguments, the summary, and who asked."""
    found = story.decision or story.escalation
    submitted = None if story.proposal is None else story.proposal.data["what"]
    content = _content(story)
    if content is not None and content.action is not None:
        yield text(content.action.tool, "bold")
        for name, value in content.action.args.items():
            said = json.dumps(plain(value), ensure_ascii=False)
            yield _indented(Text.assemble(text(name, DIM), " = ", text(said)))
    summary = found.summary if found is not None else submitted["summary"] if submitted else ""
    yield text(summary, "bold" if content is None or content.action is None else "")
    if submitted is not None:
        yield text(f"asked for by {submitted['proposer']}", DIM)


def _votes(story: Story) -> Iterator[RenderableType]:
    found = story.decision or story.escalation
    cast: Sequence[Ballot] = found.ballots if found is not None else _cast(story)
    for ballot in cast:
        style = render.VOTE_STYLES[ballot.vote]
        sure = certainty(ballot.confidence, ballot.risk_level)
        yield Text.assemble(text(ballot.seat, "bold"), " ", (ballot.vote, style), f" {sure}")
        yield _indented(text(ballot.reason.strip() or "no reason given"))
    if story.decision is not None:
        for seat, why in story.decision.missing:
            yield Text.assemble(text(seat, "bold"), (" no vote", "yellow"))
            yield _indented(text(why))


def _cast(story: Story) -> list[Ballot]:
    """The ballots that the records hold."""
    return [
        msgspec.convert(each.data["ballot"], Ballot)
        for each in story.entries
        if each.kind == "ballot" and each.proposal_id == story.proposal_id
    ]


def _body(story: Story) -> list[RenderableType]:
    content = _content(story)
    if content is None or not content.body.strip():
        return []
    shown = content.body.rstrip()[:BODY_CHARS_MAX]
    more = len(content.body.rstrip()) - len(shown)
    cut = [Text(f"({more:,} characters more: council show)", DIM)] if more else []
    return _under("text", [text(shown), *cut])


def _content(story: Story) -> Proposal | None:
    envelope = None if story.proposal is None else story.proposal.envelope
    content = None if envelope is None else envelope.content
    return content if isinstance(content, Proposal) else None


def _under(title: str, found: Iterable[RenderableType]) -> list[RenderableType]:
    parts = list(found)
    return ["", Text(title, DIM), *parts] if parts else []


def _indented(found: Text) -> RenderableType:
    return Padding.indent(found, 2)
