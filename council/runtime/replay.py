"""Runs a journal through the core again, and compares the effects with the recorded ones. Sends and keeps nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from council.core import events as ev
from council.core.state import CouncilState, Decision, Escalation, Moment, new_council, plain
from council.core.state_store import Effects
from council.core.step import step
from council.journal.packets import StoredRecord
from council.journal.record import came_to, diverged, mark_of
from council.protocol.errors import CouncilError, Refused
from council.runtime.archive import Archive


class Replay:
    """One replay of a journal, compared record by record.

    ``records`` and ``decisions`` count those that were equal so far.
    """

    def __init__(self) -> None:
        self.state: CouncilState | None = None
        self.records = 0
        self.decisions = 0
        self.escalations = 0

    def replay(self, kept: StoredRecord) -> Effects:
        """The effects of the next record. Raises ReplayDiverged if they differ from the recorded ones."""
        record = kept.record
        try:
            self.state, effects = stepped(self.state, record.event, record.moment)
        except CouncilError as error:
            raise diverged(record, f"it is refused now: {error.message}") from error
        if why := _difference(kept, effects):
            raise diverged(record, why)
        self.records += 1
        decisions, escalations = came_to(effects)
        self.decisions += len(decisions)
        self.escalations += len(escalations)
        pack(self.state, self.records)
        return effects


def stepped(state: CouncilState | None, event: ev.Event, now: Moment) -> tuple[CouncilState, Effects]:
    if state is None:
        if not isinstance(event, ev.CoordinatorStarted):
            raise Refused("a journal begins with a coordinator's start", code="no_start")
        state = new_council(event.rules, now)
        state.closed = Archive()
    return step(state, event, now)


def pack(state: CouncilState, count: int) -> None:
    """Packs what is decided, so that a long journal fits in memory; ``count`` is that of the records so far."""
    if isinstance(state.closed, Archive):
        state.closed.advance(count)


def _difference(kept: StoredRecord, effects: Effects) -> str:
    """The difference to the recorded effects, in words; empty if there is none."""
    decisions, escalations = came_to(effects)
    # If very many proposals ended at once, the record lists only the first ones. Its mark covers all of them.
    same_mark = kept.record.mark is None or mark_of(effects) == kept.record.mark
    pairs: list[tuple[Sequence[Decision | Escalation], Sequence[Decision | Escalation]]]
    pairs = [(kept.decisions, decisions), (kept.escalations, escalations)]
    nothing = not kept.decisions and not kept.escalations
    for then, now in pairs:
        if len(then) > len(now) or (now and nothing):
            was = _listed(kept.decisions, kept.escalations)
            return f"it came to {was}, and now to {_listed(decisions, escalations)}"
        for one, other in zip(then, now, strict=False):
            if one != other:
                return _unlike(one, other)
    if same_mark:
        return ""
    names = Counter(type(effect).__name__ for effect in effects)
    words = (
        ", ".join(f"{name} × {count}" if count > 1 else name for name, count in names.items()) or "nothing"
    )
    return f"what follows from it now ({words}) is not what followed then, of which a hash is kept"


def _listed(decisions: Iterable[Decision], escalations: Iterable[Escalation]) -> str:
    found = [f"{each.proposal_id} {each.outcome}" for each in decisions]
    found += [f"{each.proposal_id} to a human" for each in escalations]
    return ", ".join(found) or "no decision"


def _unlike(then: Decision | Escalation, now: Decision | Escalation) -> str:
    changes = [
        f"{name} was {_short(getattr(then, name))} and is {_short(getattr(now, name))}"
        for name in then.__struct_fields__
        if getattr(then, name) != getattr(now, name)
    ]
    what = "the decision on" if isinstance(then, Decision) else "the escalation of"
    return f"{what} {then.proposal_id}: {'; '.join(changes)}"


def _short(value: Any) -> str:
    text = repr(plain(value)) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 120 else f"{text[:119]}…"
