"""The templates A to H: each is valid, and says what is wrong with a packet left out or two swapped."""

from __future__ import annotations

import pytest

from council.governance import machine
from council.governance.templates import TEMPLATES
from council.protocol.omen import Packet
from tests.governance.episodes import built, played, rules

# The packets of each, by the first letters of their types and the layer where it matters (rules 5).
FORMS = {
    "A": "Obs Bel Dec",
    "B": "Obs Bel Dec Dir Res Obs Bel Dec",
    "C": "Obs Bel Dec Dir Res Obs Bel",
    "D": "Obs Bel Dec Tok Dir Res Obs Bel",
    "E": "Obs Bel Dec Esc",
    "F": "Obs Bel Dec Esc",
    "G": "Obs Bel Dec Dir Res Obs Dir Res Obs Bel Dec",
    "H": "Obs Bel Bel3 Bel2 Bel4 Dec Dir Res Bel5 Bel4 Bel3 Bel2 Bel1",
}
ENDS = {
    "A": "S3_DECIDE",
    "B": "S3_DECIDE",
    "C": "S7_REVIEW",
    "D": "S7_REVIEW",
    "E": "S8_ESCALATED",
    "F": "S8_ESCALATED",
    "G": "S3_DECIDE",
    "H": "S7_REVIEW",
}
SHORT = {
    "ObservationPacket": "Obs",
    "BeliefUpdatePacket": "Bel",
    "DecisionPacket": "Dec",
    "ToolAuthorizationToken": "Tok",
    "TaskDirectivePacket": "Dir",
    "TaskResultPacket": "Res",
    "EscalationPacket": "Esc",
}


def short(packet: Packet) -> str:
    return SHORT[packet.header.packet_type]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_valid_and_has_its_form(name: str) -> None:
    packets = built(name)
    form = FORMS[name].split()
    assert [short(each) for each in packets] == [each[:3] for each in form]
    layers = [
        str(each.header.layer_source) for each, as_given in zip(packets, form, strict=True) if as_given[3:]
    ]
    assert layers == [each[3:] for each in form if each[3:]]
    episode, results = played(packets)
    assert [each for each in results if each.severity == "ERROR"] == []
    assert rules(results) == ({"INV-008 WARNING"} if name in "BG" else set())
    assert (episode.state, machine.unfinished(episode)) == (ENDS[name], ())
    assert len({each.header.packet_id for each in packets}) == len(packets)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize(
    "about",
    [
        {
            "summary": "Restart web",
            "correlation_id": "corr_1",
            "tool_id": "restart",
            "tool_params": {"unit": "web"},
        },
        {"impact": "CRITICAL", "irreversibility": "IRREVERSIBLE", "tier": "SUPERB"},
        {"tier": "SUPERB", "operations": ("read", "modify")},
    ],
)
def test_a_template_is_valid_whatever_it_is_about(name: str, about: dict[str, object]) -> None:
    assert "ERROR" not in {each.severity for each in played(built(name, **about))[1]}


@pytest.mark.parametrize("state", ["tools_partial", "tools_down"])
def test_a_degraded_episode_says_why(state: str) -> None:
    escalation = built("F", tools_state=state)[-1]
    assert escalation.payload.escalation_trigger == "tools_degraded_critical"
    assert escalation.mcp is not None
    assert escalation.mcp.routing.tools_state == state


# What an episode may lack or have in another order, by rules 5: an observation of a result, one belief of several,
# and the decision before an escalation.
MAY_LACK = {"C": {5}, "D": {6}, "E": {2}, "F": {2}, "G": {5, 8}, "H": {1, 2, 3, 4, 8, 9, 10, 11, 12}}
MAY_SWAP = {"B": {4}, "C": {4}, "D": {5}, "G": {4, 5, 7}, "H": {1, 2, 3, 7, 8, 9, 10, 11}}


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name in TEMPLATES for number in range(len(built(name)))]
)
def test_a_packet_left_out_is_told(name: str, number: int) -> None:
    packets = built(name)
    del packets[number]
    episode, results = played(packets)
    found = [*results, *machine.unfinished(episode)]
    wrong = {each.rule for each in found if each.rule == "SEQ-END" or each.severity == "ERROR"}
    assert bool(wrong) == (number not in MAY_LACK.get(name, ()))


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name in TEMPLATES for number in range(len(built(name)) - 1)]
)
def test_two_packets_swapped_are_told(name: str, number: int) -> None:
    packets = built(name)
    packets[number : number + 2] = reversed(packets[number : number + 2])
    episode, results = played(packets)
    found = [*results, *machine.unfinished(episode)]
    wrong = {each.rule for each in found if each.rule == "SEQ-END" or each.severity == "ERROR"}
    assert bool(wrong) == (number not in MAY_SWAP.get(name, ()))
