"""Proves one packet's place in a journal to somebody who has no copy of its store.

A proof is the packet, the path from its row to the root of the journal's Merkle tree, and a signed checkpoint of that
root.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Self
from uuid import UUID

import msgspec

from council.journal.chain import HASH_BYTES, content_hash, inclusion, rooted, row_hash
from council.journal.checkpoint import Checkpoint, read_file, same_json, write_file
from council.journal.store import PacketStore
from council.journal.verify import Progress, Verified, verify
from council.protocol.errors import CallerError, EnvelopeError, ProofRefused, UnknownPacket
from council.protocol.packet import PACKET_BYTES_MAX, PacketEnvelope
from council.protocol.values import quoted, read_json

FORMAT = {"format": "council-proof", "version": 1}
# The largest packet as a JSON text, in which each of its quotes takes two bytes, and the rest.
FILE_BYTES_MAX = 2 * PACKET_BYTES_MAX + 64 * 2**10


_Number = Annotated[int, msgspec.Meta(gt=0, le=2**63 - 1)]
_Hash = Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of a journal: the packet's canonical bytes, its place, and the path to the checkpoint's root."""

    content: bytes
    position: _Number
    epoch: _Number
    previous_hash: _Hash
    path: tuple[_Hash, ...]
    checkpoint: Checkpoint

    def document(self) -> dict[str, Any]:
        """The proof as JSON data."""
        return FORMAT | {
            "packet": self.content.decode(),  # as a text, because exactly these bytes were hashed
            "position": self.position,
            "epoch": self.epoch,
            "previous_hash": self.previous_hash.hex(),
            "path": [each.hex() for each in self.path],
            "checkpoint": self.checkpoint.document(),
        }

    @classmethod
    def of(cls, found: object) -> Self:
        """Reads what ``document`` gave. Raises ProofRefused, CheckpointRefused; ``check_proof`` checks it."""
        if not isinstance(found, dict) or not same_json({name: found.get(name) for name in FORMAT}, FORMAT):
            raise _refused("it is not a proof of a council, or has another version")
        given = {name: value for name, value in found.items() if name not in FORMAT}
        try:
            given["content"] = given.pop("packet").encode()
            given["previous_hash"] = bytes.fromhex(given["previous_hash"])
            given["path"] = [bytes.fromhex(each) for each in given["path"]]
            given["checkpoint"] = Checkpoint.of(given["checkpoint"])
            proof = msgspec.convert(given, cls, builtin_types=(bytes, datetime))
            if not same_json(proof.document(), found):
                raise ValueError("not in the canonical form")
        except (KeyError, TypeError, ValueError, AttributeError):
            raise _refused("a part of it is missing, or is something else") from None
        return proof

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a file. Raises OperatorError if it can't be read, and the errors of ``of``."""
        try:
            return cls.of(read_json(read_file(path, FILE_BYTES_MAX), field="proof", bytes_max=FILE_BYTES_MAX))
        except EnvelopeError as error:
            raise _refused(error.message) from error

    def write(self, path: Path) -> None:
        """Writes it to a file atomically and durably, for its owner alone. Raises OperatorError."""
        write_file(path, json.dumps(self.document(), ensure_ascii=False, indent=1).encode() + b"\n")


def prove(
    store: PacketStore,
    journal: str,
    which: UUID | int,
    by: Checkpoint | Callable[[Verified], Checkpoint],
    *,
    key: str | None = None,
    council_id: str | None = None,
    progress: Progress | None = None,
) -> Proof:
    """The proof of a packet, by its id or position, under the given checkpoint, or one that ``by`` signs now.

    The whole journal is verified for it, and its row hashes are held in memory: about 70 MB for a million rows.
    Raises the errors of ``verify``, UnknownPacket, and CallerError if the checkpoint does not cover the packet.
    """
    hashes: list[bytes] = []
    found = which if isinstance(which, int) else 0
    wanted = None if isinstance(which, int) else str(which)

    def see(position: int, own_hash: bytes, packet_id: str) -> None:
        nonlocal found
        hashes.append(own_hash)
        if packet_id == wanted:
            found = position

    kept = by if isinstance(by, Checkpoint) else None
    verified = verify(
        store,
        journal,
        checkpoint=kept,
        key=key,
        council_id=council_id,
        progress=progress,
        see=see,
        searches=False,
    )
    if not 0 < found <= len(hashes):
        raise UnknownPacket(
            f"journal {quoted(journal)} in {store.where}, of {len(hashes):,} records, holds no packet {which}",
            packet_id=which,
        )
    checkpoint = by if isinstance(by, Checkpoint) else by(verified)
    if found > checkpoint.position:
        raise CallerError(
            f"the packet stands at {found}, and the checkpoint speaks for the first {checkpoint.position:,} records: "
            "take a newer checkpoint"
        )
    row = store.records(journal, after=found - 1, limit=1)[0]
    path = inclusion(hashes[: checkpoint.position], found - 1)
    proof = Proof(row.content, found, row.epoch, row.previous_hash, path, checkpoint)
    check_proof(proof, key)  # the row was read again, so the finished proof is checked
    return proof


def check_proof(proof: Proof, key: str | None = None) -> PacketEnvelope:
    """The packet of a proof, if it is in the journal of the proof's checkpoint, signed by ``key``.

    Without ``key``, the proof only shows a statement by the holder of the key that the checkpoint names. Raises
    CheckpointRefused, and ProofRefused if the path does not lead to the checkpoint's root.
    """
    checkpoint = proof.checkpoint
    checkpoint.check(key)
    own_hash = row_hash(proof.previous_hash, proof.position, proof.epoch, content_hash(proof.content))
    try:
        root = rooted(own_hash, proof.position - 1, checkpoint.position, proof.path)
    except ValueError as error:
        raise _refused(str(error)) from None
    if root != checkpoint.tree_root:
        raise _refused("its packet, place and path do not lead to the root that is signed")
    try:
        packet = PacketEnvelope.from_json(proof.content)
        canonical = packet.canonical() == proof.content
    except EnvelopeError as error:
        raise _refused(error.message) from error
    if not canonical:
        raise _refused("its packet is not in the canonical form")
    return packet


def _refused(why: str) -> ProofRefused:
    return ProofRefused(f"the proof does not hold: {why}; it was changed, or is of something else")
