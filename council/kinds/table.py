"""The table of kinds: who may send an event, and how it is journaled, announced, counted and shown.

READ FIRST. A new kind of event is a row here, and in the core its class and its handler (``events.handles``). All
code that reads, journals, announces, counts or shows events looks up its row.
"""

from __future__ import annotations

from council.core import effects as do
from council.core import events as ev
from council.kinds import identity, incoming, phrases
from council.kinds.row import Line, MessageSpec, Metric, Phrase, Row, counter, tells, timed

_CALL = "seat model"
_ESCALATIONS = "council_escalations", "Escalations to Prime, and to a human."
_DIM = "bright_black"


def _ballot_noted(effect: do.AnnounceBallot) -> Line:
    late = {"late": True} if effect.late else {}
    return Line("ballot", {"seat": effect.ballot.seat, "vote": effect.ballot.vote, **late})


def _decision_logged(effect: do.AnnounceDecision) -> Line:
    decision = effect.decision
    facts = {
        "proposal": decision.proposal_id,
        "outcome": decision.outcome,
        "by": phrases.decided_by(decision),
        "tally": str(decision.tally),
        "degraded": decision.degraded,
        "missing": [seat for seat, _ in decision.missing],
        "seconds": round(decision.seconds, 6),
        "position": decision.position,
    }
    return Line("decision", facts, "info")


def _roll_logged(effect: do.AnnounceRoll) -> Line:
    # Text after a colon may quote a mind, and so anything that the mind was shown.
    facts = {"seat": effect.seat, "why": effect.why.split(":")[0]}
    if effect.active:
        return Line("seat back", facts, "info")
    return Line("seat inactive" if effect.why.startswith("no heartbeat") else "seat lost", facts)


def _outcome_logged(effect: do.AnnounceOutcome) -> Line | None:
    report = effect.report
    facts = {"proposal": report.proposal_id, "stage": report.stage}
    return None if report.ok else Line("action step failed", facts)


_result_logged = tells("use of a token", proposal="proposal_id", outcome="outcome", executor="executor")


# In the order of a proposal's life; the rows of seats and of the council follow.
_ROWS = (
    Row(
        "proposal",
        phrases.proposal,
        "bold",
        event=ev.ProposalSubmitted,
        message=MessageSpec("PROPOSAL", incoming.submission, by="any", parts=("proposer",)),
        announced=do.AnnounceProposal,
        counted=(counter("council_proposals", "Proposals that were taken in."),),
    ),
    Row(
        "ballot",
        phrases.ballot,
        lambda data: data["ballot"]["vote"],
        event=ev.BallotCast,
        message=MessageSpec("VOTE", incoming.ballot, parts=("voter",)),
        announced=do.AnnounceBallot,
        counted=(
            counter("council_ballots", "Ballots that were counted.", "seat vote", when=lambda e: not e.late),
            counter(
                "council_late_ballots", "Ballots that came after voting had ended.", "seat vote", when="late"
            ),
        ),
        noted=_ballot_noted,
    ),
    Row("ballot_unreadable", ("{seat}", "{why}"), "yellow", "unreadable", event=ev.BallotUnreadable),
    Row(
        "fault",
        phrases.failure,
        "yellow",
        event=ev.WorkFailed,
        message=MessageSpec("INFO", incoming.fault, "fault"),
    ),
    Row(
        "loss",
        phrases.failure,
        "yellow",
        announced=do.AnnounceLoss,
        counted=(counter("council_losses", "Ballots and rulings that will not come.", "seat task"),),
        noted=tells("loss", seat="seat", task="task"),
    ),
    Row(
        "observation",
        phrases.observation,
        lambda data: "yellow" if data["interrupt"] else "",
        event=ev.StreamObserved,
        message=MessageSpec("INFO", incoming.observation, "observation"),
        announced=do.AnnounceObservation,
        counted=(
            counter(
                "council_observations",
                "Looks at another seat's stream.",
                seat="observer",
                interrupt="interrupt",
            ),
        ),
        noted=lambda e: Line("interrupt" if e.interrupt else "observation", {"seat": e.observer}),
    ),
    Row(
        "escalation",
        ("{seat} calls for Prime", "{reason}"),
        "yellow",
        event=ev.EscalationRaised,
        message=MessageSpec("ESCALATION", incoming.escalation, parts=("voter", "observer")),
    ),
    Row(
        "to_prime",
        ("escalated to Prime", "{reason}"),
        "yellow",
        announced=do.AnnouncePrimeEscalation,
        counted=(counter(*_ESCALATIONS, to=lambda _: "prime"),),
        logged=tells("escalated to Prime", "info", proposal="proposal_id"),
        noted=tells("to_prime"),
    ),
    Row(
        "ruling",
        phrases.ruling,
        "yellow",
        event=ev.RulingGiven,
        message=MessageSpec("INFO", incoming.ruling, "ruling"),
        announced=do.AnnounceRuling,
        noted=lambda e: Line("ruling", {"seat": e.ruling.seat, "ruling": e.ruling.ruling}),
    ),
    Row(
        "to_human",
        ("waits for a human as {escalation[escalation_id]}", "{escalation[detail]}"),
        "yellow",
        announced=do.AnnounceEscalation,
        counted=(counter(*_ESCALATIONS, to=lambda _: "human"),),
        logged=tells("escalated to a human", proposal="proposal_id", reason="reason"),
        noted=tells("to_human", reason="reason"),
    ),
    Row(
        "answer",
        phrases.answer,
        "cyan",
        event=ev.HumanAnswered,
        message=MessageSpec("INFO", incoming.answer, "answer", by="human"),
    ),
    Row(
        "cancellation",
        ("{sender}", "{reason}"),
        event=ev.ProposalCancelled,
        message=MessageSpec("INFO", incoming.cancellation, "cancel", by="any"),
    ),
    Row(
        "decision",
        lambda data: Phrase(phrases.ended(data), data["decision"]["reason"]),
        phrases.ended,
        announced=do.AnnounceDecision,
        counted=(
            counter(
                "council_decisions",
                "Decisions, by outcome, by what decided, and by whether a ballot was missing.",
                outcome="outcome",
                decided_by=lambda e: phrases.decided_by(e.decision),
                degraded="degraded",
            ),
            timed("council_decision_duration_seconds", "Time from a proposal to its decision.", "outcome"),
        ),
        logged=_decision_logged,
    ),
    Row(
        "call",
        phrases.call,
        _DIM,
        event=ev.CallReserved,
        message=MessageSpec("INFO", incoming.reservation, "reserve"),
    ),
    Row(
        "settlement",
        phrases.settlement,
        _DIM,
        event=ev.CallSettled,
        message=MessageSpec("INFO", incoming.settlement, "settle"),
    ),
    Row(
        "spending",
        phrases.spending,
        lambda data: "yellow" if data["error"] else _DIM,
        announced=do.AnnounceSpending,
        counted=(
            counter(
                "council_model_calls",
                "Finished calls of models; assumed where the usage is unknown.",
                _CALL,
                usage=lambda e: "assumed" if e.assumed else "told",
            ),
            timed(
                "council_model_call_duration_seconds", "Time from a call's grant to its settlement.", _CALL
            ),
            counter(
                "council_model_tokens",
                "Tokens spent, prompt and output together.",
                _CALL,
                amount=lambda e: e.spent.tokens,
            ),
            counter(
                "council_model_cost_dollars",
                "US dollars spent.",
                _CALL,
                amount=lambda e: e.spent.microusd / 1e6,
            ),
            counter(
                "council_model_errors",
                "Calls that failed, tried again or not, by HTTP status or in a word.",
                "seat model error",
                when="error",
            ),
        ),
    ),
    Row("overrun", phrases.overrun, announced=do.AnnounceOverruns),
    Row(
        "denial",
        phrases.denial,
        "yellow",
        announced=do.AnnounceDenial,
        counted=(counter("council_model_denials", "Calls that no budget had room for.", _CALL),),
    ),
    Row(
        "outcome",
        phrases.outcome,
        lambda data: "green" if data["report"]["ok"] else "red",
        event=ev.ActionReported,
        message=MessageSpec("INFO", incoming.report, "outcome", by="any"),
        announced=do.AnnounceOutcome,
        counted=(counter("council_action_outcomes", "Steps of approved actions.", "stage ok"),),
        logged=_outcome_logged,
    ),
    Row(
        "token",
        phrases.token,
        announced=do.IssueToken,
        counted=(counter("council_tokens", "Tokens issued."),),
    ),
    Row(
        "executor",
        ("{executor} begins", ""),
        _DIM,
        event=ev.ExecutorStarted,
        message=MessageSpec("INFO", incoming.executor_start, "executor", by="executor"),
        sweeps=True,
    ),
    Row(
        "use",
        phrases.use,
        "cyan",
        event=ev.UseAsked,
        message=MessageSpec("INFO", incoming.use, "use", by="executor"),
        announced=do.AnnounceUse,
        counted=(counter("council_token_uses", "Uses of tokens, each counted before it ran."),),
    ),
    Row(
        "result",
        phrases.use_result,
        lambda data: "green" if data["result"]["outcome"] == "ok" else "red",
        event=ev.UseReported,
        message=MessageSpec("INFO", incoming.use_result, "result", by="executor"),
        announced=do.AnnounceResult,
        counted=(counter("council_token_results", "Results of uses of tokens.", "outcome"),),
        logged=lambda e: None if e.result.outcome == "ok" else _result_logged(e),
    ),
    Row(
        "check",
        ("{check[seat]} has a check run first: {check[tool]}", "{check[args]}; {check[why]}"),
        "cyan",
        announced=do.AskCheck,
        noted=lambda e: Line("check", {"seat": e.check.seat}, "info"),
    ),
    Row(
        "outcome_asked",
        ("a human is asked as {question[escalation_id]}", "{question[detail]}"),
        "yellow",
        announced=do.AskOutcome,
        counted=(counter(*_ESCALATIONS, to=lambda _: "human"),),
        logged=tells("escalated to a human", proposal="proposal_id", reason="reason"),
        noted=tells("outcome_asked"),
    ),
    Row("use_timeout", ("no result came in time", ""), "red", "no result", event=ev.UseTimedOut),
    Row(
        "revocation",
        phrases.revocation,
        "yellow",
        event=ev.TokenRevoked,
        message=MessageSpec("INFO", incoming.revocation, "revoke", by="any"),
        announced=do.AnnounceRevocation,
        logged=tells("token revoked", "info", proposal="proposal_id"),
    ),
    Row(
        "seat_back",
        ("{seat}", "its heartbeat is back"),
        "green",
        "seat back",
        event=ev.SeatBeat,
        message=MessageSpec("HEARTBEAT", incoming.heartbeat, parts=("voter", "observer")),
        sweeps=True,
    ),
    Row("seat_died", ("{seat}", "{why}"), "red", "seat died", event=ev.SeatDied, sweeps=True),
    Row(
        "seat_silent",
        ("{seat}", "no heartbeat for too long"),
        "red",
        "seat silent",
        event=ev.SeatFellSilent,
        sweeps=True,
    ),
    Row(
        "roll",
        lambda data: Phrase(f"{data['seat']} is {'active' if data['active'] else 'inactive'}", data["why"]),
        lambda data: "green" if data["active"] else "red",
        announced=do.AnnounceRoll,
        logged=_roll_logged,
    ),
    Row("deadline", ("the time is up", ""), _DIM, event=ev.DeadlinePassed),
    Row("expiry", ("no human answered in time", ""), "yellow", event=ev.EscalationExpired),
    Row(
        "start",
        phrases.start,
        _DIM,
        event=ev.CoordinatorStarted,
        sweeps=True,
        announced=do.AnnounceStart,
        logged=tells("coordinator took over", epoch="epoch", open="open"),
    ),
    Row(
        "identity_change",
        phrases.identity_change,
        "cyan",
        "identity",
        event=ev.IdentityChanged,
        message=MessageSpec("INFO", incoming.identity_change, identity.KIND, by="human"),
        announced=do.AnnounceIdentityChange,
        logged=tells(
            "identity changed",
            before="before",
            after=lambda e: e.change.after.hash,
            human="human",
            basis="basis",
        ),
    ),
    Row(
        "creator_change",
        lambda data: Phrase(
            f"the creator was {data['before']}, and is {data['creator'] or 'nobody'} now, by the settings"
        ),
        "yellow",
        "creator",
        announced=do.AnnounceCreator,
        logged=tells("creator changed by the settings", before="before", creator="creator"),
    ),
    Row(
        "alert",
        ("{kind}", "{text}"),
        "red",
        announced=do.RaiseAlert,
        counted=(counter("council_alerts", "Alerts for a person to look at.", alert="kind"),),
        logged=tells("alert", proposal="proposal_id", alert="kind"),
        noted=tells("alert", alert="kind"),
    ),
    Row("damaged", ("", "{why}"), "bold red"),  # shown for a record that can't be read
    Row(
        "refusal",
        ("{sender} {code}", "{why}"),
        "yellow",
        event=ev.EnvelopeRefused,
        announced=do.AnnounceRefusal,
    ),
)

# How consumers look up a row
BY_KIND: dict[str, Row] = {}
JOURNALED: dict[type[ev.Event], Row] = {}
ANNOUNCED: dict[type[do.Effect], Row] = {}
MESSAGES: dict[tuple[str, str], MessageSpec] = {}
COUNTED: dict[str, Metric] = {}


def add(row: Row) -> None:
    """Adds a row to the lookups."""
    BY_KIND[row.kind] = row
    if row.event is not None:
        JOURNALED[row.event] = row
    if row.announced is not None:
        ANNOUNCED[row.announced] = row
    if row.message is not None:
        MESSAGES[row.message.type, row.message.kind] = row.message
    COUNTED.update({each.name: each for each in row.counted})


for _row in _ROWS:
    add(_row)
