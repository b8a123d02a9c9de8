"""Who sent this: keys, signatures on what goes over the wire, and the ring of all senders' keys.

HMAC-SHA256 with a key of each sender's own (rules 1.14), over the council's id too, so that a message of
one council is worth nothing in another (rules 1.12). Knows nothing of what a sender may do.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import re
from collections.abc import Iterator

from council.protocol import codec
from council.protocol.envelope import SENDER_PATTERN, Envelope
from council.protocol.errors import (
    ConfigError,
    EnvelopeError,
    NameTaken,
    SignatureError,
    UnknownSender,
)
from council.protocol.values import kind_of, quoted, too_large

Key = bytes
# As long as the hash's output: a longer key adds nothing, a shorter one weakens it (RFC 2104).
KEY_BYTES = 32
SIGNATURE_BYTES = 32
SEALED_BYTES_MAX = SIGNATURE_BYTES + codec.ENVELOPE_BYTES_MAX
# What the council says may hold more: a decision has the reasons of 15 ballots, 20,000 characters each, and
# those of the losing side once more; a ruling's request has the proposal beside.
TOLD_BYTES_MAX = 8 * codec.ENVELOPE_BYTES_MAX
# A council's id is a name and perhaps a random part; it is hashed with each message.
COUNCIL_ID_CHARS_MAX = 200
# Keeps a signature of ours from meaning anything elsewhere, should a key be used twice. Its number goes up
# with the layout of what is signed.
_DOMAIN = b"council/envelope/hmac-sha256/1\0"
_SENDER = re.compile(SENDER_PATTERN.removesuffix("$"))


def seal(payload: bytes, *, sender_key: Key, council_id: str) -> bytes:
    """``payload`` behind its signature. Raises EnvelopeTooLarge, and ConfigError for a key or id unfit."""
    if len(payload) > codec.ENVELOPE_BYTES_MAX:
        raise too_large("envelope", "bytes", codec.ENVELOPE_BYTES_MAX, len(payload))
    return _signature(payload, _checked_key(sender_key, "the sender"), council_id) + payload


def sign(envelope: Envelope, key: Key, council_id: str) -> bytes:
    """The envelope's canonical bytes, sealed. Raises as ``seal`` does."""
    return seal(codec.encode(envelope), sender_key=key, council_id=council_id)


def payload_of(sealed: bytes) -> bytes:
    """What was sealed, without a look at the signature: for bytes that were opened before."""
    return sealed[SIGNATURE_BYTES:]


def seal_to(payload: bytes, key: Key, council_id: str, peer: str) -> bytes:
    """What the council says to ``peer``, sealed with the peer's own key.

    The direction is signed too, so that nothing said to a peer can be sent back as the peer's own word.
    """
    if len(payload) > TOLD_BYTES_MAX:
        raise too_large("envelope", "bytes", TOLD_BYTES_MAX, len(payload))
    return _signature(payload, _checked_key(key, peer), council_id, peer) + payload


def open_to(sealed: bytes, key: Key, council_id: str, peer: str) -> bytes:
    """What the council said to ``peer``. Raises SignatureError, EnvelopeTooLarge."""
    signature, payload = _split(sealed, SIGNATURE_BYTES + TOLD_BYTES_MAX)
    if not hmac.compare_digest(signature, _signature(payload, _checked_key(key, peer), council_id, peer)):
        raise _forged(None, council_id)
    return payload


def greeting(key: Key, council_id: str, sender: str) -> bytes:
    """Shows a council that one holds the key it knows ``sender`` by, and gives nobody the key."""
    return seal(b"greeting " + sender.encode(), sender_key=key, council_id=council_id)


def check_name(sender: str) -> None:
    """Raises ConfigError for what is no sender's name."""
    if not isinstance(sender, str) or not _SENDER.fullmatch(sender):
        form = "expected 1 to 64 of a-z 0-9 . _ -, a letter or digit first"
        raise ConfigError(f"{quoted(sender)} is no sender's name: {form}")


class Keyring:
    """The keys of everybody who may speak in a council, by name. Its repr shows names, never keys."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}

    def add(self, sender: str, key: Key) -> None:
        """Let ``sender`` speak. Raises NameTaken, and ConfigError for a name or key unfit."""
        check_name(sender)
        if sender in self._keys:
            raise NameTaken(f"{sender} speaks in this council already; take another name", name=sender)
        self._keys[sender] = _checked_key(key, sender)

    def key(self, sender: str) -> Key:
        """The sender's key, to seal what the council says to it. Raises UnknownSender."""
        key = self._keys.get(sender)
        if key is None:
            raise _unknown(sender)
        return key

    def matches(self, sender: str, key: Key) -> bool:
        """Whether ``key`` is the sender's, compared in constant time."""
        known = self._keys.get(sender)
        return known is not None and isinstance(key, bytes) and hmac.compare_digest(known, key)

    def greets(self, sender: str, said: bytes, council_id: str) -> bool:
        """Whether ``said`` is the greeting of ``sender``, who is known, in this council."""
        expected = greeting(self.key(sender), council_id, sender)
        return isinstance(said, bytes) and hmac.compare_digest(said, expected)

    def remove(self, sender: str) -> None:
        """Let ``sender`` speak no more. Raises UnknownSender."""
        if self._keys.pop(sender, None) is None:
            raise _unknown(sender)

    def open(self, sealed: bytes, council_id: str) -> Envelope:
        """The envelope in ``sealed``, authentic and valid.

        Before the signature holds, nothing is computed but the signature, and of a large envelope no more is
        read than the few bytes that name the sender. Raises EnvelopeError (malformed), EnvelopeTooLarge,
        VersionError, UnknownSender, SignatureError. A malformed envelope that is truly its sender's raises
        EnvelopeError with ``authentic`` True, and with ``sender``, ``msg_id``, ``parent_id`` and ``type``, so
        that the sender may be asked again (rules 1.2).
        """
        signature, payload = _split(sealed)
        found, sender = codec.small(payload)
        if sender is None:
            sender = codec.sender_of(payload)
        key = self._keys.get(sender)
        if key is None:
            raise _unknown(sender)
        if not hmac.compare_digest(signature, _signature(payload, key, council_id)):
            raise _forged(sender, council_id)
        try:
            return codec.read(found, payload) if found is not None else codec.decode(payload)
        except EnvelopeError as error:
            error.facts.update(authentic=True, sender=sender, msg_id=None, parent_id=None, type=None)
            with contextlib.suppress(EnvelopeError):  # its head can't be read either; ``error`` says why
                error.facts.update(codec.peek(payload)._asdict())
            raise

    def __contains__(self, sender: object) -> bool:
        return sender in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self._keys)})"


def _signature(payload: bytes, key: Key, council_id: str, peer: str = "") -> bytes:
    mac = _begun(key, council_id, peer).copy()
    mac.update(payload)
    return mac.digest()


@functools.lru_cache(maxsize=1_024)  # a council signs all it says with few of these
def _begun(key: Key, council_id: str, peer: str) -> hmac.HMAC:
    """What all messages with this key begin with, taken in once for all of them."""
    # The lengths keep an id, a peer and the payload after them from being read as another three.
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
    """The key, if it is one; what is wrong with it is told by its length, never by its bytes."""
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
