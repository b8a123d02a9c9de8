"""A record's packet is what PacketEnvelope would make of it, byte for byte, and gives the same record back."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgpack
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from council.core import effects as do
from council.core import events as ev
from council.core.state import Moment, Rules
from council.journal.chain import Head
from council.journal.packets import (
    LINES_KEPT,
    OUTCOME_BYTES_MAX,
    PREFIX,
    Descent,
    Packer,
    about_of,
    packet_id,
    unpacked,
)
from council.journal.record import Record, mark_of
from council.journal.rows import Prepared
from council.journal.store import PacketStore
from council.kinds import incoming
from council.kinds.incoming import PROPOSAL_BYTES_MAX
from council.kinds.table import JOURNALED
from council.protocol import codec, signing
from council.protocol.envelope import REASON_CHARS_MAX, SUMMARY_CHARS_MAX
from council.protocol.errors import StoreCorrupt
from council.protocol.packet import PACKET_BYTES_MAX, PARENTS_MAX, PacketEnvelope
from tests.examples import tried
from tests.runtime.harness import COUNCIL_ID, WALL_0, Hand, key_of

from .conftest import on_both, only_sqlite
from .journals import NAME, begun, life, nothing
from .packets import NOW, row_of

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
NAMES = st.sampled_from(["prime", "a", "a" * 64, "0._-"])
# None is ever -0.0: the edge refuses it (Confidence, TimeBudget), and no clock shows it.
NUMBERS = st.one_of(
    st.sampled_from([0.0, 1e16, 1e-7, 1e-4, 9.999999999999999e-05, 9999999999999998.0, 0.1, 5e-324, 1e308]),
    st.floats(0, 1e300),
).map(lambda x: x + 0.0)
IDS = st.sampled_from(["0" * 8, "abcdef01" * 4])
NAMED = {"seat", "proposer", "human", "observer", "stream", "name"}
RULES = st.just(Rules(("prime", "lite"), "prime", shared=(("model x", ("prime", "lite")),)))


@cache
def of(kind: Any, field: str = "") -> st.SearchStrategy[Any]:
    """Values of a type, as the core's structs name them."""
    simple = {
        str: NAMES if field in NAMED else TEXT,
        float: NUMBERS,
        bool: st.booleans(),
        NoneType: st.none(),
        UnsetType: st.just(UNSET),
    }
    if kind in simple:
        return simple[kind]
    if kind is int:
        return st.integers(0, 2**63 - 1)
    if kind is Rules:
        return RULES
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, UnionType):
        return st.one_of(*map(of, args))
    if origin is tuple and args[-1] is ...:
        return st.lists(of(args[0]), max_size=1).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of, args))
    hints = get_type_hints(kind)
    fields = {name: of(hints[name], name) for name in kind.__struct_fields__}
    return st.fixed_dictionaries(fields).map(lambda given: kind(**given))


def uuid_of(what: str) -> UUID:
    return UUID(packet_id(COUNCIL_ID, what))


def anywhere(ids: Collection[str]) -> Mapping[str, Descent]:
    """As if all that is asked for were kept."""
    return {each: Descent(int(each[-1], 16) % 5, str(UUID(int=UUID(each).int ^ 1))) for each in ids}


@st.composite
def records(draw: st.DrawFn, kind: type[ev.Event]) -> Record:
    event = draw(of(kind))
    effects = draw(
        st.lists(of(do.AnnounceDecision) | of(do.AnnounceEscalation) | of(do.AnnounceRoll), max_size=3)
    )
    moment = draw(st.builds(Moment, NUMBERS, st.floats(0, 2e9), st.integers(1, 2**60)))
    msg_id = draw(st.none() | IDS)
    if isinstance(event, ev.ProposalSubmitted):
        msg_id = event.what.proposal_id
    sealed, key_mark = draw(st.none() | st.binary(max_size=40)), draw(st.none() | st.binary(max_size=16))
    return Record(moment, event, sealed, tuple(effects), msg_id, key_mark)


def held_to_the_document(row: Prepared) -> PacketEnvelope:
    """The row's packet: its bytes are the canonical ones, and its columns say what it says."""
    packet = PacketEnvelope.from_json(row.content)
    assert packet.canonical() == row.content
    assert row == row_of(row.content)
    return packet


def read_back(row: Prepared, record: Record) -> None:
    kept = unpacked(row.content, record.position)
    wanted = replace(record, effects=(), mark=mark_of(record.effects))
    assert kept.record == wanted
    assert type(kept.record.moment.uptime_s) is float


@pytest.mark.parametrize("kind", JOURNALED, ids=[row.kind for row in JOURNALED.values()])
@settings(max_examples=tried(12), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_bytes_are_those_of_the_document_for_every_kind_of_event(
    kind: type[ev.Event], data: st.DataObject
) -> None:
    """Mutation: numbers, texts or keys written in msgspec's way where Python has another."""
    record = data.draw(records(kind))
    row = Packer(COUNCIL_ID, anywhere).packed(record)
    packet = held_to_the_document(row)
    read_back(row, record)
    kept = unpacked(row.content, record.position)
    decisions = [e.decision for e in record.effects if isinstance(e, do.AnnounceDecision)]
    escalations = [e.escalation for e in record.effects if isinstance(e, do.AnnounceEscalation)]
    assert (list(kept.decisions), list(kept.escalations)) == (decisions, escalations)
    assert packet.packet_type == PREFIX + JOURNALED[kind].kind
    assert set(packet.tags) == {f"decision:{decision.outcome}" for decision in decisions}
    about = about_of(record.event)
    assert packet.thread_id == (uuid_of(about) if about is not None else None)


@only_sqlite
def test_a_council_with_something_of_everything_is_kept_as_the_document_has_it(store: PacketStore) -> None:
    """And found again by the store's own queries, which check each packet against its hash and the document."""
    hand, ids = life()
    packer = Packer(COUNCIL_ID, nothing)
    rows = [packer.packed(record) for record in hand.records]
    for row, record in zip(rows, hand.records, strict=True):
        held_to_the_document(row)
        read_back(row, record)
    assert len({JOURNALED[type(record.event)].kind for record in hand.records}) >= 9
    epoch, head = store.begin_epoch(NAME, "a test")
    store.append_rows(NAME, epoch, rows, head)
    for row in rows:
        found = store.get(UUID(row.packet_id), NOW)
        assert found is not None
        assert found.canonical() == row.content
    thread = uuid_of(ids["answered"])
    page = store.find(NOW, thread_id=thread, newest_first=False)
    assert [packet.packet_type for packet in page.packets] == [
        f"council.{kind}" for kind in ("proposal", "ballot", "ballot", "ballot", "ruling", "answer")
    ]
    assert len(store.find(NOW, tags_any=["decision:approved"]).packets) == 2
    # What a decision rests on are its ancestors: the proposal, the ballots, the ruling.
    above = {relative.packet.packet_type for relative in store.ancestors(page.packets[-1].packet_id, NOW)}
    assert above == {"council.proposal", "council.ballot", "council.ruling"}
    for packet in page.packets[1:]:
        assert packet.lineage is not None
        assert packet.lineage.root_packet_id == thread
    answer = page.packets[-1].lineage
    assert answer is not None
    assert (answer.generation, answer.derivation_type) == (2, "merge")


def test_a_revision_descends_from_what_it_revises() -> None:
    hand = begun()
    first = hand.propose(summary="one")
    ids = [first]
    for number in range(5):
        ids.append(hand.propose(summary=f"again {number}", supersedes=ids[-1]))
    packer = Packer(COUNCIL_ID, nothing)
    lines = []
    for record in hand.records[1:]:
        lineage = held_to_the_document(packer.packed(record)).lineage
        assert lineage is not None
        lines.append((lineage.generation, lineage.root_packet_id))
    assert lines == [(number, uuid_of(first)) for number in range(6)]


@only_sqlite
def test_lines_are_looked_up_after_a_restart_and_once_only(store: PacketStore) -> None:
    """Mutation: a packer that starts from nothing gives every ballot after a restart a line of its own."""
    hand = begun()
    old = hand.propose(summary="one")
    revised = hand.propose(summary="two", supersedes=old)
    packer = Packer(COUNCIL_ID, nothing)
    epoch, head = store.begin_epoch(NAME, "a test")
    store.append_rows(NAME, epoch, [packer.packed(record) for record in hand.records], head)
    asked: list[Collection[str]] = []

    def look_up(ids: Collection[str]) -> Mapping[str, Descent]:
        asked.append(list(ids))
        found = store.lineages([UUID(each) for each in ids])
        return {
            str(each): Descent(of.generation or 0, str(of.root_packet_id or each))
            for each, of in found.items()
            if of
        }

    again = Packer(COUNCIL_ID, look_up)
    del hand.records[:]
    for seat in ("prime", "lite"):
        hand.receive(hand.vote(seat, revised))
    for record in hand.records:
        lineage = held_to_the_document(again.packed(record)).lineage
        assert lineage is not None
        assert lineage.root_packet_id == uuid_of(old)
        assert lineage.generation == (2 if record is hand.records[0] else 3)
    assert asked == [[packet_id(COUNCIL_ID, revised)]]


def test_what_should_be_kept_and_is_not_is_told() -> None:
    hand = begun()
    proposal = hand.propose()
    hand.receive(hand.vote("prime", proposal))
    with pytest.raises(StoreCorrupt, match=packet_id(COUNCIL_ID, proposal)):
        Packer(COUNCIL_ID, nothing).packed(hand.records[-1])


def test_the_memory_for_lines_is_bounded_and_old_ones_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LINES_KEPT > 10_000
    monkeypatch.setattr("council.journal.packets.LINES_KEPT", 3)
    hand = begun()
    first = hand.propose()
    for _ in range(5):
        hand.propose()
    hand.receive(hand.vote("prime", first))
    asked: list[str] = []

    def look_up(ids: Collection[str]) -> Mapping[str, Descent]:
        asked.extend(ids)
        return anywhere(ids)

    packer = Packer(COUNCIL_ID, look_up)
    for record in hand.records:
        packer.packed(record)
    assert asked == [packet_id(COUNCIL_ID, first)]
    assert len(packer._lines) == 3


# Ids


def test_ids_tell_councils_messages_and_places_apart() -> None:
    """Whoever knows a proposal's id finds its packet; a message's id is never taken for a place."""
    names = ["a" * 8, "#1", "#11", "1", "b" * 32]  # a message's id, on the wire, has no #
    ids = {packet_id(council, name) for council in ("one", "two") for name in names}
    assert len(ids) == 10
    assert {(UUID(each).version, UUID(each).variant) for each in ids} == {(8, "specified in RFC 4122")}
    assert packet_id("one", "a" * 8) == packet_id("one", "a" * 8)
    assert packet_id("one\0#1", "#2") == packet_id("one", "#1\0#2"), "so that no council's id may hold a NUL"


def test_ids_of_packets_stand_in_the_order_of_their_messages() -> None:
    """Mutation: ids of pure chance, and an index over them is written all over with each commit."""
    names = ["00000001", "0abc" + "f" * 12, "0abd" + "0" * 12, "0abd" + "1" * 12, "ffffffff" + "0" * 24]
    found = [packet_id("one", name) for name in names]
    assert [each[:4] for each in found] == [name[:4] for name in names]
    # All else is a hash: what a client chooses for its message leads to no packet that another has.
    assert len({each[4:] for each in found}) == len(found)


# Limits


def test_the_largest_proposal_can_be_read_again(store: PacketStore) -> None:
    """Its bytes are written in Base64 and as JSON. Mutation: a payload limited like an envelope's content.

    Then an export of the journal could be made, and never imported again.
    """
    hand = begun()
    proposal = hand.propose(summary="s" * SUMMARY_CHARS_MAX, body="y" * (PROPOSAL_BYTES_MAX - 3_000))
    envelope = hand.records[-1].sealed
    assert len(envelope) > PROPOSAL_BYTES_MAX - 2_000
    packer = Packer(COUNCIL_ID, nothing)
    rows = [packer.packed(record) for record in hand.records]
    epoch, head = store.begin_epoch(NAME, "a test")
    store.append_rows(NAME, epoch, rows, head)
    found = store.get(uuid_of(proposal), NOW)
    assert found is not None
    assert found.canonical() == rows[-1].content
    kept = io.BytesIO()
    assert store.export(kept) == 2


@only_sqlite
def test_a_seats_death_that_decides_very_many_is_one_packet(new_address: Any, opened: Any) -> None:
    """rules 4.6: one record, however many it ended. Also what is exported can be imported."""
    hand = begun(open_max=3_000)
    ids = [hand.propose(summary=f"p{number}", wait_for="all") for number in range(350)]
    for proposal in ids:
        hand.receive(hand.vote("prime", proposal))
        hand.receive(hand.vote("lite", proposal))
    hand.driver.seat_died("codemind", hand.driver.boot("codemind"), "it is gone", hand.now)
    hand.save()
    packer = Packer(COUNCIL_ID, nothing)
    rows = [packer.packed(record) for record in hand.records]
    packet = held_to_the_document(rows[-1])
    kept = unpacked(rows[-1].content, hand.records[-1].position)
    whole = [decision.proposal_id for decision in kept.decisions]
    assert 1 < len(whole) < len(ids)
    assert sum(len(msgspec.json.encode(each)) for each in kept.decisions[1:]) <= OUTCOME_BYTES_MAX
    more = packet.payload["more_decisions"]
    assert [*whole, *more] == ids or sorted([*whole, *more]) == sorted(ids)
    assert set(more.values()) == {"approved"}
    assert packet.lineage is not None
    assert len(packet.lineage.parent_ids) == PARENTS_MAX
    read_back(rows[-1], hand.records[-1])
    one, other = opened(new_address()), opened(new_address())
    epoch, head = one.begin_epoch(NAME, "a test")
    one.append_rows(NAME, epoch, rows, head)
    stream = io.BytesIO()
    one.export(stream)
    stream.seek(0)
    other.import_(stream)
    stored, imported = (store.records(NAME, 0, len(rows) + 1) for store in (one, other))
    assert imported == stored
    assert len(stored) == len(rows)


def full_house(reason: str, votes: Callable[[int], str]) -> Hand:
    """A council of 15 with the longest reasons, at whose end one proposal is decided and one goes to a human."""
    seats = ("prime", *(f"s{number}" for number in range(14)))
    hand = begun(*seats, prime="prime")
    plain = hand.propose(summary="one", wait_for="all")
    tied = hand.propose(summary="two", wait_for="all")
    for number, seat in enumerate(seats[:-1]):
        hand.receive(hand.vote(seat, plain, "yes" if number % 2 == 0 else "no", content={"reason": reason}))
        vote = "abstain" if number == 0 else votes(number)
        hand.receive(hand.vote(seat, tied, vote, content={"reason": reason}))
    hand.driver.seat_died(seats[-1], hand.driver.boot(seats[-1]), "it is gone", hand.now)
    hand.save()
    return hand


@pytest.mark.parametrize("letter", ["界", "\x01", '"'])
def test_the_longest_reasons_fit_a_packet(letter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst that one record can come to, in letters that JSON writes in six.

    Journals that are older than the budget of reasons (rules 2.2) hold them whole.
    """
    monkeypatch.setattr(incoming, "REASON_TOKENS_MAX", 10**9)
    hand = full_house(
        letter * REASON_CHARS_MAX, lambda number: "abstain" if number == 13 else ("yes", "no")[number % 2]
    )
    packer = Packer(COUNCIL_ID, anywhere)
    largest = 0
    for record in hand.records:
        row = packer.packed(record)
        largest = max(largest, len(row.content))
        held_to_the_document(row)
        read_back(row, record)
    last = [type(effect).__name__ for effect in hand.records[-1].effects]
    assert last[1:] == ["AnnounceDecision", "AnnounceEscalation"], "one of each, and both whole"
    assert 800_000 < largest <= PACKET_BYTES_MAX


@on_both
def test_nothing_that_a_client_sends_makes_a_packet_that_can_not_be_kept(store: PacketStore) -> None:
    """PostgreSQL refuses a NUL in JSON: one client's id with one in it would have ended the whole council."""
    hand = begun()
    good = msgpack.unpackb(codec.encode(hand.envelope("client", "PROPOSAL", {"summary": "z"})))
    fields = range(2, len(good))
    for place, value in itertools.product(
        fields, ["a\0b", "\0", "\x7f\u2028", None, -1, b"\0" * 8, "x" * 150]
    ):
        bad = [*good[:place], value, *good[place + 1 :]]
        hand.receive(signing.seal(msgpack.packb(bad), sender_key=key_of("client"), council_id=COUNCIL_ID))
    hand.driver.seat_died("lite", hand.driver.boot("lite"), "its actor died: \0 \ud800 …", hand.now)
    hand.save()
    packer = Packer(COUNCIL_ID, nothing)
    rows = [packer.packed(record) for record in hand.records]
    for row in rows:
        held_to_the_document(row)
    epoch, head = store.begin_epoch(NAME, "a test")
    head, _ = store.append_rows(NAME, epoch, rows, head)
    assert head.position == len(rows) > 30
    assert hand.records[-1].event.why == "its actor died: \\0 \\ud800 …"


# What is no record


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'{"payload":{}}',
        b'{"payload":{"at":[0,0],"effects":"","event":{},"kind":"nothing","position":1}}',
        b'{"payload":{"at":[0,0],"effects":"","event":{},"kind":"ballot","position":1}}',
        b'{"payload":{"at":[0,0],"effects":"","event":{"seat":"a"},"kind":"seat_silent","position":2}}',
        b'{"payload":{"at":[0,0],"effects":"x","event":{"seat":"a"},"kind":"seat_silent","position":1}}',
        b'{"payload":{"at":[0,0],"effects":"","event":{"seat":"a"},"kind":"seat_silent","position":1,"sealed":"?"}}',
    ],
)
def test_what_is_no_record_is_told_with_its_place(content: bytes) -> None:
    with pytest.raises(StoreCorrupt, match=r"record 1 .*(council verify|it says)"):
        unpacked(content, 1)


def test_a_moment_is_kept_to_the_bit() -> None:
    event = ev.SeatFellSilent("lite")
    for uptime_s, wall_s in ((0.1 + 0.2, WALL_0 + 1e-6), (1e9 + 1e-7, 1.5), (0.0, 4e9)):
        row = Packer(COUNCIL_ID, nothing).packed(Record(Moment(uptime_s, wall_s, 7), event))
        assert unpacked(row.content, 7).record.moment == Moment(uptime_s, wall_s, 7)
        assert datetime.fromisoformat(row.timestamp) == datetime.fromtimestamp(wall_s, UTC)
    assert Head() == (0, bytes(32))
