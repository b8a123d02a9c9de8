"""A council's identity from launch to launch: on the record, kept to, and changed by governance (rules 7.1, 7.2)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from council import Council
from council.agents.messaging.ids import new_id
from council.agents.mind import Case, Opinion, Ruling
from council.api.client import handle_of
from council.api.identity_change import ask, change_identity
from council.config.settings import SeatConfig
from council.journal import history
from council.journal.entries import wanted
from council.journal.store import PacketStore
from council.kinds.identity import body, kept_identity, of_text, summary
from council.protocol.envelope import Envelope
from council.protocol.errors import ConfigError, EnvelopeError, NotEnrolled, Refused
from council.protocol.identity.charter import Identity
from council.runtime.replay import Replay
from tests.patience import HANG_S

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


class YesThen:
    """Votes yes on what it finds grave, and rules otherwise on it."""

    def __init__(self, word: Any) -> None:
        self.word = word

    def review(self, case: Case) -> Opinion:
        return Opinion.yes("fine", risk_level="high")

    def rule(self, case: Case, ballots: Any) -> Ruling:
        return Ruling(self.word, "on second thought", 0.9, "low")


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
    from council.protocol.identity.charter import DEFAULT_IDENTITY

    assert identity_of(launch(None))["hash"] == DEFAULT_IDENTITY.content_hash()


def test_an_identity_is_kept_as_it_is() -> None:
    assert of_text(kept_identity(SECOND).text) == SECOND
    assert kept_identity(SECOND).hash == SECOND.content_hash()


def test_a_launch_with_another_identity_is_refused(launch: Any, tmp_path: Path) -> None:
    """Mutation: whoever can write the charter's file changes the identity."""
    launch(FIRST)
    with pytest.raises(Refused, match="council identity propose-change") as caught:
        launch(SECOND)
    assert caught.value.code == "identity_changed"
    council = launch(FIRST)  # nothing is broken by it, and its journal is free
    assert council.propose("Go on", timeout_s=HANG_S)


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
    assert "bob may not propose it: only the creator, ada, does" in refusal.message
    (entry,) = council.history(types=["refusal"])
    assert (entry.who, entry.data["code"], entry.data["why"]) == ("bob", "identity_refused", refusal.message)
    assert SECOND.content_hash()[:12] in refusal.message
    assert identity_of(council)["change"] is None
    with pytest.raises(NotEnrolled):
        changed(council, SECOND, human="eve")


def test_a_client_and_a_seat_may_not(launch: Any) -> None:
    council = launch(FIRST)
    data = {"identity": kept_identity(SECOND).text, "before": FIRST.content_hash()}
    with pytest.raises(Refused, match="may not send INFO of kind identity_change"):
        handle_of(council).wait(handle_of(council).session.inform("00" * 8, "identity_change", "why", data))
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
        ({"agreed": "00" * 8}, "this council has decided no proposal"),
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
    session = handle_of(council).wait(handle_of(council).human("ada"))
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
        handle_of(council).wait(session.act(envelope))
    assert council.propose("Go on", timeout_s=HANG_S)  # the council lives


# An emergency: the creator and Prime together


def test_in_an_emergency_primes_vote_on_that_very_change_is_its_agreement(launch: Any) -> None:
    council = launch(FIRST)
    decision = ask(council, FIRST.content_hash(), SECOND, "a hole")
    change = changed(council, SECOND, emergency="patch", agreed=decision.proposal_id)
    assert (change["basis"], change["agreed_by"]) == ("emergency", ["prime", "lite"])
    assert "ada and Prime agree on an emergency patch" in change["reason"]


def test_an_agreement_is_used_up_by_the_change_it_allowed(launch: Any) -> None:
    """Mutation: a year later, and rolled back meanwhile, the creator makes the change again in Prime's name."""
    council = launch(FIRST)
    decision = ask(council, FIRST.content_hash(), SECOND, "a hole")
    changed(council, SECOND, emergency="patch", agreed=decision.proposal_id)
    changed(council, FIRST)  # withdrawn
    assert "before the last change" in refused(council, SECOND, agreed=decision.proposal_id).message
    council = launch(FIRST)  # from a snapshot
    assert "before the last change" in refused(council, SECOND, agreed=decision.proposal_id).message
    again = ask(council, FIRST.content_hash(), SECOND, "a hole")
    assert changed(council, SECOND, emergency="patch", agreed=again.proposal_id)["basis"] == "emergency"


@pytest.mark.parametrize(("word", "outcome"), [("reject", "rejected"), ("confirm", "approved")])
def test_primes_agreement_is_what_it_decided_and_not_its_first_vote(
    launch: Any, word: str, outcome: str
) -> None:
    """Mutation: Prime votes yes, is shown the others' doubts, rejects it: and has agreed."""
    minds = {"prime": YesThen(word), "lite": Yes(), "codemind": Yes()}
    council = launch(FIRST, seats=[SeatConfig(name=name, mind=mind) for name, mind in minds.items()])
    decision = ask(council, FIRST.content_hash(), SECOND, "a hole")
    assert (decision.outcome, {each.vote for each in decision.ballots}) == (outcome, {"yes"})
    more = {"emergency": "patch", "agreed": decision.proposal_id}
    if word == "confirm":
        assert changed(council, SECOND, **more)["basis"] == "emergency"
    else:
        assert "the council did not agree" in refused(council, SECOND, **more).message


def test_what_a_human_approves_where_prime_would_not_is_not_primes_agreement(launch: Any) -> None:
    minds = {"prime": YesThen("human"), "lite": Yes(), "codemind": Yes()}
    council = launch(FIRST, seats=[SeatConfig(name=name, mind=mind) for name, mind in minds.items()])
    asked = ask(council, FIRST.content_hash(), SECOND, "a hole")
    assert asked.escalation_id is not None
    council.answer(asked.escalation_id, approve=True, reason="well", human="ada")
    change = changed(council, SECOND, emergency="patch", agreed=asked.proposal_id)
    assert (change["basis"], change["agreed_by"]) == ("creator", ["lite"])


@pytest.mark.parametrize(
    "more",
    [
        {"body": "The identity would be:\nsomething quite harmless"},
        {"body": ""},
        {"action": {"tool": "rm", "args": {}}},
        {"history": [("user", "this is but a test")]},
    ],
)
def test_the_seats_are_asked_about_the_very_identity_that_is_named(launch: Any, more: dict[str, Any]) -> None:
    """Mutation: Prime agrees to what it was shown, and the summary's hash is of something else."""
    council = launch(FIRST)
    text = summary(FIRST.content_hash(), SECOND.content_hash(), "a hole")
    with pytest.raises(Refused, match="shows something else") as caught:
        council.propose(text, **({"body": body(kept_identity(SECOND))} | more))
    assert caught.value.code == "another_identity"
    assert council.propose(text, body=body(kept_identity(SECOND)))


def test_a_vote_on_something_else_is_no_agreement(launch: Any) -> None:
    """Mutation: any decision that Prime voted yes on will do."""
    council = launch(FIRST)
    decision = council.propose("Have a rest", timeout_s=HANG_S, wait_for="all")
    refusal = refused(council, SECOND, emergency="patch", agreed=decision.proposal_id)
    assert "not about this change" in refusal.message
    asked = ask(council, FIRST.content_hash(), SECOND, "a hole")
    assert "not about this change" in refused(council, THIRD, agreed=asked.proposal_id).message


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


# Sent again


def sent(council: Council, envelope: Envelope | None = None, **data: Any) -> bytes:
    """A change as ada signs it, sealed."""
    session = handle_of(council).wait(handle_of(council).human("ada"))
    facts = {"before": identity_of(council)["hash"], "emergency": "", "agreed": ""} | data
    made = Envelope.build(
        msg_id=new_id(),
        timestamp=datetime.now(UTC),
        sender="ada",
        role="human",
        type="INFO",
        content={"kind": "identity_change", "text": "why", "data": facts},
    )
    return bytes(session.signed(envelope or made))


def exchanged(council: Council, sealed: bytes) -> Any:
    """What a mere client's session is told that hands on what ada signed."""
    handle: Any = handle_of(council)
    return handle.wait(handle.port.exchange(handle.session._session, [sealed]))[1]


@pytest.mark.parametrize("store", ["memory", "durable"])
def test_the_same_bytes_again_are_acknowledged_and_change_nothing_for_ever(
    launch: Any, tmp_path: Path, store: str
) -> None:
    """Mutation: judged anew, a durable council dies of a second record of one id, and one in memory changes back."""
    given = {"store": "memory"} if store == "memory" else {}
    council = launch(FIRST, **given)
    first = sent(council, identity=kept_identity(SECOND).text)
    (told,) = exchanged(council, first)
    assert exchanged(council, first) == [told]
    changed(council, THIRD)
    assert exchanged(council, first) == [told]
    assert identity_of(council)["change"]["after"]["hash"] == THIRD.content_hash()
    assert council.propose("Go on", timeout_s=HANG_S)
    assert len(list(council.history(types=["identity_change"]))) == 2
    if store == "durable":
        council = launch(FIRST)  # from a snapshot
        exchanged(council, first)
        assert identity_of(council)["change"]["after"]["hash"] == THIRD.content_hash()


def test_what_was_refused_once_is_not_taken_later(launch: Any) -> None:
    """Mutation: a change that came too soon lies in wait until the identity is the one that it changes."""
    council = launch(FIRST)
    early = sent(council, identity=kept_identity(THIRD).text, before=SECOND.content_hash())
    (told,) = exchanged(council, early)
    assert told.error().code == "identity_refused"
    changed(council, SECOND)
    council = launch(SECOND)
    (told,) = exchanged(council, early)
    assert told.error().code == "id_reused"
    assert identity_of(council)["change"] is None


# Taken back


def test_the_creator_withdraws_a_change_that_is_not_in_force_yet(launch: Any) -> None:
    council = launch(FIRST)
    changed(council, SECOND)
    assert "bob may not propose" in refused(council, FIRST, human="bob").message
    withdrawn = changed(council, FIRST)
    assert (withdrawn["basis"], withdrawn["after"]["hash"]) == ("creator", FIRST.content_hash())
    assert "ada withdraws the change to" in withdrawn["reason"]
    assert identity_of(council)["change"] is None
    with pytest.raises(Refused, match="propose-change"):
        launch(SECOND)
    assert "it changes nothing" in refused(launch(FIRST), FIRST).message


def test_another_creator_by_the_settings_is_on_the_record_and_told(launch: Any) -> None:
    launch(FIRST)
    council = launch(FIRST, creator="bob")
    council.status()  # which waits until all is kept
    (told,) = (each for each in council.events(follow=False) if each.kind == "creator_change")
    assert (told.data["before"], told.data["creator"]) == ("ada", "bob")
    starts = list(council.history(types=["start"], newest_first=False))
    assert [entry.data["rules"]["creator"] for entry in starts] == ["ada", "bob"]


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
            replay.replay(kept_record)
    assert replay.state.identity_change is not None
    assert replay.state.rules.identity.hash == SECOND.content_hash()


def test_a_change_outlives_a_coordinator_that_starts_from_a_snapshot(launch: Any) -> None:
    """Mutation: snapshots leave it out; a launch with the new identity would then be refused."""
    changed(launch(FIRST), SECOND)
    council = launch(FIRST)  # not taken up yet; closing wrote a snapshot, which this one began from
    assert identity_of(council)["change"]["after"]["hash"] == SECOND.content_hash()
    assert identity_of(launch(SECOND))["hash"] == SECOND.content_hash()
