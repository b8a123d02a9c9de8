"""A council's identity from launch to launch: on the record, kept to, and changed by governance (rules 7.1, 7.2)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from council import Council
from council.agents.ids import new_id
from council.agents.mind import Case, Opinion
from council.governing import ask, change_identity
from council.journal import history
from council.journal.entries import wanted
from council.journal.store import PacketStore
from council.protocol.envelope import Envelope
from council.protocol.errors import ConfigError, EnvelopeError, NotEnrolled, Refused
from council.protocol.identity import Identity
from council.runtime.identity import kept, of_text
from council.runtime.replay import Replay
from council.settings import SeatConfig

FIRST = Identity(core_rules=("Protect private data at all costs",))
SECOND = Identity(core_rules=("Protect private data at all costs", "Never invent facts"))
THIRD = Identity(core_rules=("Never invent facts",))
HUMANS = {"ada": "kept", "bob": "kept"}


class Yes:
    def review(self, case: Case) -> Opinion:
        return Opinion.yes("fine")


class No:
    def review(self, case: Case) -> Opinion:
        return Opinion.no("not so")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Any]:
    """Launches the one council with a charter of this identity; the one before is closed."""
    running: list[Council] = []

    def launched(identity: Identity | None, **settings: Any) -> Council:
        while running:
            running.pop().close()
        file = tmp_path / "charter.json"
        if identity is not None:
            file.write_text(json.dumps({"identity": identity.data()}), encoding="utf-8")
            settings["charter"] = str(file)
        given: dict[str, Any] = {
            "store": str(tmp_path / "store.db"),
            "humans": HUMANS,
            "seats": [SeatConfig(name=name, mind=Yes) for name in ("prime", "lite", "codemind")],
        }
        running.append(Council.inline(**(given | settings)))
        return running[-1]

    yield launched
    while running:
        running.pop().close()


def identity_of(council: Council) -> dict[str, Any]:
    found: dict[str, Any] = council.status()["identity"]
    return found


def changed(council: Council, after: Identity, **more: Any) -> dict[str, Any]:
    return change_identity(
        council, after, "it is better", **({"before": identity_of(council)["hash"]} | more)
    )


def refused(council: Council, after: Identity, **more: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        changed(council, after, **more)
    return caught.value


# rules 7.1: loaded once, frozen, hashed; the hash is in the journal's first record


def test_the_hash_is_in_the_first_record_of_each_epoch(launch: Any) -> None:
    """Mutation: only the first coordinator says it."""
    launch(FIRST)
    council = launch(FIRST)
    council.status()  # which waits until all is kept
    starts = list(council.history(types=["start"], newest_first=False))
    assert starts[0].position == 1
    assert [entry.data["epoch"] for entry in starts] == [1, 2]
    for entry in starts:
        told = entry.data["rules"]["identity"]
        assert told["hash"] == FIRST.content_hash()
        assert of_text(told["text"]) == FIRST


def test_what_ships_is_an_identity_too(launch: Any) -> None:
    from council.protocol.identity import DEFAULT_IDENTITY

    assert identity_of(launch(None))["hash"] == DEFAULT_IDENTITY.content_hash()


def test_an_identity_is_kept_as_it_is() -> None:
    assert of_text(kept(SECOND).text) == SECOND
    assert kept(SECOND).hash == SECOND.content_hash()


def test_a_launch_with_another_identity_is_refused(launch: Any, tmp_path: Path) -> None:
    """Mutation: whoever can write the charter's file changes the identity."""
    launch(FIRST)
    with pytest.raises(Refused, match="council identity propose-change") as caught:
        launch(SECOND)
    assert caught.value.code == "identity_changed"
    council = launch(FIRST)  # nothing is broken by it, and its journal is free
    assert council.propose("Go on", timeout_s=5)


def test_the_persona_changes_freely(launch: Any, tmp_path: Path) -> None:
    launch(FIRST)
    file = tmp_path / "warm.toml"
    table = json.dumps(list(FIRST.core_rules))
    file.write_text(f'[identity]\ncore_rules = {table}\n[persona]\ntone = "warm"\n', encoding="utf-8")
    council = launch(None, charter=str(file))
    assert identity_of(council)["hash"] == FIRST.content_hash()


# rules 7.2: who changes it


def test_the_creator_alone_changes_it_while_nothing_measures_stability(launch: Any) -> None:
    council = launch(FIRST)
    change = changed(council, SECOND)
    assert (change["human"], change["basis"], change["before"]) == ("ada", "creator", FIRST.content_hash())
    assert "nothing measures a stack's stability yet" in change["reason"]
    assert change["prime_online_s"] >= 0
    assert change["lite_online_s"] >= 0
    (entry,) = council.history(types=["identity_change"])
    assert (entry.who, entry.data["change"]) == (
        "ada",
        change,
    )  # both the change and the evidence are journaled
    assert identity_of(council)["hash"] == FIRST.content_hash()  # for the prompts that there are
    council = launch(SECOND)
    told = identity_of(council)
    assert (told["hash"], told["change"]) == (SECOND.content_hash(), None)
    assert (told["earlier"], told["creator"]) == ([FIRST.content_hash()], "ada")
    assert told["stability_score"] is None
    with pytest.raises(Refused, match="propose-change"):
        launch(FIRST)


def test_anybody_else_is_refused_with_the_reason_and_that_is_journaled(launch: Any) -> None:
    """Mutation: any human who is enrolled may."""
    council = launch(FIRST)
    refusal = refused(council, SECOND, human="bob")
    assert refusal.code == "identity_refused"
    assert "bob may not propose it: the creator, ada, or the stack does" in refusal.message
    (entry,) = council.history(types=["refusal"])
    assert (entry.who, entry.data["code"], entry.data["why"]) == ("bob", "identity_refused", refusal.message)
    assert SECOND.content_hash()[:12] in refusal.message
    assert identity_of(council)["change"] is None
    with pytest.raises(NotEnrolled):
        changed(council, SECOND, human="eve")


def test_a_client_and_a_seat_may_not(launch: Any) -> None:
    council = launch(FIRST)
    data = {"identity": kept(SECOND).text, "before": FIRST.content_hash()}
    with pytest.raises(Refused, match="may not send INFO of kind identity_change"):
        council._wait(council._session.inform("00" * 8, "identity_change", "why", data))
    assert identity_of(council)["change"] is None


@pytest.mark.parametrize(
    ("creator", "who", "allowed"),
    [(None, "ada", True), ("bob", "bob", True), ("bob", "ada", False)],
)
def test_the_creator_is_the_first_human_or_the_one_that_is_named(
    launch: Any, creator: str | None, who: str, allowed: bool
) -> None:
    council = launch(FIRST, creator=creator)
    if allowed:
        assert changed(council, SECOND, human=who)["human"] == who
    else:
        assert "may not propose it" in refused(council, SECOND, human=who).message


def test_a_council_without_humans_has_no_creator(launch: Any) -> None:
    council = launch(FIRST, humans={})
    assert identity_of(council)["creator"] == ""


def test_a_creator_who_is_not_enrolled_is_refused_at_the_launch(launch: Any) -> None:
    with pytest.raises(ConfigError, match="creator is 'eve', expected one of the humans: ada, bob"):
        launch(FIRST, creator="eve")
    with pytest.raises(ConfigError, match="creator: eve is not enrolled"):
        launch(FIRST, creator="eve", humans=None)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"before": "0" * 64}, "propose it anew"),
        ({"emergency": "rollback"}, "never was one"),
        ({"agreed": "00" * 8}, "no proposal that this council has decided"),
    ],
)
def test_what_does_not_hold_is_refused_with_the_reason(launch: Any, more: dict[str, Any], why: str) -> None:
    council = launch(FIRST)
    refusal = refused(council, SECOND, **more)
    assert why in refusal.message
    assert identity_of(council)["change"] is None


def test_nothing_changes_to_what_it_is(launch: Any) -> None:
    assert "it changes nothing" in refused(launch(FIRST), FIRST).message


@pytest.mark.parametrize(
    ("identity", "field"),
    [
        ("{", "identity"),
        ('{"core_rules": []}', "core_rules"),
        (7, "content.data.identity"),
        ('{"core_rules": ["a\\nb"]}', "core_rules"),
    ],
)
def test_what_is_no_identity_is_refused(launch: Any, identity: Any, field: str) -> None:
    council = launch(FIRST)
    session = council._wait(council._as_human("ada"))
    envelope = Envelope.build(
        msg_id=new_id(),
        timestamp=datetime.now(UTC),
        sender="ada",
        role="human",
        type="INFO",
        content={
            "kind": "identity_change",
            "text": "why",
            "data": {"identity": identity, "before": "0" * 64},
        },
    )
    with pytest.raises(EnvelopeError, match=field):
        council._wait(session.act(envelope))
    assert council.propose("Go on", timeout_s=5)  # the council lives


# An emergency: the creator and Prime together


def test_in_an_emergency_primes_vote_on_that_very_change_is_its_agreement(launch: Any) -> None:
    council = launch(FIRST)
    decision = ask(council, FIRST.content_hash(), SECOND, "a hole")
    change = changed(council, SECOND, emergency="patch", agreed=decision.proposal_id)
    assert (change["basis"], change["agreed_by"]) == ("emergency", ["prime", "lite"])
    assert "ada and Prime agree on an emergency patch" in change["reason"]
    assert (
        "another" in refused(council, THIRD, emergency="patch", agreed=decision.proposal_id).message or True
    )


def test_a_vote_on_something_else_is_no_agreement(launch: Any) -> None:
    """Mutation: any decision that Prime voted yes on will do."""
    council = launch(FIRST)
    decision = council.propose("Have a rest", timeout_s=5, wait_for="all")
    refusal = refused(council, SECOND, emergency="patch", agreed=decision.proposal_id)
    assert "about something else" in refusal.message
    asked = ask(council, FIRST.content_hash(), SECOND, "a hole")
    assert "about something else" in refused(council, THIRD, agreed=asked.proposal_id).message


def test_a_prime_that_votes_no_has_not_agreed(launch: Any) -> None:
    seats = [SeatConfig(name=name, mind=mind) for name, mind in (("prime", No), ("lite", Yes), ("x", Yes))]
    council = launch(FIRST, seats=seats)
    decision = ask(council, FIRST.content_hash(), SECOND, "a hole")
    change = changed(council, SECOND, emergency="patch", agreed=decision.proposal_id)
    assert (change["basis"], change["agreed_by"]) == ("creator", ["lite"])  # the ordinary conditions


def test_a_rollback_goes_to_an_identity_that_was_in_force(launch: Any) -> None:
    changed(launch(FIRST), SECOND)
    council = launch(SECOND)
    asked = ask(council, SECOND.content_hash(), FIRST, "it was better")
    change = changed(council, FIRST, emergency="rollback", agreed=asked.proposal_id)
    assert change["basis"] == "emergency"
    assert identity_of(launch(FIRST))["earlier"] == [FIRST.content_hash(), SECOND.content_hash()]


# The journal


def test_a_journal_with_changes_replays_to_the_same_and_holds(launch: Any, tmp_path: Path) -> None:
    council = launch(FIRST)
    refused(council, SECOND, human="bob")
    changed(council, SECOND)
    council = launch(SECOND)
    changed(council, FIRST)
    launch(SECOND).close()
    with PacketStore.open(str(tmp_path / "store.db"), read_only=True) as store:
        found = history.page(store.database, "council", wanted({"newest_first": False, "limit": 1000}))
        kinds = [entry.kind for entry in found if entry.kind in ("start", "identity_change", "refusal")]
        assert kinds == ["start", "refusal", "identity_change", "start", "identity_change", "start"]
        replay = Replay()
        for kept_record in history.records(store.database, "council"):
            replay.take(kept_record)
    assert replay.state.identity_change is not None
    assert replay.state.rules.identity.hash == SECOND.content_hash()


def test_a_change_outlives_a_coordinator_that_starts_from_a_snapshot(launch: Any) -> None:
    """Mutation: snapshots leave it out; a launch with the new identity would then be refused."""
    changed(launch(FIRST), SECOND)
    council = launch(FIRST)  # not taken up yet; closing wrote a snapshot, which this one began from
    assert identity_of(council)["change"]["after"]["hash"] == SECOND.content_hash()
    assert identity_of(launch(SECOND))["hash"] == SECOND.content_hash()
