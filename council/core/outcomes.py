"""Takes in what became of an approved action. Knows nothing of the action, and changes no decision.

Whoever proposed it runs it, in code of its own, and tells of each step once: that it ran, whether the state is as
wanted afterwards, and whether it was put back (rules 3.1).
"""

from __future__ import annotations

from typing import get_args

from msgspec.structs import replace

from council.core import effects as do
from council.core import events as ev
from council.core.handlers import handles
from council.core.state import ActionReport, ActionStage, Closed, CouncilState, Moment
from council.core.state_store import Effects, origin, unknown
from council.protocol.errors import Refused

# As they follow each other: what never ran is neither verified nor put back.
STAGES: tuple[ActionStage, ...] = get_args(ActionStage)
# What is raised where one fails, and what failed.
_ALERTS = {
    "act": ("action_failed", "the action"),
    "verify": ("verification_failed", "verification"),
    "revert": ("revert_failed", "the revert"),
}


@handles(ev.ActionReported)
def reported(state: CouncilState, event: ev.ActionReported, now: Moment) -> Effects:
    """One step of an approved action, told by its proposer. Raises Refused for what is not its to tell, or twice."""
    report = event.report
    closed = _approved(state, report)
    told = [stage for stage, _, _ in closed.reports]
    for stage, ok, digest in closed.reports:
        if stage == report.stage and digest == report.digest:
            return [do.NoteIgnored(report.sender, "the same report again")]
        if stage == report.stage:
            first = "went well" if ok else "failed"
            raise _refused(
                report, f"it was told before, that it {first}: the first report stands", "told_before"
            )
    if report.stage != "act" and "act" not in told:
        raise _refused(report, "nobody told that the action ran: report act first", "out_of_order")
    if told and STAGES.index(told[-1]) > STAGES.index(report.stage):
        raise _refused(report, f"{told[-1]} was told of already, which comes after it", "out_of_order")
    kept = (*closed.reports, (report.stage, report.ok, report.digest))
    state.closed[report.proposal_id] = replace(closed, reports=kept)
    effects: Effects = [do.AnnounceOutcome(report)]
    if not report.ok:
        kind, what = _ALERTS[report.stage]
        why = f"{what} failed, {report.sender} reports" + (f": {report.text}" if report.text else "")
        effects.append(do.RaiseAlert(report.proposal_id, kind, why))
    return effects


def _approved(state: CouncilState, report: ActionReport) -> Closed:
    """The approved proposal that a report is about. Raises Refused where there is none, or it is another's."""
    known, closed = origin(state, report.proposal_id), state.closed.get(report.proposal_id)
    if known is None:
        raise unknown(report.proposal_id, report.sender)
    _, proposer = known
    if proposer != report.sender:
        raise _refused(
            report, f"{proposer} proposed it, who alone may tell what became of it", "not_the_proposer"
        )
    if closed is None:
        raise _refused(report, "it is not decided yet, so that nothing may have run", "not_approved")
    if not closed.decision:
        raise _refused(
            report, f"it is {closed.decision.outcome}, so that nothing may have run on it", "not_approved"
        )
    return closed


def _refused(report: ActionReport, why: str, code: str) -> Refused:
    return Refused(
        f"{report.sender}'s report of {report.stage} on {report.proposal_id} is not taken: {why}",
        code=code,
        proposal_id=report.proposal_id,
        sender=report.sender,
    )
