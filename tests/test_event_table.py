"""Each class of event has one row and one handler, each announcement a row, and what a row names is there."""

from __future__ import annotations

import inspect
from typing import get_args, get_type_hints

import msgspec

import council.core.step  # noqa: F401 - it loads all handlers
from council.core import effects as do
from council.core import events as ev
from council.core.state import Value
from council.kinds.row import EventKind, Row
from council.kinds.table import ANNOUNCED, BY_KIND, COUNTED, JOURNALED, MESSAGES
from council.protocol.envelope import MessageType
from council.runtime.outbox import TO_ONE
from tests.cases import each

SILENT = {*do.THINK, *TO_ONE, do.NoteIgnored, do.AnswerAgain}  # what no watcher hears of


def classes(base: type[Value]) -> set[type[Value]]:
    return {kind for kind in base.__subclasses__() if kind.__module__ == base.__module__}


def test_each_class_of_event_has_one_row_and_one_handler() -> None:
    assert set(JOURNALED) == set(ev.HANDLERS) == classes(ev.Event)
    assert len({row.kind for row in JOURNALED.values()}) == len(JOURNALED) == 25


def test_each_announcement_has_one_row() -> None:
    assert set(ANNOUNCED) == classes(do.Effect) - SILENT
    assert len({row.kind for row in ANNOUNCED.values()}) == len(ANNOUNCED) == 24


def test_the_literal_of_events_has_the_kinds_of_the_table() -> None:
    """Mutation: an announced row whose kind users can't compare ``event.kind`` with."""
    assert sorted(get_args(EventKind)) == sorted(row.kind for row in ANNOUNCED.values())


def test_each_message_is_read_by_one_row() -> None:
    said = [row.message for row in BY_KIND.values() if row.message is not None]
    assert len(said) == len(MESSAGES)
    assert {kind for kind, _ in MESSAGES} == set(get_args(MessageType))


@each("kind", list(ev.HANDLERS))
def test_a_handler_and_a_reader_are_of_the_events_of_their_row(kind: type[ev.Event]) -> None:
    """Mutation: name another's handler or reader."""
    handler = ev.HANDLERS[kind]
    assert get_type_hints(handler)[list(inspect.signature(handler).parameters)[1]] is kind
    said = JOURNALED[kind].message
    assert said is None or get_type_hints(said.read)["return"] is kind


@each("row", list(ANNOUNCED.values()))
def test_what_is_counted_is_a_fact_of_the_announcement(row: Row) -> None:
    """Mutation: a label that no field has."""
    assert row.announced is not None
    fields = {each.name: each.type for each in msgspec.structs.fields(row.announced)}
    first = next(iter(fields.values()))
    inner = (
        {each.name for each in msgspec.structs.fields(first)} if msgspec.inspect.is_struct_type(first) else ()
    )
    for metric in row.counted:
        assert COUNTED[metric.name].labels == metric.labels
        named = (metric.amount, metric.when, *(metric.values.get(label, label) for label in metric.labels))
        for which in named:
            assert callable(which) or which in {*fields, *inner}, which
