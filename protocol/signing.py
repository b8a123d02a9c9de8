"""Keys, signatures of messages on the wire, and the keyring of all senders.

HMAC-SHA256 with each sender's own key (rules 1.14). It covers the council's id, so that a message of one council is
invalid in another (rules 1.12). What a sender may do is not checked here.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from datetime import UTC, datetime

from council.protocol import codec
from council.protocol.envelope import SENDER_PATTERN, Envelope, Proposal
from council.protocol.errors import (
    ConfigError,
    EnvelopeError,
    NameTaken,
    SignatureError,
    UnknownSender,
)
from council.protocol.values import kind_of, quoted, too_large

Key = bytes
# The length of the hash's output. A longer key adds nothing, and a shorter one weakens it (RFC 2104).
KEY_BYTES = 32
SIGNATURE_BYTES = 32
SEALED_BYTES_MAX = SIGNATURE_BYTES + codec.ENVELOPE_BYTES_MAX
# Messages of the council may be larger. A decision has the reasons of 15 ballots, 20,000 characters each, and those
# of the losing side again. A ruling's request also holds the proposal.
TOLD_BYTES_MAX = 8 * codec.ENVELOPE_BYTES_MAX
# A council's id is a name and maybe a random part. It is hashed with each message.
COUNCIL_ID_CHARS_MAX = 200
# Makes our signatures invalid elsewhere, in case a key is used twice. Its number increases when the signed layout
# changes.
_DOMAIN = b"council/envelope/hmac-sha256/1\0"
_SENDER = re.compile(SENDER_PATTERN.removesuffix("$"))


def seal(payload: bytes, *, sender_key: Key, council_id: str) -> bytes:
    """``payload`` after its signature. Raises EnvelopeTooLarge, and ConfigError for an invalid key or id."""
    if len(payload) > codec.ENVELOPE_BYTES_MAX:
        raise too_large("envelope", "bytes", codec.ENVELOPE_BYTES_MAX, len(payload))
    return _signature(payload, _checked_key(sender_key, "the sender"), council_id) + payload


def sign(envelope: Envelope, key: Key, council_id: str) -> bytes:
    """The envelope's canonical bytes, sealed. Raises as ``seal`` does."""
    return seal(codec.encode(envelope), sender_key=key, council_id=council_id)


def payload_of(sealed: bytes) -> bytes:
    """The sealed bytes without a check of the signature, for bytes that were opened before."""
    return sealed[SIGNATURE_BYTES:]


def seal_to(payload: bytes, key: Key, council_id: str, peer: str) -> bytes:
    """Seals a message of the council to ``peer`` with the peer's own key.

    The signature covers the direction, so a message to a peer can't be sent back as a message of that peer.
    """
    if len(payload) > TOLD_BYTES_MAX:
        raise too_large("envelope", "bytes", TOLD_BYTES_MAX, len(payload))
    return _signature(payload, _checked_key(key, peer), council_id, peer) + payload


def open_to(sealed: bytes, key: Key, council_id: str, peer: str) -> bytes:
    """The council's message to ``peer``. Raises SignatureError, EnvelopeTooLarge."""
    signature, payload = _split(sealed, SIGNATURE_BYTES + TOLD_BYTES_MAX)
    if not hmac.compare_digest(signature, _signature(payload, _checked_key(key, peer), council_id, peer)):
        raise _forged(None, council_id)
    return payload


def greeting(key: Key, council_id: str, sender: str) -> bytes:
    """Proves to a council that the sender holds its key, without revealing the key."""
    return seal(b"greeting " + sender.encode(), sender_key=key, council_id=council_id)


def check_name(sender: str) -> None:
    """Raises ConfigError for an invalid sender's name."""
    if not isinstance(sender, str) or not _SENDER.fullmatch(sender):
        form = "expected 1 to 64 of a-z 0-9 . _ -, a letter or digit first"
        raise ConfigError(f"{quoted(sender)} is no sender's name: {form}")


class Keyring:
    """The keys of all senders of a council, by name. Its repr shows names, never keys."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}

    def add(self, sender: str, key: Key) -> None:
        """Adds ``sender``. Raises NameTaken, and ConfigError for an invalid name or key."""
        check_name(sender)
        if sender in self._keys:
            raise NameTaken(f"{sender} speaks in this council already; take another name", name=sender)
        self._keys[sender] = _checked_key(key, sender)

    def key(self, sender: str) -> Key:
        """The sender's key, which seals the council's messages to it. Raises UnknownSender."""
        key = self._keys.get(sender)
        if key is None:
            raise _unknown(sender)
        return key

    def matches(self, sender: str, key: Key) -> bool:
        """Whether ``key`` is the sender's, compared in constant time."""
        known = self._keys.get(sender)
        return known is not None and isinstance(key, bytes) and hmac.compare_digest(known, key)

    def greets(self, sender: str, said: bytes, council_id: str) -> bool:
        """Whether ``said`` is the greeting of ``sender``, which must be known, in this council."""
        expected = greeting(self.key(sender), council_id, sender)
        return isinstance(said, bytes) and hmac.compare_digest(said, expected)

    def remove(self, sender: str) -> None:
        """Removes ``sender``. Raises UnknownSender."""
        if self._keys.pop(sender, None) is None:
            raise _unknown(sender)

    def open(self, sealed: bytes, council_id: str) -> Envelope:
        """The verified and validated envelope in ``sealed``.

        Until the signature is verified, only the few bytes that name the sender are read. Raises EnvelopeError
        (malformed), EnvelopeTooLarge, VersionError, UnknownSender, SignatureError. If a malformed envelope has a
        valid signature, the EnvelopeError has ``authentic`` True, and ``sender``, ``msg_id``, ``parent_id`` and
        ``type``, so that the sender can be asked again (rules 1.2).
        """
        signature, payload = _split(sealed)
        sender, head = codec.read_head(payload)
        key = self._keys.get(sender)
        if key is None:
            raise _unknown(sender)
        if not hmac.compare_digest(signature, _signature(payload, key, council_id)):
            raise _forged(sender, council_id)
        try:
            return codec.decode(payload)
        except EnvelopeError as error:
            error.facts.update(authentic=True, **codec.claims_of(head))
            raise

    def __contains__(self, sender: object) -> bool:
        return sender in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self._keys)})"


def _signature(payload: bytes, key: Key, council_id: str, peer: str = "") -> bytes:
    mac = _begun(key, council_id, peer).copy()
    mac.update(payload)
    return mac.digest()


@functools.lru_cache(maxsize=1_024)  # a council signs all its messages with few of these
def _begun(key: Key, council_id: str, peer: str) -> hmac.HMAC:
    """The common beginning of all messages with this key, hashed once."""
    # With their lengths, an id, a peer and the payload can't be read as another three.
    council, towards = _council_bytes(council_id), peer.encode()
    before = b"%s%d:%s%d:%s" % (_DOMAIN, len(council), council, len(towards), towards)
    return hmac.new(key, before, "sha256")


def _council_bytes(council_id: str) -> bytes:
    if isinstance(council_id, str) and 0 < len(council_id) <= COUNCIL_ID_CHARS_MAX:
        try:
            return council_id.encode()
        except UnicodeEncodeError:
            raise ConfigError("a council's id holds half of a surrogate pair, which is no text") from None
    raise ConfigError(f"a council's id is a text of 1 to {COUNCIL_ID_CHARS_MAX} characters")


def _split(sealed: bytes, bytes_max: int = SEALED_BYTES_MAX) -> tuple[bytes, bytes]:
    if not isinstance(sealed, bytes):
        raise EnvelopeError.at("envelope", f"expected sealed bytes, found {kind_of(sealed)}")
    if len(sealed) > bytes_max:
        raise too_large("envelope", "bytes", bytes_max, len(sealed))
    if len(sealed) <= SIGNATURE_BYTES:
        problem = f"{len(sealed)} bytes are less than a signature ({SIGNATURE_BYTES}) and an envelope"
        raise EnvelopeError.at("envelope", problem)
    return sealed[:SIGNATURE_BYTES], sealed[SIGNATURE_BYTES:]


def _checked_key(key: object, sender: str) -> Key:
    """The key, if it is valid. An error shows its length, never its bytes."""
    if isinstance(key, bytes) and len(key) == KEY_BYTES:
        return key
    found = f"{len(key)} bytes" if isinstance(key, bytes) else kind_of(key)
    raise ConfigError(
        f"the key of {sender} is {found}; a key is {KEY_BYTES} random bytes (secrets.token_bytes)"
    )


def _unknown(sender: str) -> UnknownSender:
    return UnknownSender(
        f"{quoted(sender)} has not joined this council; senders join at launch or with a key of their own",
        sender=sender,
    )


def _forged(sender: str | None, council_id: str) -> SignatureError:
    return SignatureError(
        f"the signature does not hold for {sender or 'this key'} in council {quoted(council_id)}: the "
        "message was altered, or signed with another key, or may belong to another council; sign it anew, "
        "with the sender's own key and this council's id",
        sender=sender,
        council_id=council_id,
    )


# What identifies a message, apart from its signature

_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def identity_of(envelope: Envelope, sealed: bytes) -> str:
    """Identifies what an envelope says, so that a retry is known (rules 1.12).

    For a proposal with a key, that is its content, confidence and risk, without its time and requester: a client
    may submit it again later, from another process.
    """
    content = envelope.content
    if not isinstance(content, Proposal) or content.key is None:
        return digest(sealed)
    said = content.model_copy(update={"requester": None})
    again = envelope.model_copy(update={"timestamp": _NO_TIME, "metadata": None, "content": said})
    return hashlib.blake2b(codec.encode(again), digest_size=16).hexdigest()


def digest(sealed: bytes) -> str:
    """Identifies an envelope's canonical bytes, by whatever key they were signed (rules 1.12)."""
    return hashlib.blake2b(payload_of(sealed), digest_size=16).hexdigest()
