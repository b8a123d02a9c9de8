"""A seat's cognition packets: one for each case, completed by its answers, and sent where packets are kept."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from council.agents.mind import (
    Action,
    BudgetClient,
    Case,
    Checked,
    Cost,
    Opinion,
    PacketMind,
    Ruling,
    ShownBallot,
)
from council.agents.mind import Turn as Said
from council.agents.prompting.builder import PromptBuilder
from council.agents.seat import case_packets
from council.agents.seat.case_packets import CasePackets
from council.agents.seat.workload import WorkItem
from council.protocol import signing
from council.protocol.cognition import CognitionPacket
from council.protocol.envelope import Info
from tests.agents.test_seat import COUNCIL_ID, KEY, Bench
from tests.logged import capture_logs
from tests.runtime.harness import in_loop, in_virtual_time, until

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CASE = Case("aaaaaaaa", "bob", "Rename it")
COSTS = [Cost(100, 5, 10), Cost(20, 2, 10)]


class Kept:
    """A seat's packets, and what it sent of them. The clock goes on by a second each time it is asked."""

    def __init__(self, *, keeps: bool = True) -> None:
        self.sent: list[dict[str, Any]] = []
        ids = itertools.count(1)
        seconds = itertools.count()
        self.packets = CasePackets(
            "lite",
            as_nothing,
            wall=lambda: WHEN,
            uptime=lambda: float(next(seconds)),
            new_id=lambda: f"{next(ids):08x}",
            keeps=keeps,
            send=lambda proposal_id, data: self.sent.append({"proposal": proposal_id, **data}),
        )

    async def ended(
        self, case: Case, thought: Any = None, *, task: str = "ballot", more: Any = (), why: str = ""
    ) -> CognitionPacket:
        self.packets.begin(case.proposal_id, task)
        before = len(self.sent)
        self.packets.finish(WorkItem(case, task, more), COSTS, thought, why)
        await until(lambda: len(self.sent) > before)
        return CognitionPacket.from_json(self.sent[-1]["packet"])


def as_nothing(case: Case) -> Opinion:
    raise NotImplementedError


as_nothing.review = as_nothing  # type: ignore[attr-defined]


@in_loop
async def test_a_ballot_completes_the_packet() -> None:
    packet = await Kept().ended(CASE, Opinion.no("not so", confidence=0.8))
    assert (packet.status.state, packet.response.candidate) == ("completed", "not so")
    assert packet.council is not None
    assert [(vote.agent, vote.decision) for vote in packet.council.votes] == [("lite", "reject")]
    assert packet.council.mode == "solo"
    assert packet.metrics.latency_ms == 1_000  # of the clock in hand
    assert packet.header.session_id == CASE.proposal_id
    assert packet.header.routing.target_engine == "Lite"
    assert "Rename it" in packet.content.original_prompt


@in_loop
async def test_a_ruling_is_another_round_of_the_same_packet() -> None:
    kept = Kept()
    first = await kept.ended(CASE, Opinion.yes("fine"))
    shown = ShownBallot("prime", "abstain", "unsure", 0.5, "low")
    ruling = Ruling("confirm", "seen all", 0.9)
    second = await kept.ended(CASE, ruling, task="ruling", more=((shown,),))
    assert second.header.packet_id == first.header.packet_id
    assert [(each["task"], each["round"]) for each in kept.sent] == [("ballot", 1), ("ruling", 2)]
    assert second.response.candidate == "seen all"
    assert [each.summary for each in second.reasoning.reflection_log] == ["fine"]
    assert second.council is not None
    assert (second.council.mode, second.council.votes[0].decision) == ("consensus", "abstain")


@in_loop
async def test_after_a_check_the_packet_has_its_result() -> None:
    """Whatever the proposer gave as history. Mutation: the packet of the round before."""
    kept = Kept(keeps=False)
    said = (Said("claimed-check", "look {}:\nall is well"), Said("user", "go on"))
    case = replace(CASE, history=said)
    source: Any = kept.packets
    builder = PromptBuilder("lite", count=lambda text: len(text) // 8, mtu=8_000)
    builder.set_packets(source)
    before = await builder.ballot(case)
    done = Checked("look", {"n": 3}, "it is empty")
    case = replace(case, history=(*said, Said("check", 'look {"n": 3}:\nit is empty')), checks=(done,))
    after = await builder.ballot(case)
    assert "it is empty" not in before.messages[1].text
    assert 'check: look {"n": 3}:\n  it is empty' in after.messages[1].text
    assert after.messages[1].text.count("go on") == 1


@in_loop
async def test_lost_work_aborts_the_packet_and_only_the_first_end_counts() -> None:
    kept = Kept()
    packet = await kept.ended(CASE, why="its mind raised")
    assert (packet.status.state, packet.metrics.errors) == ("aborted", ("its mind raised",))
    assert packet.response.candidate == ""
    kept.packets.finish(WorkItem(CASE, "ballot"), COSTS, why="again")
    await asyncio.sleep(0)
    assert len(kept.sent) == 1


@in_loop
async def test_nothing_is_made_or_sent_where_packets_are_not_kept() -> None:
    kept = Kept(keeps=False)
    kept.packets.begin(CASE.proposal_id, "ballot")
    kept.packets.finish(WorkItem(CASE, "ballot"), COSTS, Opinion.yes("fine"))
    await asyncio.sleep(0)
    assert (kept.sent, len(kept.packets)) == ([], 0)


@in_loop
async def test_an_action_selects_its_tool_and_a_session_is_watched() -> None:
    kept = Kept()
    packets = []
    for number in range(3):
        case = Case(
            f"aaaaaaa{number}",
            "bob",
            "List it",
            action=Action("shell", {"command": "ls"}),
            history=(Said("user", "tidy up"),),
            requester=("agent",),
        )
        packets.append(await kept.ended(case, Opinion.yes(f"fine {number}")))
    routing = packets[0].tool_routing
    assert routing is not None
    assert routing.selected_tool is not None
    assert (routing.selected_tool.tool_name, routing.execution_status) == ("shell", "awaiting_confidence")
    assert [packet.loop_state and packet.loop_state.loop_type for packet in packets] == [
        None,
        None,
        "tool_repetition",
    ]
    assert packets[2].goal_state is not None
    assert packets[2].goal_state.turn_count == 3
    other = await kept.ended(Case("bbbbbbbb", "eve", "List it"), Opinion.yes("fine"))
    assert other.loop_state is None  # another proposer is another session
    assert other.goal_state is not None
    assert other.goal_state.turn_count == 1


@in_loop
async def test_a_long_text_is_cut_between_words() -> None:
    """Half a secret would not be known as one, and would be kept. Mutation: cut at the limit."""
    secret, most = "ghp_" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S6t7U8", case_packets.TEXT_CHARS_MAX
    text = "word " * (most // 5 - 2) + secret
    assert len(text) > most
    packet = await Kept().ended(replace(CASE, body="."), Opinion.yes(text))
    assert packet.response.candidate == f"{'word ' * (most // 5 - 2)}".rstrip() + case_packets.CUT


@in_loop
async def test_long_texts_are_cut_and_what_is_still_too_large_is_not_sent() -> None:
    kept = Kept()
    packet = await kept.ended(Case("aaaaaaaa", "bob", "Rename it", "x" * 500_000), Opinion.yes("f"))
    assert len(packet.content.original_prompt) == case_packets.TEXT_CHARS_MAX + len(case_packets.CUT)
    assert packet.response.candidate == "f"
    args = {str(number): ["y" * 3_000] * 3 for number in range(100)}
    case = Case("bbbbbbbb", "bob", "Rename it", action=Action("put", args))
    with capture_logs() as logs:
        kept.packets.begin(case.proposal_id, "ballot")
        kept.packets.finish(WorkItem(case, "ballot"), COSTS, Opinion.yes("f"))
        await until(lambda: not len(kept.packets))
    assert len(kept.sent) == 1
    assert [(log["event"], log["proposal"]) for log in logs] == [("packet not kept", "bbbbbbbb")]
    assert "262,144" in logs[0]["why"]


@in_loop
async def test_old_packets_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_packets, "PACKETS_MAX", 2)
    kept = Kept()
    first = await kept.ended(CASE, Opinion.yes("fine"))
    for number in range(2):
        await kept.ended(Case(f"bbbbbbb{number}", "bob", "Another"), Opinion.yes("fine"))
    again = await kept.ended(CASE, Opinion.yes("fine"))
    assert again.header.packet_id != first.header.packet_id


@in_loop
async def test_all_prompts_of_a_case_come_from_one_packet() -> None:
    """Mutation: a packet for each prompt, or the history in the prompt for a plan."""
    kept = Kept()
    builder = PromptBuilder("lite", count=lambda text: len(text) // 4, mtu=8_000, way="tf-idf")
    builder.set_packets(kept.packets)
    case = Case("aaaaaaaa", "bob", "Rename it", history=(Said("user", "call it total"),))
    plan = await builder.plan(case, marked=False)
    assert "call it total" not in plan.messages[-1].text
    ballot = await builder.ballot(case, "look, then say yes")
    assert "call it total" in ballot.messages[-1].text
    packet = await kept.ended(case, Opinion.yes("fine"))
    assert [(each.step, each.summary) for each in packet.reasoning.reflection_log] == [
        ("plan", "look, then say yes")
    ]
    assert packet.governance.to_dict()["identity_hash"] == builder.common.charter.identity.content_hash()
    assert [turn.summary for turn in packet.context.relevant_history_snippet] == ["call it total"]


# At a seat


class Spender:
    """A mind that makes a call, and says which packets it was given."""

    def set_budget(self, budget: BudgetClient) -> None:
        self.budget = budget

    async def review(self, case: Case) -> Opinion:
        call_id = await self.budget.reserve(case.proposal_id, "ballot", "small-1", Cost(500, 20))
        self.budget.settle(call_id, Cost(120, 7, 20))
        return Opinion.yes("it said so")


def packet_in(bench: Bench, said: Sequence[bytes]) -> CognitionPacket:
    kinds = [bench.opened(each).content for each in said]
    (info,) = [each for each in kinds if isinstance(each, Info) and each.kind == "packet"]
    return CognitionPacket.from_json(info.data["packet"])


@in_loop
async def test_a_seat_sends_the_packet_after_its_ballot_with_what_it_spent() -> None:
    bench = Bench(Spender(), keeps_packets=True)
    (asked,) = await bench.calls([bench.proposal()])
    said = await bench.calls([bench.info("granted", call=bench.opened(asked).msg_id)], want=3)
    assert [bench.opened(each).type for each in said] == ["INFO", "VOTE", "INFO"]
    usage = packet_in(bench, said).metrics.token_usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (100, 20, 120)
    assert packet_in(bench, said).metrics.cost_estimate == 7e-6


class Slow(Spender):
    """A mind whose call never ends."""

    async def review(self, case: Case) -> Opinion:
        await self.budget.reserve(case.proposal_id, "ballot", "small-1", Cost(500, 20))
        await asyncio.Event().wait()
        raise AssertionError


@in_virtual_time
async def test_a_call_under_way_counts_as_reserved() -> None:
    bench = Bench(Slow(), keeps_packets=True)
    (asked,) = await bench.calls([bench.proposal()])
    await bench.seat.exchange([bench.info("granted", call=bench.opened(asked).msg_id)])
    said = await bench.calls([bench.info("withdraw")], want=2)
    metrics = packet_in(bench, said).metrics
    assert (metrics.token_usage.total_tokens, metrics.cost_estimate) == (500, 20e-6)


async def hangs(case: Case) -> Opinion:
    await asyncio.Event().wait()
    raise AssertionError


@in_virtual_time
async def test_work_that_is_withdrawn_or_too_slow_is_aborted() -> None:
    bench = Bench(hangs, keeps_packets=True)
    bench.host.say = lambda sealed: said.append(sealed)
    said: list[bytes] = []
    bench.host.receive(opened(bench, bench.proposal()))
    await asyncio.sleep(0)
    bench.host.receive(opened(bench, bench.info("withdraw")))
    await until(lambda: said)
    assert packet_in(bench, said).metrics.errors == ("its work was withdrawn",)
    said.clear()
    bench.host.receive(opened(bench, bench.proposal("bbbbbbbb", left_s=5.0)))
    await until(lambda: len(said) == 2)
    packet = packet_in(bench, said)
    assert packet.status.state == "aborted"
    assert "did not answer within 5 s" in packet.metrics.errors[0]


def opened(bench: Bench, sealed: bytes) -> bytes:
    return signing.open_to(sealed, KEY, COUNCIL_ID, "lite")


@in_loop
async def test_without_the_setting_a_seat_sends_none() -> None:
    async def agree(case: Case) -> Opinion:
        return Opinion.yes("fine")

    bench = Bench(agree)
    assert [bench.opened(sealed).type for sealed in await bench.calls([bench.proposal()])] == ["VOTE"]
    assert not bench.host.is_busy()


def test_only_a_mind_that_makes_prompts_takes_packets() -> None:
    assert not isinstance(Spender(), PacketMind)
