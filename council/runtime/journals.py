"""Finds and opens the journal of a council's configuration."""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path

from council.config.human_keys import kept_key, state_dir
from council.config.settings import MEMORY, CouncilConfig
from council.journal.memory import MemoryJournal
from council.journal.record import Journal
from council.kinds.text import council_text
from council.protocol import signing
from council.protocol.errors import (
    JournalHeld,
    OperatorError,
    PoolMismatch,
    StoreError,
    StoreOutdated,
    StoreUnreachable,
)

FILE_NAME = "store.db"


def store_address(config: CouncilConfig, *, make: bool = False) -> str:
    """The address of the packet store: the configured one, or a file of this user; ``make`` creates its folder.

    A part of a pool has its own SQLite file next to that one, because SQLite allows one writer at a time. Raises
    OperatorError.
    """
    address = _store_address(config, make)
    return address if config.pool is None or address.startswith("postgres") else _own(address, config.name)


def _own(address: str, name: str) -> str:
    whole, suffix = os.path.splitext(address)
    return address if whole.endswith(f".{name}") else f"{whole}.{name}{suffix}"


def part_address(address: str, name: str) -> str | None:
    """The file of a pool's part of that name, if there is one next to the store at ``address``.

    Raises CallerError if ``address`` is invalid.
    """
    if address.startswith("postgres") or not re.search(r"\.\d+$", name):
        return None
    from council.journal.address import place

    own, file = _own(address, name), place(_own(address, name))
    return own if own != address and isinstance(file, Path) and file.exists() else None


def _to_write(config: CouncilConfig) -> str:
    """The address of the store that a council will write. Raises PoolMismatch if it is a pool's part alone."""
    address = store_address(config, make=True)
    of_pool = part_address(address, config.name) if config.pool is None else None
    if of_pool is not None:
        raise PoolMismatch(
            f"{config.name} is part of a pool, which keeps its journal in {of_pool}: open the pool "
            "(CouncilPool), or give this council another name or store",
            where=of_pool,
            opened_as=None,
        )
    return address


def _store_address(config: CouncilConfig, make: bool) -> str:
    if config.store not in (None, MEMORY):
        return str(config.store)
    folder = state_dir()
    try:
        if make:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OperatorError(
            f"the state folder {folder} can't be made: {error.strerror}; set XDG_STATE_HOME to a folder of yours, "
            "or set store"
        ) from error
    return str(folder / FILE_NAME)


def with_store_paths(config: CouncilConfig) -> CouncilConfig:
    """The configuration with the addresses of store and checkpoint filled in, as they are found here and now.

    So a journal in a file is in the state folder of the user who launches the council, on the node of the launch.
    Ray's own processes may have another state folder.
    """
    if config.store == MEMORY:
        return config
    address = _to_write(config)
    checkpoint = config.checkpoint or str(checkpoint_file(config, address))
    return config.model_copy(update={"store": address, "checkpoint": checkpoint})


def checkpoint_file(config: CouncilConfig, address: str) -> Path:
    """The file of a journal's newest checkpoint: the configured one, or one for each store and name."""
    if config.checkpoint is not None:
        return Path(config.checkpoint).expanduser()
    from council.journal.address import where_of

    where = where_of(address)  # normalized: a checkpoint must be found under any spelling of the store
    mark = hashlib.sha256(where.encode()).hexdigest()[:12]
    return state_dir() / "journals" / f"{config.name}.{mark}.checkpoint"


def council_id_of(config: CouncilConfig, new_id: str) -> str:
    """The id of the council in this configuration's journal, or ``new_id`` if there is no journal yet.

    Raises StoreError.
    """
    if config.store == MEMORY:
        return new_id
    from council.journal.store import PacketStore
    from council.journal.writer import identity

    address = _to_write(config)
    try:
        store = PacketStore.open(address, read_only=True)
    except StoreUnreachable:
        return new_id  # no journal yet; if the store can't be reached, opening it for writing raises
    except StoreOutdated:
        store = PacketStore.open(address)
    with store:
        return identity(store, config.name) or new_id


def refuse_held(config: CouncilConfig) -> None:
    """Raises JournalHeld if another process writes this configuration's journal, in a store that is a file here.

    So it is found before Ray is started. A council that is just ending has a second to let go.
    """
    if config.store == MEMORY or _to_write(config).startswith("postgres"):
        return
    from council.journal import hold
    from council.journal.store import PacketStore

    try:
        store = PacketStore.open(_to_write(config), read_only=True)
    except StoreError:
        return  # no journal yet; opening it for writing reports any other error
    with store:
        for left in reversed(range(hold.ATTEMPTS)):
            try:
                with hold.held(store.database, config.name, takeover=False):
                    return
            except JournalHeld:
                if not left:
                    raise
                time.sleep(hold.PAUSE_S)


def journal_key(name: str) -> bytes:
    """The key that signs the checkpoints of the journal of that name. Raises OperatorError."""
    from council.journal import checkpoint

    return checkpoint.journal_key(name)


def sender_key(config: CouncilConfig, sender: str | None) -> bytes | None:
    """The stored key of the client of that name, while the journal knows the name; None for other clients.

    Raises ConfigError if ``sender`` is not a valid name, and OperatorError as ``kept_key`` does.
    """
    if not sender or config.store == MEMORY:
        return None
    signing.check_name(sender)  # it becomes a file name, and must not lead out of the folder
    path = state_dir() / "journals" / f"{config.name}.senders" / f"{sender}.key"
    return kept_key(
        path, f"the sender {sender}", ", or give key=", anew="put back the one it had, or give key="
    )


def open_journal(config: CouncilConfig, council_id: str, key: bytes, *, takeover: bool = False) -> Journal:
    """Opens the journal for writing by the council of ``council_id``; ``key`` signs its checkpoints.

    Raises StoreError of each kind, JournalHeld while another live coordinator writes it, and OperatorError if it
    belongs to another council.
    """
    if config.store == MEMORY:
        return MemoryJournal(config.events_kept)
    from council.journal.store import PacketStore
    from council.journal.writer import DurableJournal, identity

    store = PacketStore.open(_to_write(config))
    try:
        found = identity(store, config.name)
        if found not in (None, council_id):  # checked first, because a new epoch would shut out that council
            raise _of_another(config.name, store.where, found)
    except BaseException:
        store.close()
        raise
    journal = DurableJournal.open(
        store,
        config.name,
        council_id,
        key,
        checkpoint=checkpoint_file(config, store.where),
        takeover=takeover,
    )
    if journal.council_id != council_id:
        journal.close_now()
        raise _of_another(config.name, store.where, journal.council_id)
    return journal


def _of_another(name: str, where: str, council_id: str) -> OperatorError:
    return OperatorError(
        f"the journal {name} in {where} is of {council_text(council_id)}, begun just now by somebody else: "
        "launch again"
    )
