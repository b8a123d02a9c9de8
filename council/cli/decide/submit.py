"""Submits one proposal to a council and shows the result."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from council.api.keywords import new_proposal, turns_of
from council.cli.options import EXAMPLES
from council.cli.reach import How, Sole, Where, opened
from council.cli.report import Report, UsageFault, decision_code
from council.protocol.errors import CallerError, EnvelopeError

if TYPE_CHECKING:
    from council.core.state import Decision
    from council.protocol.envelope import Envelope

BODY_BYTES_MAX = 4 * 2**20  # read before it is called too large; the council itself takes 768 KiB
NOBODY_ANSWERS = (
    "--wait-for-human: nobody can answer in a council of this command's own, which ends with it: bring one up with "
    "council up and let that decide, or leave the option out (the command then exits 3 if a human is needed)"
)
_OBJECT = f"a JSON object, for example {EXAMPLES['--action']}"
# The arguments of ``Council.draft``, as the command line has them.
_FLAGS = {
    "summary": "the summary",
    "timeout_s": "--timeout",
    "wait_for": "--wait-for",
    **{name: f"--{name}" for name in ("body", "action", "history", "risk", "key")},
}


def drafted(sender: str, content: dict[str, Any], risk: str) -> Envelope:
    """A proposal of this content. Raises EnvelopeError, which names options and all problems."""
    from council.protocol.models import renamed

    try:
        return new_proposal(sender, content, risk_level=risk)
    except EnvelopeError as error:
        named = renamed(error, _FLAGS)
        raise type(named)("; ".join(named.problems), **named.facts) from None


def check(summary: str, body: str, details: dict[str, Any]) -> None:
    """Raises what ``drafted`` raises for a proposal that no council would take, before any is connected to."""
    content = {"summary": summary if summary.strip() else "", "body": body, "action": details.get("action")}
    content |= {"history": details.get("history", ()), "key": details.get("key")}
    for field, given in (("wait_for", details.get("wait_for")), ("time_budget_s", details.get("timeout_s"))):
        if given is not None:
            content[field] = given
    drafted("client", content, details["risk"])


def action(given: tuple[str, str] | None) -> dict[str, Any] | None:
    """The action that ``--action TOOL JSON`` gives. Raises UsageFault."""
    if given is None:
        return None
    if not given[0]:
        raise UsageFault(
            f"--action: the name of the tool is empty; give it, for example {EXAMPLES['--action']}"
        )
    try:
        args = json.loads(given[1])
    except (ValueError, RecursionError) as error:
        raise UsageFault(
            f"--action {given[0]}: its arguments are not JSON: {error}; give {_OBJECT}"
        ) from error
    if not isinstance(args, dict):
        raise UsageFault(f"--action {given[0]}: its arguments must be {_OBJECT}")
    return {"tool": given[0], "args": args}


def body(given: str) -> str:
    """The text that ``--body`` gives: itself, a file's (``@file``), or the input's (``-``). Raises UsageFault."""
    if given != "-" and not given.startswith("@"):
        return given
    return text(None if given == "-" else given[1:], f"--body {given}")


def text(path: str | None, what: str) -> str:
    """The text of a file, or of the standard input; ``what`` names it in errors. Raises UsageFault."""
    try:
        if path is None:
            data = sys.stdin.buffer.read(BODY_BYTES_MAX + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(BODY_BYTES_MAX + 1)
        if len(data) > BODY_BYTES_MAX:
            raise UsageFault(f"{what}: is longer than {BODY_BYTES_MAX:,} bytes, which no council takes")
        return data.decode("utf-8")
    except OSError as error:
        raise UsageFault(f"{what}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageFault(f"{what}: is not text in UTF-8") from error


def history(path: str | None) -> list[dict[str, Any]]:
    """The turns in the file of ``--history``: one JSON list, or an object on each line. Raises UsageFault."""
    if path is None:
        return []
    what = at = f"--history {path}"
    content = text(path, what)
    try:
        if content.lstrip().startswith("["):
            return turns_of(json.loads(content))
        turns = []
        for number, line in enumerate(content.split("\n"), 1):
            at = f"{what}, line {number}"
            if line.strip():
                turns.append(json.loads(line))
        return turns_of(turns)
    except CallerError as error:
        raise UsageFault(f"{what}: {error.message}") from error
    except (ValueError, RecursionError) as error:
        wanted = 'one list, or an object such as {"role": "user", "text": "…"} on each line'
        raise UsageFault(f"{at}: is not JSON: {error}; expected {wanted}") from error


def decide(
    where: Where,
    report: Report,
    sole: Sole,
    summary: str,
    body: str,
    details: dict[str, Any],
    wait_for_human: bool,
    *,
    document: Callable[[], dict[str, Any]] | None = None,
    record: Callable[[Decision, str], dict[str, Any]] | None = None,
) -> int:
    """Submits a proposal to the council that ``where`` names, and shows the decision. Returns the exit code.

    With a ``document``, that is printed as JSON instead, and the decision is a note. ``record`` keeps the decision of
    the council of that name; what it returns is added to the JSON document.
    """
    from council.api.client import handle_of
    from council.api.requester import of_this_process
    from council.cli.decide.deliberate import deliberate

    check(summary, body, details)
    if wait_for_human and (where.inline or where.launch):
        raise UsageFault(NOBODY_ANSWERS)
    requester = of_this_process()  # before the working folder is left
    with opened(where, report, sole=sole) as (council, how):
        if wait_for_human and how != "connected":
            raise UsageFault(NOBODY_ANSWERS)
        handle_of(council).on_waiting = None  # this command shows it
        envelope = council.draft(summary, body, **details, requester=requester)
        seats = [seat["name"] for seat in council.status()["seats"]]
        decision = deliberate(
            council,
            envelope,
            report,
            seats=seats,
            wait_for_human=wait_for_human,
            ends_with_us=how != "connected",
        )
        if how != "connected" and not decision.final:
            report.note(
                "the council of this command ends now, so nobody can answer: run council up, and propose it there"
            )
        council_name = council.name
    more = {} if record is None else record(decision, council_name)
    if document is not None:
        report.print_json(document())
        report.note(str(decision))
        return decision_code(decision)
    return show(decision, report, council_name, how, decision_code(decision), more)


def show(
    decision: Decision,
    report: Report,
    council: str,
    mode: How,
    code: int,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Shows a decision of the council of that name, in JSON with ``more``; returns ``code``."""
    from council.cli import render
    from council.core.state import plain

    drawn = render.decision(decision, ended=mode != "connected")
    return report.result({"council": council, "mode": mode, **plain(decision), **more}, drawn, code)
