"""A proposal's OMEN episode: what real councils in process decide, told in packets that the machine accepts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from council import AsyncCouncil, Case, Council, Opinion, Ruling, SeatConfig, ShownBallot
from council.api.client import handle_of
from council.api.tools import FunctionTool
from council.core.state import UseRequest, UseResult, plain
from council.governance import machine
from council.governance.episode import Episode
from council.governance.from_council import episode_of
from council.governance.payloads import SURE
from council.journal.entries import Entry
from council.protocol.errors import CallerError, OutcomeUnknown, Refused
from council.protocol.omen import PACKETS, to_dict
from council.runtime.executor import Executor
from tests.cases import each
from tests.runtime.harness import run

KEY = b"k" * 32
PUTS = {"executor": "exec", "operations": ["write"]}
YES = Opinion.yes("fine", confidence=0.9)
NO = Opinion.no("not so", confidence=0.8)
GRAVE = Opinion.yes("fine, and dangerous", confidence=0.9, risk_level="high")
BLIND = Opinion.abstain("nothing seen", confidence=0.9)
UNSURE = Opinion.yes("a guess", confidence=0.1)


class Seat:
    """A mind with one opinion, and one ruling; without an opinion it raises."""

    def __init__(self, opinion: Opinion | None, ruling: str = "confirm", waits: bool = False) -> None:
        self._opinion, self._ruling = opinion, ruling
        self.may_vote = threading.Event()
        if not waits:
            self.may_vote.set()

    def review(self, case: Case) -> Opinion:
        self.may_vote.wait()
        if self._opinion is None:
            raise RuntimeError("no opinion")
        return self._opinion

    def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        return Ruling(self._ruling, "seen all", 0.8, "low")  # type: ignore[arg-type]


def council_of(*opinions: Opinion | None, ruling: str = "confirm", **settings: Any) -> Council:
    """Prime, Lite and Codemind of these opinions."""
    names = ("prime", "lite", "codemind")
    seats = [SeatConfig(name=n, mind=Seat(o, ruling)) for n, o in zip(names, opinions, strict=True)]
    return Council.inline(seats=seats, sender="bob", key=KEY, **settings)


def checked(packets: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """The last state, and each packet in words; every packet is accepted."""
    episode = Episode(packets[0]["header"]["correlation_id"])
    before = None
    for packet in packets:
        stepped = machine.step(episode, packet)
        assert stepped.is_accepted, stepped.results
        assert packet["header"].get("previous_packet_id") == before
        episode, before = stepped.episode, packet["header"]["packet_id"]
    return episode.state, [words(packet) for packet in packets]


def words(packet: dict[str, Any]) -> str:
    payload, kind = packet["payload"], packet["header"]["packet_type"]
    assert kind in PACKETS
    key = payload.get("belief_changes", [{}])[0].get("key")
    names = ("decision_outcome", "escalation_trigger", "alert_type", "result_status", "task_type")
    said = next((payload[name] for name in names if name in payload), key)
    return kind.removesuffix("Packet") + (f" {said}" if said else "")


def of(packets: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The last packet of a kind."""
    return [packet for packet in packets if packet["header"]["packet_type"] == kind][-1]


VOTES = ["Observation", *(f"BeliefUpdate {seat}" for seat in ("prime", "lite", "codemind"))]


@each(
    ("opinions", "ruling", "state", "then"),
    [
        ((YES, YES, YES), "", "S3_DECIDE", ["Decision ACT"]),
        ((NO, YES, NO), "", "S7_REVIEW", ["Decision CANCEL"]),
        ((YES, NO, BLIND), "", "S3_DECIDE", ["Decision ACT"]),  # a tie that Prime's ballot breaks
        (
            (BLIND, YES, NO),
            "",
            "S8_ESCALATED",
            ["Decision ESCALATE", "Escalation contradiction_unresolved"],
        ),
        ((YES, GRAVE, YES), "confirm", "S3_DECIDE", ["BeliefUpdate ruling", "Decision ACT"]),
        ((YES, GRAVE, YES), "reject", "S7_REVIEW", ["BeliefUpdate ruling", "Decision CANCEL"]),
        (
            (YES, UNSURE, YES),
            "human",
            "S8_ESCALATED",
            ["BeliefUpdate ruling", "Decision ESCALATE", "Escalation high_stakes_high_uncertainty"],
        ),
    ],
)
def test_what_a_council_decides(
    opinions: tuple[Opinion, ...], ruling: str, state: str, then: list[str]
) -> None:
    with council_of(*opinions, ruling=ruling) as council:
        decision = council.propose("Do it", wait_for="all")
        packets = council.episode(decision.proposal_id)
        found, told = checked(packets)
        assert (found, sorted(told[:4]), told[4:]) == (state, sorted(VOTES), then)
        assert council.episode(decision.proposal_id[:8]) == packets
    header = packets[0]["header"]
    assert header["correlation_id"] == f"corr_{decision.proposal_id}"
    assert header["packet_id"] == f"pkt_{decision.proposal_id}-2"
    assert packets[0]["payload"]["data"]["proposer"] == "bob"
    beliefs = [p["payload"]["belief_changes"][0] for p in packets[1:4]]
    assert {each["key"]: each["new_value"]["confidence"] for each in beliefs} == {
        ballot.seat: ballot.confidence for ballot in decision.ballots
    }


def test_an_early_decision_and_the_late_ballot() -> None:
    late = Seat(YES, waits=True)
    minds = {"prime": Seat(YES), "lite": Seat(YES), "codemind": late}
    seats = [SeatConfig(name=name, mind=mind) for name, mind in minds.items()]
    with Council.inline(seats=seats) as council:
        try:
            decision = council.propose("Do it")
            assert decision.early
            assert checked(council.episode(decision.proposal_id))[1][-1] == "Decision ACT"
            follow = iter(council.events())
            late.may_vote.set()
            next(event for event in follow if event.kind == "ballot" and event.data["late"])
        finally:
            late.may_vote.set()
        state, told = checked(council.episode(decision.proposal_id))
    assert (state, told[-2:]) == ("S7_REVIEW", ["Decision ACT", "BeliefUpdate codemind"])


@each(
    ("opinions", "tier", "stakes", "uncertainty"),
    [
        ((YES, YES, YES), "PAR", "LOW", "LOW"),
        ((YES, NO, YES), "PAR", "LOW", "MEDIUM"),
        ((GRAVE, YES, YES), "SUPERB", "MEDIUM", "LOW"),
        ((GRAVE, YES, UNSURE), "SUPERB", "HIGH", "HIGH"),
    ],
)
def test_the_mcp_follows_from_the_ballots(
    opinions: tuple[Opinion, ...], tier: str, stakes: str, uncertainty: str
) -> None:
    with council_of(*opinions) as council:
        decision = council.propose("Do it", wait_for="all")
        packets = council.episode(decision.proposal_id)
    decided = of(packets, "DecisionPacket")
    mcp = decided["mcp"]
    assert mcp["quality"]["quality_tier"] == tier
    assert (mcp["stakes"]["stakes_level"], mcp["stakes"]["uncertainty"]) == (stakes, uncertainty)
    assert mcp["epistemics"]["confidence"] == min(ballot.confidence for ballot in decision.ballots)
    refs = [each["ref_id"] for each in mcp["evidence"]["evidence_refs"]]
    assert refs[0] == packets[0]["header"]["packet_id"]
    assert set(refs[1:4]) == {packet["header"]["packet_id"] for packet in packets[1:4]}
    assumptions = decided["payload"]["load_bearing_assumptions"]
    assert all(each["verified"] for each in assumptions)
    assert {each["verification_packet_id"] for each in assumptions} <= set(refs)
    assert SURE > 0.3


@each(("approve", "last"), [(True, "Decision ACT"), (False, "Decision CANCEL")])
def test_a_humans_answer_is_a_belief_of_layer_1(approve: bool, last: str) -> None:
    with council_of(GRAVE, YES, YES, ruling="human") as council:
        standing = council.propose("Drop it")
        asked = of(council.episode(standing.proposal_id), "EscalationPacket")["payload"]
        assert [option["option_id"] for option in asked["top_options"]] == ["approve", "reject"]
        assert asked["evidence_gaps"]
        council.answer(str(standing.escalation_id), approve=approve, reason="I looked")
        packets = council.episode(standing.proposal_id)
    _, told = checked(packets)
    assert told[-3:] == ["Escalation high_stakes_high_uncertainty", "BeliefUpdate answer", last]
    assert packets[-2]["header"]["layer_source"] == 1
    assert packets[-2]["payload"]["belief_changes"][0]["new_value"]["approve"] is approve
    assert packets[-1]["mcp"]["quality"]["quality_tier"] == ("SUPERB" if approve else "PAR")


def test_without_an_answer_it_is_deferred() -> None:
    with council_of(BLIND, YES, NO, escalation_ttl_s=0.05) as council:
        decision = council.propose("Do it", wait_for_human=True)
        assert decision.outcome == "deferred"
        packets = council.episode(decision.proposal_id)
    state, told = checked(packets)
    assert (state, told[-2:]) == ("S7_REVIEW", ["BeliefUpdate answer", "Decision DEFER"])
    assert packets[-2]["payload"]["belief_changes"][0]["new_value"]["approve"] is None


def test_a_quorum_that_is_lost_without_any_ballot() -> None:
    with council_of(None, None, None) as council:
        standing = council.propose("Do it")
        packets = council.episode(standing.proposal_id)
        assert checked(packets)[1] == [
            "Observation",
            "BeliefUpdate ballots",
            "Decision ESCALATE",
            "Escalation contradiction_unresolved",
        ]
        assert packets[2]["mcp"]["epistemics"]["status"] == "UNKNOWN"
        council.cancel(standing.proposal_id, reason="no more")
        state, told = checked(council.episode(standing.proposal_id))
    assert (state, told[-2:]) == ("S7_REVIEW", ["BeliefUpdate answer", "Decision CANCEL"])


def test_a_tool_that_is_approved_and_run() -> None:
    with council_of(YES, YES, YES) as council:

        @council.tool(operations=["read", "write"], resources=["file:/srv/x"])
        def note(n: int) -> str:
            return "n" * n

        assert note(3) == "nnn"
        (token,) = council.tokens()
        packets = council.episode(token.proposal_id)
    state, told = checked(packets)
    assert (state, told[4:]) == (
        "S7_REVIEW",
        [
            "Decision ACT",
            "ToolAuthorizationToken",
            "TaskDirective tool_write",
            "TaskResult SUCCESS",
            "Observation",
            "BeliefUpdate outcome",
        ],
    )
    granted, directive = of(packets, "ToolAuthorizationToken"), of(packets, "TaskDirectivePacket")
    assert granted["payload"]["token_id"] == token.token_id
    scope = granted["payload"]["authorized_scope"]
    assert scope["operation_types"] == ["read", "write"]
    assert scope["resource_constraints"]["executor"] == "bob.exec"
    assert directive["payload"]["tool_safety_class"] == "MIXED"
    params = directive["payload"]["execution_method"]["tool_params"]
    assert params["arguments_digest"] == scope["resource_constraints"]["arguments_digest"]
    assert directive["payload"]["task_id"] == f"task_{token.uses[0].use_id}"
    assert of(packets, "TaskResultPacket")["payload"]["result_data"]["text"] == "nnn"


def test_a_tool_that_fails() -> None:
    with council_of(YES, YES, YES) as council:

        @council.tool
        def fail() -> None:
            raise ValueError("no such thing")

        with pytest.raises(ValueError, match="no such thing"):
            fail()
        (token,) = council.tokens()
        packets = council.episode(token.proposal_id)
    state, told = checked(packets)
    assert (state, told[-3]) == ("S7_REVIEW", "TaskResult FAILURE")
    details = of(packets, "TaskResultPacket")["payload"]["error_details"]
    assert "no such thing" in details["error_message"]
    assert details["retry_recommended"] is False


def test_a_tool_whose_outcome_is_unknown_is_escalated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("council.runtime.executor.LEFT_BEHIND_S", 0.01)
    ends = threading.Event()
    with council_of(YES, YES, YES) as council:

        @council.tool(run_timeout_s=0.05)
        def hang() -> None:
            ends.wait()

        with pytest.raises(OutcomeUnknown):
            hang()
        ends.set()
        (token,) = council.tokens()
        packets = council.episode(token.proposal_id)
        (question,) = council.escalations()
        council.answer(question.escalation_id, approve=True, reason="it is there")
        after = council.episode(token.proposal_id)
        entries = list(council.history(proposal=token.proposal_id, newest_first=False))
    last = entries[-1]
    late = [*entries[:-1], replace(last, at_s=last.at_s + 3600.0)]  # when its directive has timed out
    told = checked([to_dict(packet) for packet in episode_of(token.proposal_id, late)])
    assert told[0] == "S7_REVIEW"
    assert told[1][-3:] == [
        "Escalation tools_degraded_critical",
        "BeliefUpdate outcome",
        "Decision CANCEL",
    ]
    assert after[: len(packets)] == packets
    assert checked(after)[0] == "S7_REVIEW"
    assert after[-2]["header"]["layer_source"] == 1
    assert "answered that it ran" in after[-1]["payload"]["decision_summary"]
    state, told = checked(packets)
    assert (state, told[-2:]) == (
        "S8_ESCALATED",
        ["IntegrityAlert contract_violation", "Escalation tools_degraded_critical"],
    )
    assert packets[-2]["payload"]["severity"] == "ERROR"


def test_a_new_run_of_the_executor_shows_that_a_use_has_no_result(tmp_path: Path) -> None:
    settings = {"store": str(tmp_path / "s.db"), "name": "kept"}
    calls: list[int] = []
    tool = FunctionTool(lambda: calls.append(1), "put", "WRITE", ("write",), (), None, None)

    def joined(council: Council) -> Executor:
        executor = Executor(handle_of(council).port, "exec", KEY, 30.0, {"put": tool})
        handle_of(council).wait(executor.open())
        return executor

    async def lost(*_: Any) -> bool:
        return False

    with council_of(YES, YES, YES, **settings) as council:
        executor = joined(council)
        executor._report = lost  # type: ignore[method-assign]
        action = {"tool": "put", "args": {}, "authorization": PUTS}
        proposal_id = council.propose("Put it", action=action).proposal_id
        handle_of(council).wait(executor.perform(proposal_id, "put", {}, 30.0))
        before = council.episode(proposal_id)
        assert checked(before)[1][-1] == "TaskDirective tool_write"
    with council_of(YES, YES, YES, **settings) as council:
        assert council.episode(proposal_id) == before
        joined(council)
        after = council.episode(proposal_id)
    assert after[: len(before)] == before
    assert checked(after)[1][-1] == "Escalation tools_degraded_critical"
    assert "restarted" in after[-2]["payload"]["summary"]
    assert calls == [1]


def test_a_late_result_and_a_use_after_an_unknown_outcome_are_alerts() -> None:
    action = {"tool": "put", "args": {}, "authorization": {**PUTS, "uses": 2}}
    with council_of(YES, YES, YES) as council:
        proposal_id = council.propose("Put it", action=action, wait_for="all").proposal_id
        entries = list(council.history(proposal=proposal_id, newest_first=False))

    def then(kind: str, **data: Any) -> None:
        entries.append(Entry(entries[-1].position + 1, entries[-1].at_s + 1, kind, "exec", proposal_id, data))

    def use(use_id: str, run: str) -> None:
        terms = entries[0].data["what"]["terms"]
        request = UseRequest(
            proposal_id, use_id, "exec", run, f"token_{proposal_id}", "put", ("write",), (), terms["digest"]
        )
        then("use", request=plain(request))

    def result(use_id: str) -> None:
        then("result", result=plain(UseResult(proposal_id, use_id, "exec", "ok", "put")))

    use("u1", "run1")
    use("u2", "run2")  # another process: the result of the first is not known
    result("u1")
    result("u2")
    then("revocation", sender="bob", reason="enough", by_human=False)
    then("damaged", why="its hash is wrong")
    packets = [to_dict(packet) for packet in episode_of(proposal_id, entries)]
    state, told = checked(packets)
    assert (state, told[6:]) == (
        "S8_ESCALATED",
        [
            "TaskDirective tool_write",
            "IntegrityAlert contract_violation",
            "Escalation tools_degraded_critical",
            *3 * ["IntegrityAlert contract_violation"],
            "IntegrityAlert token_revoked",
            "IntegrityAlert journal_damaged",
        ],
    )


def test_one_of_many_that_a_change_of_the_roll_ended_has_its_outcome() -> None:
    """The record of such a change holds no decision for most of them, only their outcomes."""
    with council_of(YES, YES, YES) as council:
        proposal_id = council.propose("Do it", wait_for="all").proposal_id
        first, ballot, *_ = council.history(proposal=proposal_id, newest_first=False)
    for outcome, last in (("rejected", "Decision CANCEL"), (None, "Escalation contradiction_unresolved")):
        swept = Entry(
            ballot.position + 1, ballot.at_s, "seat_died", "lite", None, {}, more={proposal_id: outcome}
        )
        packets = episode_of(proposal_id, [first, ballot, swept])
        assert checked([to_dict(packet) for packet in packets])[1][-1] == last


def test_a_token_that_is_revoked() -> None:
    action = {"tool": "put", "args": {}, "authorization": PUTS}
    with council_of(YES, YES, YES) as council:
        decision = council.propose("Put it", action=action)
        council.revoke(decision.proposal_id, reason="the plan changed")
        packets = council.episode(decision.proposal_id)
    state, told = checked(packets)
    assert (state, told[-2:]) == (
        "S5_AUTHORIZE",
        ["ToolAuthorizationToken", "IntegrityAlert token_revoked"],
    )
    assert packets[-1]["payload"]["affected_components"] == [f"token_{decision.proposal_id}"]
    assert "the plan changed" in packets[-1]["payload"]["summary"]


def test_as_many_resources_as_a_token_may_have() -> None:
    allows = {**PUTS, "resources": [f"{number:03}{'x' * 997}" for number in range(100)]}
    with council_of(YES, YES, YES) as council:
        decision = council.propose("Put it", action={"tool": "put", "args": {}, "authorization": allows})
        packets = council.episode(decision.proposal_id)
    assert checked(packets)[0] == "S5_AUTHORIZE"
    scope = packets[-1]["payload"]["authorized_scope"]
    assert scope["resource_constraints"]["resources"] == allows["resources"]
    assert packets[-1]["mcp"]["budgets"]["risk_budget"]["max_loss"].endswith("and 80 more")


def test_a_guarded_call_reports_its_steps() -> None:
    with council_of(YES, YES, YES) as council:

        @council.guard
        def work() -> int:
            return 1

        assert work() == 1
        (proposal,) = council.history(types=["proposal"])
        state, told = checked(council.episode(str(proposal.proposal_id)))
    assert (state, told[-2:]) == ("S7_REVIEW", ["Decision ACT", "BeliefUpdate act"])


def test_a_coroutine_gives_the_same() -> None:
    async def go() -> None:
        async with AsyncCouncil.inline(
            seats=[SeatConfig(name=n, mind=Seat(YES)) for n in "abc"], prime="a"
        ) as c:
            decision = await c.propose("Do it", wait_for="all")
            assert checked(await c.episode(decision.proposal_id))[1][-1] == "Decision ACT"

    run(go())


def test_what_can_not_be_told_is_an_error() -> None:
    with council_of(YES, YES, YES) as council:
        with pytest.raises(Refused) as caught:
            council.episode("abcdef01")
        assert caught.value.code == "unknown_proposal"
        with pytest.raises(CallerError):
            council.episode("x")
        decision = council.propose("Do it")
        entries = list(council.history(newest_first=False, types=["ballot"]))
        with pytest.raises(Refused) as caught:
            episode_of(decision.proposal_id, entries)
        assert caught.value.code == "not_kept"
