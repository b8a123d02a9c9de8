"""Bugs to plant in the council, one line of one function each: the measure of what the tests can find.

A bug whose function or line is no longer there can't be planted, which is an error: mend its entry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Bug:
    name: str
    place: str  # module:function, below council
    line: str
    instead: str
    found_by: str = ""  # a named test, where no simulated council can come upon it


# The first seed that finds each bug. It is tried first; where it finds the bug no more, all seeds are.
FINDING_SEEDS: dict[str, int] = json.loads((Path(__file__).parent / "finding_seeds.json").read_text())

BUGS = (
    Bug("90 s are 89", "core.roll:silent_from", "rules.inactivity_limit_s", "rules.inactivity_limit_s - 1"),
    Bug("90 s are 91", "core.roll:silent_from", "rules.inactivity_limit_s", "rules.inactivity_limit_s + 1"),
    Bug(
        "a deadline passes at the deadline",
        "core.step:next_due",
        "now.uptime_s > timer[0]",
        "now.uptime_s >= timer[0]",
    ),
    Bug("no timer for deadlines", "core.step:next_deadline", "ends.append(timer[0])", "pass"),
    Bug(
        "an old run's heartbeat counts",
        "core.roll:_beat",
        "event.boot < seat.boot or event.beat <= seat.beat",
        "event.beat <= seat.beat",
    ),
    Bug(
        "a replayed heartbeat counts",
        "core.roll:_beat",
        "event.boot < seat.boot or event.beat <= seat.beat",
        "event.boot < seat.boot",
    ),
    Bug("a death begins no new run", "core.roll:_died", "boot=seat.boot + 1", "boot=seat.boot"),
    Bug("a tie goes by list order", "core.conclusion:break_tie", "ballot.seat == prime and ", ""),
    Bug(
        "an abstention is a yes",
        "core.conclusion:count",
        'votes.count("yes")',
        'len(votes) - votes.count("no")',
    ),
    Bug("half is a majority", "core.conclusion:carried", "> reach", ">= reach"),
    Bug(
        "a late ballot counts",
        "core.ballots:ballot",
        'proposal.stage != "deliberating"',
        'proposal.stage == "human"',
    ),
    Bug(
        "a second ballot counts",
        "core.ballots:_is_repeated",
        "if first.seat == ballot.seat:",
        "if first.digest == ballot.digest:",
    ),
    Bug(
        "ballots of the unasked count",
        "core.ballots:_is_repeated",
        "if ballot.seat not in asked:",
        "if False:",
    ),
    Bug(
        "early though all are awaited", "core.conclusion:conclude", ' or proposal.what.wait_for == "all"', ""
    ),
    Bug(
        "early though escalated",
        "core.conclusion:conclude",
        "bool(proposal.escalated_for) or asks_human",
        "asks_human",
    ),
    Bug("no ruling is needed", "core.conclusion:conclude", "    if proposal.escalated_for:", "    if False:"),
    Bug("no user's approval is needed", "core.conclusion:conclude", "    if asks_human:", "    if False:"),
    Bug(
        "who is active counts as having voted",
        "core.conclusion:conclude",
        "votes.cast >= rules.quorum",
        "reach >= rules.quorum",
    ),
    Bug("Prime's rejection is overlooked", "core.conclusion:on_ruling", 'ruling.ruling == "reject"', "False"),
    Bug("an unsure ruling stands", "core.conclusion:on_ruling", "unsure(ruling.confidence)", "False"),
    Bug(
        "0.3 itself is unsure",
        "core.state:unsure",
        "not (confidence >= CONFIDENCE_FLOOR)",
        "confidence <= CONFIDENCE_FLOOR",
    ),
    Bug("ballots never escalate", "core.escalation:for_ballot", "return _risky", "return None and _risky"),
    Bug(
        "clean observations do not count",
        "core.ballots:observed",
        "run = 0",
        "run = run",
    ),
    Bug("a good beginning takes back a halt", "core.ballots:observed", "event.whole and ", ""),
    Bug(
        "an earlier round that was well takes back a halt",
        "core.ballots:observed",
        "event.round > halted",
        "True",
    ),
    Bug(
        "one halt counts each time that it is told",
        "core.ballots:observed",
        "not event.round or event.round != halted",
        "True",
    ),
    Bug("anybody observes", "core.ballots:observed", "event.observer != state.rules.observer", "False"),
    Bug(
        "who was not given it is observed",
        "core.ballots:observed",
        "if seat not in proposal.asked:",
        "if False:",
    ),
    Bug("a replayed observation counts", "core.ballots:_acted", "if msg_id in seen:", "if False:"),
    Bug("an expired escalation is approved", "core.step:_expired", '"deferred"', '"approved"'),
    Bug(
        "other bytes under one id are a retry",
        "core.proposals:_submitted_before",
        "if digest != what.digest:",
        "if False:",
    ),
    Bug("anybody cancels", "core.proposals:cancelled", "event.sender != proposal.what.proposer", "False"),
    Bug(
        "who is back is handed nothing",
        "core.roll:_announce_open",
        'if proposal.stage != "deliberating":',
        "if True:",
    ),
    Bug(
        "lost ballots are waited for",
        "core.conclusion:conclude",
        "or _is_quorum_lost(state, proposal)",
        "or False",
    ),
    Bug("who is silent is lost", "core.conclusion:_may_vote", "state.seats.keys()", "state.active()"),
    Bug("nothing is degraded", "core.conclusion:_absent", "degraded = True", "degraded = False"),
    Bug(
        "told before it is kept",
        "runtime.driver:Driver._step",
        "self.announcements.hold(told, self._position, now)",
        "self._announce_effect(told, now, self._position)",
    ),
    Bug(
        "told one record too soon",
        "runtime.announcements:Announcements.release",
        "self._held[0].position <= position",
        "self._held[0].position <= position + 1",
    ),
    Bug(
        "answered before it is kept",
        "runtime.announcements:Announcements.reply",
        "self._held.append(_Held(position, now, None, (session, message)))",
        "self._send_reply(session, message)",
    ),
    Bug(
        "anybody answers for a human",
        "runtime.event_reader:event_of",
        'if kind and speaker not in ("any", role):',
        "if False:",
    ),
    Bug("any seat rules", "core.ballots:ruled", "ruling.seat != state.rules.prime", "False"),
    Bug(
        "any part goes with any message",
        "runtime.event_reader:event_of",
        "said is not None and said.parts and envelope.role not in said.parts",
        "False",
    ),
    Bug(
        "anybody plays any part",
        "runtime.event_reader:event_of",
        'envelope.role not in PARTS.get(role or "", ())',
        "False",
    ),
    Bug(
        "signatures are not looked at",
        "protocol.signing:Keyring.open",
        "if not hmac.compare_digest",
        "if 0 and not hmac.compare_digest",
    ),
    Bug(
        "the council's words can be sent back",
        "protocol.signing:_signature",
        "council_id, peer)",
        'council_id, "")',
    ),
    Bug(
        "Prime is not asked again when back",
        "core.roll:_announce_open",
        "name == state.rules.prime",
        "False",
    ),
    Bug(
        "granted before it is kept",
        "runtime.driver:Driver._step",
        "self.announcements.hold(told, self._position, now)",
        "self._announce_effect(told, now, self._position) if isinstance(told, do.GrantCall) else "
        "self.announcements.hold(told, self._position, now)",
    ),
    Bug(
        "halted before it is kept",
        "runtime.driver:Driver._step",
        "self.announcements.hold(told, self._position, now)",
        "self._announce_effect(told, now, self._position) if isinstance(told, do.InterruptSeat) else "
        "self.announcements.hold(told, self._position, now)",
    ),
    Bug(
        "the observer is halted",
        "core.ballots:observed",
        "do.InterruptSeat(event.stream",
        "do.InterruptSeat(event.observer",
    ),
    Bug("nobody is told to halt", "core.ballots:observed", "event.interrupt and event.round", "False"),
    Bug("who has voted is halted", "core.ballots:_is_at_work", "proposal.done()", "proposal.lost"),
    Bug(
        "a seat observes its own stream",
        "runtime.streams:Relay.take",
        "not observer or piece.seat == observer",
        "not observer",
    ),
    Bug(
        "what is said after the vote is overheard",
        "runtime.streams:Relay._why_not",
        'proposal is None or proposal.stage != "deliberating"',
        "proposal is None",
    ),
    Bug(
        "who has voted is overheard",
        "runtime.streams:Relay._why_not",
        "if any(ballot.seat == piece.seat for ballot in proposal.ballots):",
        "if False:",
    ),
    Bug(
        "ballots are overheard",
        "runtime.outbox:Outbox.relay",
        "piece.text, {**data",
        '", ".join(b.vote for b in state.open[piece.proposal_id].ballots) or piece.text, {**data',
    ),
    Bug(
        "a piece is taken for an act",
        "runtime.streams:is_piece",
        'content.kind == "stream"',
        "False",
    ),
    Bug("a seat has the council's cap", "core.budget:_too_much", "budget.seat)", "budget.council)"),
    Bug(
        "a cap may be passed by one",
        "core.budget:_too_much",
        "kept * ballots > cap",
        "kept * ballots > cap + 1",
    ),
    Bug("a look spends what ballots need", "core.budget:_too_much", "call.task == LOOK", "False"),
    Bug("ballots have the room of looks", "core.budget:_too_much", "call.task == LOOK", "True"),
    Bug("the proposal has no cap", "core.budget:_too_much", "budget.proposal", "Caps()"),
    Bug(
        "what was denied may be granted later",
        "core.budget:reserved",
        "if call.call_id in refused:",
        "if False:",
    ),
    Bug(
        "a denial is a record each time",
        "journal.record:leaves_one",
        "return not effect.again",
        "return True",
    ),
    Bug(
        "the dead go on paying", "core.budget:abandoned", "seat in (None, granted.call.seat)", "seat is None"
    ),
    Bug("a restart forgets calls", "core.roll:_started", "*budget.abandoned(state, now)", "*[]"),
    Bug(
        "unknown usage is free",
        "core.budget:_settle",
        "call.worst if used is None",
        "Spend() if used is None",
    ),
    Bug("the reservation is kept too", "core.budget:_settle", "account.held - call.worst", "account.held"),
    Bug(
        "a decision does not tell what came later",
        "core.budget:_settle",
        "replace(decided.decision, spent=accounts)",
        "gone.decision",
    ),
    Bug("a settled call is open", "core.budget:_settle", "del state.calls[call.call_id]", "pass"),
    Bug(
        "an action that fails was never approved",
        "core.proposals:reported",
        "replace(closed, reports=kept)",
        'replace(closed, reports=kept, decision=replace(closed.decision, outcome="rejected"))',
    ),
    Bug("a step is told of twice", "core.proposals:reported", "if stage == report.stage:", "if False:"),
    Bug(
        "what never ran is verified",
        "core.proposals:reported",
        'report.stage != "act" and "act" not in reported_before',
        "False",
    ),
    Bug("anybody tells of it", "core.proposals:_approved", "proposer != report.sender", "False"),
    Bug("what was rejected may run", "core.proposals:_approved", "not closed.decision:", "False:"),
    Bug("a token may be used for ever", "core.tokens:_ended", "if token.spent():", "if False:"),
    Bug("a use is not counted", "core.tokens:asked", "(*token.uses, counted)", "token.uses"),
    Bug("other arguments may be run", "core.tokens:_differs", "request.arguments != terms.digest", "False"),
    Bug("other resources may be used", "core.tokens:_differs", "if each not in allowed", "if False"),
    Bug("another tool may be run", "core.tokens:_differs", "request.tool != token.tool", "False"),
)

# What carries the bytes; looked for in the real shell (test_shell.py).
SHELL_BUGS = (
    Bug("a seat does not say again", "agents.seat.host:SeatHost._begin", "self.say(each)", "pass"),
    Bug(
        "a client does not send again",
        "runtime.session:Session._send_again",
        "self._courier.send(waiting.sealed)",
        "pass",
    ),
    Bug(
        "a courier stops",
        "agents.messaging.mailbox:Courier._landed",
        "if self._waiting or self._more:",
        "if False:",
    ),
    Bug("a lost seat is not noticed", "runtime.supervision:Supervision._lose", "lost.set_result", "str"),
    Bug(
        "a seat is halted by what is not kept",
        "runtime.driver:Driver._step",
        "self.announcements.hold(told, self._position, now)",
        "self._announce_effect(told, now, self._position) if isinstance(told, do.InterruptSeat) else "
        "self.announcements.hold(told, self._position, now)",
    ),
    Bug(
        "a seat overhears itself",
        "runtime.streams:Relay.take",
        "not observer or piece.seat == observer",
        "not observer",
    ),
    Bug(
        "what was missed leaves no mark",
        "agents.seat.observed_cases:ObservedStage.add",
        "GAP if at > self.at else",
        '"" if at else',
    ),
    Bug(
        "rounds are heard as one",
        "agents.seat.observed_cases:ObservedStage.add",
        'self.round, self.at, self.text = number, 0, ""',
        "self.round, self.at = number, 0",
    ),
    Bug("three halts are as good as none", "core.ballots:observed", "run >= INTERRUPTS_MAX", "run > 99"),
    Bug(
        "a session is not owed",
        "runtime.announcements:Watchers.waits",
        "session in self._proposals",
        "False",
    ),
    Bug(
        "a retry is not answered",
        "runtime.driver:Driver._step",
        "if effect.decision is not None:",
        "if False:",
    ),
)
