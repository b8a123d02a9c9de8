"""``council demo``: a council reviews a real change while the user watches."""

from __future__ import annotations

from pathlib import Path

from council.cli.decide import changes
from council.cli.decide.deliberate import deliberate
from council.cli.reach import Where, opened
from council.cli.report import DONE, Report, UsageFault
from council.kinds.text import line


def run(where: Where, report: Report) -> int:
    """Reviews the newest change here, or the bundled patch; 0 once there is a decision, whatever it is."""
    change = _change(report)
    with opened(where, report) as (council, how):
        status = council.status()
        if not report.as_json:
            from rich.console import Group

            from council.cli import overview, render

            report.print(Group(overview.heading(status), "", overview.seats(status), ""))
            report.print(render.text(f"reviews {change.source}: {line(change.summary, 200)}", "bold"))
        envelope = council.draft(change.summary, change.body, wait_for="all")
        decision = deliberate(
            council,
            envelope,
            report,
            seats=[seat["name"] for seat in status["seats"]],
            ends_with_us=True,
            keep_lines=True,
        )
    from council.core.state import plain

    document = {"council": how, "source": change.source, **plain(decision)}
    if report.as_json:
        return report.result(document, None)
    report.print("")
    report.result(document, render.decision(decision))
    if not decision:
        report.note("a demonstration exits 0 whatever the decision; council review gates")
    return DONE


def _change(report: Report) -> changes.ReviewedChange:
    try:
        return changes.find(None, Path.cwd())
    except UsageFault as fault:
        why = str(fault).partition(";")[0]  # what it says to do is for a review
        report.note(f"{why}; the bundled sample is reviewed instead")
        return changes.sample()
