"""A council in process whose three seats are models on a server: it decides what they say, and knows what it cost."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx2
import jsonschema
import pytest

from council import Council, Decision
from council.agents.llm import http
from council.agents.llm.endpoint import Endpoint
from council.core.state import Tally
from council.protocol.errors import NotApproved
from tests.models.stub import Entry, Stub, ballot, for_each, hangs, plan, refuse, ruling, says
from tests.patience import HANG_S
from tests.runtime.harness import overdue

SEATS = ("prime", "lite", "codemind")


@contextmanager
def council(scripts: Mapping[str, Sequence[Entry]], **more: Any) -> Iterator[tuple[Council, Stub]]:
    """A council with a model, and a script, for each seat; ``more`` is for all of them, or the council's own."""
    own = {key: more.pop(key) for key in list(more) if key.startswith(("proposal_", "council_"))}
    with Stub({seat: scripts[seat] for seat in SEATS}, key=more.pop("key", None)) as stub:
        seats = {seat: {"model": seat, "base_url": stub.base_url, **more} for seat in SEATS}
        with Council.inline(seats=seats, **own) as running:
            yield running, stub


def decided(running: Council, **details: Any) -> Decision:
    given: dict[str, Any] = {"wait_for": "all", "timeout_s": HANG_S} | details
    return running.propose("Delete the old index", "Nobody reads it any more.", **given)


def decided_late(running: Council) -> Decision:
    """The same, where not all ballots come: then a proposal is open until its deadline (rules 1.7)."""
    return overdue(running, lambda: decided(running))


def test_three_models_decide_and_the_decision_says_who_spent_what() -> None:
    scripts = {
        "prime": [says(ballot("yes", "it saves space"))],
        "lite": [says("Let me think about it."), says(ballot("yes", "it is clear"))],
        "codemind": [says(ballot("no", "a report reads it", confidence=0.85))],
    }
    with council(scripts) as (running, stub):
        decision = decided(running)
        assert [call.model for call in stub.requests].count("lite") == 2
        asked = [json.dumps(call.body["messages"]) for call in stub.requests]
    assert decision.outcome == "approved"
    assert {(each.seat, each.vote, each.reason) for each in decision.ballots} == {
        ("prime", "yes", "it saves space"),
        ("lite", "yes", "it is clear"),
        ("codemind", "no", "a report reads it"),
    }
    assert {each.seat: (each.calls, each.spent.tokens, each.assumed) for each in decision.spent} == {
        "prime": (1, 120, 0),
        "lite": (2, 240, 0),
        "codemind": (1, 120, 0),
    }
    # Voting is blind (rules 1.14), and what is proposed reaches each of them word for word (rules 2.2).
    assert all("Nobody reads it any more." in text for text in asked)
    reasons = ("it saves space", "it is clear", "a report reads it")
    assert not [text for text in asked if any(reason in text for reason in reasons)]
    assert [label.partition(" ")[0] for label, _ in decision.shared] == ["server"]


def test_each_model_is_shown_what_of_the_session_bears_on_its_vote() -> None:
    """In its ballot's prompt and Prime's ruling, and not in the plan's (rules 2.1); what it says moves nothing."""
    log = "\n".join(f"12:{minute:02} GET /health took {minute} ms" for minute in range(60))
    session = [
        ("user", "The old index is for the auditors.\nVOTE: no"),
        ("tool", f"{log}\nold index: 3 scans since May\n{log}\n12:59 done"),
    ]
    answers: dict[str, Sequence[Entry]] = {
        "plan": [says(plan("Look at it."))],
        "ballot": [says("No idea."), says(ballot())],
        "ruling": [says(ruling())],
        "observe": [says('{"interrupt": null}')],
    }
    with council({seat: [for_each(**answers)] for seat in SEATS}) as (running, stub):
        decision = decided(running, risk="high", history=session)
        bodies = [call.body for call in stub.requests]
    assert (decision.outcome, decision.tally) == ("approved", Tally(3, 0, 0))
    asked = [
        (body["response_format"]["json_schema"]["name"], body["messages"][1]["content"]) for body in bodies
    ]
    said = "\nuser: The old index is for the auditors.\n  VOTE: no\n"
    shown = [(task, text) for task, text in asked if said in text]
    assert [task for task, _ in shown].count("ballot") == 6  # each was asked once more
    assert {task for task, _ in shown} == {"ballot", "ruling"}
    assert {task for task, text in asked if said not in text} >= {"plan"}
    assert all("\ntool: old index: 3 scans since May\n" in text for _, text in shown)
    assert all(text.count("GET /health") < 20 for _, text in shown)


def test_a_seat_whose_key_is_refused_is_missing_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others decide; the key itself is in nothing that anybody is told."""
    monkeypatch.setenv("STUBS_KEY", "sk-right-0123456789")
    monkeypatch.setenv("LITES_KEY", "sk-wrong-0123456789")
    scripts = {seat: [says(ballot())] for seat in SEATS}
    with Stub(scripts, key="sk-right-0123456789") as stub:
        seats: dict[str, Any] = {
            seat: {"model": seat, "base_url": stub.base_url, "api_key_env": "STUBS_KEY"} for seat in SEATS
        }
        seats["lite"]["api_key_env"] = "LITES_KEY"
        with Council.inline(seats=seats) as running:
            decision = decided(running)
            told = [repr(each) for each in running.events(follow=False)]
    assert (decision.outcome, decision.degraded) == ("approved", True)
    ((seat, why),) = decision.missing
    assert seat == "lite"
    assert "it refuses the key (401): see LITES_KEY" in why
    assert "sk-" not in repr(decision) + "".join(told)


def test_models_that_answer_prose_lose_their_ballots_and_a_human_is_asked() -> None:
    scripts = {seat: [says("I think that this is a good idea. Yes!")] for seat in SEATS}
    with council(scripts) as (running, stub):
        decision = decided(running)
        assert len(stub.requests) == 6  # each was asked once more
    assert not decision.final
    assert decision.reason.startswith("too few seats voted for a quorum; ballots lost: ")
    assert all("it is not one JSON object" in why for _, why in decision.missing)
    assert {seat for seat, _ in decision.missing} == set(SEATS)


def test_a_wrong_key_costs_no_minute() -> None:
    """The proposal's own time is ten times what this test may take: nobody waits for answers that can't come."""
    with council({seat: [] for seat in SEATS}, key="another") as (running, stub):
        decision = decided(running, timeout_s=10 * HANG_S)
        assert len(stub.requests) == 3, "a refused key is not tried again"
    assert (decision.standing, decision.escalation_id is None) == ("escalated", False)
    assert "ballots lost: " in decision.reason
    assert all("it wants a key (401): set api_key_env" in why for _, why in decision.missing)


def test_one_silence_of_a_shared_endpoint_is_reported_for_each_seat_that_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One model serves Prime and Lite and says nothing: both name it as the cause, and the third decides nothing."""
    new_client = http.new_client

    def patient(endpoint: Endpoint, *more: Any) -> httpx2.AsyncClient:  # a busy machine may connect slowly
        client = new_client(endpoint, *more)
        client.timeout = httpx2.Timeout(None, read=endpoint.timeout_s)
        return client

    monkeypatch.setattr(http, "new_client", patient)
    with Stub({"shared": [hangs()], "codemind": [says(ballot("yes"))]}) as stub:
        seats = {
            seat: {"model": model, "base_url": stub.base_url, "timeout_s": timeout_s}
            for seat, model, timeout_s in (
                ("prime", "shared", 0.2),
                ("lite", "shared", 0.2),
                ("codemind", "codemind", HANG_S),
            )
        }
        with Council.inline(seats=seats) as running:
            decision = decided(running)
    assert not decision.final
    assert decision.reason.startswith("too few seats voted for a quorum; ballots lost: ")
    assert [each.seat for each in decision.ballots] == ["codemind"]
    assert {seat for seat, _ in decision.missing} == {"prime", "lite"}
    for _, why in decision.missing:
        assert f"shared at {stub.base_url}" in why
        assert "it was silent for 0.2 s" in why
    assert ("prime", "lite") in [seats for label, seats in decision.shared if label.startswith("model")]


def test_prime_rules_by_its_model_where_a_model_sees_a_high_risk() -> None:
    scripts = {
        "prime": [says(ballot("yes")), says(ruling("reject", reason="lite is right"))],
        "lite": [says(ballot("yes", "it may be read at night", risk_level="high"))],
        "codemind": [says(ballot("yes"))],
    }
    with council(scripts) as (running, stub):
        decision = decided(running)
        asked = [call.body["messages"][-1]["content"] for call in stub.requests if call.model == "prime"]
    assert decision.outcome == "rejected"
    assert decision.ruling is not None
    assert (decision.ruling.ruling, decision.ruling.reason) == ("reject", "lite is right")
    assert "it may be read at night" not in asked[0]
    assert "it may be read at night" in asked[1]  # for a ruling, Prime is shown all ballots (rules 1.8)


def asks(check: dict[str, str] | None) -> str:
    """A ballot with every key of the schema that a server is sent."""
    packet = {
        "intent_classification": {"category": "/mutation", "verb": "/delete"},
        "mangle_updates": [],
        "memory_operations": [],
        "impact_analysis": {"estimated_scope": "minor"},
        "safety_gates": {"requires_user_approval": False, "dangerous_action_blocked": None},
        "check": check,
    }
    cast = {"reason": "by its scans", "vote": "yes", "confidence": 0.7, "risk_level": "low"}
    return json.dumps({"control_packet": packet, "surface_response": "", "ballot": cast})


def test_a_model_whose_server_enforces_the_schema_asks_for_a_check() -> None:
    """The result is shown to all three, who vote again. Mutation: the arguments stay a text."""
    answers = asks({"tool": "scans", "args": '{"index": "old"}'}), asks(None)
    scripts = {
        "prime": [says(each) for each in answers],
        **{seat: [says(answers[1])] for seat in ("lite", "codemind")},
    }
    ran: list[str] = []
    with council(scripts, stages="one") as (running, stub):

        @running.tool(safety="READ")
        def scans(index: str) -> int:
            ran.append(index)
            return 41

        @running.tool
        def drop(index: str) -> str:
            ran.append(f"drop {index}")
            return "dropped"

        assert drop("old") == "dropped"
        bodies = [call.body for call in stub.requests]
    assert ran == ["old", "drop old"]
    assert len(bodies) == 6
    for body in bodies:
        jsonschema.validate(json.loads(answers[0]), body["response_format"]["json_schema"]["schema"])
    shown = [body for body in bodies if "check: scans" in body["messages"][1]["content"]]
    assert sorted(body["model"] for body in shown) == sorted(SEATS)
    assert all("41" in body["messages"][1]["content"] for body in shown)


@pytest.mark.parametrize("args", ["n=3", "[3]", ""])
def test_a_check_whose_arguments_are_no_object_is_left_to_a_human(args: str) -> None:
    scripts = {seat: [says(asks({"tool": "scans", "args": args}))] for seat in SEATS}
    with council(scripts, stages="one") as (running, _):

        @running.tool
        def drop(index: str) -> None:
            raise AssertionError("it was not approved")

        with pytest.raises(NotApproved, match=r'its request is not \{"tool": name'):
            drop("old")


def test_a_model_that_wants_a_users_approval_sends_the_proposal_to_a_human() -> None:
    gate = {"safety_gates": {"requires_user_approval": True}}
    scripts = {seat: [says(ballot("yes", packet=gate if seat == "codemind" else {}))] for seat in SEATS}
    with council(scripts) as (running, _):
        assert not decided(running).final


def test_a_call_that_nobody_needs_any_more_is_given_up() -> None:
    """Two agree, and the third's answer, which would never end, is not waited for (rules 1.5)."""
    slow: list[Any] = []
    asked = threading.Event()

    async def never_ends(call: Any) -> None:
        slow.append(call)
        asked.set()
        await hangs("{")(call)

    async def agrees(call: Any) -> None:  # or it may be decided before the third is asked
        assert await asyncio.to_thread(asked.wait, HANG_S)
        await says(ballot())(call)

    with council({"prime": [agrees], "lite": [agrees], "codemind": [never_ends]}) as (running, _):
        decision = decided(running, wait_for="decisive")
        assert (decision.outcome, decision.early) == ("approved", True)
        assert slow[0].hung_up.wait(HANG_S)


def test_no_call_is_made_that_does_not_fit_the_proposals_budget() -> None:
    scripts = {seat: [says(ballot())] for seat in SEATS}
    with council(scripts, proposal_tokens_max=1_000) as (running, stub):
        decision = decided_late(running)
        assert stub.requests == []
    assert not decision.final
    assert all("of the 1,000 that this proposal may spend" in why for _, why in decision.missing)


def test_servers_that_fail_cost_no_more_than_the_time_of_the_proposal() -> None:
    scripts = {
        "prime": [refuse(500, "oh dear")],
        "lite": [hangs()],
        "codemind": [refuse(404, "no such model")],
    }
    with council(scripts) as (running, _):
        decision = decided(running, timeout_s=2.0)
    assert not decision.final
    assert decision.seconds < HANG_S
