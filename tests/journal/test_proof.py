"""Proofs: one packet's place in a journal, shown to somebody who has no store."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from council.journal.chain import GENESIS, HASH_BYTES, Head, content_hash, rooted, row_hash
from council.journal.checkpoint import Checkpoint, Signer
from council.journal.proof import Proof, check_proof, prove
from council.journal.store import PacketStore
from council.journal.verify import Verified, verify
from council.protocol.errors import (
    CallerError,
    CheckpointRefused,
    JournalCorrupt,
    OperatorError,
    ProofRefused,
    UnknownPacket,
)

from .conftest import only_sqlite
from .packets import NOW, append, given, several, whole
from .writing import unguarded

SIGNER = Signer(b"k" * 32)
ROWS = 21


def sign(found: Verified) -> Checkpoint:
    facts: dict[str, Any] = {"journal": found.journal, "epoch": found.epoch, "head": found.head}
    return SIGNER.sign(**facts, council_id="council.1", tree_root=found.tree_root, at=NOW)


@pytest.fixture
def filled(store: PacketStore) -> PacketStore:
    epoch, head = store.begin_epoch("council", "me")
    head = append(store, "council", epoch, several(1, 10), head)
    epoch, _ = store.begin_epoch("council", "me")
    append(store, "council", epoch, several(11, ROWS - 10), head)
    store.write([given(100)], NOW)
    return store


def test_every_packet_is_proved_by_its_id_and_by_its_place(filled: PacketStore) -> None:
    for position in range(1, ROWS + 1):
        proof = prove(filled, "council", UUID(int=position), sign)
        assert proof == prove(filled, "council", position, sign)
        assert check_proof(proof, SIGNER.public) == whole(position)
        assert (proof.position, proof.checkpoint.position) == (position, ROWS)
        assert len(proof.path) <= (ROWS - 1).bit_length()


@only_sqlite
def test_a_checkpoint_from_before_proves_what_stood_then(filled: PacketStore) -> None:
    checkpoint = sign(verify(filled, "council"))
    epoch, head = filled.begin_epoch("council", "me")
    append(filled, "council", epoch, several(ROWS + 1, 5), head)
    proof = prove(filled, "council", 7, checkpoint, key=SIGNER.public)
    assert (check_proof(proof, SIGNER.public), proof.checkpoint) == (whole(7), checkpoint)
    with pytest.raises(CallerError, match="take a newer checkpoint"):
        prove(filled, "council", ROWS + 1, checkpoint)


@pytest.mark.parametrize("which", [0, ROWS + 1, UUID(int=100), UUID(int=99)])
@only_sqlite
def test_what_does_not_stand_in_the_journal(filled: PacketStore, which: UUID | int) -> None:
    with pytest.raises(UnknownPacket, match="holds no packet"):
        prove(filled, "council", which, sign)


@only_sqlite
def test_a_bad_journal_proves_nothing(filled: PacketStore, address: str) -> None:
    unguarded(address, "UPDATE packet_store SET packet_type = 'x' WHERE position = 20")
    with pytest.raises(JournalCorrupt):
        prove(filled, "council", 3, sign)


def altered(proof: Proof) -> list[Proof]:
    """The proof with each of its parts as another could be."""
    one, *rest = proof.path
    last = proof.path[-1]
    forged = Signer(b"f" * 32).sign(
        journal="council",
        council_id="council.1",
        epoch=2,
        head=Head(ROWS, proof.checkpoint.row_hash),
        tree_root=proof.checkpoint.tree_root,
        at=NOW,
    )
    return [
        replace(proof, content=whole(8).canonical()),
        replace(proof, content=proof.content.replace(b'"n":7', b'"n":9')),
        replace(proof, position=8),
        replace(proof, position=6),
        replace(proof, position=ROWS + 1),
        replace(proof, epoch=2),
        replace(proof, previous_hash=b"x" * HASH_BYTES),
        replace(proof, path=()),
        replace(proof, path=(*proof.path, last)),
        replace(proof, path=tuple(rest)),
        replace(proof, path=(b"x" * HASH_BYTES, *rest)),
        replace(proof, path=(*rest, one)),
        replace(proof, checkpoint=forged),
        *(
            replace(proof, checkpoint=replace(proof.checkpoint, **{name: value}))
            for name, value in {
                "journal": "other",
                "council_id": "council.2",
                "epoch": 1,
                "position": ROWS - 1,
                "row_hash": b"x" * HASH_BYTES,
                "tree_root": b"x" * HASH_BYTES,
                "at": NOW.replace(year=2025),
                "key": forged.key,
                "signature": "0" * 128,
            }.items()
        ),
    ]


@only_sqlite
def test_nothing_in_a_proof_can_be_changed(filled: PacketStore) -> None:
    """Mutation: a part that neither the root nor the signature covers could say what the journal does not."""
    proof = prove(filled, "council", 7, sign)
    changed = altered(proof)
    assert set(Proof.__struct_fields__) == {
        name
        for name in Proof.__struct_fields__
        if any(getattr(other, name) != getattr(proof, name) for other in changed)
    }
    for each in changed:
        assert each != proof
        with pytest.raises((ProofRefused, CheckpointRefused)):
            check_proof(each, SIGNER.public)


@only_sqlite
def test_a_proof_is_a_short_file(filled: PacketStore, tmp_path: Path) -> None:
    proof = prove(filled, "council", 7, sign)
    path = tmp_path / "p.json"
    proof.write(path)
    assert Proof.read(path) == proof
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_bytes()) < 1_000 + len(proof.content) + 70 * len(proof.path)
    with pytest.raises(OperatorError, match="can't be read"):
        Proof.read(tmp_path / "none.json")


WRONG: list[Callable[[dict[str, Any]], object]] = [
    lambda proof: proof | {"version": 2},
    lambda proof: proof | {"version": True},
    lambda proof: proof | {"format": "council-checkpoint"},
    lambda proof: proof | {"position": "7"},
    lambda proof: proof | {"position": 7.0},
    lambda proof: proof | {"position": 0},
    lambda proof: proof | {"epoch": True},
    lambda proof: proof | {"epoch": 2**64},
    lambda proof: proof | {"previous_hash": "00"},
    lambda proof: proof | {"previous_hash": proof["previous_hash"].upper()},
    lambda proof: proof | {"path": proof["path"][0]},
    lambda proof: proof | {"path": [*proof["path"], "zz"]},
    lambda proof: proof | {"path": [each + "00" for each in proof["path"]]},
    lambda proof: proof | {"packet": json.loads(proof["packet"])},
    lambda proof: proof | {"packet": "\ud800"},
    lambda proof: proof | {"more": 1},
    lambda proof: proof | {"checkpoint": proof["checkpoint"] | {"epoch": "1"}},
    lambda proof: {name: value for name, value in proof.items() if name != "path"},
    lambda proof: [proof],
    lambda proof: None,
]


@only_sqlite
def test_a_file_of_something_else_is_refused(filled: PacketStore, tmp_path: Path) -> None:
    document = prove(filled, "council", 7, sign).document()
    path = tmp_path / "p.json"
    contents = [json.dumps(change(document)).encode() for change in WRONG]
    for content in [*contents, b"", b"{", b"\xff", b"[" * 1_000]:
        path.write_bytes(content)
        with pytest.raises((ProofRefused, CheckpointRefused)):
            Proof.read(path)


@pytest.mark.parametrize("content", [whole(7).canonical() + b" ", b"{}", b"\xff"], ids=str)
def test_only_a_packet_is_proved(content: bytes) -> None:
    """Whatever the holder of the key has signed: what is shown is a packet, in the one form that is kept."""
    own = row_hash(GENESIS, 1, 1, content_hash(content))
    facts: dict[str, Any] = {"journal": "council", "council_id": "council.1", "epoch": 1, "at": NOW}
    root = rooted(own, 0, 1, ())
    proof = Proof(content, 1, 1, GENESIS, (), SIGNER.sign(**facts, head=Head(1, own), tree_root=root))
    with pytest.raises(ProofRefused, match="packet"):
        check_proof(proof, SIGNER.public)
