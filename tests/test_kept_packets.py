"""Cognition packets that a council keeps: redacted, completed by the journal, and shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from council import Case, Council, Opinion, Ruling, SeatConfig, ShownBallot
from council.journal import cognition, episodes
from council.journal.packet_keeper import PacketKeeper
from council.journal.store import PacketStore
from council.protocol.cognition import CognitionPacket
from council.protocol.envelope import Envelope
from tests.cli.conftest import Cli, cli, home, up  # noqa: F401
from tests.logged import capture_logs
from tests.models.stub import Stub, ballot, says
from tests.patience import until

SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
PACKET = CognitionPacket.from_dict(
    {"header": {"session_id": "s", "packet_id": "p", "datetime": "t", "sub_id": "0"}}
)


class Seat:
    def __init__(self, reason: str, risk: Any = "low") -> None:
        self._reason, self._risk = reason, risk

    def review(self, case: Case) -> Opinion:
        return Opinion.yes(self._reason, confidence=0.9, risk_level=self._risk)

    def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        return Ruling("confirm", "seen all", 0.8)


def council_of(store: Path | None, **more: Any) -> Council:
    seats = [
        SeatConfig(name, mind=more.pop(name, None) or Seat("fine")) for name in ("prime", "lite", "codemind")
    ]
    kept = {"keep_packets": True, "store": None if store is None else str(store), **more}
    return Council.inline(seats=seats, sender="bob", key=b"k" * 32, name="kept", **kept)


def packets_of(council: Council, proposal_id: str, count: int = 3) -> list[dict[str, Any]]:
    """The packets of a proposal, once that many are kept: a seat sends them after its ballot."""
    _, entries = episodes.read(episodes.records(proposal_id), lambda asked: council.history(**asked))
    with PacketStore.open(str(council.config.store), read_only=True) as store:

        def read() -> list[dict[str, Any]]:
            found = cognition.packets_of(store, council.name, proposal_id, entries, datetime.now(UTC))
            return found if len(found) >= count else []

        return until(read)


def test_each_seat_s_packet_is_kept_and_can_be_read_again(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with council_of(store, prime=Seat("risky", "high")) as council:
        decision = council.propose("Rename it", wait_for="all")
        found = packets_of(council, decision.proposal_id, 4)
        assert [(each["seat"], each["task"], each["round"]) for each in found] == [
            ("codemind", "ballot", 1),
            ("lite", "ballot", 1),
            ("prime", "ballot", 1),
            ("prime", "ruling", 2),
        ]
    ruled = CognitionPacket.from_dict(found[3]["packet"])
    assert (ruled.status.state, ruled.response.candidate) == ("completed", "seen all")
    assert ruled.council is not None
    assert {vote.agent for vote in ruled.council.votes} == {"prime", "lite", "codemind"}
    with council_of(store) as council:
        assert packets_of(council, decision.proposal_id) == found


def test_the_tool_follows_what_the_executor_did(tmp_path: Path) -> None:
    with council_of(tmp_path / "s.db") as council:

        @council.tool(safety="WRITE")
        def note(name: str) -> str:
            return f"noted {name}"

        note("ada")
        (token,) = council.tokens()
        routing = packets_of(council, token.proposal_id)[0]["packet"]["tool_routing"]
    assert (routing["selected_tool"]["tool_name"], routing["selected_tool"]["params"]) == (
        "note",
        {"name": "ada"},
    )
    assert (routing["execution_status"], routing["reinjection_count"]) == ("executed", 1)
    assert "noted ada" in routing["execution_result"]["output"]
    assert routing["review_confidence"] == 0.9


def test_secrets_are_redacted_before_they_are_kept(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with council_of(store, lite=Seat(f"it holds {SECRET}")) as council:
        decision = council.propose("Rename it", wait_for="all")
        found = packets_of(council, decision.proposal_id)[1]["packet"]
    assert SECRET not in json.dumps(found)
    assert "[redacted:" in found["response"]["candidate"]
    assert found["governance"]["privacy"]["pii_detected"] is True
    assert [each["count"] for each in found["governance"]["privacy"]["pii_redactions"]] == [
        2
    ]  # response and vote
    packet = CognitionPacket.from_dict(found)
    assert packet.compute_hashes() == packet  # other programs can check what is kept


def test_a_model_s_packet_has_its_tokens_and_its_name(tmp_path: Path) -> None:
    with Stub({"small": [says(ballot())]}) as stub:
        seat = SeatConfig(
            "lite",
            model="small",
            base_url=stub.base_url,
            usd_per_million_input=1.0,
            usd_per_million_output=1.0,
        )
        others = [SeatConfig(name, mind=Seat("fine")) for name in ("prime", "codemind")]
        with Council.inline(
            seats=[seat, *others], keep_packets=True, store=str(tmp_path / "s.db")
        ) as council:
            decision = council.propose("Rename it", wait_for="all")
            found = packets_of(council, decision.proposal_id)[1]["packet"]
    assert found["header"]["model"]["name"] == "small"
    assert found["metrics"]["token_usage"]["prompt_tokens"] == 100
    assert found["metrics"]["token_usage"]["completion_tokens"] == 20
    assert found["metrics"]["cost_estimate"] == 0.00012
    assert found["governance"]["identity_hash"]


def sent(proposal_id: str, number: int, text: str) -> Envelope:
    data = {"proposal_id": proposal_id, "task": "ballot", "round": number, "packet": text}
    return Envelope.build(
        msg_id="bbbbbbbb",
        timestamp=datetime(2026, 1, 2, tzinfo=UTC),
        sender="lite",
        role="voter",
        type="INFO",
        parent_id=proposal_id,
        content={"kind": "packet", "data": data},
    )


def test_a_packet_is_written_once_and_what_can_t_be_kept_is_logged(tmp_path: Path) -> None:
    with council_of(tmp_path / "s.db") as council:
        proposal_id = council.propose("Rename it", wait_for="all").proposal_id
        before = packets_of(council, proposal_id)
        with PacketStore.open(str(council.config.store)) as opened, capture_logs() as logs:
            keeper = PacketKeeper(opened, council.name)
            for number, text in (
                (1, PACKET.to_json()),
                (2, "[]"),
                (cognition.ROUNDS_MAX + 1, PACKET.to_json()),
                (3, PACKET.to_json()),
            ):
                keeper.keep(sent(proposal_id, number, text))
            keeper.close()
        found = packets_of(council, proposal_id, 4)
    lost = [each["why"] for each in logs if each["event"] == "packet not kept"]
    assert len(lost) == 3
    assert "conflict" in lost[0]
    assert f"expected 0 to {cognition.ROUNDS_MAX}" in lost[2]
    rounds = [(each["seat"], each["round"]) for each in found]
    assert rounds == [("codemind", 1), ("lite", 1), ("lite", 3), ("prime", 1)]
    assert found[1] == before[1]


def test_a_flood_of_packets_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("council.journal.packet_keeper.WAITING_MAX", 1)
    with PacketStore.open(str(tmp_path / "s.db")) as opened, capture_logs() as logs:
        keeper = PacketKeeper(opened, "kept")
        held = threading.Event()
        keeper._executor.submit(held.wait)
        for number in (1, 2):
            keeper.keep(sent("aaaaaaaa", number, PACKET.to_json()))
        held.set()
        keeper.close()
        assert len(opened.find(datetime.now(UTC), packet_type="cognition").packets) == 1
    assert [each["why"] for each in logs if each["event"] == "packet not kept"] == ["1 others wait already"]


# council show --packets


def test_they_are_shown(tmp_path: Path, cli: Cli) -> None:  # noqa: F811
    store = tmp_path / "s.db"
    with council_of(store, lite=Seat(f"it holds {SECRET}")) as council:
        proposal_id = council.propose("Rename it", wait_for="all").proposal_id
        found = packets_of(council, proposal_id)
    told = ("--url", str(store), "--name", "kept")
    shown = cli("show", proposal_id, "--packets", *told)
    assert shown.code == 0, shown.err
    for words in (
        "lite ballot, round 1: completed",
        "[redacted: ",
        "solo: lite approve",
        "Summary: Rename it",
    ):
        assert words in shown.out
    document = json.loads(cli("show", proposal_id, "--packets", "--json", *told).out)
    assert (document["proposal_id"], document["packets"], document["exit_code"]) == (proposal_id, found, 0)
    assert cli("show", proposal_id, "--packets", "--omen", *told).code == 2


def test_where_none_is_kept_the_setting_is_named(tmp_path: Path, cli: Cli) -> None:  # noqa: F811
    store = tmp_path / "s.db"
    with council_of(store, keep_packets=False) as council:
        proposal_id = council.propose("Rename it").proposal_id
    told = ("--url", str(store), "--name", "kept")
    shown = cli("show", proposal_id, "--packets", *told)
    assert (shown.code, "keep_packets = true" in shown.out) == (0, True)
    assert json.loads(cli("show", proposal_id, "--packets", "--json", *told).out)["packets"] == []


def test_a_council_in_memory_keeps_none(cli: Cli, up: Callable[[Council], Council]) -> None:  # noqa: F811
    council = up(council_of(None))
    proposal_id = council.propose("Rename it").proposal_id
    shown = cli("show", proposal_id, "--packets", "--name", council.name)
    assert (shown.code, "in the council's store alone" in shown.err) == (2, True)
