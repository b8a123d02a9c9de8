"""Which node a seat goes to: one that has what it needs, and of these the one with the fewest of its council."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.cluster.placement import Node, fits, lacking, pinned, place, refuse_unequal
from council.config.settings import CouncilConfig, SeatConfig
from council.protocol.errors import OperatorError, VersionMismatch

MIND = "council.agents.lite:Lite"
PLAIN = SeatConfig(name="lite", mind=MIND)
GPU = SeatConfig(name="prime", mind=MIND, resources={"GPU": 1}, labels={"zone": "a"})


def node(name: str, labels: dict[str, str] | None = None, **resources: float) -> Node:
    return Node(name, f"host-{name}", labels or {}, resources)


def spread(seats: int, nodes: list[Node], held: list[str]) -> Counter[str]:
    taken = list(held)
    for _ in range(seats):
        found = place(PLAIN, nodes, taken)
        assert found is not None
        taken.append(found)
    return Counter(taken)


@given(st.integers(1, 15), st.integers(1, 8))
def test_no_node_has_two_more_than_another(seats: int, count: int) -> None:
    """The coordinator counts: its node is the last to be given a seat. Mutation: to take the first node that fits."""
    nodes = [node(f"n{number}") for number in range(count)]
    load = spread(seats, nodes, ["n0"])
    assert max(load.values()) - min(load[each.node_id] for each in nodes) <= 1
    assert sum(load.values()) == seats + 1


def test_a_seat_goes_where_it_fits_however_full_that_is() -> None:
    nodes = [node("a", {"zone": "a"}, GPU=1), node("b", {"zone": "b"}, GPU=4), node("c", {"zone": "a"})]
    assert place(GPU, nodes, ["a", "a", "a"]) == "a"
    assert not fits(GPU, nodes[1])
    assert not fits(GPU, nodes[2])
    assert place(GPU, nodes[1:], []) is None
    assert place(PLAIN, [], []) is None


def test_what_no_node_has_is_told_beside_what_there_is() -> None:
    nodes = [node("b", {"zone": "b"}, GPU=4), node("c", {"zone": "a"})]
    told = lacking(GPU, nodes)
    assert told.startswith(
        "no node has zone=a, 1 GPU: host-b (node b) has zone=b, 4 GPU; host-c (node c) has zone=a, 0 GPU. Correct"
    )
    many = lacking(GPU, [node(str(number)) for number in range(20)])
    assert "and 12 more" in many
    assert (
        lacking(PLAIN, nodes)
        == lacking(GPU, [node("a", {"zone": "a"}, GPU=1)])
        == ("see the cluster's resources (ray status)")
    )


def test_a_journal_in_a_file_holds_its_coordinator() -> None:
    for store in (None, "/var/council.db", "sqlite:////var/council.db"):
        assert pinned(CouncilConfig(store=store))
    for store in ("memory", "postgresql://db/council", "postgres://db/council", "postgresql+psycopg://db/c"):
        assert not pinned(CouncilConfig(store=store))


def test_nodes_without_the_package_or_with_another_are_named() -> None:
    refuse_unequal({"a": (None, "1.0"), "b": (None, "1.0")}, "1.0")
    with pytest.raises(
        OperatorError, match=r"b \(no module council\), c \(no module msgpack\)\. Install .*==1\.0"
    ):
        refuse_unequal({"a": (None, "1.0"), "c": ("msgpack", ""), "b": ("council", "")}, "1.0")
    with pytest.raises(VersionMismatch, match=r"0\.9 on b, this process 1\.0") as caught:
        refuse_unequal({"a": (None, "1.0"), "b": (None, "0.9")}, "1.0")
    assert caught.value.theirs == {"b": "0.9"}
