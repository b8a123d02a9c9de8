"""The machine of an episode: every state against every packet, sequence and layers, time-outs, safe mode."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from msgspec.structs import replace

from council.governance import machine
from council.governance.episode import PACKETS_MAX, Directive, Episode, VerifyLoop
from council.governance.ledger import Grant
from council.protocol.errors import IllegalMove
from council.protocol.omen import Packet
from tests.cases import each
from tests.governance.episodes import START, built, changed, played, reread, rules, writer

# From rules 5: the state after each packet, by row and column; - is illegal.
MATRIX = """
             Obs  Bel1 Bel5 ACT  VER  ESC  DEF  CAN  Plan Tok  READ WRIT Res  Esc  Crit Info Queue
S0           S1   -    -    -    -    -    -    -    -    S5   -    -    -    -    S9   S0   S0
S1           S1   S2   S2   -    -    -    -    -    -    -    -    -    -    S8   S9   S1   S1
S2           -    S2   S2   S3   S4   S8   S7   S7   -    -    -    -    -    S8   S9   S2   S2
S3           -    S7   S7   S3   S4   S8   S7   S7   -    S5   S6   -    -    S8   S9   S3   S3
S3+token     -    S7   S7   S3   S4   S8   S7   S7   -    S5   S6   S6   -    S8   S9   S3   S3
S3+open      -    -    -    S3   S4   S8   S7   S7   -    S5   S6   -    -    S8   S9   S3   S3
S4           S4   S2   S2   -    -    S8   S7   S7   S4   -    S4   -    S4   S8   S9   S4   S4
S5           -    -    -    S3   S3   S3   S3   S3   -    S5   S6   S6   -    S8   S9   S5   S5
S6           S6   S7   S7   -    -    -    -    -    -    -    S6   S6   S6   S8   S9   S6   S6
S6+open      S6   S6   S6   -    -    -    -    -    -    -    S6   S6   S6   S8   S9   S6   S6
S7           S1   S7   S7   -    -    -    -    -    -    -    -    -    -    S8   S9   S7   S7
S8           -    S8   -    -    -    -    -    -    -    -    -    -    -    S8   S9   S8   S8
S8+answered  -    S8   -    S3   S4   S8   S7   S7   -    -    -    -    -    S8   S9   S8   S8
S9           -    S7   S7   -    -    -    -    -    -    -    -    -    -    S9   S9   S9   S9
"""
NAMES = {row.state[:2]: row.state for row in machine.ROWS if row.state != "*"}
ALERT = {
    "alert_id": "alert_1",
    "alert_type": "budget_warning",
    "severity": "INFO",
    "summary": "something was seen",
    "detected_at": "2026-11-26T12:00:00Z",
    "detection_method": "a test",
    "affected_components": [],
    "recommended_actions": [],
    "related_packet_ids": [],
}
QUEUE = {"queue_id": "queue_1", "items": [], "reason": "a test"}
OPEN = Directive("pkt_open", "task_open", "READ", START + timedelta(hours=1))
GRANT = Grant("token_1", ("shell",), frozenset({"write"}), {}, START + timedelta(hours=1), 1, 0, False, None)


def alert(**changes: object) -> Packet:
    layer = "Integrity"
    return writer().write("IntegrityAlertPacket", layer, {**ALERT, **changes})


def packet_of(column: str) -> Packet:
    to = writer()
    decision = built("A")[-1]
    match column:
        case "Obs":
            return to.observe({"seen": 1})
        case "Bel1" | "Bel5":
            return to.believe("a", 1, layer=int(column[-1]))
        case "Plan":
            return to.plan(decision, "it is safe")
        case "Tok":
            return to.grant(decision)
        case "READ":
            return to.direct()
        case "WRIT":
            return to.direct("tool_write", token=to.grant(decision))
        case "Res":
            return to.answer(to.direct())
        case "Esc":
            return to.escalate("user_override_required", decision)
        case "Crit":
            return alert(severity="CRITICAL")
        case "Info":
            return alert()
        case "Queue":
            return to.write("QueueUpdatePacket", 5, QUEUE)
    outcomes = ("ACT", "VERIFY_FIRST", "ESCALATE", "DEFER", "CANCEL")
    return to.decide(next(each for each in outcomes if each.startswith(column)))


def episode_of(row: str) -> Episode:
    state, _, more = row.partition("+")
    episode = Episode("corr_1", state=NAMES[state])  # type: ignore[arg-type]
    match more:
        case "token":
            return replace(episode, tokens={"token_1": GRANT})
        case "open":
            return replace(episode, directives={"pkt_open": OPEN})
    return replace(episode, is_answered=more == "answered")


HEAD, *LINES = (line.split() for line in MATRIX.strip().splitlines())
CELLS = [(line[0], column, to) for line in LINES for column, to in zip(HEAD, line[1:], strict=True)]


@each(("row", "column", "to"), CELLS)
def test_every_state_against_every_packet(row: str, column: str, to: str) -> None:
    """Mutation: a row of TRANSITIONS removed, or its condition or its target changed."""
    episode, packet = episode_of(row), packet_of(column)
    found = machine.next_state(episode, packet)
    assert (found or "-")[:2] == to[:2]
    results = [each for each in machine.check(episode, packet, START) if each.rule == f"FSM-{row[:2]}"]
    if to != "-":
        assert results == []
        return
    (result,) = results
    assert (result.layer, result.severity, result.path) == ("machine", "ERROR", "header.packet_type")
    assert packet.header.packet_type in result.found
    assert machine.step(episode, packet, START)[:2] == (episode, False)


def test_each_row_of_the_table_is_tried_by_a_cell() -> None:
    """So a row that no cell reaches, because an earlier one takes its packets, is found."""
    reached = set()
    for line, column, to in CELLS:
        row = machine.row_of(episode_of(line), packet_of(column))
        assert (row is None) == (to == "-")
        reached.add(row)
    assert [row for row in machine.ROWS if row not in reached and row.to != "refused"] == []


@each("seed", range(40))
def test_no_order_of_packets_breaks_the_machine(seed: int) -> None:
    """What is rejected changes nothing (``played`` compares), no token is used too often, and no sum shrinks."""
    chance = random.Random(seed)
    packets = [*map(packet_of, HEAD), *built("B"), *built("D"), *built("E")]
    packets = [
        reread(chance.choice(packets), {"header.packet_id": f"pkt_{number}"}) for number in range(1, 121)
    ]
    calls = 0
    for length in range(0, len(packets), 20):
        episode, _ = played(packets[:length])
        assert all(0 <= each.uses <= each.uses_max for each in episode.tokens.values())
        assert episode.ledger.tool_calls == len(episode.directives) >= calls
        assert (
            episode.ledger.budgets is None or episode.ledger.tool_calls <= episode.ledger.budgets.tool_calls
        )
        calls = episode.ledger.tool_calls


# Sequence and layers: a template, the number of the packet that is changed, the changes, and what is found


@pytest.mark.parametrize(
    ("template", "number", "changes", "rule", "path"),
    [
        ("A", 1, {"header.correlation_id": "corr_2"}, "SEQ-EPISODE", "header.correlation_id"),
        ("A", 1, {"header.packet_id": "pkt_1"}, "SEQ-ONCE", "header.packet_id"),
        ("A", 2, {"header.layer_source": 4}, "LAYER", "header.layer_source"),
        ("A", 2, {"header.layer_source": "Integrity"}, "LAYER", "header.layer_source"),
        ("A", 0, {"header.layer_source": 5}, "LAYER", "header.layer_source"),
        ("D", 3, {"header.layer_source": 6}, "LAYER", "header.layer_source"),
        ("C", 4, {"payload.task_id": "task_other"}, "SEQ-RESULT", "payload.task_id"),
        ("C", 4, {"payload.directive_packet_id": "pkt_1"}, "SEQ-RESULT", "payload.directive_packet_id"),
        ("D", 2, {"payload.decision_outcome": "VERIFY_FIRST"}, "FSM-S4", "header.packet_type"),
        ("C", 2, {"payload.decision_outcome": "CANCEL"}, "SEQ-DIRECTIVE", ""),
        ("C", 2, {"payload.decision_outcome": "VERIFY_FIRST"}, None, ""),
        ("D", 3, {"header.layer_source": 1}, None, ""),
        ("A", 1, {"header.layer_source": 2}, None, ""),
    ],
)
def test_sequence_and_layers(
    template: str, number: int, changes: dict[str, object], rule: str | None, path: str
) -> None:
    packets: list[object] = [*built(template)]
    packets[number] = changed(packets[number], changes)  # type: ignore[arg-type]
    _, results = played(packets)  # type: ignore[arg-type]
    errors = [each for each in results if each.severity == "ERROR"]
    if rule is None:
        assert errors == []
        return
    assert (rule, path) in [(each.rule, each.path) for each in errors if each.layer == "machine"]


def test_a_directive_is_answered_once() -> None:
    packets = built("C")
    again = reread(packets[4], {"header.packet_id": "pkt_again"})
    episode, results = played([*packets[:5], again])
    assert [(each.rule, each.found) for each in results] == [("SEQ-RESULT", "one that is closed: SUCCESS")]
    assert [each.status for each in episode.directives.values()] == ["SUCCESS"]


def test_a_task_id_is_used_once() -> None:
    packets = built("C")
    again = reread(packets[3], {"header.packet_id": "pkt_again"})
    _, results = played([*packets[:4], again])
    assert rules(results) == {"SEQ-TASK"}


def test_an_episode_has_a_limit() -> None:
    full = Episode("corr_1", packet_ids=frozenset(map(str, range(PACKETS_MAX))))
    found = machine.step(full, built("A")[0])
    assert (found.episode, rules(found.results)) == (full, {"SEQ-LENGTH"})


def test_a_packet_that_is_not_read_yet_is_checked_by_its_form_first() -> None:
    wrong = changed(built("A")[0], {"payload.observation_type": "rumour", "payload.more": 1, "mcp.x": 1})
    found = machine.step(Episode("corr_1"), wrong)
    assert (found.episode, found.is_accepted) == (Episode("corr_1"), False)
    assert {(each.packet_id, each.layer, each.severity) for each in found.results} == {
        ("pkt_1", "schema", "ERROR")
    }
    assert {"payload.observation_type", "payload.more", "mcp.x"} <= {each.path for each in found.results}
    assert "'rumour'" in {each.found for each in found.results}


# Verify loop: the template without some packets, by number


@pytest.mark.parametrize(
    ("left_out", "found"),
    [
        ((), {"INV-008 WARNING"}),
        ((3, 4), {"INV-008", "INV-008 WARNING"}),
        ((4,), {"INV-008", "INV-008 WARNING"}),
        ((5,), {"INV-008", "INV-008 WARNING"}),
        ((6,), {"FSM-S4", "INV-008", "INV-008 WARNING"}),
    ],
)
def test_a_verify_loop_is_complete_before_it_is_decided(left_out: tuple[int, ...], found: set[str]) -> None:
    packets = [packet for number, packet in enumerate(built("B")) if number not in left_out]
    assert rules(played(packets)[1]) == found


def test_a_planned_loop_has_no_warning() -> None:
    packets = built("B")
    plan = writer().plan(packets[2], "it is safe")
    episode, results = played([*packets[:3], plan, *packets[3:]])
    assert (episode.state, results) == ("S3_DECIDE", [])


@pytest.mark.parametrize("outcome", ["ESCALATE", "DEFER", "CANCEL"])
def test_an_incomplete_loop_may_be_left(outcome: str) -> None:
    packets = built("B")
    episode, results = played([*packets[:4], writer().decide(outcome)])
    assert (episode.state, results) == (machine.BY_OUTCOME[outcome], [])
    assert episode.loop == VerifyLoop()


def test_a_humans_answer_ends_an_escalated_loop() -> None:
    packets, to = built("B"), writer()
    asked = [*packets[:3], to.escalate("user_override_required", packets[2])]
    answered = [*asked, to.believe("answer", "go on", layer=1)]
    decision = to.decide("ACT")
    assert rules(played([*asked, decision])[1]) >= {"FSM-S8"}
    episode, results = played([*answered, decision])
    assert (episode.state, results) == ("S3_DECIDE", [])


# Time-outs


@pytest.mark.parametrize(
    ("about", "timeout_s", "limit_s"), [({}, 5, 5), ({}, ..., 600), ({"time_budget_s": 0}, ..., 3600)]
)
def test_a_directive_times_out_into_an_escalation(
    about: dict[str, int], timeout_s: object, limit_s: int
) -> None:
    packets = built("C", **about)
    changes = {} if timeout_s is ... else {"payload.timeout_seconds": timeout_s}
    directive = reread(packets[3], changes)
    episode, results = played([*packets[:3], directive])
    assert results == []
    due = directive.header.created_at + timedelta(seconds=limit_s)
    assert machine.timeouts(episode, due) == (episode, True, ())
    late = due + timedelta(microseconds=1)
    timed_out, _, (result,) = machine.timeouts(episode, late)
    assert (timed_out.state, result.rule, result.packet_id) == (
        "S8_ESCALATED",
        "SEQ-TIMEOUT",
        directive.header.packet_id,
    )
    assert timed_out.directives[directive.header.packet_id].status == "TIMED_OUT"
    result = machine.step(episode, packets[4], late).results[0]
    assert (result.rule, result.severity) == ("INV-011", "ERROR")
    assert machine.step(episode, packets[4], due).is_accepted
    escalation = writer().escalate("user_override_required", packets[2])
    escalated = machine.step(episode, escalation, late)
    assert (escalated.is_accepted, escalated.episode.state) == (True, "S8_ESCALATED")
    assert not any(escalated.episode.open_directives())


# Safe mode, and back


@pytest.mark.parametrize(
    "changes",
    [
        {"severity": "CRITICAL"},
        {"alert_type": "budget_exceeded"},
        {"alert_type": "constitutional_veto"},
    ],
)
def test_a_grave_alert_leads_to_safe_mode_and_revokes_every_token(changes: dict[str, str]) -> None:
    packets = built("D")
    episode, results = played([*packets[:4], alert(**changes)])
    assert (episode.state, results) == ("S9_SAFEMODE", [])
    assert [each.is_revoked for each in episode.tokens.values()] == [True]
    back = machine.recover(episode)
    assert (back.state, back.tokens) == ("S0_IDLE", episode.tokens)


@pytest.mark.parametrize("kind", ["token_revoked", "token_expired"])
def test_an_alert_revokes_the_tokens_that_it_names(kind: str) -> None:
    packets = built("D")
    token_id = packets[3].payload.token_id
    other, _ = played([*packets[:4], alert(alert_type=kind, affected_components=["token_other"])])
    assert not other.tokens[token_id].is_revoked
    episode, results = played(
        [*packets[:4], alert(alert_type=kind, affected_components=[token_id]), packets[4]]
    )
    assert (episode.state, episode.tokens[token_id].is_revoked) == ("S5_AUTHORIZE", True)
    assert [(each.rule, each.found) for each in results] == [("INV-007", f"{token_id}, revoked")]


def test_an_episode_is_closed_after_its_review_alone() -> None:
    episode, _ = played(built("C"))
    closed = machine.close(episode)
    assert (closed.state, closed.ledger, closed.outcome) == ("S0_IDLE", episode.ledger, None)
    for wrong, how in ((closed, machine.close), (episode, machine.recover)):
        with pytest.raises(IllegalMove, match="can't move to S0_IDLE"):
            how(wrong)
    opened = replace(episode, directives={"pkt_open": OPEN})
    with pytest.raises(IllegalMove, match="1 open directive"):
        machine.close(opened)
