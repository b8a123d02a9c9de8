"""The real coordinator, seats and clients keep their word over a network that does not."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from council.agents.seat.observed_cases import GAP
from council.core.events import ProposalSubmitted, StreamObserved
from council.core.state import Decision, Moment, new_council
from council.core.step import step
from council.protocol.envelope import Envelope
from council.protocol.errors import CouncilError
from council.runtime.session import Session
from tests.cases import each
from tests.core.invariants import check
from tests.sim.bugs import FINDING_SEEDS, SHELL_BUGS, Bug
from tests.sim.plan import history_of, name_of, pick, unit
from tests.sim.planted import planted
from tests.sim.shell import CALL_TIMEOUT_S, Shell, in_virtual_time

TTL_S = 100.0
# All is proposed within 250 s, decided or with a human 150 s later, and expired TTL_S after that.
LONGEST_S = 1_000.0
# A seat that was given up is back, and handed what is open, within so long, unless the network fails it again.
REVIVAL_S = 40.0


def draft(shell: Shell, sender: str, n: int, budget_s: float) -> Envelope:
    return Envelope.build(
        msg_id=name_of(shell.seed, "proposal", n),
        timestamp=datetime.fromtimestamp(shell.wall(), UTC),
        sender=sender,
        role="proposer",
        type="PROPOSAL",
        content={
            "summary": f"matter {n}",
            "time_budget_s": budget_s,
            "wait_for": pick(("all", "decisive"), shell.seed, "wait", n),
            "history": [{"role": role, "text": text} for role, text in history_of(shell.seed, n)],
        },
    )


async def propose(shell: Shell, session: Session, n: int, decided: dict[str, Decision]) -> None:
    await asyncio.sleep(250 * unit(shell.seed, "when", n))
    budget_s = pick((1.0, 10.0, 60.0), shell.seed, "budget", n)
    envelope, began_s = draft(shell, session.name, n, budget_s), shell.uptime()
    decision = await session.propose(envelope)
    took_s = shell.uptime() - began_s
    assert took_s <= 2 * budget_s + CALL_TIMEOUT_S  # rules 1.8: decided or with a human by then
    if not decision.final:
        decision = await session.propose(envelope, wait_for_human=True)
    decided[envelope.msg_id] = decision


async def answer(shell: Shell, session: Session) -> None:
    """A human who looks in now and then, and answers some of what there is."""
    answered: set[str] = set()
    while True:
        await asyncio.sleep(20)
        assert shell.coordinator is not None
        for asked in await shell.coordinator.escalations():
            pid = asked.proposal_id
            if pid in answered or unit(shell.seed, "answers", pid) < 0.5:
                continue
            answered.add(pid)
            envelope = Envelope.build(
                msg_id=name_of(shell.seed, "answer", pid),
                parent_id=pid,
                timestamp=datetime.fromtimestamp(shell.wall(), UTC),
                sender=session.name,
                role="human",
                type="INFO",
                content={"kind": "answer", "text": "", "data": {"approve": True}},
            )
            await session.act(envelope)


async def history(seed: int) -> None:
    random.seed(seed)  # the seats' jitter
    shell = Shell(seed, seats=pick((3, 3, 3, 2, 5), seed, "seats"), ttl_s=TTL_S)
    assert shell.coordinator is not None
    await shell.coordinator.open()
    ann, bob, carol = [
        await shell.session(name, role)
        for name, role in (("ann", "proposer"), ("bob", "proposer"), ("carol", "human"))
    ]
    human = asyncio.ensure_future(answer(shell, carol))
    decided: dict[str, Decision] = {}
    matters = asyncio.gather(*(propose(shell, pick((ann, bob), seed, n), n, decided) for n in range(8)))
    await asyncio.wait_for(matters, LONGEST_S)
    human.cancel()
    await judge(shell, decided)
    for session in (ann, bob, carol):
        await session.close()
    await shell.coordinator.close()


async def judge(shell: Shell, decided: dict[str, Decision]) -> None:
    """One decision for each proposal, made of ballots that were cast, the same for all and on replay."""
    assert shell.coordinator is not None
    state = shell.coordinator._driver.state
    check(state)
    assert not state.open
    replayed = new_council(shell.rules, Moment(0.0, 0.0, 0))
    for record in shell.journal.records:
        replayed, _ = step(replayed, record.event, record.moment)
    assert decided.keys() == state.closed.keys() == replayed.closed.keys()
    none_unheard(shell, decided)
    well_observed(shell)
    given = {name_of(shell.seed, "proposal", n): tuple(history_of(shell.seed, n)) for n in range(8)}
    for mind in shell.minds.values():
        assert mind.shown == {pid: given[pid] for pid in mind.shown}
    for pid, decision in decided.items():
        answered = await shell.coordinator.decision(pid)
        assert answered is not None
        for other in (answered, replayed.closed[pid].decision):
            assert essence(other) == essence(decision)
        for ballot in decision.ballots + decision.late:
            assert ballot.vote in shell.minds[ballot.seat].said[pid]


def well_observed(shell: Shell) -> None:
    """Only the observer overhears, and what others said aloud alone; halts are told once kept (rules 1.14, 4.7)."""
    for name, mind in shell.minds.items():
        assert name == "lite" or not mind.overheard
        for pid, stream in mind.overheard:
            assert stream.seat != name
            told = shell.minds[stream.seat].told[pid]
            assert all(part in told for part in stream.text.split(GAP)), stream.text
            assert len(set(re.findall(r"\w-(\d)-\d+ ", stream.text))) <= 1, "two rounds are heard as one"
        halts = Counter(pid for pid, _, _ in mind.halts)
        for pid, why, kept in mind.halts:
            assert why == "seen by lite"
            assert kept > 0, f"{name} was halted on {pid} by what is not kept"
        for pid, count in halts.items():
            assert count <= shell._kept_halts(pid, name)
    runs: dict[tuple[str, str], set[int]] = {}  # the rounds that were halted since the last that was clean
    voting = new_council(shell.rules, Moment(0.0, 0.0, 0))
    for record in shell.journal.records:
        event = record.event
        voting, _ = step(voting, event, record.moment)
        if isinstance(event, StreamObserved):
            on = event.proposal_id, event.stream
            run = runs.setdefault(on, set())
            assert event.round, "a seat says which round it has looked at"
            if event.interrupt:
                run.add(event.round)
            elif event.whole and all(event.round > halted for halted in run):
                run.clear()
            case = voting.open.get(event.proposal_id)  # rules 1.8: three in a row, and Prime is to rule
            assert len(run) < 3 or case is None or case.stage != "deliberating" or case.escalated_for


def none_unheard(shell: Shell, decided: dict[str, Decision]) -> None:
    """A ballot that was cast well before the deadline is not lost with a reply: its seat casts it again."""
    if "crash" in shell.weather.rates:
        return  # what a seat forgets it thinks about anew, and may be late
    for record in shell.journal.records:
        if not isinstance(record.event, ProposalSubmitted):
            continue
        what, decision = record.event.what, decided[record.event.what.proposal_id]
        for seat, why in decision.missing:
            spoke_s = shell.minds[seat].spoke_s.get(what.proposal_id)
            deadline_s = record.moment.uptime_s + what.time_budget_s
            overheard = spoke_s is not None and spoke_s < deadline_s - REVIVAL_S
            assert not overheard or not why.startswith("had not voted by"), (
                f"{seat} voted at {spoke_s}: {why}"
            )


def essence(decision: Decision) -> Any:
    return (
        decision.outcome,
        decision.final,
        decision.ballots,
        decision.ruling,
        decision.answer,
        decision.position,
    )


@pytest.mark.parametrize("tens", [0, *(pytest.param(tens, marks=pytest.mark.long) for tens in range(1, 6))])
def test_councils_in_bad_weather(tens: int) -> None:
    """SHELL_BUGS lists what this catches."""

    @each("seed", range(10 * tens, 10 * tens + 10))
    def keeps_its_word(seed: int) -> None:
        assert in_virtual_time(history(seed)) == []

    keeps_its_word()


@pytest.mark.parametrize("bug", SHELL_BUGS, ids=lambda bug: bug.name)
def test_a_bug_planted_in_the_shell_is_found(bug: Bug) -> None:
    def sixty_seeds() -> None:
        for seed in dict.fromkeys((FINDING_SEEDS.get(bug.name, 0), *range(60))):
            assert in_virtual_time(history(seed)) == []

    with planted(bug), pytest.raises((AssertionError, CouncilError, TimeoutError)):
        sixty_seeds()
