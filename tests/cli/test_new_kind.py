"""A new kind of event touches two places: its row, and in the core its class with its handler.

Here a human marks a proposal with a colour. The event comes in as a message, is refused where it must be, stepped,
journaled, verified, replayed, announced, counted, logged, noted in a decision's span, and shown by all renderers.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from council.api.client import Council, handle_of
from council.core import effects as do
from council.core import events as ev
from council.core.state import CouncilState, Moment
from council.core.state_store import Effects, origin, unknown
from council.kinds import table
from council.kinds.row import MessageSpec, Row, counter, tells
from council.protocol.errors import CouncilError
from tests.patience import HANG_S
from tests.runtime.test_eventlog import Logged
from tests.runtime.test_spans import Traced

from .conftest import Cli, council_of

Up = Callable[[Council], Council]
TABLES: tuple[dict[Any, Any], ...] = (
    ev.HANDLERS,
    table.BY_KIND,
    table.JOURNALED,
    table.ANNOUNCED,
    table.MESSAGES,
    table.COUNTED,
)


# The first place, a file of council/core


class Marked(ev.Event, frozen=True):
    """A human marked a proposal with a colour."""

    proposal_id: str
    human: str
    colour: str
    why: str


class AnnounceMark(do.Effect, frozen=True):
    proposal_id: str
    human: str
    colour: str
    why: str


def marked(state: CouncilState, event: Marked, now: Moment) -> Effects:
    if origin(state, event.proposal_id) is None:
        raise unknown(event.proposal_id, event.human)
    return [AnnounceMark(event.proposal_id, event.human, event.colour, event.why)]


# The second place, council/kinds/table.py

ROW = Row(
    "mark",
    ("{human} marks it {colour}", "{why}"),
    "yellow",
    event=Marked,
    message=MessageSpec(
        "INFO",
        lambda message: message.build(Marked, colour=message.fact("colour", str)),
        "mark",
        by="human",
    ),
    announced=AnnounceMark,
    counted=(counter("council_marks", "Marks that humans set.", "colour"),),
    logged=tells("marked", colour="colour"),
    noted=tells("mark", colour="colour"),
)


@pytest.fixture(autouse=True)
def _a_new_kind() -> Iterator[None]:
    before = [dict(each) for each in TABLES]
    ev.handles(Marked)(marked)  # as a decorator, for the time of a test
    table.add(ROW)
    yield
    for each, was in zip(TABLES, before, strict=True):
        each.clear()
        each.update(was)


def mark(council: Council, proposal_id: str, human: str | None, **data: Any) -> None:
    """Sends it as a human, or as the client that the council is reached by."""
    handle = handle_of(council)
    session = handle.session if human is None else handle.wait(handle.human(human))
    handle.wait(session.inform(proposal_id, "mark", "as agreed", data))


def test_a_new_kind_of_event_goes_all_the_way(cli: Cli, up: Up, tmp_path: Path) -> None:
    store = str(tmp_path / "store.db")
    settings: dict[str, Any] = {"store": store, "humans": {"ada": "kept"}, "metrics_port": 0}
    council = up(council_of(**settings))
    proposal_id = council.propose("Go", wait_for="all").proposal_id

    # Refused from who may not send it, in the wrong form, and by its handler.
    for human, about, data, code in (
        (None, proposal_id, {"colour": "red"}, "wrong_role"),
        ("ada", proposal_id, {"colour": 7}, "malformed"),
        ("ada", "0" * 16, {"colour": "red"}, "unknown_proposal"),
    ):
        with pytest.raises(CouncilError) as refused:
            mark(council, about, human, **data)
        assert refused.value.code == code, refused.value
    assert not council.history(types=["mark"]).entries

    mark(council, proposal_id, "ada", colour="red")

    # Journaled: its kind, by whom, about what, with the envelope that brought it.
    (entry,) = council.history(types=["mark"], envelopes=True)
    fields = {"proposal_id": proposal_id, "human": "ada", "colour": "red", "why": "as agreed"}
    assert (entry.kind, entry.who, entry.proposal_id, entry.data) == ("mark", "ada", proposal_id, fields)
    assert entry.envelope is not None
    assert entry.envelope.sender == "ada"

    # Announced, and counted.
    (event,) = [each for each in council.events(follow=False) if each.kind == "mark"]
    assert (event.data, event.proposal_id) == (fields, proposal_id)
    with urllib.request.urlopen(council.status()["metrics"]["url"], timeout=HANG_S) as answer:
        served = answer.read().decode()
    assert "# HELP council_marks_total Marks that humans set." in served
    assert 'council_marks_total{colour="red",council="council"} 1.0' in served

    # Shown as it happens, among the records, with its proposal, and alone.
    commands = (["watch", "--once"], ["log", "--type", "mark"], ["show", proposal_id])
    for command in (*commands, ["show", f"#{entry.position}"]):
        said = cli(*command)
        assert said.code == 0, said
        assert "ada marks it red: as agreed" in said.out, command
    (document,) = [json.loads(line) for line in cli("log", "--type", "mark", "--json").out.splitlines()]
    assert (document["kind"], document["data"]) == ("mark", fields)

    # Read back by replay, by verification, and by the next coordinator.
    council.close()
    for command in (["replay"], ["verify"]):
        said = cli(*command, "--url", store)
        assert said.code == 0, said
    with council_of(**settings) as again:
        mark(again, proposal_id, "ada", colour="blue")
        assert [each.data["colour"] for each in again.history(types=["mark"])] == ["blue", "red"]


def test_it_has_its_line_in_the_event_log(tmp_path: Path) -> None:
    logged = Logged(tmp_path)
    proposal_id = logged.decided("yes", "yes", "yes")
    logged.hand.receive(logged.hand.info("ada", proposal_id, "mark", "so", colour="red"))
    line = logged.lines()[-1]
    assert (line["event"], line["level"], line["colour"]) == ("marked", "warning", "red")


def test_it_is_noted_in_the_span_of_the_decision() -> None:
    traced = Traced()
    proposal_id = traced.propose(1)
    traced.hand.receive(traced.hand.info("ada", proposal_id, "mark", "so", colour="red"))
    traced.decide(proposal_id)
    (span,) = traced.told()
    noted = next(each for each in span.events if each.name == "mark")
    assert dict(noted.attributes or {}) == {"council.colour": "red"}
