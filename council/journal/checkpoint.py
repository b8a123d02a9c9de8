"""A signed head of a journal, kept elsewhere: it shows if the journal was cut or replaced (rules 4.5)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from council.agents.messaging.logs import get_logger
from council.config.field_types import NAME_WORDS
from council.config.files import whole
from council.config.human_keys import kept_key, state_dir
from council.config.settings import NAME_PATTERN
from council.journal.chain import HASH_BYTES, Head, Tree
from council.protocol.errors import CallerError, CheckpointRefused, EnvelopeError, OperatorError
from council.protocol.values import quoted, read_json
from council.protocol.wording import msgspec_text

log = get_logger("council.journal")

# A checkpoint costs an fsync. Records after the newest one are still in the chain.
CHECKPOINT_S = 10.0
FORMAT = {"format": "council-checkpoint", "version": 1}
FILE_BYTES_MAX = 16 * 2**10  # ours have about 700
# Nothing else that this key may sign begins with this.
_DOMAIN = b"council-runtime checkpoint v1\0"
_HASHES = ("row_hash", "tree_root")
SIGNATURE_BYTES = 64
_Text = Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[^\0\ud800-\udfff]+\Z")]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Hash = Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The head of a journal at the time ``at``, as the writer of its ``epoch`` signed it.

    ``row_hash`` is the hash of the row at ``position``; ``tree_root`` is the root over all rows up to it. ``key`` is
    an Ed25519 public key, and ``signature`` is by it, both in hex.
    """

    journal: _Text
    council_id: _Text
    epoch: _Count
    position: _Count
    row_hash: _Hash
    tree_root: _Hash
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    key: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    signature: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{128}\Z")]

    @classmethod
    def checked(cls, fields: Mapping[str, Any]) -> Self:
        """A checkpoint of these fields. Raises CallerError if one is missing, invalid or unknown."""
        try:
            return msgspec.convert(fields, cls, builtin_types=(bytes, datetime))
        except msgspec.ValidationError as error:
            raise CallerError(f"checkpoint: {msgspec_text(error, 'it')}") from None

    def document(self) -> dict[str, Any]:
        """The checkpoint as JSON data."""
        found: dict[str, Any] = msgspec.structs.asdict(self)
        found |= {name: found[name].hex() for name in _HASHES}
        found["at"] = self.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return FORMAT | found

    def signed_bytes(self) -> bytes:
        """The signed bytes: ``document`` without the signature, in its only form."""
        found = self.document()
        del found["signature"]
        text = json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return _DOMAIN + text.encode()

    def check(self, key: str | None = None) -> None:
        """Raises CheckpointRefused unless it is signed by ``key``; without ``key``, by the one that it names itself.

        Anybody can make a checkpoint that names their own key. So without knowledge of the key it proves nothing.
        """
        if key is not None and key.lower() != self.key:
            raise CheckpointRefused(
                f"the checkpoint of journal {quoted(self.journal)} is signed by the key {self.key}, expected {key}: "
                "it is another council's, or forged",
                key=self.key,
                expected=key,
            )
        try:
            public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.key))
            public.verify(bytes.fromhex(self.signature), self.signed_bytes())
        except (InvalidSignature, ValueError):
            raise CheckpointRefused(
                f"the checkpoint of journal {quoted(self.journal)} is not signed by the key {self.key} that it "
                "names: it was changed, or forged",
                key=self.key,
            ) from None

    @classmethod
    def of(cls, found: object) -> Self:
        """Reads what ``document`` gave. Raises CheckpointRefused; does not check the signature (``check``)."""
        if not isinstance(found, dict) or found.get("format") != FORMAT["format"]:
            raise _none("it is not a checkpoint of a council")
        if not same_json({name: found.get(name) for name in FORMAT}, FORMAT):
            version = quoted(str(found.get("version")))
            raise _none(f"its version is {version}, this package knows {FORMAT['version']}")
        given = {name: value for name, value in found.items() if name not in FORMAT}
        try:
            for name in _HASHES:
                given[name] = bytes.fromhex(given[name])
            given["at"] = datetime.fromisoformat(given["at"])
            checkpoint = cls.checked(given)
        except (KeyError, TypeError, ValueError):
            raise _none("a part of it is missing, or is something else") from None
        except CallerError as error:
            raise _none(error.message) from None
        if not same_json(checkpoint.document(), found):  # there is one way to write it: the signed one
            raise _none("it is not in the canonical form")
        return checkpoint

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a file. Raises OperatorError if it can't be read, and CheckpointRefused that names it."""
        try:
            return cls.of(read_json(read_file(path, FILE_BYTES_MAX), field="checkpoint"))
        except EnvelopeError as error:
            raise CheckpointRefused(f"{path}: {_none(error.message)}", path=str(path)) from error
        except CheckpointRefused as error:
            raise CheckpointRefused(f"{path}: {error.message}", path=str(path)) from error

    def write(self, path: Path) -> None:
        """Writes it to a file atomically and durably, for its owner alone. Raises OperatorError."""
        write_file(path, json.dumps(self.document(), ensure_ascii=False, indent=1).encode() + b"\n")


class Signer:
    """Signs checkpoints with one key."""

    __slots__ = ("_key", "public")

    def __init__(self, private_bytes: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(private_bytes)
        self.public: str = self._key.public_key().public_bytes_raw().hex()

    def sign(
        self, *, journal: str, council_id: str, epoch: int, head: Head, tree_root: bytes, at: datetime
    ) -> Checkpoint:
        """The checkpoint of a journal with this ``head``. Raises CallerError for invalid fields."""
        fields = {
            "journal": journal,
            "council_id": council_id,
            "epoch": epoch,
            "tree_root": tree_root,
            "at": at,
        }
        place = {**head._asdict(), "key": self.public, "signature": "0" * 2 * SIGNATURE_BYTES}
        blank = Checkpoint.checked(fields | place)
        return msgspec.structs.replace(blank, signature=self.signature(blank.signed_bytes()).hex())

    def signature(self, said: bytes) -> bytes:
        """The signature over ``said``, which must begin with a domain of its own."""
        return self._key.sign(said)

    def signed(self, said: bytes, signature: bytes) -> bool:
        """Whether ``signature`` is by this key over ``said``."""
        try:
            self._key.public_key().verify(signature, said)
        except InvalidSignature:
            return False
        return True


class CheckpointFile:
    """The newest checkpoint of a journal, in a file; without a path none is written.

    ``unsigned`` is the error of the last one that was due, if it could not be written.
    """

    def __init__(self, path: Path | None, signer: Signer, journal: str, council_id: str) -> None:
        self.unsigned: str | None = None
        self._path = path
        self._signer = signer
        self._journal = journal
        self._council_id = council_id
        self._written_at = 0
        self._tried_s = time.monotonic()

    def due(self) -> bool:
        """Whether a checkpoint is due. If it is, the next one is due after another CHECKPOINT_S."""
        if time.monotonic() - self._tried_s < CHECKPOINT_S:
            return False
        self._tried_s = time.monotonic()
        return True

    def write(self, epoch: int, head: Head, tree: Tree) -> None:
        """Writes a checkpoint if there are new records. An error is logged, and kept in ``unsigned``."""
        if self._path is None or head.position == self._written_at:
            return
        if tree.size != head.position:
            return  # the journal could not be read back, so this coordinator can't sign it
        try:
            # A coordinator that was replaced, and does not know it yet, must not overwrite a later checkpoint.
            if self._path.exists() and Checkpoint.read(self._path).epoch > epoch:
                return
            self._signer.sign(
                journal=self._journal,
                council_id=self._council_id,
                epoch=epoch,
                head=head,
                tree_root=tree.root(),
                at=datetime.now(UTC),
            ).write(self._path)
            self._written_at, self.unsigned = head.position, None
        except Exception as error:  # noqa: BLE001 - any error would be lost with its future
            log.warning("no checkpoint", journal=self._journal, why=str(error))
            self.unsigned = str(error)


def journal_key(name: str, folder: Path | None = None) -> bytes:
    """The private key that signs the checkpoints of a council's journal. The first call creates it.

    Raises OperatorError if it can't be stored, is readable by others or is no key, and CallerError if ``name`` is not
    a valid name of a council.
    """
    path = _key_file(name, folder)
    if path is None:  # it becomes a file name, and must not lead out of the folder
        raise CallerError(f"{quoted(name)} is not a valid name of a council: expected {NAME_WORDS}")
    # A new key alone would be refused, because of the checkpoint that the old one signed (``writer``).
    anew = (
        "put back the one that signed this journal, or move it away, and the journal's checkpoint beside it"
    )
    return kept_key(path, f"the journal {name}", anew=anew)


def own_public(name: str, folder: Path | None = None) -> str | None:
    """The public key of the journal of that name, if this user has its private key."""
    path = _key_file(name, folder)
    return None if path is None or not path.exists() else Signer(journal_key(name, folder)).public


def _key_file(name: str, folder: Path | None) -> Path | None:
    fit = re.fullmatch(NAME_PATTERN.removesuffix("$"), name)
    return (folder or state_dir()) / "journals" / f"{name}.key" if fit else None


def same_json(one: object, other: object) -> bool:
    """Whether two values are equal as JSON, where true, 1 and 1.0 differ."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def read_file(path: Path, bytes_max: int) -> bytes:
    """The content of a file, up to one byte above the limit. Raises OperatorError."""
    try:
        with path.open("rb") as file:
            return file.read(bytes_max + 1)
    except OSError as error:
        raise OperatorError(f"{path} can't be read: {error.strerror}") from error


def write_file(path: Path, content: bytes) -> None:
    """Writes ``content`` to a file atomically and durably, for its owner alone. Raises OperatorError."""
    try:
        with whole(path) as file:
            file.write(content)
    except OSError as error:
        raise OperatorError(f"{path} can't be written: {error.strerror}; name another") from error


def _none(why: str) -> CheckpointRefused:
    return CheckpointRefused(f"this checkpoint can't be used: {why}; take it from where it was kept")
