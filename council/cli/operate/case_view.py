"""Draws one case for ``council watch``: what was proposed, by whom, what the seats say, and how to answer it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from council.cli import render
from council.cli.card import Card
from council.cli.record.story import Story
from council.cli.render import DIM, text
from council.core.state import Ballot, Decision
from council.kinds.phrases import certainty
from council.kinds.text import span
from council.protocol.envelope import Proposal
from council.protocol.values import plain
from council.runtime.open_escalations import OpenEscalation, allows_text, reason_of, tool_text

BODY_CHARS_MAX = 20_000  # of a proposal's text; council show --json has all of it


def case_view(case: OpenEscalation | Story, now_s: float, where: Sequence[str] = ()) -> RenderableType:
    """A case in full, for a terminal of any width. ``now_s`` are Unix seconds.

    ``where`` are the options that name its council in a command.
    """
    if isinstance(case, OpenEscalation):
        return Card(case, now_s, where=where, whole=True)
    decided = case.decision
    parts: list[RenderableType] = [_standing(decided), *_proposed(case)]
    if decided is not None:
        parts += _under("why", [text(decided.reason)])
    parts += _under("votes", _votes(case))
    if decided is not None and (ruling := decided.ruling) is not None:
        sure = certainty(ruling.confidence, ruling.risk_level)
        said = Text.assemble(text(ruling.seat, "bold"), f" {ruling.ruling} {sure}")
        parts += _under("ruling", [said, _indented(text(reason_of(ruling)))])
    if decided is not None and (answer := decided.answer) is not None:
        how = "approved" if answer.approve else "rejected"
        parts += _under("answer", [text(f"{answer.human} {how} it: {answer.reason or 'no reason given'}")])
    return Group(*parts, *_body(case), "", text(f"proposal {case.proposal_id}", DIM))


def _standing(decided: Decision | None) -> Text:
    if decided is None:
        return Text("the seats still deliberate", "bold yellow")
    how = render.standing_word(decided)
    said = f"  {decided.tally}, {span(decided.seconds)}"
    return Text.assemble((how, f"bold {render.OUTCOME_STYLES[how]}"), (said, DIM))


def _proposed(story: Story) -> Iterator[RenderableType]:
    """The action with its arguments, the summary, and who asked."""
    submitted = None if story.proposal is None else story.proposal.data["what"]
    content = _content(story)
    if content is not None and content.action is not None:
        yield text(tool_text(content.action), "bold")
        for name, value in content.action.args.items():
            said = json.dumps(plain(value), ensure_ascii=False)
            yield _indented(Text.assemble(text(name, DIM), " = ", text(said)))
        if allows := allows_text(content.action):
            yield text(f"allows: {allows}", DIM)
    if story.decision is not None:
        yield text(story.decision.summary)
    elif submitted is not None:
        yield text(submitted["summary"])
    if submitted is not None:
        name = str(content.requester) if content is not None and content.requester else submitted["proposer"]
        yield text(f"asked by {name}", DIM)


def _votes(story: Story) -> Iterator[RenderableType]:
    decided = story.decision
    for ballot in _cast(story) if decided is None else decided.ballots:
        sure = certainty(ballot.confidence, ballot.risk_level)
        vote = (ballot.vote, render.VOTE_STYLES[ballot.vote])
        yield Text.assemble(text(ballot.seat, "bold"), " ", vote, f" {sure}")
        yield _indented(text(reason_of(ballot).strip() or "no reason given"))
    for seat, why in () if decided is None else decided.missing:
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
