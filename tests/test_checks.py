"""Checks that minds ask for before a decision, in whole councils: run, shown, told in OMEN (rules 5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from council import Case, Council, Opinion, Ruling, SeatConfig, ShownBallot
from council.agents.llm import accept
from council.agents.llm.calls import ModelAnswer
from council.agents.mind import Action
from council.api.client import handle_of
from council.api.tools import FunctionTool
from council.governance import machine
from council.governance.episode import Episode
from council.protocol.errors import NotApproved
from council.runtime.executor import Executor, serve
from tests.cases import each
from tests.patience import HANG_S, until

KEY = b"k" * 32
LOOK = Action("look", {"n": 3})


class Asks:
    """Prime: asks for a check in its ballot, or in its ruling, until it has seen one."""

    def __init__(self, check: Any = LOOK, by_ruling: bool = False) -> None:
        self.check, self.by_ruling = check, by_ruling
        self.cases: list[Case] = []

    def review(self, case: Case) -> Opinion:
        self.cases.append(case)
        if case.checks or self.by_ruling:
            risk: Any = "low" if case.checks else "high"
            return Opinion.yes("seen it", risk_level=risk)
        return Opinion.abstain("is it empty?", check=self.check)

    def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        return Ruling("verify", "look first", check=self.check)


def yes(case: Case) -> Opinion:
    return Opinion.yes("fine")


def council_of(prime: Asks, **settings: Any) -> Council:
    minds = {"prime": prime, "lite": yes, "codemind": yes}
    seats = [SeatConfig(name=name, mind=mind) for name, mind in minds.items()]
    return Council.inline(seats=seats, sender="bob", key=KEY, **settings)


def tools(council: Council) -> tuple[Callable[[int], int], list[Any]]:
    """A tool ``put`` that writes and a tool ``look`` that reads, and what was called."""
    ran: list[Any] = []

    @council.tool(safety="READ", resources=["file:/srv"])
    def look(n: int) -> str:
        ran.append(("look", n))
        if n > 9:
            raise ValueError("too far")
        return "x" * n

    @council.tool
    def put(a: int) -> int:
        ran.append(("put", a))
        return a

    return put, ran


def accepted(packets: list[dict[str, Any]]) -> list[str]:
    """The packets in words; each is accepted by the machine."""
    episode = Episode(packets[0]["header"]["correlation_id"])
    for packet in packets:
        stepped = machine.step(episode, packet)
        assert stepped.is_accepted, stepped.results
        assert not stepped.results, stepped.results
        episode = stepped.episode
    told = [packet["payload"].get("decision_outcome", packet["header"]["packet_type"]) for packet in packets]
    return [each for each in told if each != "BeliefUpdatePacket"]


@each("by_ruling", [False, True])
def test_a_check_is_run_shown_to_all_and_the_action_decided_again(by_ruling: bool) -> None:
    prime = Asks(by_ruling=by_ruling)
    with council_of(prime) as council:
        put, ran = tools(council)
        assert put(5) == 5
        assert ran == [("look", 3), ("put", 5)]
        (token,) = council.tokens()
        decision = council.decision(token.proposal_id)
        packets = council.episode(token.proposal_id)
        log = [entry.kind for entry in council.history(proposal=token.proposal_id, newest_first=False)]
        checks = [event for event in council.events(follow=False) if event.kind == "check"]
    assert decision is not None
    ((check),) = decision.checks or ()
    assert (check.seat, check.tool, check.args, check.text) == ("prime", "look", '{"n":3}', "xxx")
    assert [(one.tool, one.args, one.output) for one in prime.cases[-1].checks] == [("look", {"n": 3}, "xxx")]
    assert prime.cases[-1].history[-1] == ("check", 'look {"n": 3}:\nxxx')
    assert log.count("use") == log.count("result") == 2
    assert len(checks) == 1
    assert accepted(packets) == [
        "ObservationPacket",
        *("VERIFY_FIRST", "VerificationPlanPacket", "TaskDirectivePacket", "TaskResultPacket"),
        *("ObservationPacket", "ACT", "ToolAuthorizationToken", "TaskDirectivePacket"),
        *("TaskResultPacket", "ObservationPacket"),
    ]


@each(
    ("check", "said"),
    [
        (Action("nothing", {}), "has no tool 'nothing'"),
        (Action("put", {"a": 1}), "put is a WRITE tool, and a check runs READ tools alone"),
        (Action("look", {"n": "x"}), "argument n"),
        (Action("look", {"n": 10}), "ValueError: too far"),
    ],
)
def test_a_check_that_can_not_be_run_goes_to_a_human_with_the_reason(check: Action, said: str) -> None:
    with council_of(Asks(check)) as council:
        put, ran = tools(council)
        with pytest.raises(NotApproved) as caught:
            put(5)
        (waiting,) = council.escalations()
        assert (waiting.reason, said in waiting.detail) == ("check_failed", True), waiting.detail
        assert ("put", 5) not in ran
        assert ("put", 1) not in ran
        council.answer(waiting.escalation_id, approve=False)
        packets = council.episode(waiting.proposal_id)
    assert not caught.value.facts["decision"].final
    assert accepted(packets)[-3:] == ["ESCALATE", "EscalationPacket", "CANCEL"]


def test_a_proposal_that_the_council_does_not_run_can_not_be_checked() -> None:
    with council_of(Asks()) as council:
        tools(council)
        decision = council.propose("Put it", action=Action("put", {"a": 5}))
        assert decision.standing == "escalated"
        assert "names no executor" in decision.reason


def test_a_journal_with_a_check_verifies_and_goes_on(tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    with council_of(Asks(), store=store, name="kept") as council:
        put, _ = tools(council)
        put(5)
        (token,) = council.tokens()
        before = council.episode(token.proposal_id)
    with council_of(Asks(), store=store, name="kept") as council:
        decision = council.decision(token.proposal_id)
        assert decision is not None
        assert [each.outcome for each in decision.checks or ()] == ["ok"]
        assert council.episode(token.proposal_id) == before
        put, _ = tools(council)
        assert put(6) == 6


@each("args", [{"n": 3}, '{"n": 3}'])
def test_a_model_asks_by_its_control_packet(args: Any) -> None:
    """The key ``check`` beside the sections of the packet; in a ruling, with the word human."""
    packet = {"check": {"tool": "look", "args": args}}
    act = {"reason": "unsure", "confidence": 0.6, "risk_level": "low"}
    case = Case("ab" * 8, "bob", "put it")
    prompt: Any = type("Shown", (), {"messages": ()})()

    def answer(**keys: Any) -> ModelAnswer:
        text = json.dumps({"control_packet": packet, "surface_response": "", **keys})
        return ModelAnswer(text=text, finish="stop")  # type: ignore[call-arg]

    opinion = accept.opinion(case, answer(ballot={"vote": "abstain", **act}), prompt)
    assert opinion.control_packet is not None
    assert opinion.control_packet["check"] == LOOK
    ruling = accept.ruling(case, answer(ruling={"ruling": "human", **act}), prompt)
    assert (ruling.ruling, ruling.check) == ("verify", LOOK)
    assert accept.ruling(case, answer(ruling={"ruling": "confirm", **act}), prompt).ruling == "confirm"


@each("begins_late", [False, True])
def test_an_executor_that_serves_runs_the_checks_asked_of_it(begins_late: bool) -> None:
    """As the council's own executor does. Mutation: a check that is announced before it serves times out."""
    ran: list[int] = []
    look = FunctionTool(lambda n: ran.append(n) or "xxx", "look", "READ", ("read",), (), None, None)
    put = FunctionTool(lambda a: ran.append(-a), "put", "WRITE", ("write",), (), None, None)
    with council_of(Asks()) as council, ThreadPoolExecutor(1) as pool:
        handle = handle_of(council)
        executor = Executor(handle.port, "exec", KEY, 30.0, {"look": look, "put": put})

        async def served() -> asyncio.Task[None]:
            return asyncio.create_task(serve(executor, handle.port))

        async def ended(serving: asyncio.Task[None]) -> None:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await executor.close()

        def kinds() -> set[str]:
            return {event.kind for event in council.events(follow=False)}

        if not begins_late:
            serving = handle.wait(served())
            until(lambda: any(entry.kind == "executor" for entry in council.history()))
        allows = {"executor": "exec", "operations": ["write"]}
        action = {"tool": "put", "args": {"a": 5}, "authorization": allows}
        proposing = pool.submit(council.propose, "Put it", action=action)
        if begins_late:
            until(lambda: "check" in kinds())
            serving = handle.wait(served())
        assert proposing.result(HANG_S).outcome == "approved"
        until(lambda: council.tokens()[-1].standing == "used")
        assert ran == [3, -5]
        handle.wait(ended(serving))
