"""The whole Python API on a real council in process."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from msgspec.structs import replace
from pydantic import Secret, SecretBytes, SecretStr

from council import (
    Action,
    AsyncCouncil,
    Case,
    Council,
    CouncilConfig,
    Decision,
    Envelope,
    Event,
    NotApproved,
    Opinion,
    Ruling,
    SeatConfig,
    ShownBallot,
)
from council.api import handle as handles
from council.api import inline
from council.api.client import handle_of
from council.api.guard import SHOWN_CHARS_MAX
from council.api.inline import InlineCoordinator
from council.config.human_keys import council_key, current_user, human_key, state_dir
from council.core.state import Tally
from council.kinds.table import ANNOUNCED
from council.protocol.envelope import id_of_key
from council.protocol.errors import (
    CallerError,
    ConfigError,
    CouncilDied,
    CouncilError,
    EnvelopeError,
    EnvelopeTooLarge,
    MindError,
    NameTaken,
    NoAnswer,
    NotEnrolled,
    OperatorError,
    PositionLost,
    Refused,
    TooManyOpen,
)
from council.runtime.session import Session
from council.telemetry.tracing import traces_of
from council.testing import escalating
from tests.patience import HANG_S, until
from tests.runtime.harness import overdue, run

if TYPE_CHECKING:
    from somewhere import Elsewhere  # type: ignore[import-not-found]

PassWord = SecretStr  # by another name


async def agree(case: Case) -> Opinion:
    return Opinion.yes("fine")


async def refuse(case: Case) -> Opinion:
    return Opinion.no("not at all", confidence=0.9)


async def hang(case: Case) -> Opinion:
    await asyncio.sleep(3600)
    return Opinion.yes("never")


async def obeys(case: Case) -> Opinion:
    """Votes as the summary's first word says."""
    return Opinion(case.summary.split()[0], "as told")  # type: ignore[arg-type]


class Chair:
    def __init__(self, word: str = "confirm") -> None:
        self.word = word

    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("chair agrees")

    async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        return Ruling(self.word, f"{len(ballots)} ballots seen", confidence=0.9)  # type: ignore[arg-type]


def seats(**minds: Any) -> tuple[SeatConfig, ...]:
    return tuple(SeatConfig(name=name, mind=mind) for name, mind in minds.items())


def council_of(prime: Any = Chair, lite: Any = agree, codemind: Any = agree, **settings: Any) -> Council:
    settings.setdefault("time_budget_s", 10.0)
    settings.setdefault("call_timeout_s", 10.0)
    settings.setdefault("humans", dict.fromkeys(("ada", "bob", current_user()), "kept"))
    return Council.inline(CouncilConfig(seats=seats(prime=prime, lite=lite, codemind=codemind), **settings))


@pytest.fixture
def council() -> Iterator[Council]:
    with council_of() as made:
        yield made


@pytest.fixture
def split() -> Iterator[Council]:
    """A council in which nothing is decided without a human: two seats hang."""
    with council_of(lite=hang, codemind=hang, time_budget_s=0.05) as made:
        yield made


# Proposing


def test_a_proposal_is_decided(council: Council) -> None:
    decision = council.propose("Delete the staging bucket", risk="high", timeout_s=HANG_S)
    assert isinstance(decision, Decision)
    assert decision
    assert (decision.outcome, decision.final, decision.standing) == ("approved", True, "decided")
    assert (decision.tally, decision.dissent) == (Tally(3, 0, 0), "")
    assert decision.ruling is not None
    assert decision.ruling.reason == "3 ballots seen"
    assert decision.escalated_for
    with council_of(lite=refuse, codemind=refuse) as other:
        decision = other.propose("x", wait_for="all")
        assert not decision
        assert (decision.outcome, decision.tally) == ("rejected", Tally(1, 2, 0))
        assert decision.dissent == "prime (yes, 1.00): chair agrees"
        draft = council.draft("of another council")
        with pytest.raises(CouncilError):
            other.propose(draft)
        assert council.status()["council_id"] != other.status()["council_id"]


def test_the_same_from_coroutines() -> None:
    async def scenario() -> None:
        async with council_of() as council:
            assert (await council.propose("x", "a body", risk="low")).outcome == "approved"
            found = await council.propose_many(["a", "b"])
            assert [bool(each) for each in found] == [True, True]
            draft = council.draft("c", confidence=0.9)
            decision = await council.propose(draft)
            asked = await council.decision(draft.msg_id)
            assert asked is not None
            assert replace(asked, late=()) == replace(decision, late=())
            assert await council.escalations() == []
            status = await council.status()
            assert status["decided"] == {"approved": 4}
            events = [event async for event in council.events(follow=False)]
            assert [event.kind for event in events].count("decision") == 4
            with pytest.raises(Refused):
                await council.cancel(draft.msg_id)
            with pytest.raises(Refused):
                await council.answer(f"esc-{draft.msg_id}", approve=True)
        with pytest.raises(CallerError, match="closed"):
            await council.status()

    run(scenario())


class SlowToBuild:
    """Is built once a test lets it."""

    let = threading.Event()

    def __init__(self) -> None:
        assert self.let.wait(HANG_S)

    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("there at last")


def slow() -> CouncilConfig:
    return CouncilConfig(name="slow", seats=seats(prime=Chair, lite=SlowToBuild, codemind=agree))


def threads(name: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if name in thread.name]


def test_a_council_is_made_beside_the_callers_loop() -> None:
    """Mutation: to make it on the caller's loop stops that loop for as long as the minds take to build."""

    SlowToBuild.let.clear()

    async def scenario() -> None:
        async def turn() -> None:
            for _ in range(5):
                await asyncio.sleep(0.01)
            SlowToBuild.let.set()

        turning = asyncio.ensure_future(turn())
        async with AsyncCouncil.inline(slow(), sender="ada") as council:
            assert turning.done()
            assert (council.name, council.sender, council.config) == ("slow", "ada", slow())
            assert (await council.propose("x", risk="low")).outcome == "approved"
            assert repr(council) == "<AsyncCouncil slow as ada>"
        with pytest.raises(CallerError, match="closed"):
            await council.status()
        other = await AsyncCouncil.inline(seats=slow().seats, name="slow", quorum=3)
        async with other:
            assert other.config.quorum == 3
        ended = await AsyncCouncil.inline(slow())
        await ended.end()
        with pytest.raises(ConfigError, match="quorum"):
            await AsyncCouncil.inline(quorum=9)

    run(scenario())
    until(lambda: not threads("slow") and not threads("council-opening"))


def test_a_council_whose_making_is_cancelled_is_closed_when_made() -> None:
    """Mutation: without that, its threads (on Ray, its processes) would be nobody's."""
    seen: list[str] = []
    SlowToBuild.let.clear()

    async def scenario() -> None:
        opening = asyncio.ensure_future(AsyncCouncil.inline(slow())._open())
        seen.extend(await asyncio.to_thread(until, lambda: threads("council-slow")))
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    run(scenario())
    assert seen
    SlowToBuild.let.set()
    until(lambda: not threads("council-slow") and not threads("council-opening"))


def test_many_keep_their_order_and_each_its_own_error(council: Council) -> None:
    taken = council.draft("taken")
    council.propose(taken)
    stolen = taken.model_copy(update={"sender": "stranger"})
    found = council.propose_many([council.draft("a"), stolen, "", "b", "x" * 3_000], risk="med")
    # details beside a draft are an error of that draft's own
    assert isinstance(found[0], CallerError)
    assert isinstance(found[1], CallerError)
    assert isinstance(found[2], EnvelopeError)
    assert isinstance(found[3], Decision)
    assert isinstance(found[4], EnvelopeTooLarge)
    found = council.propose_many([f"p{n}" for n in range(200)])
    assert [each.summary for each in found if isinstance(each, Decision)] == [f"p{n}" for n in range(200)]
    assert len({each.proposal_id for each in found if isinstance(each, Decision)}) == 200
    assert council.propose_many([]) == []
    assert council.propose_many(iter(["lazily"]))[0]


def test_a_draft_submitted_again_is_a_retry(council: Council) -> None:
    draft = council.draft("once", action={"tool": "rm", "args": {"path": "/x"}})
    assert isinstance(draft, Envelope)
    assert draft.content.wait_for == "all"  # type: ignore[union-attr]
    first = council.propose(draft)
    assert council.propose(draft) == first
    assert council.status()["decided"] == {"approved": 1}
    revised = draft.model_copy(update={"risk_level": "med"})
    with pytest.raises(Refused) as caught:
        council.propose(revised)
    assert caught.value.code == "id_reused"


def test_a_key_names_one_proposal_across_restarts(kept: dict[str, Any]) -> None:
    with Council.inline(**kept) as council:
        first = council.propose("Send the invoice", "for order 17", key="order-17")
        again = council.propose(
            "Send the invoice", "for order 17", key="order-17", requester={"agent": "later"}
        )
        other = council.propose("Send the invoice", "for order 17", key="order-18")
        assert first.proposal_id == again.proposal_id == id_of_key("agent", "order-17") != other.proposal_id
        assert council.status()["decided"] == {"approved": 2}
    with Council.inline(**kept) as council:
        assert council.propose("Send the invoice", "for order 17", key="order-17").position == first.position
        for changed in ({"risk": "med"}, {"body": "for order 18"}, {"action": Action("mail", {})}):
            details: dict[str, Any] = {"body": "for order 17", "key": "order-17", **changed}
            with pytest.raises(Refused) as error:
                council.propose("Send the invoice", **details)
            assert error.value.code == "id_reused"
        assert council.status()["decided"] == {"approved": 2}


def test_a_key_of_a_proposal_that_is_under_way_finds_it() -> None:
    config = CouncilConfig(seats=seats(prime=Chair, lite=hang, codemind=hang), time_budget_s=0.5)
    with Council.inline(config, sender="graph") as council:
        with ThreadPoolExecutor() as threads:
            both = [threads.submit(council.propose, "Send the invoice", key="order-17") for _ in range(2)]
        assert len({each.result(HANG_S).escalation_id for each in both}) == 1


def test_a_key_needs_a_client_with_a_name_and_is_a_text(council: Council) -> None:
    with pytest.raises(CallerError, match="made-up name"):
        council.draft("Send the invoice", key="order-17")
    with Council.inline(sender="graph") as named, pytest.raises(EnvelopeError, match="key"):
        named.draft("Send the invoice", key=17)  # type: ignore[arg-type]


def test_minds_are_shown_what_came_before() -> None:
    """In each form in which it may be given, also drafted, and in the order in which it was."""
    cases: list[Case] = []

    async def remembers(case: Case) -> Opinion:
        cases.append(case)
        return Opinion.yes("fine")

    turns = (("user", "Please clean up."), ("tool", "3 rows\n"), ("tool", ""))
    with council_of(prime=remembers) as council:
        draft = council.draft("c", wait_for="all", history=turns)
        council.propose("a", history=turns)
        council.propose("b", history=[{"role": role, "text": text} for role, text in turns])
        assert council.propose(draft) == council.propose(draft)
        council.propose("d", history=cases[0].history)
        asyncio.run(council.aio.propose("e", history=list(map(list, turns))))
        council.propose_many(["f"], history=turns)
        for nothing in ({}, {"history": None}, {"history": []}):
            council.propose("g", **nothing)  # type: ignore[arg-type]
    assert [case.history for case in cases] == [turns] * 6 + [()] * 3
    assert (cases[0].history[1].role, cases[0].history[1].text) == turns[1]
    assert Case("p", "c", "s", "12", history=cases[0].history).chars == 2 + 16 + 7


BAD_HISTORIES: list[tuple[Any, str]] = [
    ("user: hi", "history is 'user: hi', expected a list of turns"),
    ({"role": "user", "text": "hi"}, "history is {.*}, expected a list"),
    (iter([("user", "hi")]), "expected a list of turns"),
    (["hi"], r"history\[0\] is 'hi', expected \(\"user\""),
    ([("user", "hi"), ("user",)], r"history\[1\] is \('user',\)"),
    ([{"role": "user", "content": "hi"}], r"history\[0\] is .* or \{\"role\": \"user\", \"text\""),
    ([None], r"history\[0\] is None"),
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({"proposal": ""}, "content.summary"),
    ({"proposal": 3}, "content.summary"),
    ({"proposal": None}, "content.summary"),
    ({"proposal": b"x"}, "content.summary"),
    ({"proposal": "a\0b"}, "content.summary"),
    ({"proposal": "x" * 2_001}, "content.summary"),
    ({"proposal": "x", "body": None}, "content.body"),
    ({"proposal": "x", "body": "x" * 900_001}, "content.body"),
    ({"proposal": "x", "risk": "critical"}, "risk_level"),
    ({"proposal": "x", "confidence": float("nan")}, "confidence"),
    ({"proposal": "x", "confidence": 2.0}, "confidence"),
    ({"proposal": "x", "timeout_s": 0}, "content.time_budget_s"),
    ({"proposal": "x", "timeout_s": -1}, "content.time_budget_s"),
    ({"proposal": "x", "timeout_s": float("nan")}, "content.time_budget_s"),
    ({"proposal": "x", "timeout_s": "60"}, "content.time_budget_s"),
    ({"proposal": "x", "timeout_s": 7 * 86_400}, "content.time_budget_s"),
    ({"proposal": "x", "wait_for": "some"}, "content.wait_for"),
    ({"proposal": "x", "action": {"tool": ""}}, "content.action"),
    ({"proposal": "x", "action": "rm"}, "content.action"),
    ({"proposal": "x", "action": {"tool": "t", "args": {"a": object()}}}, "content.action"),
    ({"proposal": "x", "supersedes": "nonsense"}, "content.supersedes"),
    ({"proposal": "x", "history": [("user", "a"), ("A B", "b")]}, "content.history[1].role"),
    ({"proposal": "x", "history": [("user", 3)]}, "content.history[0].text"),
    ({"proposal": "x", "history": [{"role": "a", "text": "", "at": 1}]}, "content.history[0].at"),
    ({"proposal": "x", "history": [("user", "")] * 1_001}, "content.history"),
    ({"proposal": "x", "wait_for": ""}, "content.wait_for"),
]


def test_a_bad_argument_is_named(council: Council) -> None:
    for arguments, where in BAD:
        with pytest.raises(EnvelopeError) as caught:
            council.propose(**arguments)
        assert caught.value.field.startswith(where), arguments
    limits: list[Any] = [float("nan"), "3", -1, True, float("inf")]
    for limit in limits:
        for call in (council.propose, lambda *a, **k: asyncio.run(council.aio.propose(*a, **k))):
            with pytest.raises(CallerError, match="human_timeout_s is"):
                call("x", wait_for_human=True, human_timeout_s=limit)
    for after in ("3", None, True, 1.0):
        with pytest.raises(CallerError, match="after is"):
            council.events(after)  # type: ignore[arg-type]
    for proposals in ("abc", b"abc", {"a": 1}, council.draft("x")):
        with pytest.raises(CallerError, match="proposals is one"):
            council.propose_many(proposals)  # type: ignore[arg-type]
    for history, words in BAD_HISTORIES:
        with pytest.raises(CallerError, match=words):
            council.propose("x", history=history)
    assert council.status()["events"] == 0, "the seats were asked"


def test_an_unknown_keyword_is_pythons_own_kind_of_error_and_names_the_known_ones(council: Council) -> None:
    unknown: Any = {"riks": "high"}
    words = r"takes no keyword 'riks'; did you mean risk\?; known are risk, confidence, action, wait_for,"
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("propose", lambda: council.propose("x", **unknown)),
        ("propose", lambda: council.propose(council.draft("x"), **unknown)),
        ("propose", lambda: asyncio.run(council.aio.propose("x", **unknown))),
        ("propose_many", lambda: council.propose_many([], **unknown)),
    ]
    for name, call in calls:
        with pytest.raises(TypeError, match=rf"{name}\(\) {words}"):
            call()
    # What runs already was configured when it was launched; and its address is no setting.
    for keyword in ("quorum", "ray_address"):
        with pytest.raises(
            TypeError, match=rf"connect\(\) takes no keyword '{keyword}'.* known are .*ray_namespace"
        ):
            Council.connect(name="x", **{keyword: 3})
    with pytest.raises(
        ConfigError, match=r"quorom: unknown key, expected one of name, .*did you mean quorum"
    ):
        Council.inline(**{"quorom": 3})
    assert council.status()["events"] == 0, "the seats were asked"


def test_an_oversized_proposal_says_its_limit(council: Council) -> None:
    with pytest.raises(EnvelopeTooLarge, match="split it"):
        council.propose("x", "é" * 450_000)
    with pytest.raises(EnvelopeTooLarge, match="leave out the oldest of its history"):
        council.propose("x", "é" * 200_000, history=[("user", "é" * 200_000)])


def test_a_draft_is_complete_a_proposal_and_of_its_sender(council: Council) -> None:
    draft = council.draft("x")
    for extra in ({"body": "more"}, {"risk": "high"}, {"timeout_s": 3}):
        with pytest.raises(CallerError, match="complete"):
            council.propose(draft, **extra)  # type: ignore[arg-type]
    with pytest.raises(CouncilError, match="stranger"):
        council.propose(draft.model_copy(update={"sender": "stranger"}))
    about = {"timestamp": draft.timestamp, "sender": council.sender, "role": "proposer"}
    note = Envelope.build(msg_id="aaaaaaaa", type="INFO", content={"kind": "note"}, **about)
    with pytest.raises(CallerError, match="PROPOSAL"):
        council.propose(note)


def test_back_pressure() -> None:
    with council_of(lite=hang, codemind=hang, open_max=2) as council:
        with ThreadPoolExecutor(2) as pool:
            drafts = [council.draft("a"), council.draft("b")]
            calls = [pool.submit(council.propose, draft) for draft in drafts]
            until(lambda: council.status()["open_count"] == 2)
            with pytest.raises(TooManyOpen, match="2 proposals are open"):
                council.propose("c")
            for draft in drafts:
                council.cancel(draft.msg_id, "enough")
            assert [call.result().outcome for call in calls] == ["cancelled", "cancelled"]
        assert council.status()["refused"] == {"too_many_open": 1}


# Taking back and revising


def test_cancel() -> None:
    with council_of(lite=hang, codemind=hang) as council, ThreadPoolExecutor(1) as pool:
        draft = council.draft("x")
        call = pool.submit(council.propose, draft)
        until(lambda: council.status()["open_count"])
        assert council.decision(draft.msg_id) is None
        council.cancel(draft.msg_id, "never mind")
        decision = call.result()
        assert (decision.outcome, decision.reason, bool(decision)) == ("cancelled", "never mind", False)
        for bad in ("ffffffffffffffff", draft.msg_id[:-1] + "0" if draft.msg_id[-1] != "0" else "f" * 16):
            with pytest.raises(Refused):
                council.cancel(bad)
        with pytest.raises(EnvelopeError, match="proposal_id: must be an id"):
            council.cancel("no id at all")


def test_supersede() -> None:
    with council_of(lite=hang, codemind=hang) as council, ThreadPoolExecutor(2) as pool:
        old = council.draft("v1")
        first = pool.submit(council.propose, old)
        until(lambda: council.status()["open_count"])
        new = council.draft("v2", supersedes=old.msg_id)
        second = pool.submit(council.propose, new)
        assert first.result().outcome == "cancelled"
        assert new.msg_id in first.result().reason
        council.cancel(new.msg_id)
        assert second.result().tally.cast <= 1


# Humans


def test_a_human_answers(split: Council) -> None:
    standing = split.propose("x")
    assert (standing.standing, standing.outcome, standing.final, bool(standing)) == (
        "escalated",
        None,
        False,
        False,
    )
    (waiting,) = split.escalations()
    assert waiting.escalation_id == standing.escalation_id == f"esc-{standing.proposal_id}"
    assert waiting.reason == "quorum_lost"
    assert split.decision(standing.proposal_id) == standing
    assert split.status()["with_human"] == 1
    decision = split.answer(waiting.escalation_id, approve=True, reason="I looked", human="ada")
    assert decision == split.decision(standing.proposal_id)
    assert (decision.outcome, decision.final) == ("approved", True)
    assert decision.answer is not None
    assert (decision.answer.human, decision.answer.reason) == ("ada", "I looked")
    assert split.escalations() == []
    with pytest.raises(Refused, match="already answered by ada: approved"):
        split.answer(waiting.escalation_id, approve=False, human="bob")


def test_a_human_who_does_not_come(split: Council) -> None:
    with pytest.raises(NoAnswer):
        split.propose("x", wait_for_human=True, human_timeout_s=0.1)
    with council_of(lite=hang, codemind=hang, time_budget_s=0.05, escalation_ttl_s=0.2) as council:
        decision = council.propose("x", wait_for_human=True)
        assert (decision.outcome, bool(decision)) == ("deferred", False)


def test_many_wait_for_humans(split: Council) -> None:
    found = split.propose_many(["a", "b", "c"])
    assert [each.final for each in found if isinstance(each, Decision)] == [False] * 3
    for each in split.escalations():
        split.answer(each.escalation_id, approve=True)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(split.propose_many, ["d", "e"], wait_for_human=True)
        for each in until(lambda: found if len(found := split.escalations()) == 2 else None):
            split.answer(each.escalation_id, approve=True)
        assert all(call.result(HANG_S))


def test_an_answer_that_can_not_be_meant_is_refused(split: Council, tmp_path: Path) -> None:
    """Mutation: bool("no") approves; a human's name leads out of the folder of keys."""
    kinds = {"esc-ffffffff": Refused, "nonsense": EnvelopeError, "": EnvelopeError, "esc-": EnvelopeError}
    for escalation_id, kind in kinds.items():
        with pytest.raises(kind):
            split.answer(escalation_id, approve=True)
    waiting = str(split.propose("x").escalation_id)
    for human in ("../../evil", "Ada Lovelace", " "):
        with pytest.raises(CallerError, match="not a valid name of a human"):
            split.answer(waiting, approve=True, human=human)
    with pytest.raises(NotEnrolled):
        split.answer(waiting, approve=True, human="mallory")
    assert not [*tmp_path.rglob("*evil*"), *tmp_path.rglob("*mallory*")]
    for approve in ("no", None, 1, "false"):
        with pytest.raises(CallerError, match=r"approve is .*expected True or False"):
            split.answer(waiting, approve=approve)  # type: ignore[arg-type]
    assert len(split.escalations()) == 1


def test_a_client_cannot_answer_under_its_own_name() -> None:
    settings = {"seats": seats(prime=Chair, lite=hang, codemind=hang), "time_budget_s": 0.05}
    with Council.inline(CouncilConfig(**settings), sender="ada") as council:  # type: ignore[arg-type]
        standing = council.propose("x")
        with pytest.raises(NotEnrolled, match=f": {re.escape(current_user())};"):
            council.answer(standing.escalation_id or "", approve=True, human="ada")
    with pytest.raises(NameTaken, match="ada"):
        Council.inline(CouncilConfig(**settings, humans={"ada": "kept"}), sender="ada")  # type: ignore[arg-type]


@pytest.fixture
def kept(tmp_path: Path) -> dict[str, Any]:
    """The settings of a council with a journal on disk, and a sender that comes back to it."""
    some = seats(prime=Chair, lite=agree, codemind=agree)
    return {"seats": some, "name": "twice", "store": str(tmp_path / "s.db"), "sender": "agent"}


def test_a_sender_comes_back_to_its_journal(kept: dict[str, Any]) -> None:
    """rules 1.12, 1.14: a second run speaks as the same client, and a retry gets the decision of the first."""
    with Council.inline(**kept) as council:
        draft = council.draft("x")
        first = council.propose(draft)
    with Council.inline(**kept) as council:
        again = council.propose(draft)
        assert (again.proposal_id, again.position) == (first.proposal_id, first.position)
        assert again.outcome == "approved"
        assert len(council.history(types=["decision"]).entries) == 1
        assert council.propose("y", supersedes=first.proposal_id).final
    key = state_dir() / "journals" / "twice.senders" / "agent.key"
    key.chmod(0o644)
    with pytest.raises(OperatorError, match=r"agent\.key is open to others: chmod 600 it"):
        Council.inline(**kept)
    key.chmod(0o600)
    key.write_bytes(b"short")
    with pytest.raises(OperatorError, match="holds 5 bytes, a key has 32: put back the one it had"):
        Council.inline(**kept)


def test_a_sender_may_bring_its_own_key(kept: dict[str, Any]) -> None:
    for key in (b"k" * 32, b"k" * 32):
        with Council.inline(**kept, key=key) as council:
            assert council.propose("x").outcome == "approved"
    assert not (state_dir() / "journals" / "twice.senders").exists()
    with pytest.raises(NameTaken, match=r"another key.*give that key.*journals/twice\.senders/agent\.key"):
        Council.inline(**kept)  # as on another machine, where the key was not taken along
    with pytest.raises(ConfigError, match="agent"):
        Council.inline(**kept, key=b"")


def test_no_key_is_kept_of_who_does_not_come_back(kept: dict[str, Any]) -> None:
    """Mutation: each run leaves a file behind; a name that is none leads out of the folder."""
    Council.inline(**{**kept, "store": None}).close()
    Council.inline(**{**kept, "store": "memory"}).close()
    Council.inline(**{**kept, "sender": None}).close()
    with pytest.raises(ConfigError, match="no sender's name"):
        Council.inline(**{**kept, "sender": "../../agent"})
    assert not list(state_dir().rglob("*.senders"))


def test_an_answer_that_the_council_took_is_told_though_a_close_began(
    split: Council, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told as CallerError, "this council was closed", as if nothing had been answered."""
    handle, inform = handle_of(split), Session.inform
    escalation = split.propose("Delete it").escalation_id
    assert escalation is not None

    async def then_closed(self: Session, *given: Any) -> None:
        await inform(self, *given)
        handle._closed = True

    monkeypatch.setattr(Session, "inform", then_closed)
    try:
        assert split.answer(escalation, approve=True, human="ada").outcome == "approved"
    finally:
        handle._closed = False


def test_whoever_launches_it_may_answer_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """rules 1.9, 1.14; mutation: to admit a human by joining lets anybody approve under a free name."""
    with council_of(lite=hang, codemind=hang, time_budget_s=0.05, humans=None) as council:
        waiting = str(council.propose("x").escalation_id)
        assert council.status()["humans"] == [current_user()]
        for name in ("mallory", "prime", "lite", "coordinator", council.sender):
            with pytest.raises(NotEnrolled) as caught:
                council.answer(waiting, approve=True, human=name)
            assert (caught.value.name, caught.value.humans) == (name, [current_user()])
        with monkeypatch.context() as elsewhere:  # another user of this machine, under the same name
            elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
            with pytest.raises(
                NotEnrolled, match=f"not the key that {re.escape(current_user())} is enrolled with"
            ):
                council.answer(waiting, approve=True)
        assert council.decision(waiting.removeprefix("esc-")).final is False  # type: ignore[union-attr]
        assert council.answer(waiting, approve=True).outcome == "approved"
    with council_of(lite=hang, codemind=hang, time_budget_s=0.05, humans={}) as council:
        waiting = str(council.propose("x").escalation_id)
        with pytest.raises(NotEnrolled, match=": nobody;"):
            council.answer(waiting, approve=True)


def test_a_council_gets_a_key_that_is_worth_nothing_in_another() -> None:
    """rules 1.14; mutation: a human's one key, given to each council, lets one answer in the other."""
    with council_of() as one, council_of() as other:
        mine, theirs = (
            handle_of(council).port._driver.senders.keyring.key("ada") for council in (one, other)
        )  # type: ignore[attr-defined]
        assert len({mine, theirs, human_key("ada")}) == 3
        assert mine == council_key("ada", "kept", one.status()["council_id"])


@pytest.mark.parametrize("second", ["ada", "bob"])
def test_each_human_is_connected_once_however_many_answers_come_at_once(split: Council, second: str) -> None:
    async def scenario() -> None:
        found = await split.aio.propose_many(["a", "b"])
        first, other = (str(each.escalation_id) for each in found if isinstance(each, Decision))
        await asyncio.gather(
            split.aio.answer(first, approve=True, human="ada"),
            split.aio.answer(other, approve=True, human=second),
        )

    handle_of(split).wait(scenario())  # on its own loop, so that the order of their turns is always the same
    assert split.status()["decided"] == {"approved": 2}
    assert sorted(split.status()["sessions"]) == sorted({"ada", second, split.sender})


# Asking


def test_a_council_that_took_the_place_of_another_is_used_by_clients_and_humans(split: Council) -> None:
    """Mutation: a human's session is kept for the council before."""
    assert split.answer(split.propose("x").escalation_id or "", approve=True, human="ada")
    handle = handle_of(split)
    session, other = handle.session, handle.wait(inline.start(split.config))
    handle.port = session._port = other
    handle.wait(session.open())
    assert split.status()["council_id"] == session.council_id == other.council_id
    assert split.status()["open_count"] == 0
    standing = split.propose("y")
    for human in ("ada", "bob"):
        assert split.answer(standing.escalation_id or "", approve=True, human=human).outcome == "approved"
        standing = split.propose("z")


def test_a_decision_of_an_unknown_id(council: Council) -> None:
    for unknown in ("ffffffff", "", "no id"):
        with pytest.raises(Refused) as caught:
            council.decision(unknown)
        assert caught.value.code == "unknown_proposal"


def test_status(council: Council) -> None:
    council.propose("x")
    status = council.status()
    assert status["name"] == council.name == "council"
    assert [seat["name"] for seat in status["seats"]] == ["prime", "lite", "codemind"]
    assert all(seat["active"] for seat in status["seats"])
    assert status["decided"] == {"approved": 1}
    assert status["sessions"] == [council.sender]
    until(lambda: all(seat["heartbeats"] for seat in council.status()["seats"]))
    json.dumps(status)


def test_events_are_resumable(council: Council) -> None:
    council.propose("one", wait_for="all")  # no ballot comes later
    events = list(council.events(follow=False))
    assert all(isinstance(event, Event) for event in events)
    cursors = [event.cursor for event in events]
    assert cursors == list(range(1, len(events) + 1))
    kinds = [event.kind for event in events]
    assert kinds[0] == "proposal"
    assert kinds.count("decision") == 1
    ids = {event.proposal_id for event in events}
    assert len(ids) == 1
    assert events[0].at.tzinfo is not None
    reading = council.events(follow=False)
    first = next(iter(reading))
    assert (first, reading.cursor) == (events[0], 1)
    assert next(iter(reading)) == events[1]
    council.propose("two")
    rest = list(council.events(after=cursors[-1], follow=False))
    assert rest[0].cursor == cursors[-1] + 1
    assert rest[0].data["what"]["summary"] == "two"
    with pytest.raises(PositionLost):
        list(council.events(after=-5, follow=False))


def test_the_position_of_an_event_is_that_of_its_record_in_the_journal(council: Council) -> None:
    """Mutation: an event is numbered by itself, or by the record after its own."""
    council.propose("one", wait_for="all")
    council.propose("two", wait_for="all")
    records = {entry.position: entry for entry in council.history(newest_first=False)}
    events = list(council.events(follow=False))
    assert [event.position for event in events] == sorted(event.position for event in events)
    for event in events:
        record = records[event.position]
        if event.kind == "decision":
            assert event.data["decision"]["position"] == event.position
            assert [decision.proposal_id for decision in record.decisions] == [event.proposal_id]
        else:
            assert (record.kind, record.proposal_id) == (event.kind, event.proposal_id)
    assert [event.position for event in events] != [event.cursor for event in events]


def test_events_are_followed_as_they_happen_from_a_thread_and_from_a_loop(council: Council) -> None:
    def from_a_thread() -> list[int]:
        kinds, cursors = list[str](), list[int]()
        for event in council.events():
            kinds.append(event.kind)
            cursors.append(event.cursor)
            if kinds.count("decision") == 2:
                break
        return cursors

    async def from_a_loop() -> list[int]:
        kinds, cursors = list[str](), list[int]()
        async for event in council.events():
            kinds.append(event.kind)
            cursors.append(event.cursor)
            if kinds.count("decision") == 2:
                break
        return cursors

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(from_a_thread), pool.submit(asyncio.run, from_a_loop())]
        council.propose("one")
        council.propose("two")
        for call in calls:
            seen = call.result(HANG_S)
            assert seen == list(range(1, len(seen) + 1))


def test_following_stops_when_cancelled_and_when_closed() -> None:
    async def scenario() -> None:
        council = council_of()

        async def follow() -> None:
            async for _ in council.events():
                pass

        first, second = asyncio.ensure_future(follow()), asyncio.ensure_future(follow())
        await council.aio.propose("x")
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await council.aio.close()
        with pytest.raises(CouncilError, match="closed"):
            await second

    run(scenario())


def test_every_kind_of_event_is_named_where_they_are_explained() -> None:
    assert Event.__doc__ is not None
    named = re.findall(r"\w+", Event.__doc__.partition("Kinds:")[2])
    assert sorted(named) == sorted(row.kind for row in ANNOUNCED.values())


def test_lost_events_say_what_is_oldest() -> None:
    with council_of(events_kept=5) as council:
        council.propose_many(["a", "b", "c"], wait_for="all")
        with pytest.raises(PositionLost) as caught:
            list(council.events(follow=False))
        oldest = caught.value.oldest
        assert next(iter(council.events(after=oldest - 1, follow=False))).cursor == oldest


# Guards


@pytest.fixture
def told() -> Iterator[Council]:
    """Approves or rejects as the summary's first word says: yes or no."""
    with council_of(prime=obeys, lite=obeys, codemind=obeys) as made:
        yield made


def test_a_guarded_function_runs_only_when_approved(told: Council) -> None:
    ran: list[str] = []

    @told.guard(describe="{answer} to {bucket}")
    def delete(bucket: str, answer: str = "no") -> str:
        """Deletes."""
        ran.append(bucket)
        return f"deleted {bucket}"

    assert delete.__name__ == "delete"
    assert delete.__doc__ == "Deletes."
    assert delete("a", answer="yes") == "deleted a"
    with pytest.raises(NotApproved, match="delete was not run: rejected") as caught:
        delete("b")
    assert ran == ["a"]
    decision = caught.value.decision
    assert isinstance(decision, Decision)
    assert decision.outcome == "rejected"
    assert caught.value.code == "not_approved"
    back = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(back, NotApproved)
    assert (back.decision, str(back)) == (decision, str(caught.value))
    events = [event for event in told.events(follow=False) if event.kind == "proposal"]
    assert events[0].data["what"]["summary"] == "yes to a"
    assert events[0].data["what"]["tool"].endswith("delete")
    assert events[0].data["what"]["wait_for"] == "all"


def test_a_guarded_coroutine_function(told: Council) -> None:
    guard = told.aio.guard(describe="{answer}")

    async def act(answer: str) -> str:
        return f"did {answer}"

    class Tool:
        async def __call__(self, answer: str) -> str:
            return f"did {answer}"

    async def scenario() -> None:
        by_blocking = told.guard(describe=lambda answer: f"{answer}!"[:-1])(act)
        for each in (by_blocking, guard(act), guard(partial(act)), guard(Tool())):
            assert asyncio.iscoroutinefunction(each)
            assert await each("yes") == "did yes"
            with pytest.raises(NotApproved):
                await each("no")
        found = await asyncio.gather(*(guard(act)("yes") for _ in range(20)))
        assert found == ["did yes"] * 20

    run(scenario())
    for plain in (lambda answer: answer, len, Tool):
        with pytest.raises(CallerError, match="not an async function"):
            guard(plain)  # type: ignore[type-var]


def test_without_a_description_the_call_itself_is_shown() -> None:
    seen: list[Case] = []

    async def look(case: Case) -> Opinion:
        seen.append(case)
        return Opinion.yes("r")

    with council_of(lite=look) as council:

        @council.guard(risk="med", timeout_s=HANG_S)
        def act(a: int, *rest: Any, b: Any = None, **more: Any) -> int:
            return a

        values = {"deep": json_deep(40), "big": 10**40, "nan": float("nan"), "nul": "a\0b", "half": "\ud800"}
        assert act(1, "x", {3}, b={"k": [1, 2]}, long="y" * 5_000, **values) == 1

    (case,) = seen
    assert case.risk_level == "med"
    assert case.time_left_s == HANG_S
    assert case.summary.startswith("Call act(a=1")
    assert case.action is not None
    args = case.action["args"]
    assert (args["a"], args["b"]) == (1, {"k": [1, 2]})
    assert args["more"]["long"] == "y" * 5_000 if isinstance(args["more"], dict) else "long" in args["more"]
    assert args["rest"] == "('x', {3})"


def json_deep(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


class Grumpy:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_any_argument_can_be_shown(told: Council) -> None:
    """An argument that an envelope can't hold as it is must not keep the call from a vote."""

    @told.guard(describe="yes")
    def act(value: Any) -> Any:
        return value

    odd: list[Any] = [10**40, float("nan"), "a\0b", "\ud800", Grumpy(), b"\x00\xff", {1: 2}, {"a": {3}}]
    for value in [json_deep(40), json_deep(31), *odd]:
        assert act(value) is value


class Account:
    """Says nothing of itself."""

    def __init__(self, name: str) -> None:
        self.name = name


class Spoken(Account):
    def __str__(self) -> str:
        return f"account {self.name}"


@pytest.mark.parametrize(
    "value", [Account("a"), [Account("a")], {"k": Account("a")}, Grumpy(), lambda: None, object().__str__]
)
def test_an_argument_that_shows_as_an_address_is_refused_unproposed(told: Council, value: Any) -> None:
    """Mutation: to show it has a human approve ``<Account object at 0x7f…>``, whichever account that is."""
    ran: list[Any] = []

    def act(account: Any) -> None:
        ran.append(account)

    with pytest.raises(CallerError, match=r"argument account .* describe=.*hide=\('account',\)") as caught:
        told.guard()(act)(value)
    assert "0x" not in str(caught.value)
    assert (ran, told.status()["events"]) == ([], 0)
    told.guard(describe="yes")(act)(value)
    (event,) = [event for event in told.events(follow=False) if event.kind == "proposal"]
    assert "0x" not in str(event.data)
    told.guard(hide="account", describe="yes")(act)(value)
    assert ran == [value, value]


def test_a_description_shows_no_address(told: Council) -> None:
    def act(account: Account) -> None:
        return

    for bare in ("yes {account}", "yes {account!r}"):
        with pytest.raises(CallerError, match="shows a value of type Account as an address in memory"):
            told.guard(describe=bare)(act)(Account("ada"))
    told.guard(describe="yes {account}")(act)(Spoken("ada"))
    told.guard(describe="yes {account.name}")(act)(Account("ada"))
    shown = [event.data["what"]["summary"] for event in told.events(follow=False) if event.kind == "proposal"]
    assert shown == ["yes account ada", "yes ada"]


def test_secrets_reach_neither_seats_nor_events() -> None:
    seen: list[Case] = []

    async def look(case: Case) -> Opinion:
        seen.append(case)
        return Opinion.yes("r")

    got: list[Any] = []
    with council_of(prime=look, lite=look, codemind=look) as council:

        @council.guard(hide=("api_key", "more"))
        def named(api_key: str, n: int, **more: Any) -> None:
            got.append((api_key, n, more))

        @council.guard(describe="Log in with {password}, {pin}, {either}, {token}, {alias}, {given}")
        def typed(
            password: SecretStr,
            pin: Annotated[SecretBytes, "short"],
            either: SecretStr | None,
            token: Secret[int],
            alias: PassWord,
            given: Any,
        ) -> None:
            got.append(password)

        @council.guard()
        def unresolved(password: SecretStr, elsewhere: Elsewhere) -> None:
            got.append(password)

        named("hunter2", 7, b="hunter2")
        plain: Any = "hunter2"  # who annotates does not always convert
        typed(plain, SecretBytes(b"hunter2"), plain, Secret(7), plain, SecretStr("hunter2"))
        unresolved(plain, {"deep": SecretStr("hunter2")})
        events = list(council.events(follow=False))
    assert got == [("hunter2", 7, {"b": "hunter2"}), "hunter2", "hunter2"]
    assert "hunter2" not in str(seen) + str(events)
    cases = {case.summary: case for case in seen}
    assert len(cases) == 3
    ((summary, case),) = [(words, case) for words, case in cases.items() if "named" in words]
    assert "api_key='<hidden>', n=7" in summary
    assert case.action is not None
    assert case.action["args"] == {"api_key": "<hidden>", "n": 7, "more": "<hidden>"}
    assert f"Log in with {', '.join(['<hidden>'] * 6)}" in cases


def test_hide_names_arguments_that_there_are(told: Council) -> None:
    def act(bucket: str, **more: Any) -> None:
        return

    with pytest.raises(CallerError, match=r"hide names 'bukket', which .*act does not take.*bucket, more"):
        told.guard(hide=("bukket",))(act)
    with pytest.raises(CallerError, match="arguments are none"):
        told.guard(hide="x")(lambda: None)


@pytest.mark.parametrize("kind", [str, SecretStr, lambda text: SecretBytes(text.encode())])
def test_a_hidden_argument_that_changes_stops_the_call_too(kind: Callable[[str], Any]) -> None:
    """Mutation: to compare what is shown, for ``<hidden>`` is always the same."""
    key = [kind("mine")]

    async def switches(case: Case) -> Opinion:
        key[0] = kind("yours")
        return Opinion.yes("fine")

    with council_of(lite=switches) as council:

        @council.guard(hide=("keys",))
        def use(keys: list[Any]) -> None:
            raise AssertionError("it ran")

        with pytest.raises(CallerError, match="changed while the council decided") as caught:
            use(key)
    assert "yours" not in str(caught.value)


def test_a_guard_needs_no_parentheses() -> None:
    with council_of(prime=refuse, lite=refuse, codemind=refuse) as council:

        @council.guard
        def act(n: int) -> int:
            raise AssertionError("it ran")

        with pytest.raises(NotApproved, match="act was not run: rejected: prime: not at all"):
            act(3)
        assert act.__name__ == "act"

    with council_of() as council:

        @council.guard
        def plain(n: int) -> int:
            return n + 1

        @council.aio.guard
        async def waits(n: int) -> int:
            return n + 2

        assert plain(1) == 2
        assert asyncio.run(waits(1)) == 3
        with pytest.raises(CallerError, match="is not an async function"):
            council.aio.guard(lambda: None)  # type: ignore[type-var]
        with pytest.raises(CallerError, match=r"guard is given 'high', expected a function; .* guard\(risk="):
            council.guard("high")  # type: ignore[type-var]
        for kind in (classmethod, staticmethod, property):
            with pytest.raises(CallerError, match=f"write @{kind.__name__} above the guard"):
                council.guard(kind(len))  # type: ignore[type-var]
        with pytest.raises(TypeError, match=r"guard\(\) takes no keyword 'riks'; did you mean risk"):
            council.guard(riks="high")  # type: ignore[call-overload]


def test_wrong_details_of_a_guard_are_told_when_it_is_applied() -> None:
    """Mutation: at the first call, which may be weeks later."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"risk": "hgh"}, "risk: must be one of 'low', 'med' or 'high'; found 'hgh'"),
        ({"risk": None}, "risk: must be one of 'low', 'med' or 'high'; found null"),
        ({"timeout_s": 0}, "timeout_s: must be more than 0 seconds; found 0"),
        ({"timeout_s": 86_401}, "timeout_s: must be at most 86,400 seconds; found 86401"),
        ({"timeout_s": "5"}, "timeout_s: must be a number; found '5'"),
        ({"requester": 3}, "requester is 3, expected a Requester, or a mapping of"),
    ]
    with council_of() as council:
        for details, told in wrong:
            for guard in (council.guard, council.aio.guard):
                with pytest.raises(CallerError, match=f"^{re.escape(told)}"):
                    guard(**details)


def test_what_waits_says_how_the_program_answers_it() -> None:
    """Mutation: it names the command of a shell, which does not reach a council in process."""
    with escalating() as council:
        with pytest.raises(NotApproved) as caught:
            council.guard(lambda: 3)()
        decision = caught.value.facts["decision"]
        for said in (decision, council.decision(decision.proposal_id)):
            assert said == decision
            assert f'council.answer("{decision.escalation_id}", approve=' in said.explain()
            assert "council answer" not in f"{said.explain()}{caught.value}"
        assert pickle.loads(pickle.dumps(decision)).explain() == decision.explain()
        assert council.answer(decision.escalation_id, approve=True) == council.decision(decision.proposal_id)


def test_a_generator_function_is_not_guarded() -> None:
    """A call of one runs nothing of it, so the guard would only guard that it is made."""

    def steps() -> Iterator[int]:
        yield 1

    async def async_steps() -> AsyncIterator[int]:
        yield 1

    class Tool:
        def __call__(self) -> Iterator[int]:
            yield 1

    with council_of() as council:
        for function in (steps, async_steps, partial(steps), Tool(), Tool().__call__):
            for guard in (council.guard, council.aio.guard, council.guard(risk="high")):
                with pytest.raises(CallerError, match="is a generator function: calling it runs none of it"):
                    guard(function)  # type: ignore[type-var]
        for name in ("verify", "revert"):
            with pytest.raises(CallerError, match=f"{name} is a generator function"):
                council.guard(**{name: steps})  # type: ignore[call-overload]
        assert [*council.guard(lambda: [*steps()])()] == [1]


def test_an_action_is_proposed_as_one_or_as_a_mapping() -> None:
    seen: list[Case] = []

    def look(case: Case) -> Opinion:
        seen.append(case)
        return Opinion.yes("r")

    with council_of(lite=look) as council:
        first = council.draft("x", action=Action("shell", {"command": "ls"}))
        council.propose(first)
        council.propose("x", action={"tool": "shell", "args": {"command": "ls"}})
        council.propose_many(["x"], action=Action("shell", {"command": "ls"}))
        council.propose("x", action=first.content.action)  # type: ignore[union-attr]
        assert [case.action for case in seen] == [Action("shell", {"command": "ls"})] * 4
        assert all(type(case.action) is Action for case in seen)
        council.propose("x", action=Action("noop"))
        assert seen[-1].action == {"tool": "noop", "args": {}}
        with pytest.raises(CallerError, match=r"action is \('shell', 'ls'\), expected Action\(tool, args\)"):
            council.propose("x", action=("shell", "ls"))  # type: ignore[arg-type]


def test_what_can_be_called_can_be_guarded(told: Council) -> None:
    class Tool:
        def __call__(self, n: int) -> int:
            return n + 1

        @staticmethod
        def plain(n: int) -> int:
            return n + 2

        def method(self, n: int) -> int:
            return n + 3

    guard = told.guard(describe="yes")
    assert guard(Tool())(1) == 2
    assert guard(partial(Tool.plain, 1))() == 3
    assert guard(Tool().method)(1) == 4
    assert guard(len)([1]) == 1
    told_no = told.guard(describe="no")
    with pytest.raises(NotApproved, match="Tool was not run"):
        told_no(Tool())(1)


@pytest.mark.parametrize(
    ("describe", "words"),
    [
        ("delete {bukket}", "names 'bukket'"),
        ("{0}", "names"),
        ("{bucket.name}", "no attribute"),
        ("{", "can't be filled in"),
        ("{bucket:d}", "can't be filled in"),
        (lambda bucket: None, "gave a NoneType, expected a text"),
    ],
)
def test_a_description_that_does_not_fit_is_named(told: Council, describe: Any, words: str) -> None:
    @told.guard(describe=describe)
    def delete(bucket: str) -> None:
        raise AssertionError("it ran")

    with pytest.raises(CallerError, match=words):
        delete("x")
    for wrong in ((), ("x", "y")):  # Python's own error
        with pytest.raises(TypeError):
            delete(*wrong)
    assert told.status()["events"] == 0


def test_a_guard_while_a_human_is_asked(split: Council) -> None:
    ran: list[int] = []

    @split.guard()
    def act() -> None:
        ran.append(1)

    @split.guard(wait_for_human=True)
    def patient() -> str:
        return "done"

    with pytest.raises(NotApproved, match="waits for a human") as caught:
        act()
    assert ran == []
    assert caught.value.decision.escalation_id in str(caught.value)
    split.answer(caught.value.decision.escalation_id, approve=True)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(patient)
        (waiting,) = until(split.escalations)
        split.answer(waiting.escalation_id, approve=True)
        assert call.result(HANG_S) == "done"


def test_nothing_of_a_guarded_call_is_hidden_from_the_seats() -> None:
    async def looks(case: Case) -> Opinion:
        bad = "rm -rf /" in str(case.action) or "rm -rf /" in case.body
        return Opinion("no" if bad else "yes", "looked")

    with council_of(prime=looks, lite=looks, codemind=looks) as council:

        @council.guard()
        def shell(command: str) -> None:
            return

        for much in (3_000, SHOWN_CHARS_MAX - 100):
            with pytest.raises(NotApproved):
                shell("echo " + "x" * much + "; rm -rf /")


def test_an_argument_too_large_to_be_shown_whole_is_refused_unproposed(told: Council) -> None:
    """Mutation: to cut it has the seats approve what they were not shown."""
    ran: list[Any] = []

    @told.guard(describe="yes")
    def act(path: str, content: Any) -> None:
        ran.append(content)

    long = "x" * SHOWN_CHARS_MAX
    too_large: list[Any] = [long + "x", ["x" * 1_000] * 200, {"deep": json_deep(40), "long": long}]
    for value in [*too_large, b"\xff" * SHOWN_CHARS_MAX]:
        with pytest.raises(CallerError, match=r"argument content takes [28]\d\d,\d{3}.*200,000") as caught:
            act("/x", value)
        assert len(str(caught.value)) < 500
    assert (ran, told.status()["events"]) == ([], 0)
    act("/x", "y" * (SHOWN_CHARS_MAX - 2))  # with its quotes just what can be shown
    assert len(ran) == 1


def test_a_text_too_large_to_be_shown_is_refused_unread(
    told: Council, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dumps(value: Any, **how: Any) -> str:
        raise AssertionError(f"{len(value):,} characters were read")

    monkeypatch.setattr("council.api.guard.json.dumps", dumps)
    act = told.guard(describe="yes")(lambda content: None)
    for content in ("x" * (SHOWN_CHARS_MAX + 1), b"x" * (SHOWN_CHARS_MAX + 1)):
        with pytest.raises(CallerError, match="argument content takes 200,001 characters to show"):
            act(content)


def test_arguments_too_large_together_are_refused_unproposed(told: Council) -> None:
    ran: list[Any] = []
    long = dict.fromkeys("abcde", "x" * 190_000)
    with pytest.raises(CallerError):
        told.guard(describe="yes")(lambda **more: ran.append(more))(**long)
    with pytest.raises(EnvelopeTooLarge, match="split it"):
        told.guard(describe="yes")(lambda a, b, c, d, e: ran.append(a))(**long)
    assert (ran, told.status()["decided"]) == ([], {})


# Its end


def test_a_closed_council_says_so_to_every_call() -> None:
    council = council_of()
    draft = council.draft("x")
    council.close()
    council.close()
    assert "(closed)" in repr(council)
    calls: list[Callable[[], Any]] = [
        lambda: council.propose("x"),
        lambda: council.propose(draft),
        lambda: council.propose_many(["x"]),
        lambda: council.cancel("aaaaaaaa"),
        lambda: council.answer("esc-aaaaaaaa", approve=True),
        lambda: council.decision("aaaaaaaa"),
        council.escalations,
        council.status,
        lambda: list(council.events(follow=False)),
        lambda: next(iter(council.events())),
        lambda: council.guard()(lambda: None)(),
        lambda: asyncio.run(council.aio.propose("x")),
        lambda: asyncio.run(council.aio.status()),
    ]
    for call in calls:
        with pytest.raises(CallerError, match="closed"):
            call()
    council.end()
    asyncio.run(council.aio.close())


def test_closing_while_others_wait_tells_them() -> None:
    council = council_of(lite=hang, codemind=hang)
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(council.propose, f"p{n}") for n in range(2)]
        calls.append(pool.submit(lambda: list(council.events(after=4))))  # type: ignore[arg-type]
        until(lambda: council.status()["open_count"] == 2)
        council.close()
        for call in calls[:2]:
            with pytest.raises(CouncilDied, match="closed"):
                call.result(HANG_S)
        with pytest.raises(CouncilError):
            calls[2].result(HANG_S)


def test_a_hanging_plain_mind_does_not_keep_close_waiting() -> None:
    free = threading.Event()

    def stuck(case: Case) -> Opinion:
        free.wait()
        return Opinion.yes("late")

    try:
        with council_of(lite=stuck, codemind=stuck, time_budget_s=0.05) as council:
            assert not council.propose("x").final
    finally:
        free.set()  # after close: one that waited for them would never have come here


INTERRUPTED = """
import asyncio, os, signal, threading, time
from council import Case, Council, CouncilConfig, Opinion, SeatConfig

async def hang(case: Case) -> Opinion:
    await asyncio.sleep(3600)

async def agree(case: Case) -> Opinion:
    return Opinion.yes("fine")

seats = [SeatConfig(name="prime", mind=agree), SeatConfig(name="lite", mind=hang), SeatConfig(name="cm", mind=hang)]

def interrupt() -> None:
    while not council.status()["open_count"]:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

with Council.inline(CouncilConfig(seats=seats)) as council:
    draft = council.draft("x")
    threading.Thread(target=interrupt).start()
    try:
        council.propose(draft)
    except KeyboardInterrupt:
        print("interrupted", council.status()["open_count"])
    council.cancel(draft.msg_id)
    print(council.decision(draft.msg_id).outcome)
print([t.name for t in threading.enumerate()])
"""


def test_an_interrupt_while_waiting_leaves_things_clean() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["interrupted 1", "cancelled", "['MainThread']"]
    assert done.returncode == 0
    assert signal.SIGINT


# Threads and loops


def test_a_blocking_call_from_a_mind_on_the_councils_loop_is_refused() -> None:
    box: list[Council] = []

    async def asks_back(case: Case) -> Opinion:
        box[0].status()
        return Opinion.yes("never")

    async def asks_well(case: Case) -> Opinion:
        status = await box[0].aio.status()
        return Opinion.yes(f"{len(status['seats'])} seats")

    def asks_from_a_thread(case: Case) -> Opinion:
        return Opinion.yes(f"{len(box[0].status()['seats'])} seats")

    with council_of(prime=asks_back, lite=asks_well, codemind=asks_from_a_thread) as council:
        box.append(council)
        decision = council.propose("x", wait_for="all")
        assert [ballot.reason for ballot in decision.ballots] == ["3 seats", "3 seats"]
        assert "use council.aio" in dict(decision.missing)["prime"]


def test_a_mind_that_closes_or_ends_its_council_is_refused_and_changes_nothing() -> None:
    """Mutation: ``end`` that marks the council as owned before it is refused has a later ``close`` end it."""
    box: list[Council] = []

    async def closes(case: Case) -> Opinion:
        getattr(box[0], case.summary)()
        return Opinion.yes("never")

    with council_of(lite=closes) as council:
        box.append(council)
        handle = handle_of(council)
        handle._owned = False  # as one that was connected to
        for call in ("close", "end"):
            decision = council.propose(call, wait_for="all")
            assert "use council.aio" in dict(decision.missing)["lite"]
        assert not handle._owned
        handle._owned = True
        assert council.propose("draft", wait_for="all").outcome == "approved"
        assert "closed" not in repr(council)
    with pytest.raises(CallerError, match="closed"):
        council.status()


# Seats and minds


@pytest.mark.parametrize("many", [1, 2, 4, 15])
def test_any_number_of_seats(many: int) -> None:
    config = CouncilConfig(
        seats=seats(prime=agree, **{f"s{n}": agree for n in range(1, many)}),
        sole_seat="allow-low-risk",
    )
    with Council.inline(config) as council:
        # One alone waits for the end of its time.
        decision = overdue(council, lambda: council.propose("x", wait_for="all"))
        assert (decision.outcome, decision.tally.yes, decision.degraded) == ("approved", many, many == 1)


def test_every_shape_of_mind() -> None:
    class AsyncMind:
        async def review(self, case: Case) -> Opinion:
            return Opinion.yes("class")

    class PlainMind:
        def review(self, case: Case) -> Opinion:
            return Opinion.yes("object")

    def function(case: Case) -> Opinion:
        return Opinion.yes("function")

    minds = {"prime": AsyncMind, "lite": PlainMind(), "codemind": function, "more": agree}
    with Council.inline(CouncilConfig(seats=seats(**minds))) as council:
        decision = council.propose("x", wait_for="all")
        reasons = {ballot.seat: ballot.reason for ballot in decision.ballots}
        assert reasons == {"prime": "class", "lite": "object", "codemind": "function", "more": "fine"}


def test_what_a_guard_raises_names_the_seats_that_were_lost_and_why() -> None:
    def broken(case: Case) -> Opinion:
        raise RuntimeError("no such model")

    seats = {name: {"mind": broken} for name in ("prime", "lite", "codemind")}
    with Council.inline(seats=seats) as council, pytest.raises(NotApproved) as caught:
        council.guard()(lambda: None)()
    assert "ballots lost: " in str(caught.value)
    assert "(its mind raised RuntimeError: no such model)" in str(caught.value)


def test_a_prime_without_rule_sends_what_escalates_to_a_human() -> None:
    with council_of(prime=agree) as council:
        decision = council.propose("x", risk="high")
        assert (decision.standing, decision.final) == ("escalated", False)
        (waiting,) = council.escalations()
        assert waiting.reason == "no_ruling"
        losses = [event.data for event in council.events(follow=False) if event.kind == "loss"]
        assert "has no rule(case, ballots)" in losses[0]["why"]


def test_a_mind_that_exits_costs_its_ballot_only() -> None:
    async def exits(case: Case) -> Opinion:
        raise SystemExit("a library gave up")

    async def gathers(case: Case) -> Opinion:
        await asyncio.gather(exits(case), return_exceptions=True)
        return Opinion.yes("still here")

    with council_of(lite=exits, codemind=gathers) as council:
        for _ in range(2):
            decision = council.propose("x", wait_for="all")
            assert (decision.outcome, decision.degraded) == ("approved", True)
            assert "a library gave up" in dict(decision.missing)["lite"]
            assert "still here" in [ballot.reason for ballot in decision.ballots]


# Making one


def test_a_council_that_cannot_be_made_says_why_and_leaves_no_thread() -> None:
    wrong: list[tuple[dict[str, Any], type[CouncilError], str]] = [
        ({"quorum": 1}, ConfigError, "quorum"),
        ({"quorum": 4}, ConfigError, "quorum"),
        ({"prime": "nobody"}, ConfigError, "prime"),
        ({"no_such_key": 1}, ConfigError, "unknown key"),
        ({"seats": {"lite": {"mind": "no.such.module:Mind"}}}, MindError, "lite.*no module no"),
        ({"seats": {"codemind": {"mind": "council.agents.lite:Nobody"}}}, MindError, "codemind.*Nobody"),
        ({"sender": "Not A Name"}, ConfigError, "Not A Name"),
        ({"sender": "prime"}, NameTaken, "prime"),
        ({"sender": "coordinator"}, NameTaken, "coordinator"),
        ({"config": "/no/such/file.toml"}, ConfigError, "/no/such/file.toml"),
        ({"config": CouncilConfig(), "quorum": 2}, ConfigError, "no further settings"),
    ]
    for settings, kind, words in wrong:
        with pytest.raises(kind, match=words):
            Council.inline(**settings)
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("council-council")])


@pytest.mark.parametrize("wrong", [{"seats": {"lite": {"mind": "no.such.module:Mind"}}}, {"sender": "prime"}])
def test_a_council_that_cannot_be_made_lets_go_of_its_traces(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    """Mutation: the exporter's thread and connection live on for each council that was tried in vain."""
    ended: list[str] = []
    traces = traces_of(CouncilConfig(traces="global"), "inline")
    monkeypatch.setattr(traces, "close", lambda: ended.append("ended"))
    monkeypatch.setattr(handles, "traces_of", lambda config, part: traces)
    with pytest.raises((MindError, NameTaken)):
        Council.inline(**wrong)
    assert ended == ["ended"]


def test_what_kept_a_council_from_being_made_is_told_though_it_can_not_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutation: a council that fails to close hides why, and leaves its loop's thread behind."""
    real = InlineCoordinator.close

    async def close(self: InlineCoordinator) -> None:
        await real(self)
        raise OperatorError("the disk is full")

    monkeypatch.setattr(InlineCoordinator, "close", close)
    with pytest.raises(NameTaken):
        Council.inline(sender="prime")
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("council-council")])


def test_arguments_that_change_while_the_council_decides_stop_the_call() -> None:
    """What was approved is what runs, or nothing does."""
    victim, ran = ["/tmp/scratch"], list[list[str]]()

    async def switches(case: Case) -> Opinion:
        victim[0] = "/etc"
        return Opinion.yes("fine")

    with (
        council_of(switches, switches, switches) as council,
        pytest.raises(CallerError, match="changed while the council decided"),
    ):
        council.guard()(lambda paths: ran.append(list(paths)))(victim)
    assert ran == []


class Job:
    """Its repr is an address."""

    def __init__(self, cmd: str) -> None:
        self.cmd = cmd


@dataclass
class Partly:
    name: str
    cmd: str = field(default="ls", repr=False)


class Slotted:
    __slots__ = ("cmd",)

    def __init__(self, cmd: str) -> None:
        self.cmd = cmd

    def __repr__(self) -> str:
        return "Slotted()"


def named(job: Job) -> Callable[[], str]:
    return lambda: job.cmd


@pytest.mark.parametrize("make", [lambda job: job, lambda job: [{"in": (job,)}], lambda job: named(job)])
@pytest.mark.parametrize("kind", [Job, lambda cmd: Partly("x", cmd), Slotted])
def test_what_no_repr_shows_stops_the_call_when_it_changes(
    make: Callable[[Any], Any], kind: Callable[[str], Any]
) -> None:
    """Mutation: to compare what is shown, for an address and a field left out of it are always the same."""
    job = kind("ls")
    ran: list[object] = []
    change = [False]

    async def switches(case: Case) -> Opinion:
        if change[0]:
            job.cmd = "rm -rf /"
        return Opinion.yes("fine")

    with council_of(lite=switches) as council:
        run = council.guard(describe="run it")(ran.append)
        argument = make(job)
        run(argument)
        assert ran == [argument]
        change[0] = True
        with pytest.raises(CallerError, match="changed while the council decided"):
            run(argument)
    assert ran == [argument]


def test_a_cache_that_describing_fills_is_not_a_change(told: Council) -> None:
    class Cached:
        @cached_property
        def told(self) -> str:
            return "yes"

    assert told.guard(describe="{it.told}")(lambda it: 1)(Cached()) == 1


def test_what_nobody_can_compare_is_refused_unproposed(told: Council) -> None:
    with pytest.raises(CallerError, match=r"argument items .* can't be compared .*generator.*a list"):
        told.guard(describe="yes")(lambda items: list(items))(each for each in "ab")
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(
        CallerError, match=r"argument items .* can't be compared .*: it is nested too deeply\."
    ):
        told.guard(hide=("items",))(lambda items: list(items))(deep)
    assert told.status()["events"] == 0
