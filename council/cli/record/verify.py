"""``council verify``, ``checkpoint`` and ``prove``: check that a journal is unchanged, and prove it to others."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from council.cli.options import Config, Json
from council.cli.reach import Where
from council.cli.record.sources import Name
from council.cli.record.store import Url, apart, opened
from council.cli.report import DONE, Report, UsageFault, judged
from council.kinds.text import clean, council_text, count, line

if TYPE_CHECKING:
    from council.journal.checkpoint import Checkpoint
    from council.journal.proof import Proof
    from council.journal.store import PacketStore
    from council.journal.verify import Verified

KEY_FILE_BYTES_MAX = 4_096
_KEY_DIGITS = 64

Against = Annotated[
    Path | None, typer.Option("--checkpoint", metavar="FILE", help="A checkpoint that was kept elsewhere.")
]
Key = Annotated[
    str | None, typer.Option("--key", metavar="HEX|FILE", help="The public key that must have signed.")
]
To = Annotated[Path, typer.Argument(metavar="FILE|-", help="The file to write, or - for standard output.")]


@judged
def verify(
    checkpoint: Against = None,
    key: Key = None,
    proof: Annotated[
        Path | None, typer.Option("--proof", metavar="FILE", help="Check this proof instead. Needs no store.")
    ] = None,
    name: Name = None,
    url: Url = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Verify a journal: name its first bad record, or report that it is valid.

    Finds records that were changed, moved, inserted or lost, also while a council writes. Finds errors in the search
    index of the store. To find that the end was cut off, or that the whole journal was replaced, it needs a
    checkpoint that was kept elsewhere.

    Exits 1 if the journal, the checkpoint or the proof is not valid.
    """
    report = Report(as_json=json)
    if proof is not None:
        if checkpoint is not None or url is not None:
            raise UsageFault(
                "--proof needs no store and carries its checkpoint: leave --checkpoint and --url out"
            )
        return _check(proof, _key(key), name, report)
    if key is not None and checkpoint is None:
        raise UsageFault("--key is for a --checkpoint or a --proof: give one")
    from council.journal.checkpoint import Checkpoint
    from council.journal.verify import verify as verified

    kept = None if checkpoint is None else Checkpoint.read(checkpoint)
    where, council = _journal(config, name)
    wanted = _expected(_key(key), council) if kept else None
    with opened(url, where, journal=council, read_only=True) as store, _progress(report) as progress:
        council_id = None if kept is None else _council_of(store, council)
        found = verified(
            store, council, checkpoint=kept, key=wanted, council_id=council_id, progress=progress
        )
    document = _document(found) | ({"key_known": wanted is not None} if kept else {})
    return _report(report, {"verified": document}, *_lines(found, wanted))


@judged
def checkpoint(
    file: To, name: Name = None, url: Url = None, config: Config = None, json: Json = False
) -> int:
    """Verify a journal, and sign its present end.

    Keep the file where the people who can write to the store can't change it. council verify --checkpoint then finds
    any change of the journal up to there.
    """
    report = _reporting(file, json)
    from council.journal.verify import verify as verified

    where, council = _journal(config, name)
    with opened(url, where, journal=council, read_only=True) as store, _progress(report) as progress:
        apart(file, store)
        made = _sign(store, verified(store, council, progress=progress, searches=False))
    document = {"checkpoint": made.document(), "file": str(file)}
    summary = f"journal {line(council)} stands at record {made.position:,}, says {file}; keep it elsewhere"
    return _deliver(report, file, made, document, summary, f"signed by the key {made.key}")


@judged
def prove(
    packet: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A proposal, for its decision; a packet's id; or a position, '#12'."
        ),
    ],
    file: To,
    checkpoint: Against = None,
    key: Key = None,
    name: Name = None,
    url: Url = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Write a proof that a decision, or another packet, is in the journal.

    The file holds the packet, and the hashes that lead from it to a signed checkpoint. The checkpoint is made now, or
    given with --checkpoint. Anybody can check it with council verify --proof, without the store.
    """
    report = _reporting(file, json)
    if key is not None and checkpoint is None:
        raise UsageFault(
            "--key is for a --checkpoint that is given; a new one is signed by this journal's own"
        )
    from council.journal import proof
    from council.journal.checkpoint import Checkpoint
    from council.journal.verify import verify as verified
    from council.protocol.errors import Refused

    which = _which(packet)
    where, council = _journal(config, name)
    kept = None if checkpoint is None else Checkpoint.read(checkpoint)
    wanted = None if checkpoint is None else _expected(_key(key), council)
    with opened(url, where, journal=council, read_only=True) as store, _progress(report) as progress:
        apart(file, store)
        by = kept or functools.partial(_sign, store)
        council_id = None if kept is None else _council_of(store, council)
        if isinstance(which, str):
            try:
                which = _decided(store, council, which)
            except (Refused, UsageFault):  # a search may have missed a damaged record
                verified(
                    store, council, checkpoint=kept, key=wanted, council_id=council_id, progress=progress
                )
                raise
        made = proof.prove(store, council, which, by, key=wanted, council_id=council_id, progress=progress)
    document = {"proved": {"position": made.position, "file": str(file), "key": made.checkpoint.key}}
    summary = f"record {made.position:,} of journal {line(council)} is proved by {file}"
    signed_by = f"to anybody who knows the key {made.checkpoint.key}"
    return _deliver(report, file, made, document, summary, signed_by)


def _journal(config: Path | None, name: str | None) -> tuple[Where, str]:
    """The settings, and the name of the journal: the given one, else that of the settings."""
    where = Where(config)
    return where, where.loaded().config.name if name is None else name


def _check(file: Path, key: str | None, journal: str | None, report: Report) -> int:
    from council.journal.proof import Proof, check_proof
    from council.protocol.errors import ProofRefused

    proof = Proof.read(file)
    kept = proof.checkpoint
    if journal is not None and kept.journal != journal:
        raise ProofRefused(f"the proof is of the journal {line(kept.journal)}, not of {line(journal)}")
    wanted = _expected(key, kept.journal)
    packet = check_proof(proof, wanted)
    document = {"position": proof.position, "packet": loads(proof.content), "checkpoint": kept.document()}
    lines = [
        f"packet {packet.packet_id}, {line(packet.packet_type)} of {packet.timestamp:%Y-%m-%d %H:%M:%S}Z, is record "
        f"{proof.position:,} of journal {line(kept.journal)} of {council_text(kept.council_id)}",
        *_record(proof),
        f"the checkpoint of {kept.at:%Y-%m-%d %H:%M:%S}Z, over {count(kept.position, 'record')}, says so",
        _signed_by(kept.key, wanted),
    ]
    return _report(report, {"proof": document | {"key_known": wanted is not None}}, *lines)


def _record(proof: Proof) -> Iterator[str]:
    """A description of the proved record and its proposal; nothing if it is not a council's record."""
    from council.cli import render
    from council.journal import history
    from council.journal.packets import unpacked
    from council.protocol.errors import StoreCorrupt

    try:
        entry = history.entry_of(unpacked(proof.content, proof.position))
    except StoreCorrupt:
        return
    ended = [each.proposal_id for each in entry.decisions] + [each.proposal_id for each in entry.escalations]
    about = ", ".join(dict.fromkeys(filter(None, (entry.proposal_id, *ended))))
    kind = render.kind(entry)
    yield f"it is a record of {kind}{f' on {about}' if about else ''}: {render.happened(entry).plain}"


def _sign(store: PacketStore, found: Verified) -> Checkpoint:
    from council.journal.checkpoint import Signer, journal_key
    from council.journal.writer import identity

    council_id = identity(store, found.journal)
    if council_id is None:
        raise UsageFault(f"the journal {line(found.journal)} holds nothing yet, so there is nothing to sign")
    return Signer(journal_key(found.journal)).sign(
        journal=found.journal,
        council_id=council_id,
        epoch=found.epoch,
        head=found.head,
        tree_root=found.tree_root,
        at=datetime.now(UTC),
    )


def _council_of(store: PacketStore, journal: str) -> str | None:
    """The id of the journal's council; None if its first record is damaged, which ``verify`` then reports."""
    from council.journal.writer import identity
    from council.protocol.errors import StoreCorrupt

    try:
        return identity(store, journal)
    except StoreCorrupt:
        return None


def _which(packet: str) -> UUID | int | str:
    """A position, a packet's id, or what may be a proposal's id."""
    if re.fullmatch("#[1-9][0-9]{0,17}|[1-9][0-9]{0,14}", packet):  # a proposal's id has 16 digits
        return int(packet.removeprefix("#"))
    try:
        return UUID(packet)
    except ValueError:
        return packet


def _decided(store: PacketStore, journal: str, proposal: str) -> int:
    """The position of the record that decided a proposal."""
    from council.journal import history
    from council.journal.entries import DECISION, Wanted

    found = history.page(
        store.database, journal, Wanted(proposal=proposal, types=(DECISION,), limit=1)
    ).entries
    if not found:
        raise UsageFault(
            f"{line(proposal, 80)} is not decided yet; council show names its records, to be proved"
        )
    return found[0].position


def _key(given: str | None) -> str | None:
    """The public key of --key, from the option itself or from a file."""
    if given is None:
        return None
    text = given
    if not re.fullmatch(f"[0-9a-fA-F]{{{_KEY_DIGITS}}}", given):
        try:
            with Path(given).expanduser().open("rb") as file:
                text = file.read(KEY_FILE_BYTES_MAX).decode("ascii", "replace").strip()
        except (OSError, ValueError):
            text = ""
    if not re.fullmatch(f"[0-9a-fA-F]{{{_KEY_DIGITS}}}", text):
        raise UsageFault(f"--key: expected {_KEY_DIGITS} hex digits, or a file that holds them")
    return text.lower()


def _expected(given: str | None, journal: str) -> str | None:
    """The key that must have signed: the one given, else this user's own for the journal, if there is one."""
    from council.journal.checkpoint import own_public

    return given or own_public(journal)


def _signed_by(key: str, wanted: str | None) -> str:
    if wanted is not None:
        return f"signed by the expected key {key}"
    return f"signed by the key {key}: nothing here says whose that is; compare it with the council's (--key)"


def _reporting(file: Path, json: bool) -> Report:
    if json and str(file) == "-":
        raise UsageFault("--json and - both want the output: name a file")
    return Report(as_json=json)


def _deliver(
    report: Report, file: Path, made: Checkpoint | Proof, document: dict[str, Any], *lines: str
) -> int:
    """Writes a checkpoint or proof to its file, or to the output."""
    if str(file) == "-":
        report.print_json(made.document())
        return DONE
    made.write(file)
    return _report(report, document, *lines)


def _report(report: Report, document: dict[str, Any], *lines: str) -> int:
    """Prints the result. Lines are not wrapped, because a broken hash is hard to copy."""
    if report.as_json:
        return report.result(document, None)
    for each in lines:
        report.print(clean(each), markup=False, soft_wrap=True)
    return DONE


@contextmanager
def _progress(report: Report) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal."""
    if report.as_json or not report.notes.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=report.notes, transient=True) as bar:
        task = bar.add_task("verifying", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(found: Verified, wanted: str | None) -> Iterator[str]:
    rows = f"{count(found.rows, 'record')}, epoch {found.epoch}"
    yield f"journal {line(found.journal)} in {line(found.where)} holds: {rows}"
    yield f"head {found.head.row_hash.hex()}"
    yield f"tree {found.tree_root.hex()}"
    kept = found.checkpoint
    if kept is None:
        yield "not checked without a checkpoint: whether the end was cut off, or the whole journal replaced"
        return
    yield (
        f"it agrees with the checkpoint of {kept.at:%Y-%m-%d %H:%M:%S}Z at record {kept.position:,}; "
        f"{count(found.after, 'record')} after it"
    )
    yield _signed_by(kept.key, wanted)


def _document(found: Verified) -> dict[str, Any]:
    document: dict[str, Any] = {
        "journal": found.journal,
        "where": found.where,
        "rows": found.rows,
        "row_hash": found.head.row_hash.hex(),
        "tree_root": found.tree_root.hex(),
        "epoch": found.epoch,
        "checkpoint": found.checkpoint and found.checkpoint.document(),
    }
    return document | ({"after_checkpoint": found.after} if found.checkpoint else {})
