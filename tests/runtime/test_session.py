"""A client's session on a bad line: the same bytes again, one decision, and never a wait without an end."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council.agents.messaging.mailbox import Reply
from council.agents.mind import Case, Opinion
from council.core.events import ProposalSubmitted
from council.protocol import signing
from council.protocol.envelope import Envelope
from council.protocol.errors import (
    CallerError,
    CouncilDied,
    CouncilError,
    EnvelopeTooLarge,
    NameTaken,
    NoAnswer,
    NotEnrolled,
    OperatorError,
    Refused,
    SignatureError,
    StoreFull,
    StoreLocked,
    TooManyOpen,
    UnknownSender,
    Unreachable,
)
from council.runtime import messages
from council.runtime import session as session_module
from council.runtime.coordinator import Coordinator
from council.runtime.questions import AskEvents
from council.runtime.session import Session
from tests.examples import tried
from tests.patience import HANG_S
from tests.runtime.harness import (
    COUNCIL_ID,
    in_loop,
    key_of,
    run,
    until,
)
from tests.runtime.test_coordinator import Bench, Chair, HandClock, hang


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "RETRY_S", 0.005)


class Line:
    """A coordinator behind a line that loses calls or replies as ``plan`` says, and notes what was sent."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.plan: list[str] = []
        self.sent: list[bytes] = []
        self.joins = 0
        self.leaves = 0
        self.dead: Exception | None = None
        self.join_error: list[Exception] = []

    async def join(self, name: str, role: str, key: bytes) -> dict[str, Any]:
        self.joins += 1
        if self.join_error:
            raise self.join_error.pop(0)
        return await self.coordinator.join(name, role, key)

    async def leave(self, session: str) -> None:
        self.leaves += 1
        await self.coordinator.leave(session)

    async def exchange(self, session: str, batch: Sequence[bytes]) -> Reply:
        self.sent += batch
        if self.dead is not None:
            raise self.dead
        fault = self.plan.pop(0) if self.plan else "fine"
        if fault == "lose call":
            raise Unreachable("the call was lost", address="", name="")
        if fault == "forget":
            await self.coordinator.leave(session)
        if fault == "hang":
            await asyncio.sleep(3600)
        reply = await self.coordinator.exchange(session, batch)
        if fault == "lose reply":
            raise Unreachable("the reply was lost", address="", name="")
        return reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self.coordinator, name)


def submissions_of(coordinator: Coordinator) -> int:
    records = coordinator._journal.records  # type: ignore[attr-defined]
    return sum(isinstance(record.event, ProposalSubmitted) for record in records)


class Wire:
    def __init__(self, bench: Bench, line: Line, session: Session) -> None:
        self.bench = bench
        self.line = line
        self.session = session

    def draft(self, msg_id: str | None = None, sender: str = "client", **content: Any) -> Envelope:
        return Envelope.build(
            msg_id=msg_id or self.bench.new_id(),
            timestamp=datetime(2026, 1, 1, tzinfo=UTC),
            sender=sender,
            role="proposer",
            type="PROPOSAL",
            content={"summary": "do it", **content},
        )

    def info(self, session: Session, proposal_id: str, kind: str, **data: Any) -> Envelope:
        return Envelope.build(
            msg_id=self.bench.new_id(),
            parent_id=proposal_id,
            timestamp=datetime(2026, 1, 1, tzinfo=UTC),
            sender=session.name,
            role="human" if session.role == "human" else "proposer",
            type="INFO",
            content={"kind": kind, "data": data},
        )

    @property
    def submissions(self) -> int:
        return submissions_of(self.bench.coordinator)


def on_a_wire(
    minds: dict[str, Any] | None = None,
    call_timeout_s: float = 30.0,
    in_virtual_time: bool = False,
    **rules: Any,
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """A decorator: the test is a coroutine that gets a ``wire``."""

    def decorated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        async def whole(given: dict[str, Any]) -> None:
            async with Bench(minds, **rules) as bench:
                line = Line(bench.coordinator)
                session = Session(line, "client", "proposer", key_of("client"), 60.0)
                await session.open()
                session._call_timeout_s = call_timeout_s
                await test(Wire(bench, line, session), **given)
                session._call_timeout_s = 60.0
                await session.close()

        @functools.wraps(test)
        def ran(**given: Any) -> None:
            run(whole(given), in_virtual_time=in_virtual_time)

        own = inspect.signature(test)  # without the wire, which is not one of pytest's fixtures
        ran.__signature__ = own.replace(parameters=list(own.parameters.values())[1:])  # type: ignore[attr-defined]
        return ran

    return decorated


SILENT = {"prime": Chair, "lite": hang, "codemind": hang}


@pytest.mark.parametrize(
    "plan",
    [
        ["lose call"],
        ["lose reply"],
        ["lose call", "lose reply", "lose call", "lose reply"],
        ["forget"],
        ["forget", "lose reply", "forget"],
        ["lose reply"] * 10,
    ],
)
@on_a_wire()
async def test_what_was_lost_is_sent_again_byte_for_byte_and_decided_once(
    wire: Wire, plan: list[str]
) -> None:
    wire.line.plan = list(plan)
    decision = await wire.session.propose(wire.draft())
    assert decision.outcome == "approved"
    assert len(set(wire.line.sent)) == 1
    assert len(wire.line.sent) >= 2
    assert wire.submissions == 1


@settings(max_examples=tried(30))
@given(
    st.lists(st.sampled_from(["fine", "lose call", "lose reply", "forget"]), max_size=25), st.integers(1, 6)
)
def test_any_line_that_heals_gives_each_proposal_its_one_decision(plan: list[str], many: int) -> None:
    async def scenario(wire: Wire) -> None:
        wire.line.plan = list(plan)
        drafts = [wire.draft() for _ in range(many)]
        found = await asyncio.gather(*(wire.session.propose(draft) for draft in drafts))
        assert [decision.proposal_id for decision in found] == [draft.msg_id for draft in drafts]
        assert len(set(wire.line.sent)) == many
        assert wire.submissions == many
        assert not wire.session._proposals
        assert not wire.session._refs

    on_a_wire()(scenario)()


@on_a_wire()
async def test_a_forgotten_session_is_joined_anew_with_the_same_name(wire: Wire) -> None:
    wire.line.plan = ["forget"]
    first = wire.session._session
    await wire.session.propose(wire.draft())
    assert wire.line.joins == 2
    assert wire.session._session != first
    assert wire.session.name == "client"


@on_a_wire()
async def test_a_join_that_fails_for_a_while_is_tried_again(wire: Wire) -> None:
    wire.line.plan = ["forget"]
    wire.line.join_error = [Unreachable("not yet", address="", name="")] * 3
    assert (await wire.session.propose(wire.draft())).outcome == "approved"


@on_a_wire()
async def test_a_name_taken_meanwhile_is_told_to_whoever_waits(wire: Wire) -> None:
    wire.line.plan = ["forget"]
    wire.line.join_error = [NameTaken("somebody else is client now", name="client")]
    with pytest.raises(NameTaken):
        await wire.session.propose(wire.draft())


@pytest.mark.parametrize("kind", ["cancel", "answer"])
@pytest.mark.parametrize("fault", ["lose call", "lose reply", "forget"])
@on_a_wire(SILENT)
async def test_an_act_on_a_bad_line_is_done_once_and_acknowledged(wire: Wire, kind: str, fault: str) -> None:
    human = Session(wire.line, "ada", "human", key_of("ada"), HANG_S, COUNCIL_ID)
    await human.open()
    draft = wire.draft(time_budget_s=0.02 if kind == "answer" else 60.0)
    proposing = asyncio.ensure_future(wire.session.propose(draft, wait_for_human=True))
    wanted = "human" if kind == "answer" else "deliberating"
    await until(
        lambda: (
            (found := wire.bench.coordinator._driver.state.open.get(draft.msg_id)) is not None
            and found.stage == wanted
        )
    )
    session = human if kind == "answer" else wire.session
    wire.line.plan = [fault]
    await session.act(
        wire.info(session, draft.msg_id, kind, **({"approve": True} if kind == "answer" else {}))
    )
    assert (await proposing).outcome == ("approved" if kind == "answer" else "cancelled")
    assert not session._acts
    await human.close()


# Time


@on_a_wire(call_timeout_s=10.0, in_virtual_time=True)
async def test_a_council_that_never_answers_is_no_answer_in_time(wire: Wire) -> None:
    wire.line.plan = ["hang", "hang", "hang"]
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(NoAnswer) as caught:
        await wire.session.propose(wire.draft("aaaaaaaa", time_budget_s=5.0))
    assert loop.time() - began_s == pytest.approx(20.0)
    assert caught.value.proposal_id == "aaaaaaaa"
    assert caught.value.waited_s == pytest.approx(20.0)


@on_a_wire(call_timeout_s=0.2, in_virtual_time=True, clock=HandClock().clock)  # its time budget does not pass
async def test_proposing_again_after_no_answer_sends_it_again(wire: Wire) -> None:
    """Mutation: a retry that only waits on what the first left behind is none, and hangs a second time."""
    draft = wire.draft(time_budget_s=0.05)
    wire.line.plan = ["hang"]
    with pytest.raises(NoAnswer):
        await wire.session.propose(draft)
    wire.session._call_timeout_s = 30.0
    assert (await wire.session.propose(draft)).outcome == "approved"
    assert len(wire.line.sent) == 2
    assert len(set(wire.line.sent)) == 1
    assert wire.submissions == 1


@on_a_wire(call_timeout_s=0.1, in_virtual_time=True)
async def test_an_act_without_answer_ends_too_and_leaves_nothing(wire: Wire) -> None:
    wire.line.plan = ["hang", "hang"]
    with pytest.raises(NoAnswer):
        await wire.session.act(wire.info(wire.session, "aaaaaaaa", "cancel"))
    assert not wire.session._acts
    assert not wire.session._refs


@on_a_wire(call_timeout_s=30.0, in_virtual_time=True)
async def test_a_question_that_waits_ends_when_its_wait_and_the_time_of_a_call_are_over(wire: Wire) -> None:
    def hang(question: object) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    wire.line.ask = hang  # type: ignore[attr-defined]
    with pytest.raises(NoAnswer, match=r"did not answer within 40 s \(call: events\)"):
        await wire.session.ask(AskEvents(0, 1, 10.0), 10.0)


@in_loop
async def test_joining_a_council_that_hangs_is_no_answer() -> None:
    class Deaf:
        async def join(self, *args: Any) -> dict[str, Any]:
            await asyncio.sleep(3600)
            return {}

    with pytest.raises(NoAnswer, match="join"):
        await Session(Deaf(), "client", "proposer", key_of("client"), 0.05).open()  # type: ignore[arg-type]


@on_a_wire(SILENT)
async def test_a_human_who_does_not_answer_in_time(wire: Wire) -> None:
    draft = wire.draft(time_budget_s=0.02)
    with pytest.raises(NoAnswer, match="ask for the decision by this id"):
        await wire.session.propose(draft, wait_for_human=True, human_timeout_s=0.1)
    standing = await wire.session.propose(draft)
    assert (standing.standing, standing.final) == ("escalated", False)


@on_a_wire()
async def test_a_council_that_died_is_told_to_all_at_once(wire: Wire) -> None:
    wire.line.dead = CouncilDied("its actor died", name="c", open_ids=[])
    found = await asyncio.gather(
        *(wire.session.propose(wire.draft()) for _ in range(3)), return_exceptions=True
    )
    assert [type(error) for error in found] == [CouncilDied] * 3
    with pytest.raises(CouncilDied):
        await wire.session.act(wire.info(wire.session, "aaaaaaaa", "cancel"))


AWAY = CouncilDied("it has crashed", name="c", open_ids=[], reconnecting=True)


@on_a_wire()
async def test_what_waits_for_a_council_that_is_looked_for_anew_is_sent_again(wire: Wire) -> None:
    wire.line.dead = AWAY
    call = asyncio.ensure_future(wire.session.propose(wire.draft()))
    await until(lambda: len(wire.line.sent) >= 3)
    wire.line.dead = None
    assert (await call).outcome == "approved"
    assert wire.submissions == 1


@pytest.mark.parametrize(("later_s", "waited_s"), [(10.0, 10.0), (100.0, 30.0)])
@on_a_wire(call_timeout_s=10.0, in_virtual_time=True)
async def test_a_council_that_stays_away_is_told_within_the_time_of_the_call(
    wire: Wire, later_s: float, waited_s: float
) -> None:
    """A call may take 10 s when it is made, so that with its budget of 10 s it ends after 30 s, and ``later_s`` then.

    Mutations: retry an absent council for as long as an unreachable one; answer NoAnswer where the reason is known.
    """
    wire.line.dead = AWAY
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    call = asyncio.ensure_future(wire.session.propose(wire.draft(time_budget_s=10.0)))
    await until(lambda: wire.line.sent)
    wire.session._call_timeout_s = later_s
    with pytest.raises(CouncilDied, match="it has crashed"):
        await call
    assert loop.time() - began_s == pytest.approx(waited_s, abs=0.1)
    wire.line.dead = None
    assert (await wire.session.propose(wire.draft())).outcome == "approved"


async def refuse(case: Case) -> Opinion:
    return Opinion.no("no", confidence=0.9)


ANOTHER = {"prime": refuse, "lite": refuse, "codemind": refuse}
ANOTHER_ID = "test.fedcba9876543210"
REPLACED = r"another council runs under the name test .* propose it again"


@on_a_wire()
async def test_what_one_council_may_have_decided_is_not_submitted_to_the_next_of_its_name(wire: Wire) -> None:
    """rules 1.12. Mutation: what waits is signed anew, and the second council decides it as well."""
    async with Bench(ANOTHER, council_id=ANOTHER_ID) as other:
        draft, first = wire.draft(), wire.bench.coordinator
        wire.line.plan = ["lose reply"] * 1_000
        call = asyncio.ensure_future(wire.session.propose(draft))
        await until(lambda: first._driver.announcements.counts["approved"] == 1)
        wire.line.coordinator = other.coordinator
        wire.line.plan = []
        with pytest.raises(CouncilDied, match=REPLACED) as caught:
            await call
        assert (caught.value.code, caught.value.name) == ("council_died", "test")
        assert caught.value.open_ids == [draft.msg_id]
        assert submissions_of(other.coordinator) == 0
        assert (await wire.session.propose(wire.draft())).outcome == "rejected"


@on_a_wire(SILENT)
async def test_what_was_sent_again_and_can_not_be_kept_now_waits_on_for_its_human(wire: Wire) -> None:
    """An earlier attempt was taken in. Mutation: every refusal ends what it is about."""
    human = Session(wire.line, "ada", "human", key_of("ada"), HANG_S, COUNCIL_ID)
    await human.open()
    draft = wire.draft(time_budget_s=0.02)
    waiting = asyncio.ensure_future(wire.session.propose(draft, wait_for_human=True))
    await until(lambda: any(each.answer.done() for each in wire.session._proposals.values()))
    sent = wire.session._proposals[draft.msg_id]
    sent.resent = True
    wire.session._receive([messages.failure(sent.sealed, StoreLocked("locked"))])
    await human.act(wire.info(human, draft.msg_id, "answer", approve=True))
    assert (await waiting).outcome == "approved"
    await human.close()


@on_a_wire(SILENT)
async def test_a_refusal_ends_the_wait_for_a_human_too(wire: Wire) -> None:
    """Mutation: end only the wait for the first answer."""
    draft = wire.draft(time_budget_s=0.02)
    waiting = asyncio.ensure_future(wire.session.propose(draft, wait_for_human=True))
    await until(lambda: any(each.answer.done() for each in wire.session._proposals.values()))
    sealed = wire.session._proposals[draft.msg_id].sealed
    wire.session._receive([messages.failure(sealed, Refused("gone", code="forgotten"))])
    with pytest.raises(Refused, match="gone"):
        await waiting


@on_a_wire(SILENT)
async def test_acts_and_waits_for_a_human_end_with_the_council_that_they_were_for(wire: Wire) -> None:
    async with Bench(ANOTHER, council_id=ANOTHER_ID) as other:
        draft = wire.draft(time_budget_s=0.02)
        waiting = asyncio.ensure_future(wire.session.propose(draft, wait_for_human=True))
        await until(lambda: any(each.answer.done() for each in wire.session._proposals.values()))
        wire.line.coordinator = other.coordinator
        cancelling = asyncio.ensure_future(wire.session.act(wire.info(wire.session, draft.msg_id, "cancel")))
        for call in (waiting, cancelling):
            with pytest.raises(CouncilDied, match=REPLACED):
                await call
        assert submissions_of(other.coordinator) == 0
        assert not wire.session._refs


@on_a_wire()
async def test_a_transport_that_raises_what_it_should_not_is_still_a_council_error(wire: Wire) -> None:
    wire.line.dead = ZeroDivisionError("a bug of the transport")
    with pytest.raises(Unreachable, match="a bug of the transport"):
        await wire.session.propose(wire.draft())


@on_a_wire(SILENT)
async def test_a_council_out_of_reach_is_told_to_who_waits_for_a_human_and_a_short_gap_is_not(
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutation: without the bound, a wait for a human's answer goes on though the council is gone."""
    monkeypatch.setattr(session_module, "UNREACHABLE_MAX_S", 1_000.0)
    draft = wire.draft(time_budget_s=0.02)
    call = asyncio.ensure_future(wire.session.propose(draft, wait_for_human=True))
    state = wire.bench.coordinator._driver.state
    await until(lambda: state.with_human)
    for _ in range(3):  # gaps that add up to more than the limit, each shorter than it
        wire.line.dead = Unreachable("nobody there", address="a:1", name="c")
        sent = len(wire.line.sent)
        wire.session._courier.send(wire.session._proposals[draft.msg_id].sealed)
        await until(lambda: wire.session._unreachable_s is not None)
        wire.session._unreachable_s -= 500.0  # as if it had begun so long ago
        await until(lambda sent=sent: len(wire.line.sent) > sent + 3)  # type: ignore[misc]
        wire.line.dead = None
        await until(lambda: wire.session._unreachable_s is None)
    assert not call.done()
    wire.line.dead = Unreachable("nobody there", address="a:1", name="c")
    wire.session._courier.send(wire.session._proposals[draft.msg_id].sealed)
    await until(lambda: wire.session._unreachable_s is not None)
    wire.session._unreachable_s -= 1_000.0
    with pytest.raises(
        Unreachable, match=r"out of reach for 1000 s.*propose the same draft again.*nobody there"
    ) as caught:
        await asyncio.wait_for(call, HANG_S)
    assert (caught.value.address, caught.value.name) == ("a:1", "c")
    wire.line.dead = None
    standing = await wire.session.propose(draft)
    assert standing.standing == "escalated"
    assert wire.submissions == 1


@on_a_wire()
async def test_a_gap_long_ago_is_not_counted_against_a_new_call(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: what an act that was given up had seen makes the next gap, much later, a council out of reach."""
    monkeypatch.setattr(session_module, "UNREACHABLE_MAX_S", 1_000.0)
    wire.session._call_timeout_s = 0.05
    wire.line.dead = Unreachable("nobody there", address="", name="")
    with pytest.raises(NoAnswer):
        await wire.session.act(wire.info(wire.session, "a" * 16, "cancel"))
    wire.line.dead = None
    wire.session._call_timeout_s = 30.0
    assert wire.session._unreachable_s is not None
    wire.session._unreachable_s -= 2_000.0
    wire.line.dead = Unreachable("a blip", address="", name="")
    call = asyncio.ensure_future(wire.session.propose(wire.draft()))
    sent = len(wire.line.sent)
    await until(lambda: len(wire.line.sent) > sent)
    wire.line.dead = None
    assert (await call).outcome == "approved"


# Humans


@in_loop
async def test_a_human_gives_no_council_a_key_whatever_it_calls_itself() -> None:
    """rules 1.14; mutation: a join that sends the key hands it to whoever answers under another council's id."""

    class Liar:
        """Takes joins in the name of the council that it would like to answer in."""

        given: tuple[str, str, bytes]

        async def join(self, *given: Any) -> dict[str, Any]:
            self.given = given
            return {"council_id": "victim.0123456789abcdef", "session": "s"}

    liar = Liar()
    session = Session(liar, "ada", "human", key_of("ada"), HANG_S, COUNCIL_ID)  # type: ignore[arg-type]
    await session.open()
    assert liar.given[:2] == ("ada", "human")
    assert key_of("ada") not in liar.given[2]
    assert session.council_id == COUNCIL_ID, "it signs for the council that it has a key for"
    ring = signing.Keyring()
    ring.add("ada", key_of("ada"))
    assert ring.greets("ada", liar.given[2], COUNCIL_ID)
    assert not ring.greets("ada", liar.given[2], "victim.0123456789abcdef")


@on_a_wire()
async def test_a_human_is_back_after_the_council_forgot_the_session(wire: Wire) -> None:
    human = Session(wire.line, "ada", "human", key_of("ada"), HANG_S, COUNCIL_ID)
    await human.open()
    wire.line.plan = ["forget"]
    with pytest.raises(Refused) as caught:
        await human.act(wire.info(human, "aaaaaaaa", "answer", approve=True))
    assert caught.value.code == "unknown_proposal"
    assert wire.line.joins == 3
    wire.bench.coordinator._driver.senders.keyring.remove("ada")
    wire.bench.coordinator._driver.senders.keyring.add("ada", key_of("mallory"))
    wire.line.plan = ["forget"]
    with pytest.raises(NotEnrolled):
        await human.act(wire.info(human, "aaaaaaaa", "answer", approve=True))


# Closing


@on_a_wire(SILENT)
async def test_closing_while_somebody_waits_says_what_stays_open(wire: Wire) -> None:
    drafts = [wire.draft() for _ in range(2)]
    waiting = [asyncio.ensure_future(wire.session.propose(draft)) for draft in drafts]
    await until(lambda: len(wire.bench.coordinator._driver.state.open) == 2)
    await wire.session.close()
    for call in waiting:
        with pytest.raises(CouncilDied, match="stays open") as caught:
            await call
        assert caught.value.open_ids == [draft.msg_id for draft in drafts]
    assert len(wire.bench.coordinator._driver.state.open) == 2
    assert wire.line.leaves == 1
    assert (await wire.bench.coordinator.status())["sessions"] == []


@on_a_wire()
async def test_closing_while_it_retries_ends_the_retries(wire: Wire) -> None:
    wire.line.dead = Unreachable("nobody there", address="", name="")
    call = asyncio.ensure_future(wire.session.propose(wire.draft()))
    await until(lambda: len(wire.line.sent) >= 3)
    await wire.session.close()
    with pytest.raises(CouncilDied):
        await call
    sent = len(wire.line.sent)
    await asyncio.sleep(0.05)
    assert len(wire.line.sent) == sent


@on_a_wire()
async def test_closing_twice_and_on_a_dead_council_is_no_error(wire: Wire) -> None:
    await wire.bench.coordinator.close()
    await wire.session.close()
    await wire.session.close()
    with pytest.raises(CouncilError):
        await wire.session.propose(wire.draft())


# What is refused


@on_a_wire()
async def test_refusals_come_as_their_own_types(wire: Wire) -> None:
    with pytest.raises(UnknownSender):
        await wire.session.propose(wire.draft(sender="stranger"))
    with pytest.raises(SignatureError):
        await wire.session.propose(wire.draft(sender="lite"))
    with pytest.raises(EnvelopeTooLarge):
        await wire.session.propose(wire.draft(body="é" * 450_000))
    with pytest.raises(Refused) as caught:
        await wire.session.act(wire.info(wire.session, "aaaaaaaa", "cancel"))
    assert caught.value.code == "unknown_proposal"
    with pytest.raises(Refused) as caught:
        await wire.session.propose(wire.draft(supersedes="bbbbbbbb"))
    assert caught.value.code == "unknown_proposal"
    assert not wire.session._proposals
    # one refusal hurts nobody else
    assert (await wire.session.propose(wire.draft())).outcome == "approved"


@on_a_wire(SILENT, open_max=1)
async def test_too_many_open_is_told_and_passes(wire: Wire) -> None:
    first = wire.draft()
    call = asyncio.ensure_future(wire.session.propose(first))
    await until(lambda: wire.bench.coordinator._driver.state.open)
    with pytest.raises(TooManyOpen) as caught:
        await wire.session.propose(wire.draft())
    assert (caught.value.open, caught.value.limit) == (1, 1)
    await wire.session.act(wire.info(wire.session, first.msg_id, "cancel"))
    assert (await call).outcome == "cancelled"


@on_a_wire()
async def test_only_a_proposal_can_be_proposed(wire: Wire) -> None:
    with pytest.raises(CallerError, match="INFO was proposed"):
        await wire.session.propose(wire.info(wire.session, "aaaaaaaa", "cancel"))
    assert wire.line.sent == []


def test_two_callers_of_one_draft_share_it_and_other_bytes_under_its_id_are_refused() -> None:
    """Mutation: a session that knows a proposal by its id alone answers a revised one with the old decision."""

    async def slow(case: Case) -> Opinion:
        await asyncio.sleep(0.05)
        return Opinion.yes("r")

    async def scenario(wire: Wire) -> None:
        draft = wire.draft("aaaaaaaa")
        first = asyncio.ensure_future(wire.session.propose(draft))
        second = asyncio.ensure_future(wire.session.propose(draft))
        await asyncio.sleep(0)
        with pytest.raises(Refused) as caught:
            await wire.session.propose(wire.draft("aaaaaaaa", body="revised"))
        assert caught.value.code == "id_reused"
        assert await first == await second
        assert len(wire.line.sent) == 1
        with pytest.raises(Refused) as caught:  # and the council itself says the same afterwards
            await wire.session.propose(wire.draft("aaaaaaaa", body="revised"))
        assert caught.value.code == "id_reused"

    on_a_wire({"prime": Chair, "lite": slow, "codemind": slow})(scenario)()


@on_a_wire(SILENT)
async def test_a_caller_who_stopped_waiting_does_not_stop_another(wire: Wire) -> None:
    draft = wire.draft()
    waiting = [asyncio.ensure_future(wire.session.propose(draft)) for _ in range(2)]
    await until(lambda: wire.bench.coordinator._driver.state.open)
    waiting[0].cancel()
    await wire.session.act(wire.info(wire.session, draft.msg_id, "cancel"))
    assert (await waiting[1]).outcome == "cancelled"
    assert waiting[0].cancelled()
    assert not wire.session._proposals


@on_a_wire()
async def test_a_journal_that_fails_is_told_to_the_proposer(wire: Wire) -> None:
    def fail(records: Any) -> None:
        raise OSError("disk full")

    wire.bench.coordinator._journal.append = fail  # type: ignore[method-assign]
    with pytest.raises(OperatorError, match="disk full"):
        await wire.session.propose(wire.draft())


@pytest.mark.parametrize("fault", ["lose call", "forget"])
@on_a_wire(SILENT)
async def test_a_stall_while_it_is_sent_again_forgets_nobody_who_waits_for_a_human(
    wire: Wire, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: what was taken in before counts as refused, and its caller never hears the human's answer."""
    coordinator = wire.bench.coordinator
    draft = wire.draft(time_budget_s=0.02)
    waiting = asyncio.ensure_future(wire.session.propose(draft, wait_for_human=True))
    await until(lambda: any(each.answer.done() for each in wire.session._proposals.values()))
    wire.line.plan = [fault]
    with monkeypatch.context() as held:
        held.setattr(coordinator._journal, "trouble", StoreLocked("held", where="x", timeout_s=1))
        for each in coordinator._sessions.values():
            each.mailbox.release()
        await until(lambda: wire.session._stalled is not None)
    human = Session(wire.line, "ada", "human", key_of("ada"), HANG_S, COUNCIL_ID)
    await human.open()
    await human.act(wire.info(human, draft.msg_id, "answer", approve=True))
    assert (await asyncio.wait_for(waiting, HANG_S)).outcome == "approved"


def test_a_refusal_for_a_full_store_leaves_the_others_of_its_session_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rules 4.7: what can't be kept is refused; what was taken in before is still answered.

    Mutations: the session makes no more calls after the one that was refused; it refuses all that waits with it.
    """
    gate = asyncio.Event()

    async def gated(case: Case) -> Opinion:
        await gate.wait()
        return Opinion.yes("fine")

    async def scenario(wire: Wire) -> None:
        coordinator = wire.bench.coordinator
        waiting = asyncio.ensure_future(wire.session.propose(wire.draft()))
        await until(lambda: coordinator._driver.state.open)
        with monkeypatch.context() as held:
            held.setattr(coordinator._journal, "trouble", StoreFull("no room is left", where="x"))
            refused = asyncio.ensure_future(wire.session.propose(wire.draft()))
            for each in coordinator._sessions.values():
                each.mailbox.release()  # so that no other call is parked while this one is refused
            with pytest.raises(StoreFull, match="no room is left"):
                await refused
        assert not waiting.done()
        gate.set()
        assert (await asyncio.wait_for(waiting, HANG_S)).outcome == "approved"
        assert wire.submissions == 1

    on_a_wire({"prime": gated, "lite": gated, "codemind": gated})(scenario)()
