"""Signatures: what is forged, altered, foreign or nobody's is refused, and keys are never shown."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council.protocol import codec
from council.protocol.envelope import Envelope
from council.protocol.errors import (
    ConfigError,
    CouncilError,
    EnvelopeError,
    EnvelopeTooLarge,
    NameTaken,
    SignatureError,
    UnknownSender,
    VersionError,
)
from council.protocol.signing import (
    KEY_BYTES,
    SEALED_BYTES_MAX,
    SIGNATURE_BYTES,
    TOLD_BYTES_MAX,
    Keyring,
    open_to,
    payload_of,
    seal,
    seal_to,
    sign,
)
from tests.examples import tried

LITE, PRIME = b"L" * KEY_BYTES, b"P" * KEY_BYTES
PROPOSED = "b6a9f42e00112233"


def vote(sender: str = "lite", **changes: Any) -> Envelope:
    made: dict[str, Any] = {
        "msg_id": "00ff00ff00ff00ff",
        "parent_id": PROPOSED,
        "timestamp": datetime(2026, 3, 1, tzinfo=UTC),
        "sender": sender,
        "role": "voter",
        "type": "VOTE",
        "content": {"proposal_id": PROPOSED, "vote": "yes", "reason": "they are old"},
    }
    return Envelope.build(**{**made, **changes})


@pytest.fixture
def ring() -> Keyring:
    made = Keyring()
    made.add("lite", LITE)
    made.add("prime", PRIME)
    return made


def test_what_is_signed_opens(ring: Keyring) -> None:
    sealed = sign(vote(), LITE, "north")
    assert ring.open(sealed, "north") == vote()
    assert sealed[SIGNATURE_BYTES:] == codec.encode(vote())


def test_a_signature_is_as_written_down() -> None:
    """Fails when what is signed changes without its domain's number: old and new would refuse each other."""
    signature = seal(b"payload", sender_key=LITE, council_id="north")[:SIGNATURE_BYTES]
    assert signature.hex() == "ab948895d7f7f974772f1940a07517e3b27a3c2e4c34932a03fa03dd509de921"


@given(st.binary(max_size=200), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50))
def test_any_payload_survives_its_seal(payload: bytes, council_id: str) -> None:
    assert payload_of(seal(payload, sender_key=LITE, council_id=council_id)) == payload
    if payload:
        assert open_to(seal_to(payload, LITE, council_id, "lite"), LITE, council_id, "lite") == payload


def test_another_s_name_is_forgery(ring: Keyring) -> None:
    with pytest.raises(SignatureError) as caught:
        ring.open(sign(vote("prime"), LITE, "north"), "north")
    assert caught.value.sender == "prime"


def test_another_council_s_message_is_a_replay(ring: Keyring) -> None:
    """rules 1.12."""
    sealed = sign(vote(), LITE, "north")
    for council_id in ("south", "north ", "nort", "northx"):
        with pytest.raises(SignatureError, match="another council"):
            ring.open(sealed, council_id)
        with pytest.raises(SignatureError, match="another council"):
            open_to(seal_to(b"x", LITE, "north", "lite"), LITE, council_id, "lite")


def test_the_border_between_council_and_payload_is_signed() -> None:
    """Without the length before it, council "ab" with payload "c" would be signed like "a" with "bc"."""
    one = seal(b"c", sender_key=LITE, council_id="ab")
    other = seal(b"bc", sender_key=LITE, council_id="a")
    assert one[:SIGNATURE_BYTES] != other[:SIGNATURE_BYTES]
    digits = seal(b"x", sender_key=LITE, council_id="1:1")
    assert digits[:SIGNATURE_BYTES] != seal(b":1x", sender_key=LITE, council_id="1")[:SIGNATURE_BYTES]


@settings(deadline=None)
@given(st.data())
def test_every_bit_counts(data: st.DataObject) -> None:
    ring = Keyring()
    ring.add("lite", LITE)
    sealed, told = bytearray(sign(vote(), LITE, "north")), bytearray(seal_to(b"told", LITE, "north", "lite"))
    for each in (sealed, told):
        each[data.draw(st.integers(0, len(each) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((SignatureError, EnvelopeError, UnknownSender)):
        ring.open(bytes(sealed), "north")
    with pytest.raises(SignatureError):
        open_to(bytes(told), LITE, "north", "lite")


@settings(deadline=None, max_examples=tried(300))
@given(st.binary(max_size=200))
def test_random_bytes_raise_typed_errors(data: bytes) -> None:
    ring = Keyring()
    ring.add("lite", LITE)
    for sealed in (data, bytes(SIGNATURE_BYTES) + data, bytes(SIGNATURE_BYTES) + b"\x9b\x01\x00" + data):
        with pytest.raises((EnvelopeError, UnknownSender, SignatureError)):
            ring.open(sealed, "north")


def test_nobody_is_told_so(ring: Keyring) -> None:
    with pytest.raises(UnknownSender) as caught:
        ring.open(sign(vote("codemind"), LITE, "north"), "north")
    assert caught.value.sender == "codemind"
    ring.remove("lite")
    with pytest.raises(UnknownSender):
        ring.open(sign(vote(), LITE, "north"), "north")


def test_a_name_from_outside_is_quoted(ring: Keyring) -> None:
    payload = msgpack.packb([1, 0, None, None, "a\n\x1b[31m" * 5])
    with pytest.raises(UnknownSender) as caught:
        ring.open(bytes(SIGNATURE_BYTES) + payload, "north")
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_nothing_is_decoded_before_the_signature_holds(
    ring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body that would be refused, had it been read: whoever can't sign must not make us read it."""
    payload = codec.encode(vote())[:-1] + b"\xdd\xff\xff\xff\xff"
    with pytest.raises(SignatureError):
        ring.open(bytes(SIGNATURE_BYTES) + payload, "north")

    def decode(data: bytes) -> Envelope:
        raise AssertionError("decoded before its signature was checked")

    monkeypatch.setattr(codec, "decode", decode)
    with pytest.raises(SignatureError):
        ring.open(sign(vote(), PRIME, "north"), "north")


def test_a_signed_ballot_that_does_not_parse_says_whose_it_is(ring: Keyring) -> None:
    """rules 1.2: its seat is asked once more, so it must be known whose it is and on what."""
    found = msgpack.unpackb(codec.encode(vote()))
    found[10][1] = "perhaps"
    sealed = seal(msgpack.packb(found), sender_key=LITE, council_id="north")
    with pytest.raises(EnvelopeError) as caught:
        ring.open(sealed, "north")
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.field, error.authentic, error.sender) == ("content.vote", True, "lite")
    assert (error.msg_id, error.parent_id) == ("00ff00ff00ff00ff", PROPOSED)


def test_a_signed_envelope_whose_head_is_malformed_is_still_its_senders(ring: Keyring) -> None:
    """Mutation: an error of the head hides the one that names the field, and whose envelope it was."""
    found = msgpack.unpackb(codec.encode(vote()))
    found[2] = "x" * 100
    with pytest.raises(EnvelopeError) as caught:
        ring.open(seal(msgpack.packb(found), sender_key=LITE, council_id="north"), "north")
    error = caught.value
    assert (error.field, error.authentic, error.sender) == ("msg_id", True, "lite")
    assert (error.msg_id, error.parent_id, error.type) == (None, PROPOSED, "VOTE")
    found[6] = {}
    with pytest.raises(EnvelopeError) as caught:
        ring.open(seal(msgpack.packb(found), sender_key=LITE, council_id="north"), "north")
    assert (caught.value.sender, caught.value.parent_id, caught.value.type) == ("lite", PROPOSED, None)


def test_what_is_not_authentic_does_not_say_so(ring: Keyring) -> None:
    found = msgpack.unpackb(codec.encode(vote()))
    found[0] = 2
    newer = seal(msgpack.packb(found), sender_key=LITE, council_id="north")
    for sealed in (b"", bytes(SIGNATURE_BYTES), bytes(200), newer):
        with pytest.raises(VersionError if sealed == newer else EnvelopeError) as caught:
            ring.open(sealed, "north")
        assert not hasattr(caught.value, "authentic")


def test_sizes(ring: Keyring) -> None:
    largest = bytes(codec.ENVELOPE_BYTES_MAX)
    assert len(seal(largest, sender_key=LITE, council_id="north")) == SEALED_BYTES_MAX
    with pytest.raises(EnvelopeTooLarge):
        seal(largest + b"x", sender_key=LITE, council_id="north")
    with pytest.raises(EnvelopeTooLarge) as caught:
        ring.open(bytes(SEALED_BYTES_MAX + 1), "north")
    assert caught.value.limit == SEALED_BYTES_MAX
    for short in (b"", bytes(SIGNATURE_BYTES), "text"):
        with pytest.raises(EnvelopeError):
            ring.open(short, "north")  # type: ignore[arg-type]


def test_what_the_council_says_may_hold_more_than_what_it_is_told() -> None:
    assert TOLD_BYTES_MAX == 8 * 2**20 == 8 * codec.ENVELOPE_BYTES_MAX
    largest = bytes(TOLD_BYTES_MAX)
    sealed = seal_to(largest, LITE, "north", "lite")
    assert open_to(sealed, LITE, "north", "lite") == largest
    for act in (
        lambda: seal_to(largest + b"x", LITE, "north", "lite"),
        lambda: open_to(sealed + b"x", LITE, "north", "lite"),
    ):
        with pytest.raises(EnvelopeTooLarge) as caught:
            act()
        assert caught.value.limit in (TOLD_BYTES_MAX, TOLD_BYTES_MAX + SIGNATURE_BYTES)
    for short in (b"", bytes(SIGNATURE_BYTES), "text"):
        with pytest.raises(EnvelopeError):
            open_to(short, LITE, "north", "lite")  # type: ignore[arg-type]


# The ring


def test_names_are_unique(ring: Keyring) -> None:
    with pytest.raises(NameTaken) as caught:
        ring.add("lite", PRIME)
    assert caught.value.name == "lite"
    assert ring.open(sign(vote(), LITE, "north"), "north") == vote()
    ring.remove("lite")
    assert "lite" not in ring
    ring.add("lite", PRIME)
    assert "lite" in ring
    assert len(ring) == 2
    with pytest.raises(UnknownSender):
        ring.remove("codemind")


def test_names_that_no_envelope_may_have(ring: Keyring) -> None:
    names: list[Any] = ["", "Lite", "lite\n", "a" * 65, "-x", "l\u0456te", None, 7]
    for name in names:
        with pytest.raises(ConfigError):
            ring.add(name, LITE)


@pytest.mark.parametrize("key", [b"", b"k" * 31, b"k" * 33, "k" * 32, bytearray(32), None])
def test_keys_are_32_bytes(ring: Keyring, key: Any) -> None:
    for use in (
        lambda: ring.add("codemind", key),
        lambda: seal(b"x", sender_key=key, council_id="north"),
        lambda: seal_to(b"x", key, "north", "lite"),
        lambda: open_to(bytes(99), key, "north", "lite"),
        lambda: sign(vote(), key, "north"),
    ):
        with pytest.raises(ConfigError, match="32 random bytes") as caught:
            use()
        assert "kkk" not in str(caught.value) + repr(caught.value)


def test_a_key_is_its_senders_or_not(ring: Keyring) -> None:
    """Mutation: what is no bytes ends in a TypeError of the comparison."""
    assert ring.matches("lite", LITE)
    assert not ring.matches("lite", PRIME)
    assert not ring.matches("ghost", LITE)
    assert not ring.matches("lite", "L" * KEY_BYTES)  # type: ignore[arg-type]


def test_councils_have_a_name(ring: Keyring) -> None:
    ids: list[Any] = ["", "x" * 201, "\ud800", None, b"north"]
    for council_id in ids:
        with pytest.raises(ConfigError):
            sign(vote(), LITE, council_id)
        with pytest.raises(ConfigError):
            ring.open(sign(vote(), LITE, "north"), council_id)


def test_keys_are_never_shown(ring: Keyring) -> None:
    assert repr(ring) == "Keyring(lite, prime)"
    shown = [repr(ring), str(ring), f"{ring}"]
    for act in (
        lambda: ring.open(sign(vote(), PRIME, "north"), "north"),
        lambda: ring.add("lite", PRIME),
        lambda: ring.open(bytes(99), "north"),
    ):
        with pytest.raises(CouncilError) as caught:
            act()
        shown += [repr(caught.value), str(caught.value), repr(caught.value.facts)]
    for text in shown:
        assert "LLLL" not in text
        assert "PPPP" not in text


def test_a_ring_travels(ring: Keyring) -> None:
    """It is handed to the coordinator's process when the council is launched."""
    again = pickle.loads(pickle.dumps(ring))
    assert again.open(sign(vote(), LITE, "north"), "north") == vote()


def test_what_the_council_says_to_a_peer_is_not_the_peers_own_word(ring: Keyring) -> None:
    """A reflected message must not pass: the direction is signed, and with it the peer's name."""
    payload = codec.encode(vote())
    towards = seal_to(payload, LITE, "north", "lite")
    assert open_to(towards, LITE, "north", "lite") == payload
    with pytest.raises(SignatureError):
        ring.open(towards, "north")
    with pytest.raises(SignatureError):
        open_to(sign(vote(), LITE, "north"), LITE, "north", "lite")
    with pytest.raises(SignatureError):
        open_to(towards, LITE, "north", "prime")
    with pytest.raises(SignatureError):
        open_to(seal_to(payload, LITE, "north to lite", ""), LITE, "north", "lite")
