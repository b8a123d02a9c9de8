"""Submits one proposal, and shows its ballots as they arrive."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from council.cli.report import INTERRUPTED, TERMINATED, Interrupted, Report
from council.kinds.text import clean, line, span
from council.protocol.errors import CouncilError, PositionLost

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from council.api.client import Council
    from council.api.event_stream import Event
    from council.core.state import Decision
    from council.protocol.envelope import Envelope

# How long a council may take to answer when a proposal is cancelled after Ctrl-C.
TAKE_BACK_TIMEOUT_S = 5.0
# After the decision, for the ballots that are still in the feed.
LAST_LOOK_S = 2.0
REFRESHES_PER_S = 8


class Ballots:
    """Shows the ballots on one proposal while it is open: as a live table on a terminal, as lines elsewhere."""

    def __init__(self, report: Report, seats: Sequence[str], *, keep: bool = False) -> None:
        self._report = report
        self._rows: dict[str, tuple[str, str, str]] = dict.fromkeys(seats, ("…", "bright_black", ""))
        self._stage = "the seats deliberate"
        self._quiet = report.as_json
        self._keep = keep
        self._live: Live | None = None

    def __enter__(self) -> Ballots:
        if not self._quiet and not self._keep and self._report.notes.is_terminal:
            from rich.live import Live

            self._live = Live(
                self._table(),
                console=self._report.notes,
                refresh_per_second=REFRESHES_PER_S,
                transient=True,
                vertical_overflow="ellipsis",
                get_renderable=self._table,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def add(self, event: Event) -> None:
        """Shows an event of this proposal."""
        data = event.data
        match event.kind:
            case "ballot":
                self._ballot(data["ballot"], late=bool(data["late"]))
            case "loss":
                again = "asked again: " if data["retrying"] else "no ballot: "
                self._show(
                    data["seat"], "…" if data["retrying"] else "—", "yellow", again + line(data["why"])
                )
            case "to_prime" | "ruling" | "to_human":
                from council.cli.render import phrase

                self._stage, detail = phrase(event.kind, data)
                self._line("", f"{self._stage}: {line(detail, 300)}", "yellow")

    def _ballot(self, ballot: Mapping[str, Any], *, late: bool) -> None:
        from council.cli.render import VOTE_STYLES
        from council.kinds.phrases import certainty

        how = certainty(ballot["confidence"], ballot["risk_level"])
        said = f"{'late: ' if late else ''}{how}: {line(ballot['reason'], 300)}"
        self._show(ballot["seat"], ballot["vote"], VOTE_STYLES[ballot["vote"]], said)

    def _show(self, seat: str, vote: str, style: str, said: str) -> None:
        self._rows[seat] = (vote, style, said)
        self._line(seat, said, style, vote)

    def _line(self, seat: str, said: str, style: str, vote: str = "") -> None:
        if self._quiet or self._live is not None:
            return
        from rich.text import Text

        head = f"  {clean(seat):<10}{vote:<9}" if seat else "  "
        self._report.print_note(Text.assemble(head[:12], (head[12:], style), clean(said)))

    def _table(self) -> Table:
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
        for width in (1, 10, 7):
            table.add_column(width=width, no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        for seat, (vote, style, said) in self._rows.items():
            waiting = vote == "…"
            mark = Spinner("dots", style="cyan") if waiting else Text("•", style)
            table.add_row(mark, Text(clean(seat)), Text("" if waiting else vote, style), Text(said))
        table.add_row("", Text(""), "", Text(clean(self._stage), style="bright_black"))
        return table


def deliberate(
    council: Council,
    envelope: Envelope,
    report: Report,
    *,
    seats: Sequence[str],
    wait_for_human: bool = False,
    ends_with_us: bool = False,
    keep_lines: bool = False,
) -> Decision:
    """The decision on ``envelope``. Its ballots are shown as they land.

    On Ctrl-C or SIGTERM the proposal is cancelled, unless it waits for a human, and Interrupted says so.
    ``ends_with_us``: the council was started for this command. Raises what ``Council.propose`` raises.
    """
    with Ballots(report, seats, keep=keep_lines) as ballots:
        return asyncio.run(_deliberate(council, envelope, ballots, wait_for_human, ends_with_us))


async def _deliberate(
    council: Council, envelope: Envelope, ballots: Ballots, wait_for_human: bool, ends_with_us: bool
) -> Decision:
    task = asyncio.current_task()
    assert task is not None
    codes: list[int] = []

    def stop(code: int) -> None:
        codes.append(code)
        task.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop, INTERRUPTED)
    loop.add_signal_handler(signal.SIGTERM, stop, TERMINATED)
    following: asyncio.Task[None] | None = None
    try:
        position = int((await council.aio.status())["events"])
        following = asyncio.create_task(_follow(council, position, envelope.msg_id, ballots))
        decision = await council.aio.propose(envelope, wait_for_human=wait_for_human)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(following), LAST_LOOK_S)
        return decision
    except asyncio.CancelledError:
        code = codes[0] if codes else INTERRUPTED
        raise Interrupted(await _take_back(council, envelope.msg_id, ends_with_us), code) from None
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _follow(council: Council, position: int, proposal_id: str, ballots: Ballots) -> None:
    """Shows what happens to the proposal, until it is decided or with a human."""
    while True:
        events = council.aio.events(position)
        try:
            async for event in events:
                if event.proposal_id == proposal_id:
                    ballots.add(event)
                    if event.kind == "decision":
                        return
        except PositionLost as lost:
            position = lost.oldest - 1  # the decision has the ballots that are no longer kept
        except CouncilError:
            return  # the caller, which waits for the decision, gets the error


async def _take_back(council: Council, proposal_id: str, ends_with_us: bool) -> str:
    if ends_with_us:
        return (
            f"the council was started for this command and ended with it; proposal {proposal_id} is undecided"
        )
    stays = f"proposal {proposal_id} stays open with council {council.name!r}: see council show {proposal_id}"
    try:
        async with asyncio.timeout(TAKE_BACK_TIMEOUT_S):
            standing = await council.aio.decision(proposal_id)
            if standing is not None and standing.final:
                return f"proposal {proposal_id} had just been decided: {standing.outcome}"
            if standing is not None:
                return (
                    f"proposal {proposal_id} stays with a human: council answer {standing.escalation_id} …, "
                    f"then council show {proposal_id}"
                )
            await council.aio.cancel(proposal_id, "interrupted by its proposer")
            return f"proposal {proposal_id} was cancelled"
    except TimeoutError:
        return f"{stays} (it did not answer within {span(TAKE_BACK_TIMEOUT_S)})"
    except (CouncilError, asyncio.CancelledError) as error:
        if getattr(error, "code", "") == "unknown_proposal":
            return f"proposal {proposal_id} was not submitted"
        return f"{stays} ({line(str(error)) or 'interrupted again'})"
