"""``council cancel``: cancels an open proposal on behalf of a human."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from council.cli.decide import submit
from council.cli.options import Address, Config, Json, Name
from council.cli.reach import Where, opened
from council.cli.report import DONE, Report

if TYPE_CHECKING:
    from council.api.client import Council


def cancel(
    proposal: Annotated[
        str,
        typer.Argument(metavar="ID", help="The proposal, by 4 or more characters of its id."),
    ],
    reason: Annotated[str, typer.Option(help="The reason, for the decision.")] = "",
    human: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Who cancels it; by default you.")
    ] = None,
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Cancel an open proposal.

    The decision is then "cancelled". The people who may answer escalations may cancel every open proposal. The
    setting humans names them; by default it is the user who started the council. A program cancels its own proposals
    with Council.cancel.

    A cancellation is signed, so it is not sent to a Ray that only a file in the working folder names. Use a council
    that council up started here, or name its Ray with --address, --config or COUNCIL_RAY_ADDRESS.
    """
    from council.config.human_keys import current_user

    report = Report(as_json=json)
    where = Where(config, name, address)
    where.refuse_address_found()
    with opened(where, report, sole="running") as (council, _):
        proposal_id = _whole(proposal.lower().removeprefix("esc-"), council)
        council.cancel(proposal_id, reason, human=human or current_user())
        decided = council.decision(proposal_id)
        assert decided is not None  # the council has accepted the cancellation, which is the decision
        council_name = council.name
    return submit.show(decided, report, council_name, "connected", DONE)


def _whole(given: str, council: Council) -> str:
    """The id that begins with ``given``. Raises Refused for an unknown one, and CallerError for several."""
    found = next(iter(council.history(proposal=given, types=["proposal"], limit=1)), None)
    return given if found is None or found.proposal_id is None else found.proposal_id
