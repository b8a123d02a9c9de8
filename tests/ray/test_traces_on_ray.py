"""One trace across real processes: each sends its own spans, and none is lost when the council closes."""

from __future__ import annotations

from pathlib import Path

import pytest

from council import Council
from council.agents.messaging import spans as names
from council.cluster import port
from council.protocol.errors import ConfigError
from tests.collector import Collector
from tests.models.stub import Stub, ballot, ruling, says
from tests.patience import HANG_S

KEY = "sk-of-the-council-0123456789"
VOTES = {"prime": "yes", "lite": "no", "codemind": "yes"}


def test_three_model_seats_decide_on_ray_and_all_processes_tell_one_trace_of_it(
    name: str, collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Mutation: seats that are ended before they have sent what they hold."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.endpoint}/v1/traces")
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o600)
    scripts = {
        seat: [says(ballot(vote, f"{seat} says so")), says(ballot("yes")), says(ruling("confirm"))]
        for seat, vote in VOTES.items()
    }
    with Stub(scripts, key=KEY) as stub:
        seats = {
            seat: {"model": seat, "base_url": stub.base_url, "api_key_file": str(file), "stages": "one"}
            for seat in VOTES
        }
        with Council.launch(name=name, seats=seats, store="memory", traces="otlp") as council:
            voted = council.propose("Delete the old index", wait_for="all", timeout_s=HANG_S)
            decision = council.propose("Delete the new index", risk="high", wait_for="all", timeout_s=HANG_S)
            client = council.sender
    assert voted.outcome == "approved", voted.missing
    assert {each.seat: each.vote for each in voted.ballots} == VOTES
    assert {each.seat: (each.calls, each.spent.tokens) for each in voted.spent} == dict.fromkeys(
        VOTES, (1, 120)
    )
    assert KEY not in repr(voted)
    assert decision.outcome == "approved", decision
    told = [each for each in collector.spans if each.resource["service.instance.id"].startswith(f"{name}/")]
    assert len({each.trace for each in told}) == 2  # of each proposal one
    (trace,) = {each.trace for each in told if each.attributes.get(names.PROPOSAL) == decision.proposal_id}
    own = [each for each in told if each.trace == trace]
    by_part = {
        (each.resource["service.instance.id"].removeprefix(f"{name}/"), each.name): each for each in own
    }
    assert set(by_part) == {
        (client, "council.propose"),
        ("coordinator", "council.decide"),
        ("prime", "council.rule"),
        *((seat, "council.review") for seat in VOTES),
        *((seat, f"chat {seat}") for seat in VOTES),
    }
    propose = by_part[client, "council.propose"]
    assert (propose.parent, {each.trace for each in own}) == ("", {propose.trace})
    for seat in VOTES:
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
        ConfigError, match=r"seats\.prime: Ray does not accept its resources, labels or runtime_env"
    ):
        Council.launch(name=name, seats=seats, store="memory", traces="otlp")
    assert name not in port.running("council")
