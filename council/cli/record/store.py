"""``council store``: maintains the store of packets. Its commands are safe while a council uses the store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from council.cli.options import Config, Json
from council.cli.reach import Where
from council.cli.report import DONE, Report, Unwritable, UsageFault, judged
from council.config.files import whole
from council.kinds.text import count

if TYPE_CHECKING:
    from council.journal.store import PacketStore, StoreInfo


app = typer.Typer(help="Maintain the store that holds the journals.", no_args_is_help=True)
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="ADDRESS", help="The store: a path, or postgresql://user@host/database."),
]


@app.command()
@judged
def migrate(url: Url = None, config: Config = None, json: Json = False) -> int:
    """Create the store, or upgrade it to this version."""
    with opened(url, Where(config), migrate=True) as store:
        found, now = store.revision_found, store.revision
        document = {"where": store.where, "from": found, "to": now}
        said = f"is of revision {now} already" if found == now else f"is of revision {now} now"
        return Report(as_json=json).result({"migrated": document}, f"{store.where} {said}")


@app.command()
@judged
def info(url: Url = None, config: Config = None, json: Json = False) -> int:
    """Show what the store is and what it holds."""
    report = Report(as_json=json)
    with opened(url, Where(config), read_only=True) as store:
        found = store.info()
    if json:
        return report.result({"store": _document(found)}, None)
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in _lines(found):
        table.add_row(f"[bright_black]{name}[/]", escape(value))
    for warning in found.warnings:
        report.note(f"warning: {warning}")
    return report.result({}, table)


@app.command()
@judged
def gc(url: Url = None, config: Config = None, json: Json = False) -> int:
    """Delete the packets of users that have expired.

    Packets of a council's journal never expire.
    """
    with opened(url, Where(config)) as store:
        removed = store.collect_garbage(datetime.now(UTC))
    return Report(as_json=json).result({"removed": removed}, f"{count(removed, 'packet')} removed")


@app.command("export")
@judged
def export_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE|-", help="The file to write, or - for standard output.")
    ],
    url: Url = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Export everything as JSON Lines."""
    report = Report(as_json=json)
    to_output = str(file) == "-"
    if to_output and json:
        raise UsageFault("--json and - both want the output: name a file to export to")
    with opened(url, Where(config), read_only=True) as store:
        if to_output:
            try:
                store.export(sys.stdout.buffer)
                sys.stdout.buffer.flush()
            except BrokenPipeError:
                raise
            except OSError as error:
                raise Unwritable(error.strerror or str(error)) from error
            return DONE
        apart(file, store)
        with replaced(file) as stream:
            packets = store.export(stream)
    return report.result({"exported": packets, "file": str(file)}, f"{count(packets, 'packet')} in {file}")


@app.command("import")
@judged
def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE|-", help="The file to read, or - for standard input.")
    ],
    url: Url = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Import what export wrote.

    Packets that are there already are skipped, so you can repeat it after a failure.
    """
    try:
        stream = sys.stdin.buffer if str(file) == "-" else file.open("rb")
    except OSError as error:
        raise UsageFault(f"{file} can't be read: {error.strerror}") from error
    with stream, opened(url, Where(config), migrate=True) as store:
        try:
            found = store.import_(stream)
        except OSError as error:
            raise UsageFault(
                f"{file} can't be read to its end: {error.strerror}; what came so far is kept"
            ) from error
    said = f"{count(found.packets, 'packet')} imported, {found.there_already:,} there already"
    if found.orphans:
        said += f"; {found.orphans:,} name a parent that had been removed"
    return Report(as_json=json).result({"imported": found._asdict()}, said)


@contextmanager
def opened(
    url: str | None,
    where: Where,
    *,
    journal: str = "",
    migrate: bool = False,
    read_only: bool = False,
) -> Iterator[PacketStore]:
    """The store that the command line, or else the settings, name; of a pool's part, the file of that ``journal``."""
    from council.journal.store import PacketStore
    from council.runtime.journals import part_address, store_address

    if url is None:
        from council.config.settings import MEMORY

        settings = where.loaded().config
        if settings.store == MEMORY:
            raise UsageFault(
                "store = 'memory' keeps nothing on disk: name a store by --url, or in the settings"
            )
        url = store_address(settings, make=migrate)
    part = part_address(url, journal)
    if part is not None and not _holds(url, journal):
        url = part
    with PacketStore.open(url, migrate=migrate, read_only=read_only) as store:
        yield store


def _holds(url: str, journal: str) -> bool:
    """Whether there is a store at ``url``, and it has that journal itself."""
    from council.journal.store import PacketStore
    from council.protocol.errors import StoreOutdated, StoreUnreachable

    try:
        with PacketStore.open(url, read_only=True) as store:
            return bool(store.records(journal, 0, 1))
    except (StoreOutdated, StoreUnreachable):
        return False


def apart(file: Path, store: PacketStore) -> None:
    """Raises UsageFault for a file to be written that is one of the store's own."""
    own = [Path(f"{store.where}{suffix}") for suffix in ("", "-wal", "-shm")]
    if any(each.exists() and file.exists() and each.samefile(file) for each in own):
        raise UsageFault(f"{file} is the store itself, which would be lost: name another")


@contextmanager
def replaced(file: Path) -> Iterator[IO[bytes]]:
    """A new file for its owner alone, that takes its place once it is whole and on disk."""
    try:
        with whole(file) as stream:
            yield stream
    except OSError as error:
        raise UsageFault(f"{file} can't be written: {error.strerror}; name another") from error


def _lines(found: StoreInfo) -> Iterator[tuple[str, str]]:
    yield "store", found.where
    yield "engine", f"{found.engine} {found.version}, revision {found.revision}"
    yield "size", f"{found.bytes_on_disk / 2**20:,.1f} MB"
    yield "packets", f"{found.packets:,}, {found.outside:,} of users, {found.expiring:,} with a ttl"
    for each in found.journals:
        head = (
            f"{count(each.head.position, 'record')}, epoch {each.epoch} of {each.begun_at:%Y-%m-%d %H:%M:%S}Z"
        )
        yield f"journal {each.journal}", f"{head} by {each.by}, hash {each.head.row_hash.hex()}"


def _document(found: StoreInfo) -> dict[str, object]:
    from dataclasses import asdict

    journals = [
        {
            "journal": each.journal,
            "epoch": each.epoch,
            "begun_at": each.begun_at.isoformat(),
            "by": each.by,
            "position": each.head.position,
            "row_hash": each.head.row_hash.hex(),
        }
        for each in found.journals
    ]
    return {**asdict(found), "journals": journals}
