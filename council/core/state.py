"""The council's state: rules, seats, proposals, decisions.

Everything here but ``CouncilState`` is a frozen ``Value``. Times called ``…_s`` are seconds of the coordinator's
monotonic uptime. Times called ``…_wall_s`` are Unix seconds, for the one deadline that runs while everything is down,
a human's (rules 1.9).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Literal, get_args

import msgspec

from council.agents.static.marks import is_static
from council.core import words

Vote = Literal["yes", "no", "abstain"]
RiskLevel = Literal["low", "med", "high"]
RulingWord = Literal["confirm", "reject", "human", "verify"]
Outcome = Literal["approved", "rejected", "deferred", "cancelled"]
Standing = Literal["decided", "escalated"]
Stage = Literal["deliberating", "ruling", "human", "checking"]
ActionStage = Literal["act", "verify", "revert"]
UseOutcome = Literal["ok", "failed", "cancelled", "unknown"]
USE_OUTCOMES: tuple[UseOutcome, ...] = get_args(UseOutcome)
ACTION_STAGES: tuple[ActionStage, ...] = get_args(ActionStage)  # in their order
WaitFor = Literal["decisive", "all"]
SoleSeat = Literal["never", "allow-low-risk"]

# rules 1.8: below this, and for anything that does not compare (NaN), a proposal escalates.
CONFIDENCE_FLOOR = 0.3
# rules 1.8: this many interrupts in a row on one stream escalate.
INTERRUPTS_MAX = 3
# The number of messages, and the time to read a decision, grow with the number of seats.
SEATS_MAX = 15
# Acts of one kind and seat on an open proposal. Each is remembered so that a replay is recognised.
ACTS_MAX = 100
# A decision holds the reasons of its escalation: at most this many, of this many characters each. The first ones are
# kept, so that a seat can't make the decision too large to send.
REASONS_MAX = 20
REASON_TOLD_MAX = 500
# rules 5: so many checks of one proposal are run at most, each for so many seconds.
CHECKS_MAX = 3
CHECK_S = 30.0
# Characters of a check's result that the seats are shown; the record of the result has all of it.
CHECK_CHARS_MAX = 4_000
# A result of an action may take this long to arrive after the time that its run has.
RESULT_GRACE_S = 10.0


class Value(msgspec.Struct, frozen=True, gc=False):
    """A frozen value with ``==``. Its fields hold values and texts only.

    It can't be part of a cycle, so the garbage collector need not look at it (``gc=False``); else it would look at
    all decisions ever made.
    """


def council_of(key: str, count: int) -> int:
    """The number of the council, among ``count`` in a pool, that a key or a proposal's id belongs to.

    It never changes.
    """
    return int.from_bytes(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:8], "big") % count


def unsure(confidence: float) -> bool:
    """Whether ``confidence`` is too low to decide on. Written so that NaN is unsure (rules 1.8)."""
    return not (confidence >= CONFIDENCE_FLOOR)


class Moment(Value, frozen=True):
    """The time at which an event is handled, and the position that its record will have.

    ``uptime_s`` never falls; ``wall_s`` may jump; ``position`` counts records from 1.
    """

    uptime_s: float
    wall_s: float
    position: int


class Spend(Value, frozen=True):
    """The cost of model calls: tokens, prompt and output together, and millionths of a dollar."""

    tokens: int = 0
    microusd: int = 0

    def __add__(self, other: Spend) -> Spend:
        return Spend(self.tokens + other.tokens, self.microusd + other.microusd)

    def __sub__(self, other: Spend) -> Spend:
        return Spend(self.tokens - other.tokens, self.microusd - other.microusd)

    def __str__(self) -> str:
        tokens = f"{self.tokens:,} tokens"
        return f"{tokens}, ${self.microusd / 1e6:,.6f}" if self.microusd else tokens


class Caps(Value, frozen=True):
    """The most that may be spent, in the units of ``Spend``; None for no limit."""

    tokens: int | None = None
    microusd: int | None = None


class Budget(Value, frozen=True):
    """Caps on each proposal, on each seat (``seats`` has other caps for some), and on the council for its life."""

    proposal: Caps = Caps()
    seat: Caps = Caps()
    council: Caps = Caps()
    seats: tuple[tuple[str, Caps], ...] = ()


class Call(Value, frozen=True):
    """A model call that a seat wants to make. ``call_id`` is the id of the message that asks for it.

    ``worst`` is its highest cost; ``prompt`` the sha256 of the files that its prompt was made of, in hex, or empty.
    """

    call_id: str
    proposal_id: str
    seat: str
    task: str
    model: str
    worst: Spend
    prompt: str = ""


class Granted(Value, frozen=True):
    """A call under way, and since when."""

    call: Call
    at_s: float


class Overrun(Value, frozen=True):
    """TOKEN_BUDGET_OVERRUN: a prompt's ``field`` had more tokens than its ``limit`` (rules 2.4).

    ``packet`` is the id of what the prompt was made for, ``how`` the step that shortened it and what did it.
    """

    packet: str
    field: str
    limit: int
    before: int
    after: int
    how: str


class Account(Value, frozen=True):
    """The amount that a seat has ``spent``, and the amount ``held`` for its calls under way.

    ``assumed`` is the number of its ``calls`` with an unknown usage, which count as reserved.
    """

    seat: str
    calls: int = 0
    spent: Spend = Spend()
    held: Spend = Spend()
    assumed: int = 0


def total(accounts: Iterable[Account]) -> Spend:
    """The sum of what these accounts have spent and hold."""
    return sum((account.spent + account.held for account in accounts), Spend())


class KeptIdentity(Value, frozen=True):
    """An identity in the journal: its canonical JSON, and the sha256 of that in hex (rules 7.1)."""

    hash: str = ""
    text: str = ""


class IdentityChange(Value, frozen=True):
    """An allowed change of the identity, and the evidence for it (rules 7.2).

    ``basis`` names the authority and ``reason`` says why; ``agreed`` is the proposal whose decision shows that
    ``agreed_by`` agree. ``prime_online_s`` and ``lite_online_s``: for how long without a gap; None if not online.
    """

    before: str
    after: KeptIdentity
    human: str
    why: str
    emergency: str = ""
    agreed: str = ""
    agreed_by: tuple[str, ...] = ()
    basis: str = ""
    reason: str = ""
    prime_online_s: float | None = None
    lite_online_s: float | None = None


class Rules(Value, frozen=True):
    """The settings that decisions depend on. ``prime`` is the seat that breaks ties and rules.

    ``creator`` is the human who may change the ``identity`` (rules 7.2); empty for none, like the identity.
    ``observer`` is the seat that reads the others' streams; empty for none. ``shared`` lists ``(label, seats)`` for
    seats that share a model or vendor (rules 1.1). ``pool`` is ``(number, count)`` in a pool, else None.
    ``lost_at_once``: a human is asked at once if lost ballots make a quorum impossible (rules 1.5). It is unset, and
    not written, in a journal that is older than this rule: its proposals waited for their deadlines.
    ``asks_outcome``, unset likewise: a human is asked about each use of a token with an unknown outcome (rules 5).
    ``keeps_escalation``, unset likewise: a check undoes no escalation that another seat or the observer asked for.
    """

    seats: tuple[str, ...]
    prime: str
    quorum: int = 2
    inactivity_limit_s: float = 90.0
    escalation_ttl_s: float = 86_400.0
    sole_seat: SoleSeat = "never"
    open_max: int = 2_000
    escalations_max: int = 10_000
    shared: tuple[tuple[str, tuple[str, ...]], ...] = ()
    budget: Budget = Budget()
    observer: str = ""
    creator: str = ""
    identity: KeptIdentity = KeptIdentity()
    pool: tuple[int, int] | None = None
    lost_at_once: bool | msgspec.UnsetType = msgspec.UNSET
    asks_outcome: bool | msgspec.UnsetType = msgspec.UNSET
    keeps_escalation: bool | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if not 1 <= len(self.seats) <= SEATS_MAX or len(set(self.seats)) != len(self.seats):
            raise ValueError(f"seats must be 1 to {SEATS_MAX} distinct names, found {self.seats!r}")
        if self.prime not in self.seats:
            raise ValueError(f"prime must be one of the seats {self.seats!r}, found {self.prime!r}")
        if self.observer and self.observer not in self.seats:
            raise ValueError(
                f"observer must be one of the seats {self.seats!r}, or empty, found {self.observer!r}"
            )
        most = max(2, len(self.seats))
        if not 2 <= self.quorum <= most:  # rules 1.4
            raise ValueError(f"quorum must be 2 to {most} with {len(self.seats)} seats, found {self.quorum}")
        for name in ("inactivity_limit_s", "escalation_ttl_s", "open_max", "escalations_max"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be more than 0 and finite, found {value}")


class Seat(Value, frozen=True):
    """One seat on the roll. ``boot`` counts its ended runs, ``beat`` is the number of its last heartbeat.

    ``handed_on`` is the number of runs that ended with a coordinator, not with the seat's actor. An active seat has
    been active since ``since_s`` under this coordinator (rules 7.2).
    """

    name: str
    active: bool
    last_beat_s: float
    boot: int = 0
    beat: int = -1
    why: str = "at launch"
    handed_on: int = 0
    since_s: float = 0.0


class Terms(Value, frozen=True):
    """What an approval of a proposal's action allows (rules 5).

    ``digest`` is the sha256 of the canonical JSON of the action's arguments, in hex.
    """

    executor: str
    operations: tuple[str, ...]
    resources: tuple[str, ...]
    digest: str
    uses: int
    ttl_s: float
    timeout_s: float


class UseRequest(Value, frozen=True):
    """An executor asks to run an approved action once. ``use_id`` is its message's id, ``run`` its process's.

    ``arguments`` is the sha256 of the canonical JSON of the arguments that it was handed.
    """

    proposal_id: str
    use_id: str
    executor: str
    run: str
    token_id: str
    tool: str
    operations: tuple[str, ...]
    resources: tuple[str, ...]
    arguments: str


class UseResult(Value, frozen=True):
    """The result of a use, as ``executor`` reports it; if ``assumed``, the council says so because no report came.

    ``digest`` is of the report's message, ``output`` the sha256 of the whole output in hex, ``sandbox`` the level
    that it ran at.
    """

    proposal_id: str
    use_id: str
    executor: str
    outcome: UseOutcome
    text: str = ""
    sandbox: str = ""
    exit_code: int | None = None
    output: str = ""
    digest: str = ""
    assumed: bool = False


class Use(Value, frozen=True):
    """A counted use of a token. Until there is a ``result`` it is under way, ``until_s`` at the latest.

    ``asked`` is the question to a human, as long as one is asked about its unknown outcome; else unset.
    """

    use_id: str
    run: str
    at_s: float
    until_s: float
    result: UseResult | None = None
    asked: Escalation | msgspec.UnsetType = msgspec.UNSET


class Token(Value, frozen=True):
    """A ToolAuthorizationToken (rules 5). It stands on the approval of the proposal, which names it.

    It ends at ``expires_s`` of uptime; wall-clock time after ``expires_wall_s`` ends it sooner (rules 4.6).
    ``revoked`` is the reason, if it was revoked, with who did so. ``check`` is set if it is for a check that was
    asked for, before the decision: the number of the check, from 1.
    """

    proposal_id: str
    proposer: str
    tool: str
    terms: Terms
    expires_s: float
    expires_wall_s: float
    uses: tuple[Use, ...] = ()
    revoked: str = ""
    check: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def token_id(self) -> str:
        return token_id_of(self.proposal_id, self.check if isinstance(self.check, int) else None)

    def expired(self, now: Moment) -> bool:
        return now.uptime_s > self.expires_s or now.wall_s > self.expires_wall_s

    def under_way(self) -> tuple[Use, ...]:
        return tuple(use for use in self.uses if use.result is None)

    def spent(self) -> bool:
        return len(self.uses) >= self.terms.uses


def token_id_of(proposal_id: str, check: int | None = None) -> str:
    """The id of the token that an approval of this proposal issues, or that is for a check before its decision."""
    return f"token_{proposal_id}" if check is None else f"token_{proposal_id}-{check}"


def escalation_id_of(proposal_id: str, use: int | None = None) -> str:
    """The id of the escalation of a proposal, or of the question about the outcome of a use of its token."""
    return f"esc-{proposal_id}" if use is None else f"esc-{proposal_id}-{use}"


def escalated_by(escalation_id: str) -> tuple[str, int | None]:
    """The proposal that an escalation's id, or its own, names, and the use of its token, if it is about one."""
    whole = escalation_id.removeprefix("esc-")
    proposal_id, dash, use = whole.partition("-")
    is_number = use.isascii() and use.isdigit() and len(use) < 10
    return (proposal_id, int(use)) if dash and is_number else (whole, None)


class Submission(Value, frozen=True):
    """A proposal as it was submitted. ``digest`` is of its canonical bytes (rules 1.12).

    ``terms`` are those of its action, if the council is to run it; else they are unset, and not written.
    """

    proposal_id: str
    proposer: str
    digest: str
    summary: str
    time_budget_s: float
    wait_for: WaitFor = "decisive"
    confidence: float = 1.0
    risk_level: RiskLevel = "low"
    tool: str | None = None
    supersedes: str | None = None
    terms: Terms | msgspec.UnsetType = msgspec.UNSET


class Check(Value, frozen=True):
    """A call of a READ tool that ``seat`` asks for before the decision (VERIFY_FIRST, rules 5), and its result.

    ``args`` is canonical JSON and ``digest`` its sha256 in hex. ``outcome`` is empty until there is a result, whose
    ``text`` is shown to the seats. ``tool`` is empty if the request can't be read.
    """

    seat: str
    tool: str
    args: str
    digest: str
    why: str
    outcome: str = ""
    text: str = ""

    def __str__(self) -> str:
        """The call, and what came of it."""
        call = f"{self.tool} {self.args}"
        return f"{call}: {self.outcome}: {self.text}" if self.outcome else call


class Ballot(Value, frozen=True):
    """One seat's vote on one proposal, as it counts. ``asks_human``: its control packet requires a user's approval.

    ``notes`` are what its control packet says beside it, as ``(kind, text)``: ``chesterton_fence``, ``override`` and
    ``learning`` (rules 6.6). Without one they are unset, and not written. ``check`` is the check that it asks for,
    and ``checks_seen`` the number of those that its seat was shown, each unset if there is none.
    """

    proposal_id: str
    seat: str
    vote: Vote
    reason: str
    confidence: float
    risk_level: RiskLevel
    msg_id: str
    digest: str
    asks_human: bool = False
    notes: tuple[tuple[str, str], ...] | msgspec.UnsetType = msgspec.UNSET
    check: Check | msgspec.UnsetType = msgspec.UNSET
    checks_seen: int | msgspec.UnsetType = msgspec.UNSET


class Ruling(Value, frozen=True):
    """Prime's act on an escalated proposal (rules 1.8). ``check`` is set if it is ``verify``."""

    proposal_id: str
    seat: str
    ruling: RulingWord
    reason: str
    confidence: float
    risk_level: RiskLevel
    msg_id: str
    digest: str
    check: Check | msgspec.UnsetType = msgspec.UNSET


class Answer(Value, frozen=True):
    """A human's answer to an escalation (rules 1.9).

    ``use`` is set if it is about the outcome of a use of the proposal's token: the number of the use, from 1. Then
    ``approve`` says that the action ran. Else it is unset, and not written.
    """

    proposal_id: str
    human: str
    approve: bool
    reason: str
    msg_id: str
    digest: str
    use: int | msgspec.UnsetType = msgspec.UNSET


class Tally(Value, frozen=True):
    """The counted ballots, by vote."""

    yes: int = 0
    no: int = 0
    abstain: int = 0

    @property
    def cast(self) -> int:
        return self.yes + self.no + self.abstain

    def __str__(self) -> str:
        return f"{self.yes} yes, {self.no} no, {self.abstain} abstained"


class Option(Value, frozen=True):
    """One of the options that a human is offered."""

    name: str
    pros: tuple[str, ...]
    cons: tuple[str, ...]


class Escalation(Value, frozen=True):
    """A proposal that waits for a human: the reason, the options, what is not known, the next step.

    A human answers it by its id. It closes as ``deferred`` when ``expires_wall_s`` has passed. If its ``reason`` is
    ``outcome_unknown``, the proposal is decided, and the question is whether its action ran (rules 5).
    """

    escalation_id: str
    proposal_id: str
    summary: str
    risk_level: RiskLevel
    reason: str
    detail: str
    options: tuple[Option, ...]
    gaps: tuple[str, ...]
    next_step: str
    ballots: tuple[Ballot, ...]
    ruling: Ruling | None
    asked_wall_s: float
    expires_wall_s: float


class TieBreak(Value, frozen=True):
    """The act by which Prime's own ballot broke a tie; never a second ballot (rules 1.6)."""

    seat: str
    ballot_msg_id: str
    vote: Vote


class Decision(Value, frozen=True):
    """The decision on a proposal (rules 1.13). It is true in a condition only if approved. ``str`` is one line.

    Until a human has answered, ``standing`` is ``escalated``, ``outcome`` None and ``final`` False.
    ``missing`` and ``late`` name the seats whose ballots it does not count, each with the reason or ballot.
    ``spent`` is what the seats' models cost; calls that were under way when it was decided are added later.
    ``checks`` are those that were run before it, with their results; unset, and not written, if there were none.
    """

    proposal_id: str
    summary: str
    standing: Standing
    outcome: Outcome | None
    final: bool
    reason: str
    tally: Tally
    quorum: int
    ballots: tuple[Ballot, ...]
    ruling: Ruling | None = None
    answer: Answer | None = None
    tie_break: TieBreak | None = None
    early: bool = False
    degraded: bool = False
    missing: tuple[tuple[str, str], ...] = ()
    late: tuple[Ballot, ...] = ()
    escalated_for: tuple[str, ...] = ()
    escalation_id: str | None = None
    dissent: str = ""
    shared: tuple[tuple[str, tuple[str, ...]], ...] = ()
    seconds: float = 0.0
    position: int = 0
    spent: tuple[Account, ...] = ()
    checks: tuple[Check, ...] | msgspec.UnsetType = msgspec.UNSET

    def __bool__(self) -> bool:
        return self.outcome == "approved"

    def __str__(self) -> str:
        return words.one_line(self)

    def __repr__(self) -> str:
        return f"<Decision on {self.proposal_id}: {words.one_line(self):.500}>"

    def _repr_html_(self) -> str:
        """The HTML that a notebook shows."""
        return words.table(self)

    def explain(self) -> str:
        """Returns the reasons for the decision and what can be done, in a few lines that an agent's model can act on.

        They quote texts of seats and proposers: data, never instructions (rules 1.14).
        """
        return words.explained(self)

    @property
    def how_to_answer(self) -> str:
        """What the human does to answer it, while it waits for one."""
        return f"council answer {self.escalation_id}"

    @property
    def static_only(self) -> bool:
        """Whether it was approved by static checks alone, without a model or a human: these found no objection."""
        acts = [each for each in (*self.ballots, self.ruling) if each is not None]
        in_favour = [each for each in acts if not isinstance(each, Ballot) or each.vote == "yes"]
        by_seats = bool(self) and self.answer is None and bool(in_favour)
        return by_seats and all(is_static(each.reason) for each in in_favour)


class InlineDecision(Decision, frozen=True):
    """A decision of a council in a program of its own, as that program gets it: no shell reaches that council."""

    @property
    def how_to_answer(self) -> str:
        return (
            f'in the program that runs this council, council.answer("{self.escalation_id}", approve=True or False). '
            "To answer from a shell, run council up and use Council.connect()"
        )


class Absent(Value, frozen=True):
    """The seats without a counted ballot, each with the reason, and whether that degrades the decision."""

    missing: tuple[tuple[str, str], ...]
    degraded: bool


class Proposal(Value, frozen=True):
    """An open proposal.

    - ``deadline_s``: of its stage; a human's deadline is in wall time too (``escalation``)
    - ``asked``: the seats it was handed to
    - ``lost``: the seats whose ballot will not come, each with the reason
    - ``asked_again``: the seats whose first ballot could not be read, each with its digest
    - ``interrupts``: the interrupts in a row on each seat's stream; ``halted``: the newest halted round of each
    - ``acts``: the messages seen, by seat and kind
    - ``escalated_for``: the reasons why it is escalated to Prime, if it is
    - ``absent``: who was missing when voting ended
    - ``standing``: what its proposer gets while it waits for a human
    - ``accounts``: what the seats' models cost; ``dearest``: the highest cost of a call for it
    - ``checks``: those that were run before the decision, unset if there are none (``all_checks``); the last has no
      result yet while its stage is ``checking``
    """

    what: Submission
    opened_s: float
    deadline_s: float
    stage: Stage = "deliberating"
    asked: frozenset[str] = frozenset()
    ballots: tuple[Ballot, ...] = ()
    lost: Mapping[str, str] = msgspec.field(default_factory=dict)
    asked_again: Mapping[str, str] = msgspec.field(default_factory=dict)
    interrupts: Mapping[str, int] = msgspec.field(default_factory=dict)
    halted: Mapping[str, int] = msgspec.field(default_factory=dict)
    acts: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    escalated_for: tuple[str, ...] = ()
    absent: Absent | None = None
    ruling: Ruling | None = None
    escalation: Escalation | None = None
    standing: Decision | None = None
    late: tuple[Ballot, ...] = ()
    accounts: tuple[Account, ...] = ()
    dearest: Spend = Spend()
    checks: tuple[Check, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def all_checks(self) -> tuple[Check, ...]:
        return () if self.checks is msgspec.UNSET else self.checks

    def done(self) -> frozenset[str]:
        """The seats whose ballot is cast or lost: nothing more is awaited of them."""
        return frozenset(self.lost).union(ballot.seat for ballot in self.ballots)


class ActionReport(Value, frozen=True):
    """The proposer's report of one step of an approved action."""

    proposal_id: str
    sender: str
    stage: ActionStage
    ok: bool
    text: str
    digest: str


class Closed(Value, frozen=True, omit_defaults=True):
    """A decided proposal: ``digest`` to compare a retry with, and the decision to answer it with.

    ``reports`` are the reported steps of its action: stage, success, digest.
    """

    digest: str
    proposer: str
    asked: frozenset[str]
    decision: Decision
    reports: tuple[tuple[ActionStage, bool, str], ...] = ()


class IdentityPast(msgspec.Struct):
    """The position of the last change of the identity, or withdrawal, and the identities in force before."""

    changed_at: int = 0
    earlier: tuple[str, ...] = ()


class Governance(msgspec.Struct):
    """The tokens of a council, by their proposals' ids, oldest first. Those that ended are kept for a while.

    ``under_way`` has the proposal of each use without a result, and until when one is awaited, in seconds of uptime.
    ``asked`` has the questions about unknown outcomes that wait for a human, by their ids, oldest first.
    """

    tokens: dict[str, Token] = msgspec.field(default_factory=dict)
    under_way: dict[str, tuple[str, float]] = msgspec.field(default_factory=dict)
    asked: dict[str, Escalation] = msgspec.field(default_factory=dict)


class CouncilState(msgspec.Struct):
    """The state of one council. Only the core changes it.

    - ``timers``, ``wall_timers``: heaps of ``(deadline, proposal id)``; stale entries are dropped at the top
    - ``calls``: the model calls under way; ``paid``: what each seat has spent on all proposals
    - ``epoch``: the coordinator's, 0 before the first has started
    - ``ruled_from``: the position since which ``rules`` hold
    - ``identity_change``: the allowed change that waits for a launch (rules 7.2)
    - ``governance``: what approvals allow to be run (rules 5)
    """

    rules: Rules
    seats: dict[str, Seat]
    open: dict[str, Proposal] = msgspec.field(default_factory=dict)
    closed: MutableMapping[str, Closed] = msgspec.field(default_factory=dict)
    timers: list[tuple[float, str]] = msgspec.field(default_factory=list)
    wall_timers: list[tuple[float, str]] = msgspec.field(default_factory=list)
    with_human: int = 0
    calls: dict[str, Granted] = msgspec.field(default_factory=dict)
    paid: dict[str, Account] = msgspec.field(default_factory=dict)
    uptime_s: float = 0.0
    epoch: int = 0
    ruled_from: int = 0
    identity_change: IdentityChange | None = None
    identity_past: IdentityPast = msgspec.field(default_factory=IdentityPast)
    governance: Governance = msgspec.field(default_factory=Governance)

    def active(self) -> frozenset[str]:
        return frozenset(name for name, seat in self.seats.items() if seat.active)


def new_council(rules: Rules, now: Moment) -> CouncilState:
    """A new council at ``now``; every seat counts as having beaten just then (rules 1.10)."""
    seats = {name: Seat(name, True, now.uptime_s, since_s=now.uptime_s) for name in rules.seats}
    return CouncilState(rules=rules, seats=seats, uptime_s=now.uptime_s)


def plain(value: Any) -> Any:
    """``value`` as plain data: structs become dicts without unset fields, tuples lists, bytes hex."""
    if isinstance(value, msgspec.Struct):
        found = {name: getattr(value, name) for name in value.__struct_fields__}
        return {name: plain(item) for name, item in found.items() if item is not msgspec.UNSET}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value
