"""Draws one proposal's story, or a single record, for a terminal.

Everything from outside goes through ``clean`` into ``Text``, which holds no markup.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from council.cli import render
from council.cli.card import Card
from council.cli.record.story import Story
from council.cli.render import DIM, text
from council.core.state import Spend, plain
from council.journal.entries import Entry
from council.kinds.text import clean, count, line, span
from council.protocol.envelope import Proposal
from council.runtime.open_escalations import args_text, tool_text, with_proposal

BODY_LINES_MAX = 30  # of a body on a terminal; --json has all of it
BODY_CHARS_MAX = 4_000


def proposal(story: Story, council: str, where: Sequence[str] = ()) -> RenderableType:
    """A proposal in full: what was proposed, how it was decided, a timeline, and the records that each follows from.

    ``where`` are the options that name the council in a command.
    """
    parts: list[RenderableType] = []
    if story.decision is not None:
        parts.append(render.decision(story.decision, council=council))
    elif story.escalation is not None:
        envelope = story.proposal.envelope if story.proposal is not None else None
        parts.append(Card(with_proposal(story.escalation, envelope), time.time(), where=where, whole=True))
    else:
        parts.append(_deliberating(story, council))
    if steps := list(_acted(story)):
        parts += [_head("the result of the action"), _facts(steps)]
    if story.proposal is not None:
        waits = story.decision is None and story.escalation is not None  # then its content stands above
        parts += [_head("proposed"), _facts(_proposed(story.proposal, story.revised, brief=waits))]
        parts += [] if waits else _body(story.proposal)
    else:
        parts += [_head("proposed"), Text("its record is no longer kept: the journal is in memory", DIM)]
    if story.entries:
        parts += [_head("what happened"), _timeline(story)]
    if stages := list(_spent(story)):
        parts += [_head("what its models cost, by stage"), _facts(stages)]
    if cuts := list(_shortened(story)):
        parts += [_head("shortened, so that it fits a prompt"), _facts(cuts)]
    if any(entry.packet_id for entry in story.entries):
        parts += [_head("in the journal"), _places(story)]
    return Group(*parts)


def record(entry: Entry, council: str) -> RenderableType:
    """A record that is about no single proposal."""
    about = [
        ("what", render.happened(entry)),
        ("when", Text(entry.at.astimezone().isoformat(timespec="milliseconds"))),
        *(("decided", Text.assemble(text(each.proposal_id), f" {each.outcome}")) for each in entry.decisions),
        *(("decided", text(f"{each} {end or 'to a human'}")) for each, end in entry.more.items()),
        *(("to a human", text(each.proposal_id)) for each in entry.escalations),
        ("data", text(json.dumps(plain(entry.data), ensure_ascii=False))),
    ]
    title = Text.assemble(
        (f"record #{entry.position} ", "bold"),
        (entry.kind, render.style(entry)),
        (f"  {clean(council)}", DIM),
    )
    return Group(title, _facts((name, said) for name, said in about if said.plain), *_hashes(entry))


def _head(title: str) -> RenderableType:
    return Padding(Text(title, "bold"), (1, 0, 0, 0))


def _facts(lines: Iterable[tuple[str, Text]]) -> RenderableType:
    return Padding.indent(render.facts(lines), 2)


def _deliberating(story: Story, council: str) -> RenderableType:
    summary = story.proposal.data["what"]["summary"] if story.proposal else story.proposal_id
    return Group(
        text(line(summary, 300), "bold"),
        Text.assemble(
            ("the seats still deliberate", "yellow"), (f"  ·  {clean(council)} · {story.proposal_id}", DIM)
        ),
    )


def _proposed(entry: Entry, revised: Iterable[Entry], *, brief: bool) -> Iterator[tuple[str, Text]]:
    what = entry.data["what"]
    body = entry.envelope.content if entry.envelope is not None else None
    if isinstance(body, Proposal) and body.action is not None and not brief:
        yield "action", text(f"{tool_text(body.action)} {args_text(body.action)}")
    if isinstance(body, Proposal) and body.requester is not None and not brief:
        yield "asked by", text(body.requester)
    yield "by", text(what["proposer"])
    yield "at", Text(entry.at.astimezone().isoformat(sep=" ", timespec="milliseconds"))
    waits = "every ballot" if what["wait_for"] == "all" else "a majority that no missing ballot can change"
    yield "asks for", Text(f"{waits}, within {span(what['time_budget_s'])}")
    yield "says", Text(f"{what['risk_level']} risk, confidence {what['confidence']:.2f}")
    if what["supersedes"]:
        yield "revises", text(what["supersedes"])
    for older in revised:
        yield f"#{older.position}", text(f"{older.proposal_id}: {line(older.data['what']['summary'], 160)}")
    if entry.envelope is not None and entry.envelope.metadata is not None:
        yield "trace", Text(entry.envelope.metadata.trace_id)
    if isinstance(body, Proposal) and body.history:
        roles = ", ".join(dict.fromkeys(turn.role for turn in body.history))
        size = sum(len(turn.text) for turn in body.history)
        yield (
            "history",
            text(f"{count(len(body.history), 'turn')} ({line(roles, 100)}), {size:,} characters: --json"),
        )


def _body(entry: Entry) -> list[RenderableType]:
    """The text of the proposal, word for word, as far as a terminal shows it."""
    content = entry.envelope.content if entry.envelope is not None else None
    if not isinstance(content, Proposal) or not content.body.strip():
        return []
    whole = content.body.rstrip()
    lines = whole[:BODY_CHARS_MAX].splitlines()[:BODY_LINES_MAX]
    shown = "\n".join(lines)
    parts: list[RenderableType] = ["", Padding.indent(text(shown), 4)]
    if len(shown) < len(whole.rstrip()):
        left = len(whole) - len(shown)
        parts.append(Padding.indent(Text(f"… ({left:,} characters more: --json)", DIM), 4))
    return parts


def _timeline(story: Story) -> RenderableType:
    """A timeline, counted from the first record."""
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(justify="right", style=DIM, no_wrap=True)
    table.add_column(justify="right", style=DIM, no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    began_s = story.entries[0].at_s
    places = {entry.packet_id: entry.position for entry in (*story.revised, *story.entries)}
    late_ids = {each.msg_id for each in story.decision.late} if story.decision is not None else set()
    for entry in story.entries:
        kind = Text(render.kind(entry), render.style(entry))
        late = entry.kind == "ballot" and entry.msg_id in late_ids
        said = Text.assemble(("late: ", "yellow") if late else "", render.happened(entry))
        table.add_row(f"+{span(max(0.0, entry.at_s - began_s))}", f"#{entry.position}", kind, said)
        if len(entry.parents or ()) > 1:  # else it follows from its proposal alone
            table.add_row("", "", "", _parents(entry, places))
    return Padding.indent(table, 2)


def _acted(story: Story) -> Iterator[tuple[str, Text]]:
    """Each step of its action that was reported (rules 3.1)."""
    for entry in story.entries:
        if entry.kind == "outcome":
            words = render.phrase(entry.kind, entry.data)
            said = words.act + (f": {line(words.detail, 400)}" if words.detail else "")
            yield entry.data["report"]["stage"], text(line(said, 500), render.style(entry))


def _shortened(story: Story) -> Iterator[tuple[str, Text]]:
    """Each step that a seat took for a prompt that was too long (rules 2.4)."""
    for entry in story.entries:
        for step in entry.data.get("overruns") or ():
            tokens = f"{step['before']:,} → {step['after']:,} of {step['limit']:,} tokens"
            said = f"#{entry.position} {step['field']}: {tokens}, {step['how']}"
            yield line(entry.who or "", 64), text(line(said, 400))


def _spent(story: Story) -> Iterator[tuple[str, Text]]:
    """The cost of the calls of each stage and seat. A call under way counts as reserved (rules 3.1)."""
    calls = {
        entry.data["call"]["call_id"]: entry.data["call"] for entry in story.entries if entry.kind == "call"
    }
    used = {
        entry.data["call_id"]: entry.data["used"] for entry in story.entries if entry.kind == "settlement"
    }
    sums: dict[str, dict[str, tuple[int, Spend]]] = {}
    for call_id, call in calls.items():
        cost = used.get(call_id) or call["worst"]
        seats = sums.setdefault(call["task"], {})
        number, spent = seats.get(call["seat"], (0, Spend()))
        seats[call["seat"]] = number + 1, spent + Spend(cost["tokens"], cost["microusd"])
    for task, seats in sums.items():
        each = (f"{seat} {spent} in {count(number, 'call')}" for seat, (number, spent) in seats.items())
        yield task, text("; ".join(each))


def _parents(entry: Entry, places: dict[str | None, int]) -> Text:
    """The records that an entry follows from; a decision names all its ballots and acts."""
    parents = [places.get(parent) for parent in entry.parents or ()]
    named = ", ".join(f"#{place}" for place in sorted(each for each in parents if each is not None))
    others = sum(place is None for place in parents)
    return Text(f"from {named}{f' and {others:,} others' if others else ''}", DIM)


def _places(story: Story) -> RenderableType:
    """The positions of the proposal and of the record that decided it, and their hashes."""
    deciding = (e for e in story.entries if any(d.proposal_id == story.proposal_id for d in e.decisions))
    entries: Sequence[Entry | None] = (story.proposal, next(deciding, None))
    found = {entry.position: entry for entry in entries if entry is not None and entry.packet_id}
    return Group(*(part for entry in found.values() for part in _hashes(entry)))


def _hashes(entry: Entry) -> list[RenderableType]:
    if entry.packet_id is None:
        return []
    lines = [
        ("record", Text.assemble((f"#{entry.position}", "bold"), f" {entry.kind}, epoch {entry.epoch}")),
        ("packet", Text(entry.packet_id)),
        ("content", Text(entry.content_hash or "")),
        ("row", Text(entry.row_hash or "")),
        ("follows", Text(entry.previous_hash or "")),
    ]
    return [_facts(lines)]
