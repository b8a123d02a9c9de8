"""One trace across real processes: each sends its own spans, and none is lost when the council closes."""

from __future__ import annotations

import pytest

from council import Council
from council.agents import spans as names
from council.protocol.errors import ConfigError
from council.runtime import ray_side
from tests.collector import Collector
from tests.models.stub import Stub, ballot, ruling, says

SEATS = ("prime", "lite", "codemind")


def test_all_processes_of_a_council_tell_one_trace(
    name: str, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: seats that are ended before they have sent what they hold."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.endpoint}/v1/traces")
    scripts = {seat: [says(ballot("yes")), says(ruling("confirm"))] for seat in SEATS}
    with Stub(scripts) as stub:
        seats = {seat: {"model": seat, "base_url": stub.base_url, "stages": "one"} for seat in SEATS}
        with Council.launch(name=name, seats=seats, store="memory", traces="otlp") as council:
            decision = council.propose("Delete the old index", risk="high", wait_for="all", timeout_s=60)
            client = council.sender
    assert decision.outcome == "approved", decision
    own = [each for each in collector.spans if each.resource["service.instance.id"].startswith(f"{name}/")]
    by_part = {
        (each.resource["service.instance.id"].removeprefix(f"{name}/"), each.name): each for each in own
    }
    assert set(by_part) == {
        (client, "council.propose"),
        ("coordinator", "council.decide"),
        ("prime", "council.rule"),
        *((seat, "council.review") for seat in SEATS),
        *((seat, f"chat {seat}") for seat in SEATS),
    }
    propose = by_part[client, "council.propose"]
    assert (propose.parent, {each.trace for each in own}) == ("", {propose.trace})
    for seat in SEATS:
        review = by_part[seat, "council.review"]
        assert review.parent == propose.span
        chats = [each for each in own if each.name == f"chat {seat}"]
        assert review.span in {chat.parent for chat in chats}
    assert by_part["coordinator", "council.decide"].parent == propose.span
    assert by_part["coordinator", "council.decide"].attributes[names.PROPOSAL] == decision.proposal_id
    assert {each.resource["service.name"] for each in own} == {"council"}


def test_what_ray_does_not_take_of_the_first_seat_is_told(name: str) -> None:
    """Mutation: the launch ends in an error of its own clean-up, as there is no seat yet that has spans to send."""
    seats = {"prime": {"runtime_env": {"pip": 3}}, "lite": {}, "codemind": {}}
    with pytest.raises(
        ConfigError, match=r"seats\.prime: Ray takes its resources, labels or runtime_env not"
    ):
        Council.launch(name=name, seats=seats, store="memory", traces="otlp")
    assert name not in ray_side.running("council")
