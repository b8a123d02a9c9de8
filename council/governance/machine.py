"""The state machine of an episode: checks each packet in full, then applies it if no check failed.

The entry point is ``step``. ``TRANSITIONS`` is its table, as text (rules 5). Rows are tried from the top. The first
row whose state, packet and condition fit gives the next state. ``*`` stands for any state. A packet without a row is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from council.governance import invariants, ledger
from council.governance.episode import (
    PACKETS_MAX,
    TIMEOUT_S,
    Directive,
    Episode,
    State,
    Status,
    VerifyLoop,
    safety_of,
)
from council.governance.results import Result, is_rejected
from council.protocol.errors import EnvelopeError, IllegalMove
from council.protocol.omen import PACKETS, Packet, read_packet
from council.protocol.values import quoted

TRANSITIONS = """
from         | packet                 | if                 | to
S0_IDLE      | ObservationPacket      |                    | S1_SENSE
S0_IDLE      | ToolAuthorizationToken |                    | S5_AUTHORIZE
S0_IDLE      | EscalationPacket       |                    | refused
S1_SENSE     | ObservationPacket      |                    | S1_SENSE
S1_SENSE     | BeliefUpdatePacket     |                    | S2_MODEL
S2_MODEL     | BeliefUpdatePacket     |                    | S2_MODEL
S2_MODEL     | DecisionPacket         |                    | by outcome
S3_DECIDE    | DecisionPacket         |                    | by outcome
S3_DECIDE    | ToolAuthorizationToken |                    | S5_AUTHORIZE
S3_DECIDE    | TaskDirectivePacket    | READ               | S6_EXECUTE
S3_DECIDE    | TaskDirectivePacket    | a token is there   | S6_EXECUTE
S3_DECIDE    | BeliefUpdatePacket     | nothing is open    | S7_REVIEW
S4_VERIFY    | VerificationPlanPacket |                    | S4_VERIFY
S4_VERIFY    | TaskDirectivePacket    | READ               | S4_VERIFY
S4_VERIFY    | TaskResultPacket       |                    | S4_VERIFY
S4_VERIFY    | ObservationPacket      |                    | S4_VERIFY
S4_VERIFY    | BeliefUpdatePacket     |                    | S2_MODEL
S4_VERIFY    | DecisionPacket         | ESCALATE           | by outcome
S4_VERIFY    | DecisionPacket         | DEFER              | by outcome
S4_VERIFY    | DecisionPacket         | CANCEL             | by outcome
S5_AUTHORIZE | ToolAuthorizationToken |                    | S5_AUTHORIZE
S5_AUTHORIZE | TaskDirectivePacket    |                    | S6_EXECUTE
S5_AUTHORIZE | DecisionPacket         |                    | S3_DECIDE
S6_EXECUTE   | TaskDirectivePacket    |                    | S6_EXECUTE
S6_EXECUTE   | TaskResultPacket       |                    | S6_EXECUTE
S6_EXECUTE   | ObservationPacket      |                    | S6_EXECUTE
S6_EXECUTE   | BeliefUpdatePacket     | nothing is open    | S7_REVIEW
S6_EXECUTE   | BeliefUpdatePacket     |                    | S6_EXECUTE
S7_REVIEW    | BeliefUpdatePacket     |                    | S7_REVIEW
S7_REVIEW    | ObservationPacket      |                    | S1_SENSE
S8_ESCALATED | BeliefUpdatePacket     | of layer 1         | S8_ESCALATED
S8_ESCALATED | DecisionPacket         | a human answered   | by outcome
S9_SAFEMODE  | IntegrityAlertPacket   |                    | S9_SAFEMODE
S9_SAFEMODE  | EscalationPacket       |                    | S9_SAFEMODE
S9_SAFEMODE  | BeliefUpdatePacket     |                    | S7_REVIEW
*            | EscalationPacket       |                    | S8_ESCALATED
*            | IntegrityAlertPacket   | it is grave        | S9_SAFEMODE
*            | IntegrityAlertPacket   |                    | the same
*            | QueueUpdatePacket      |                    | the same
"""
BY_OUTCOME: dict[str, State] = {
    "ACT": "S3_DECIDE",
    "VERIFY_FIRST": "S4_VERIFY",
    "ESCALATE": "S8_ESCALATED",
    "DEFER": "S7_REVIEW",
    "CANCEL": "S7_REVIEW",
}
# Which packets a layer emits (rules 5). QueueUpdate is not named there, so that any layer may emit it.
LAYERS: dict[int | str, frozenset[str]] = {
    1: frozenset({"IntegrityAlertPacket", "BeliefUpdatePacket", "ToolAuthorizationToken"}),
    2: frozenset({"BeliefUpdatePacket"}),
    3: frozenset({"BeliefUpdatePacket"}),
    4: frozenset({"BeliefUpdatePacket"}),
    5: frozenset(
        {
            "DecisionPacket",
            "VerificationPlanPacket",
            "ToolAuthorizationToken",
            "TaskDirectivePacket",
            "EscalationPacket",
            "BeliefUpdatePacket",
        }
    ),
    6: frozenset({"ObservationPacket", "TaskResultPacket", "BeliefUpdatePacket"}),
    "Integrity": frozenset({"IntegrityAlertPacket"}),
}
_CONDITIONS: dict[str, Callable[[Episode, Packet], bool]] = {
    "": lambda episode, packet: True,
    "READ": lambda episode, packet: safety_of(packet) == "READ",
    "a token is there": lambda episode, packet: bool(episode.tokens),
    "nothing is open": lambda episode, packet: not any(episode.open_directives()),
    "of layer 1": lambda episode, packet: packet.header.layer_source == 1,
    "a human answered": lambda episode, packet: episode.is_answered,
    "it is grave": lambda episode, packet: _is_grave(packet),
    "ESCALATE": lambda episode, packet: packet.payload.decision_outcome == "ESCALATE",
    "DEFER": lambda episode, packet: packet.payload.decision_outcome == "DEFER",
    "CANCEL": lambda episode, packet: packet.payload.decision_outcome == "CANCEL",
}
_GRAVE = frozenset({"budget_exceeded", "constitutional_veto", "safe_mode_triggered"})


class Row(NamedTuple):
    """A row of TRANSITIONS."""

    state: str
    packet_type: str
    condition: str
    to: str


ROWS = tuple(
    Row(*(cell.strip() for cell in line.split("|"))) for line in TRANSITIONS.strip().splitlines()[1:]
)


_BY_TYPE = {kind: tuple(row for row in ROWS if row.packet_type == kind) for kind in PACKETS}


class Step(NamedTuple):
    """The episode after a packet, and the results of the checks. A rejected packet does not change the episode."""

    episode: Episode
    is_accepted: bool
    results: tuple[Result, ...]


def step(episode: Episode, packet: Packet | dict[str, Any], now: datetime | None = None) -> Step:
    """Checks a packet, and applies it if no check found an ERROR.

    ``packet`` may be an unread JSON object; then its form is checked first. ``now`` is an aware time for the timeouts
    of directives; the default is the packet's own ``created_at``.
    """
    if isinstance(packet, dict):
        try:
            packet = read_packet(packet)
        except EnvelopeError as error:
            return Step(episode, False, schema_results(packet, error))
    now = now or packet.header.created_at
    results = check(episode, packet, now)
    if is_rejected(results):
        return Step(episode, False, results)
    return Step(apply(episode, packet, now), True, results)


def schema_results(given: Any, error: EnvelopeError) -> tuple[Result, ...]:
    """The errors of a packet's form as results of the layer ``schema``."""
    header = given.get("header") if isinstance(given, Mapping) else None
    named = header.get("packet_id") if isinstance(header, Mapping) else None
    packet_id = named if isinstance(named, str) and named.isascii() and len(named) <= 100 else "?"
    problems = error.facts.get("problems", (error.message,))
    results = []
    for problem in problems:
        path, colon, words = problem.partition(": ")
        expected, found = _schema_words(words if colon else problem)
        results.append(Result(packet_id, "schema", "SCHEMA", "ERROR", path if colon else "", expected, found))
    return tuple(results)


def _schema_words(words: str) -> tuple[str, str]:
    """What was expected and found, from the text of an error of form."""
    said, found_there, found = words.partition("; found ")
    match said:
        case "is missing":
            return "a value", "none"
        case "is not a known field; remove it":
            return "a known field", "an unknown one"
    if said.startswith("must be ") and found_there:
        return said.removeprefix("must be "), found
    return "a value of the right form", f"one that {words}" if words.startswith(
        ("is ", "has ", "must ")
    ) else words


def check_alone(packet: Packet) -> tuple[Result, ...]:
    """The faults of a packet by itself: its layer, and the invariants that need no other packet."""
    now = packet.header.created_at
    found = (*_layer_results(packet), *invariants.check(Episode(packet.header.correlation_id), packet, now))
    return tuple(
        each for each in found if each.rule != "INV-007" or packet.payload.authorization_token_id is None
    )


def check(episode: Episode, packet: Packet, now: datetime) -> tuple[Result, ...]:
    """The results of the machine, the invariants and the ledger, in this order. The episode does not change."""
    return (
        *_machine_results(episode, packet),
        *invariants.check(episode, packet, now),
        *_ledger_results(episode, packet),
    )


def apply(episode: Episode, packet: Packet, now: datetime) -> Episode:
    """The episode after a packet that ``check`` did not reject."""
    header = packet.header
    state = next_state(episode, packet)
    assert state is not None, "check has accepted it"
    changed = replace(
        episode,
        state=state,
        ledger=ledger.booked(episode.ledger, packet),
        packet_ids=episode.packet_ids | {header.packet_id},
        last_packet_id=header.packet_id,
    )
    changed = _EFFECTS.get(header.packet_type, _no_effect)(changed, packet, now)
    if header.packet_type == "TaskResultPacket" and changed.ledger.is_exceeded:
        changed = replace(changed, state="S9_SAFEMODE")
    if changed.state == "S9_SAFEMODE":
        changed = replace(changed, tokens=ledger.revoked(changed.tokens, changed.tokens))
    return changed


def row_of(episode: Episode, packet: Packet) -> Row | None:
    """The row of TRANSITIONS that the packet takes; None if there is none, or it refuses the packet."""
    for row in _BY_TYPE[packet.header.packet_type]:
        if row.state in (episode.state, "*") and _CONDITIONS[row.condition](episode, packet):
            return None if row.to == "refused" else row
    return None


def next_state(episode: Episode, packet: Packet) -> State | None:
    """The state after a packet, by TRANSITIONS alone; None if the state does not allow it."""
    row = row_of(episode, packet)
    if row is None:
        return None
    if row.to == "the same":
        return episode.state
    return BY_OUTCOME[packet.payload.decision_outcome] if row.to == "by outcome" else cast(State, row.to)


def timeouts(episode: Episode, now: datetime) -> Step:
    """Closes each directive whose time has passed by ``now``, and moves the episode to S8, except from S9.

    The results name these directives, and the caller then emits an EscalationPacket. Without one nothing changes.
    """
    late = episode.overdue(now)
    if not late:
        return Step(episode, True, ())
    state: State = "S9_SAFEMODE" if episode.state == "S9_SAFEMODE" else "S8_ESCALATED"
    results = tuple(
        Result(
            each.packet_id,
            "machine",
            "SEQ-TIMEOUT",
            "WARNING",
            "payload.timeout_seconds",
            f"a TaskResultPacket by {each.due.isoformat()}",
            f"none by {now.isoformat()}",
        )
        for each in late
    )
    changed = replace(_without_overdue(episode, now), state=state, is_asked=False, is_answered=False)
    return Step(changed, True, results)


def close(episode: Episode) -> Episode:
    """The episode back in S0, after its review. Ledger and tokens stay. Raises IllegalMove."""
    return _back(episode, "S7_REVIEW")


def recover(episode: Episode) -> Episode:
    """The episode back in S0, after safe mode. Its tokens stay revoked. Raises IllegalMove."""
    return _back(episode, "S9_SAFEMODE")


def unfinished(episode: Episode) -> tuple[Result, ...]:
    """What the episode lacks if no packet follows, as warnings. Empty if the episode may end here."""
    lacks = {
        "S1_SENSE": "a BeliefUpdatePacket",
        "S2_MODEL": "a DecisionPacket",
        "S4_VERIFY": "the verify loop to be decided",
        "S5_AUTHORIZE": "a TaskDirectivePacket",
        "S6_EXECUTE": "a BeliefUpdatePacket after the results",
    }
    expected = [lacks[episode.state]] if episode.state in lacks else []
    if episode.state == "S8_ESCALATED" and not episode.is_asked:
        expected.append("an EscalationPacket")
    expected += [f"a TaskResultPacket for {each.packet_id}" for each in episode.open_directives()]
    return tuple(
        Result(
            episode.last_packet_id,
            "machine",
            "SEQ-END",
            "WARNING",
            "",
            each,
            f"the end of the episode in {episode.state}",
        )
        for each in expected
    )


# Checks of the machine


def _machine_results(episode: Episode, packet: Packet) -> Iterator[Result]:
    header = packet.header

    def fault(rule: str, path: str, expected: str, found: str) -> Result:
        return Result(header.packet_id, "machine", rule, "ERROR", path, expected, found)

    if header.correlation_id != episode.correlation_id:
        path = "header.correlation_id"
        yield fault("SEQ-EPISODE", path, episode.correlation_id, quoted(header.correlation_id))
    if header.packet_id in episode.packet_ids:
        yield fault("SEQ-ONCE", "header.packet_id", "an id that is new in the episode", header.packet_id)
    if len(episode.packet_ids) >= PACKETS_MAX:
        yield fault("SEQ-LENGTH", "", f"at most {PACKETS_MAX:,} packets in an episode", "one more")
    yield from _layer_results(packet)
    if next_state(episode, packet) is None:
        found = f"{_named(packet)} in {episode.state}"
        yield fault(f"FSM-{episode.state[:2]}", "header.packet_type", _allowed(episode.state), found)
    if header.packet_type == "TaskDirectivePacket":
        yield from _directive_faults(episode, packet, fault)
    elif header.packet_type == "TaskResultPacket":
        yield from _result_faults(episode, packet, fault)


def _layer_results(packet: Packet) -> Iterator[Result]:
    header, path = packet.header, "header.layer_source"
    if header.packet_type not in LAYERS[header.layer_source] and header.packet_type != "QueueUpdatePacket":
        expected = f"a layer that emits {header.packet_type}: {_layers_of(header.packet_type)}"
        found = str(header.layer_source)
        yield Result(header.packet_id, "machine", "LAYER", "ERROR", path, expected, found)


Fault = Callable[[str, str, str, str], Result]


def _directive_faults(episode: Episode, packet: Packet, fault: Fault) -> Iterator[Result]:
    """A directive needs ACT, or for READ also VERIFY_FIRST, as the last outcome, and a task id of its own."""
    safety = safety_of(packet)
    allowed = ("ACT", "VERIFY_FIRST") if safety == "READ" else ("ACT",)
    if episode.outcome not in allowed:
        expected = f"{' or '.join(allowed)} as the last decision"
        yield fault("SEQ-DIRECTIVE", "", expected, f"{safety} after {episode.outcome or 'no decision'}")
    if any(each.task_id == packet.payload.task_id for each in episode.directives.values()):
        expected = "a task id that is new in the episode"
        yield fault("SEQ-TASK", "payload.task_id", expected, quoted(packet.payload.task_id))


def _result_faults(episode: Episode, packet: Packet, fault: Fault) -> Iterator[Result]:
    """A result closes an open directive, and names its task."""
    payload, path = packet.payload, "payload.directive_packet_id"
    directive = episode.directives.get(payload.directive_packet_id)
    if directive is None:
        expected = "a directive of this episode"
        yield fault("SEQ-RESULT", path, expected, quoted(payload.directive_packet_id))
    elif directive.status != "open":
        yield fault("SEQ-RESULT", path, "an open directive", f"one that is closed: {directive.status}")
    elif directive.task_id != payload.task_id:
        yield fault("SEQ-RESULT", "payload.task_id", directive.task_id, quoted(payload.task_id))


def _ledger_results(episode: Episode, packet: Packet) -> Iterator[Result]:
    yield from ledger.check(episode.ledger, packet)
    if packet.header.packet_type == "ToolAuthorizationToken" and packet.payload.token_id in episode.tokens:
        expected, found = "a token id that is new in the episode", quoted(packet.payload.token_id)
        path = "payload.token_id"
        yield Result(packet.header.packet_id, "ledger", "LEDGER-TOKEN", "ERROR", path, expected, found)


def _named(packet: Packet) -> str:
    """The packet's type, with the outcome or the safety class that its rows ask for."""
    match packet.header.packet_type:
        case "DecisionPacket":
            return f"DecisionPacket {packet.payload.decision_outcome}"
        case "TaskDirectivePacket":
            return f"TaskDirectivePacket {safety_of(packet)}"
        case "BeliefUpdatePacket":
            return f"BeliefUpdatePacket of layer {packet.header.layer_source}"
    return str(packet.header.packet_type)


def _allowed(state: str) -> str:
    rows = (row for row in ROWS if row.state == state and row.to != "refused")
    named = dict.fromkeys(
        f"{row.packet_type} ({row.condition})" if row.condition else row.packet_type for row in rows
    )
    return f"one of {', '.join(named)}"


def _layers_of(packet_type: str) -> str:
    return " or ".join(str(layer) for layer, emits in LAYERS.items() if packet_type in emits)


def _is_grave(alert: Packet) -> bool:
    """CRITICAL, or a budget exceeded, a core rule violated or safe mode ordered."""
    return alert.payload.severity == "CRITICAL" or alert.payload.alert_type in _GRAVE


# What accepted packets change, apart from the state and the ledger's sums


def _no_effect(episode: Episode, packet: Packet, now: datetime) -> Episode:
    return episode


def _decided(episode: Episode, packet: Packet, now: datetime) -> Episode:
    return replace(
        episode,
        outcome=str(packet.payload.decision_outcome),
        decision_id=packet.header.packet_id,
        loop=VerifyLoop(),
        is_asked=False,
        is_answered=False,
    )


def _planned(episode: Episode, packet: Packet, now: datetime) -> Episode:
    return replace(episode, loop=replace(episode.loop, is_planned=True))


def _granted(episode: Episode, packet: Packet, now: datetime) -> Episode:
    grant = ledger.grant_of(packet, episode.decision_id)
    return replace(episode, tokens={**episode.tokens, grant.token_id: grant})


def _directed(episode: Episode, packet: Packet, now: datetime) -> Episode:
    """A new open directive. It counts a use of its token."""
    payload, loop, tokens = packet.payload, episode.loop, episode.tokens
    safety = safety_of(packet)
    budgets = episode.ledger.budgets
    seconds = payload.timeout_seconds or (budgets and budgets.time_s) or TIMEOUT_S
    directive = Directive(
        packet.header.packet_id, payload.task_id, safety, _later(packet.header.created_at, seconds)
    )
    if safety == "READ":
        loop = replace(loop, reads=loop.reads + 1)
    else:
        tokens = ledger.used(tokens, payload.authorization_token_id)
    directives = {**episode.directives, directive.packet_id: directive}
    return replace(episode, directives=directives, loop=loop, tokens=tokens)


def _later(moment: datetime, seconds: int) -> datetime:
    """The time ``seconds`` later, at most the latest that datetime can hold."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=moment.tzinfo)


def _returned(episode: Episode, packet: Packet, now: datetime) -> Episode:
    payload, loop = packet.payload, episode.loop
    status = cast(Status, str(payload.result_status))
    directive = replace(episode.directives[payload.directive_packet_id], status=status)
    if status == "SUCCESS" and directive.safety == "READ":
        loop = replace(loop, successes=loop.successes + 1)
    return replace(episode, directives={**episode.directives, directive.packet_id: directive}, loop=loop)


def _observed(episode: Episode, packet: Packet, now: datetime) -> Episode:
    if packet.mcp is None or packet.mcp.epistemics.status != "OBSERVED":
        return episode
    return replace(episode, loop=replace(episode.loop, is_observed=True))


def _believed(episode: Episode, packet: Packet, now: datetime) -> Episode:
    answered = episode.state == "S8_ESCALATED" or episode.is_answered
    return replace(episode, loop=replace(episode.loop, is_believed=True), is_answered=answered)


def _escalated(episode: Episode, packet: Packet, now: datetime) -> Episode:
    """The human is asked. Directives whose time has passed are closed."""
    return replace(_without_overdue(episode, now), is_asked=True, is_answered=False)


def _alerted(episode: Episode, packet: Packet, now: datetime) -> Episode:
    """An alert token_revoked or token_expired revokes the tokens that it names as affected."""
    if packet.payload.alert_type not in ("token_revoked", "token_expired"):
        return episode
    return replace(episode, tokens=ledger.revoked(episode.tokens, packet.payload.affected_components))


_EFFECTS: dict[str, Callable[[Episode, Packet, datetime], Episode]] = {
    "ObservationPacket": _observed,
    "BeliefUpdatePacket": _believed,
    "DecisionPacket": _decided,
    "VerificationPlanPacket": _planned,
    "ToolAuthorizationToken": _granted,
    "TaskDirectivePacket": _directed,
    "TaskResultPacket": _returned,
    "EscalationPacket": _escalated,
    "IntegrityAlertPacket": _alerted,
}


def _without_overdue(episode: Episode, now: datetime) -> Episode:
    late = {each.packet_id: replace(each, status="TIMED_OUT") for each in episode.overdue(now)}
    return replace(episode, directives={**episode.directives, **late})


def _back(episode: Episode, needed: State) -> Episode:
    still_open = [each.packet_id for each in episode.open_directives()]
    if episode.state != needed or still_open:
        why = f"with {len(still_open)} open directives" if still_open else f"only from {needed}"
        raise IllegalMove(
            f"the episode is in {episode.state} and can't move to S0_IDLE {why}",
            machine="episode",
            state=episode.state,
            to="S0_IDLE",
            allowed=(),
        )
    return replace(
        episode, state="S0_IDLE", outcome=None, loop=VerifyLoop(), is_asked=False, is_answered=False
    )
