"""``council tokens`` and ``council revoke``: what approvals allow to be run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from council.cli.options import Address, Config, Json, Name
from council.cli.reach import Where, opened
from council.cli.report import Report

if TYPE_CHECKING:
    from rich.console import RenderableType

    from council.runtime.token_standing import TokenStanding

# The colour of each standing, and the standings of tokens that are shown without --all.
_STYLES = {"live": "green", "under way": "cyan", "unknown": "bold red", "revoked": "yellow"}


def tokens(
    every: Annotated[
        bool, typer.Option("--all", help="Also show tokens that were used or have ended.")
    ] = False,
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Show the tokens of approved actions, and the results of their uses.

    An approval of an action issues a token. It allows one executor to run one tool, with the named operations and
    resources, until the token expires. Shows the tokens that may be used, are in use, were revoked, or have a use
    with an unknown outcome. If an outcome is unknown, check what the action changed. --json has all tokens that the
    council keeps.
    """
    report = Report(as_json=json)
    with opened(Where(config, name, address), report, sole="running") as (council, _):
        found = council.tokens()[::-1]
    from council.core.state import plain

    shown = found if every else [each for each in found if each.standing in _STYLES]
    drawn = _drawn(shown) if shown else "no token may be used, and no outcome is unknown"
    return report.result({"tokens": [plain(each) for each in found]}, drawn)


def revoke(
    token: Annotated[
        str,
        typer.Argument(metavar="TOKEN", help="The token or its proposal, by 4 or more characters of its id."),
    ],
    reason: Annotated[str, typer.Option(help="The reason, for the record.")] = "",
    human: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Who revokes it; by default you.")
    ] = None,
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Revoke the token of an approved action.

    After that, this approval does not allow the action to run. A run that has begun goes on. Each person who may
    answer escalations may revoke any token. A program revokes its own tokens with Council.revoke.

    A revocation is signed, so it is not sent to a Ray that only a file in the working folder names. Use a council
    that council up started here, or name its Ray with --address, --config or COUNCIL_RAY_ADDRESS.
    """
    from council.config.human_keys import current_user

    report = Report(as_json=json)
    where = Where(config, name, address)
    where.refuse_address_found()
    with opened(where, report, sole="running") as (council, _):
        given = token.lower().removeprefix("token_")
        whole = _whole(given, council.tokens())
        council.revoke(whole, reason, human=human or current_user())
    return report.result({"token_id": whole, "revoked": True}, f"{whole} is revoked")


def _whole(given: str, found: list[TokenStanding]) -> str:
    """The id of the token that begins with ``given``. Raises CallerError for several; an unknown one stays."""
    from council.protocol.errors import CallerError

    fitting = (
        [each.token_id for each in found if each.proposal_id.startswith(given)] if len(given) >= 4 else []
    )
    if len(fitting) > 1:
        raise CallerError(
            f"{len(fitting)} tokens begin with {given}: {', '.join(fitting[:5])}; give more of it"
        )
    return fitting[0] if fitting else f"token_{given}"


def _drawn(found: list[TokenStanding]) -> RenderableType:
    from rich.console import Group

    from council.cli.render import DIM, table, text
    from council.kinds.text import count, line, span

    rows = table("token", "standing", "tool", "executor", "uses", "left", numbers=("left",))
    notes = []
    for each in found:
        rows.add_row(
            text(each.token_id),
            text(each.standing, _STYLES.get(each.standing, DIM)),
            text(line(each.tool, 60)),
            text(each.executor),
            text(f"{len(each.uses)} of {each.uses_max}"),
            text(span(each.left_s) if each.left_s else "", DIM),
        )
        if each.standing == "unknown":
            why = next(use.result.text for use in each.uses if use.result and use.result.outcome == "unknown")
            touched = ", ".join(each.resources) or "what the tool changes"
            notes.append(text(f"{each.token_id}: {line(why, 200)}. Look at {line(touched, 200)}", "red"))
        elif each.revoked:
            notes.append(text(f"{each.token_id} was revoked {line(each.revoked, 200)}", "yellow"))
    return Group(text(count(len(found), "token"), "bold"), rows, *notes)
