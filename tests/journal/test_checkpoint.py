"""Checkpoints: signed, kept in a file, refused when they are not what was signed."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec.structs import replace

from council.journal.chain import Head
from council.journal.checkpoint import Checkpoint, Signer, journal_key, own_public
from council.protocol.errors import CallerError, CheckpointRefused, OperatorError

SIGNER = Signer(b"k" * 32)
OTHER = Signer(b"o" * 32)
FACTS: dict[str, Any] = {
    "journal": "council",
    "council_id": "council.ü",
    "epoch": 3,
    "head": Head(7, b"h" * 32),
    "tree_root": b"r" * 32,
    "at": datetime(2026, 11, 21, 12, 0, 0, 5, tzinfo=UTC),
}
CHECKPOINT = SIGNER.sign(**FACTS)


def test_what_is_signed_is_written_down(tmp_path: Path) -> None:
    """The signature is checked here by itself, over the bytes that the document names."""
    CHECKPOINT.check()
    CHECKPOINT.check(SIGNER.public)
    CHECKPOINT.check(SIGNER.public.upper())
    document = json.loads(json.dumps(CHECKPOINT.document()))
    signature = bytes.fromhex(document.pop("signature"))
    text = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(document["key"]))
    key.verify(signature, b"council-runtime checkpoint v1\0" + text.encode())
    path = tmp_path / "c.json"
    CHECKPOINT.write(path)
    CHECKPOINT.write(path)  # a newer one takes its place
    assert Checkpoint.read(path) == CHECKPOINT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["c.json"]


def test_the_moment_is_one_wherever_it_was_written() -> None:
    east = FACTS["at"].astimezone(timezone(timedelta(hours=5)))
    assert SIGNER.sign(**FACTS | {"at": east}).document() == CHECKPOINT.document()


CHANGES: dict[str, Any] = {
    "journal": "another",
    "council_id": "council.u",
    "epoch": 4,
    "position": 8,
    "row_hash": b"x" * 32,
    "tree_root": b"x" * 32,
    "at": FACTS["at"] + timedelta(microseconds=1),
    "key": OTHER.public,
    "signature": "0" * 128,
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_field_is_signed(name: str) -> None:
    """Mutation: a field that is left out of the signed bytes can be changed."""
    assert set(CHANGES) == set(Checkpoint.__struct_fields__)
    with pytest.raises(CheckpointRefused, match="changed, or forged"):
        replace(CHECKPOINT, **{name: CHANGES[name]}).check()


def test_somebody_else_s_is_refused_where_the_key_is_known() -> None:
    forged = OTHER.sign(**FACTS)
    forged.check()  # nobody who does not know the key can tell
    with pytest.raises(CheckpointRefused, match="another council's, or forged") as caught:
        forged.check(SIGNER.public)
    assert (caught.value.key, caught.value.expected) == (OTHER.public, SIGNER.public)


WRONG: list[dict[str, Any]] = [
    {"format": "council-proof"},
    {"version": 2},
    {"version": True},
    {"version": None},
    {"journal": ""},
    {"journal": "a\0b"},
    {"journal": 7},
    {"council_id": "x" * 201},
    {"epoch": True},
    {"epoch": -1},
    {"position": 7.0},
    {"position": 2**63},
    {"row_hash": "00"},
    {"row_hash": "AB" * 32},
    {"tree_root": None},
    {"at": "2026-11-21T12:00:00.000005"},
    {"at": "2026-11-21T12:00:00.000005+00:00"},
    {"at": "soon"},
    {"key": "zz" * 32},
    {"key": SIGNER.public.upper()},
    {"signature": "00"},
    {"more": 1},
]


def test_a_file_that_holds_none_is_refused(tmp_path: Path) -> None:
    """A wrong field, a missing one, or something else."""
    document = CHECKPOINT.document()
    documents = [document | change for change in WRONG]
    documents += [{name: document[name] for name in document if name != gone} for gone in document]
    contents = [json.dumps(each).encode() for each in documents]
    for content in [*contents, b"", b"[]", b"{", b"\xff", b"7" * 100_000, b"[" * 1_000]:
        (tmp_path / "c.json").write_bytes(content)
        with pytest.raises(CheckpointRefused, match="this checkpoint can't be used"):
            Checkpoint.read(tmp_path / "c.json")


def test_files_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="can't be read"):
        Checkpoint.read(tmp_path / "none.json")
    with pytest.raises(OperatorError, match="can't be written"):
        CHECKPOINT.write(tmp_path / "no" / "c.json")


def test_what_is_none_is_not_signed() -> None:
    for wrong in ({"journal": ""}, {"epoch": -1}, {"tree_root": b""}, {"at": datetime(2026, 1, 1)}):
        with pytest.raises(CallerError, match="checkpoint: "):
            SIGNER.sign(**FACTS | wrong)


def test_a_journal_s_key_is_made_once_and_stays(tmp_path: Path) -> None:
    assert own_public("council", tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    key = journal_key("council", tmp_path)
    assert journal_key("council", tmp_path) == key != journal_key("other", tmp_path)
    assert own_public("council", tmp_path) == Signer(key).public
    file = tmp_path / "journals" / "council.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.chmod(0o644)
    with pytest.raises(
        OperatorError, match=r"chmod 600 it, or put back .* and the journal's checkpoint beside it"
    ):
        journal_key("council", tmp_path)


@pytest.mark.parametrize("name", ["", "..", "../evil", "a/b", "Ada", "a\nb", "council\n", "x" * 65])
def test_a_name_that_leads_elsewhere_makes_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(CallerError, match="not a valid name of a council"):
        journal_key(name, tmp_path / "state")
    assert own_public(name, tmp_path / "state") is None
    assert list(tmp_path.iterdir()) == []
