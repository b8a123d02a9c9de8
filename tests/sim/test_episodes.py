"""Each proposal of simulated histories has an OMEN episode whose every packet is accepted, in time and order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from council.governance import machine
from council.governance.episode import Episode
from council.governance.from_council import OUTCOMES, episode_of
from council.journal.entries import Entry
from council.journal.history import entry_of
from council.journal.packets import unpacked
from council.protocol.omen import Packet, to_dict
from tests.sim.plan import make
from tests.sim.world import World

SEEDS = range(30)
MORE_SEEDS = range(30, 200)
SEEDS_OF_USES = (3, 20, 39, 59)
WALL_0 = 1_700_000_000.0


def proposals(seed: int) -> Iterator[tuple[str, list[Entry]]]:
    """Each proposal of a seed's history, and the records from its submission on that its episode may need."""
    world = World(make(seed)).run()
    entries = [entry_of(unpacked(row.content, row.position)) for row in world.disk.rows]
    for number, entry in enumerate(entries):
        if entry.kind == "proposal":
            assert entry.proposal_id is not None
            later = entries[number:]
            yield (
                entry.proposal_id,
                [
                    each
                    for each in later
                    if each.concerns(entry.proposal_id) or each.kind in ("executor", "use")
                ],
            )


def jumping(entries: list[Entry], proposal_id: str, number: int) -> list[Entry]:
    """The records as a wall clock that jumps would date them; a use stays within its token's life."""
    chance, at_s, ends_s = random.Random(number), WALL_0, 0.0
    found = []
    for entry in entries:
        at_s += chance.choice((0, 0.1, 1, 50, -100, 700, 90_000))
        own = entry.proposal_id == proposal_id
        if own and entry.kind == "proposal":
            ttl_s = entry.data["what"]["terms"]["ttl_s"]
        if any(each.proposal_id == proposal_id for each in entry.decisions):
            ends_s = at_s + ttl_s
        if own and entry.kind == "use":
            at_s = min(at_s, ends_s)
        found.append(replace(entry, at_s=at_s))
    return found


def check(proposal_id: str, entries: list[Entry]) -> tuple[Episode, list[Packet]]:
    """The episode, once its packets are accepted one by one, and say what the records say."""
    packets = episode_of(proposal_id, entries)
    episode = Episode(f"corr_{proposal_id}")
    for packet in packets:
        stepped = machine.step(episode, to_dict(packet))
        assert stepped.is_accepted, stepped.results
        episode = stepped.episode
    decided = [one for each in entries for one in each.decisions if one.proposal_id == proposal_id]
    outcomes = [p.payload.decision_outcome for p in packets if p.header.packet_type == "DecisionPacket"]
    expected = [OUTCOMES[one.outcome] for one in decided if one.outcome is not None]
    assert [each for each in outcomes if each != "ESCALATE"] == expected
    asked = [one for each in entries for one in each.escalations if one.proposal_id == proposal_id]
    assert outcomes.count("ESCALATE") == len(asked)
    told = Counter(packet.header.packet_type for packet in packets)
    assert told["ToolAuthorizationToken"] <= 1
    uses = [e for e in entries if e.kind == "use" and e.proposal_id == proposal_id]
    assert told["TaskDirectivePacket"] <= len(uses)
    return episode, packets


def test_the_episodes_of_simulated_histories_are_valid() -> None:
    ends: Counter[str | None] = Counter()
    triggers, kinds = set(), Counter[str]()
    for seed in SEEDS:
        for proposal_id, entries in proposals(seed):
            episode, packets = check(proposal_id, entries)
            ends[episode.outcome] += 1
            kinds.update(packet.header.packet_type for packet in packets)
            triggers |= {
                packet.payload.escalation_trigger
                for packet in packets
                if packet.header.packet_type == "EscalationPacket"
            }
    assert min(ends["ACT"], ends["CANCEL"], ends["DEFER"]) >= 10
    assert triggers >= {"contradiction_unresolved", "high_stakes_high_uncertainty", "tools_degraded_critical"}
    assert min(kinds["ToolAuthorizationToken"], kinds["TaskDirectivePacket"], kinds["TaskResultPacket"]) >= 2


def test_a_clock_that_jumps_makes_no_episode_invalid() -> None:
    """A result may be dated after its directive's time, and a use at the last moment of its token."""
    tried, unknown = 0, 0
    for seed in SEEDS_OF_USES:
        for proposal_id, entries in proposals(seed):
            if any(each.kind == "use" and each.proposal_id == proposal_id for each in entries):
                for number in range(20):
                    episode, _ = check(proposal_id, jumping(entries, proposal_id, number))
                    tried += 1
                    unknown += episode.state == "S8_ESCALATED"
    assert tried >= 40
    assert 0 < unknown < tried


@pytest.mark.long
def test_the_episodes_of_more_histories_are_valid() -> None:
    for seed in MORE_SEEDS:
        for proposal_id, entries in proposals(seed):
            check(proposal_id, entries)
