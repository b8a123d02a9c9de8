"""The first schema: packet_store, epochs, and the triggers that prevent changes of them (rules 4.1).

Each engine has SQL of its own, because triggers have no common form. A released migration is never edited.
"""

from alembic import op

revision = "0001"
down_revision = None

# All of these columns are given, or none: a packet stands in a journal, or outside.
_PLACED = """
    CONSTRAINT placed CHECK (
        (journal IS NULL AND position IS NULL AND epoch IS NULL AND previous_hash IS NULL AND row_hash IS NULL)
        OR (
            journal IS NOT NULL AND position IS NOT NULL AND position > 0 AND epoch IS NOT NULL
            AND previous_hash IS NOT NULL AND length(previous_hash) = 32
            AND row_hash IS NOT NULL AND length(row_hash) = 32
            AND ttl IS NULL
        )
    ),
    CONSTRAINT hashed CHECK (length(content_hash) = 32),
    CONSTRAINT packet_store_place UNIQUE (journal, position),
    FOREIGN KEY (journal, epoch) REFERENCES epochs (journal, epoch)
"""

SQLITE = [
    "PRAGMA application_id = 1129202508",  # CNCL
    """
    CREATE TABLE epochs (
        journal TEXT NOT NULL,
        epoch INTEGER NOT NULL CHECK (epoch > 0),
        begun_at TEXT NOT NULL,
        "by" TEXT NOT NULL,
        PRIMARY KEY (journal, epoch)
    ) STRICT, WITHOUT ROWID
    """,
    f"""
    CREATE TABLE packet_store (
        sequence INTEGER PRIMARY KEY CHECK (sequence > 0),
        packet_id TEXT NOT NULL UNIQUE CHECK (length(packet_id) = 36),
        packet_type TEXT NOT NULL,
        envelope TEXT GENERATED ALWAYS AS (CAST(content AS TEXT)) VIRTUAL,
        "timestamp" TEXT NOT NULL CHECK (length("timestamp") = 27),
        routing TEXT,
        provenance TEXT,
        thread_id TEXT,
        parent_ids TEXT NOT NULL,
        tags TEXT NOT NULL,
        ttl TEXT CHECK (length(ttl) = 27),
        content BLOB NOT NULL,
        content_hash BLOB NOT NULL,
        journal TEXT,
        position INTEGER,
        epoch INTEGER,
        previous_hash BLOB,
        row_hash BLOB,
        {_PLACED}
    ) STRICT
    """,
    'CREATE INDEX idx_packet_store_packet_type ON packet_store (packet_type, "timestamp")',
    'CREATE INDEX idx_packet_store_timestamp ON packet_store ("timestamp" DESC)',
    'CREATE INDEX idx_packet_thread ON packet_store (thread_id, "timestamp") WHERE thread_id IS NOT NULL',
    "CREATE INDEX idx_packet_ttl ON packet_store (ttl) WHERE ttl IS NOT NULL",
    # What GIN indexes on tags and parent_ids are in PostgreSQL; the triggers alone write them.
    "CREATE TABLE packet_tags (tag TEXT NOT NULL, packet INTEGER NOT NULL, PRIMARY KEY (tag, packet)) "
    "STRICT, WITHOUT ROWID",
    "CREATE TABLE packet_parents (parent TEXT NOT NULL, packet INTEGER NOT NULL, PRIMARY KEY (parent, packet)) "
    "STRICT, WITHOUT ROWID",
    """
    CREATE TRIGGER packet_store_written AFTER INSERT ON packet_store
    WHEN NEW.tags <> '[]' OR NEW.parent_ids <> '[]' BEGIN
        INSERT OR IGNORE INTO packet_tags SELECT value, NEW.sequence FROM json_each(NEW.tags);
        INSERT OR IGNORE INTO packet_parents SELECT value, NEW.sequence FROM json_each(NEW.parent_ids);
    END
    """,
    """
    CREATE TRIGGER packet_store_removed AFTER DELETE ON packet_store BEGIN
        DELETE FROM packet_tags
            WHERE packet = OLD.sequence AND tag IN (SELECT value FROM json_each(OLD.tags));
        DELETE FROM packet_parents
            WHERE packet = OLD.sequence AND parent IN (SELECT value FROM json_each(OLD.parent_ids));
    END
    """,
    """
    CREATE TRIGGER packet_store_kept BEFORE DELETE ON packet_store
    WHEN OLD.journal IS NOT NULL OR OLD.ttl IS NULL OR OLD.ttl > strftime('%Y-%m-%dT%H:%M:%f', 'now') BEGIN
        SELECT RAISE(ABORT, 'packet_store: only a packet of no journal, whose ttl has passed, is removed');
    END
    """,
    # INSERT OR REPLACE would remove the old row without asking the trigger on DELETE.
    """
    CREATE TRIGGER packet_store_once BEFORE INSERT ON packet_store
    WHEN EXISTS (SELECT 1 FROM packet_store WHERE packet_id = NEW.packet_id)
        OR EXISTS (SELECT 1 FROM packet_store WHERE sequence = NEW.sequence)
        OR EXISTS (SELECT 1 FROM packet_store WHERE journal = NEW.journal AND position = NEW.position) BEGIN
        SELECT RAISE(ABORT, 'UNIQUE constraint failed: packet_store is never overwritten');
    END
    """,
    """
    CREATE TRIGGER epochs_follow BEFORE INSERT ON epochs
    WHEN NEW.epoch <> 1 + coalesce((SELECT max(epoch) FROM epochs WHERE journal = NEW.journal), 0) BEGIN
        SELECT RAISE(ABORT, 'epochs: an epoch follows the newest of its journal');
    END
    """,
    "CREATE TRIGGER epochs_kept BEFORE DELETE ON epochs BEGIN "
    "SELECT RAISE(ABORT, 'epochs: a row is never removed'); END",
    *(
        f"CREATE TRIGGER {table}_frozen BEFORE UPDATE ON {table} BEGIN "
        f"SELECT RAISE(ABORT, '{table}: a row is never changed'); END"
        for table in ("packet_store", "epochs", "packet_tags", "packet_parents")
    ),
    *(
        f"CREATE TRIGGER {table}_kept BEFORE DELETE ON {table} "
        "WHEN EXISTS (SELECT 1 FROM packet_store WHERE sequence = OLD.packet) BEGIN "
        f"SELECT RAISE(ABORT, '{table}: a row goes with its packet'); END"
        for table in ("packet_tags", "packet_parents")
    ),
]

POSTGRESQL = [
    """
    CREATE TABLE epochs (
        journal TEXT NOT NULL,
        epoch BIGINT NOT NULL CHECK (epoch > 0),
        begun_at TIMESTAMPTZ NOT NULL,
        by TEXT NOT NULL,
        PRIMARY KEY (journal, epoch)
    )
    """,
    f"""
    CREATE TABLE packet_store (
        packet_id UUID PRIMARY KEY,
        packet_type TEXT NOT NULL,
        envelope JSONB NOT NULL,
        "timestamp" TIMESTAMPTZ NOT NULL,
        routing JSONB,
        provenance JSONB,
        thread_id UUID,
        parent_ids UUID[] NOT NULL,
        tags TEXT[] NOT NULL,
        ttl TIMESTAMP,
        sequence BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
        content BYTEA NOT NULL,
        content_hash BYTEA NOT NULL,
        journal TEXT,
        position BIGINT,
        epoch BIGINT,
        previous_hash BYTEA,
        row_hash BYTEA,
        {_PLACED}
    )
    """,
    "CREATE INDEX idx_packet_store_packet_type ON packet_store (packet_type)",
    'CREATE INDEX idx_packet_store_timestamp ON packet_store ("timestamp" DESC)',
    "CREATE INDEX idx_packet_thread ON packet_store (thread_id)",
    "CREATE INDEX idx_packet_lineage ON packet_store USING GIN (parent_ids)",
    "CREATE INDEX idx_packet_tags ON packet_store USING GIN (tags)",
    "CREATE INDEX idx_packet_ttl ON packet_store (ttl) WHERE ttl IS NOT NULL",
    """
    CREATE FUNCTION council_kept() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION USING ERRCODE = 'restrict_violation', MESSAGE = TG_TABLE_NAME
            || ': a row is never changed; only a packet of no journal, whose ttl has passed, is removed';
    END
    $$
    """,
    """
    CREATE FUNCTION council_follows() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.epoch <> 1 + coalesce((SELECT max(epoch) FROM epochs WHERE journal = NEW.journal), 0) THEN
            RAISE EXCEPTION 'epochs: an epoch follows the newest of its journal'
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END
    $$
    """,
    # What a generated column would be, were the conversion from bytes declared immutable.
    """
    CREATE FUNCTION council_envelope() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.envelope := convert_from(NEW.content, 'UTF8')::jsonb;
        RETURN NEW;
    END
    $$
    """,
    "CREATE TRIGGER packet_store_written BEFORE INSERT ON packet_store "
    "FOR EACH ROW EXECUTE FUNCTION council_envelope()",
    "CREATE TRIGGER packet_store_frozen BEFORE UPDATE ON packet_store "
    "FOR EACH ROW EXECUTE FUNCTION council_kept()",
    """
    CREATE TRIGGER packet_store_kept BEFORE DELETE ON packet_store FOR EACH ROW
    WHEN (OLD.journal IS NOT NULL OR OLD.ttl IS NULL OR OLD.ttl > clock_timestamp() AT TIME ZONE 'UTC')
    EXECUTE FUNCTION council_kept()
    """,
    "CREATE TRIGGER epochs_frozen BEFORE UPDATE OR DELETE ON epochs "
    "FOR EACH ROW EXECUTE FUNCTION council_kept()",
    "CREATE TRIGGER epochs_follow BEFORE INSERT ON epochs FOR EACH ROW EXECUTE FUNCTION council_follows()",
    *(
        f"CREATE TRIGGER {table}_whole BEFORE TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION council_kept()"
        for table in ("packet_store", "epochs")
    ),
    # Also in a session that plays a replica, which would otherwise pass every trigger by.
    *(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_frozen" for table in ("packet_store", "epochs")),
    *(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_whole" for table in ("packet_store", "epochs")),
    *(f"ALTER TABLE packet_store ENABLE ALWAYS TRIGGER packet_store_{each}" for each in ("kept", "written")),
]


def upgrade() -> None:
    connection = op.get_bind()
    for statement in SQLITE if connection.dialect.name == "sqlite" else POSTGRESQL:
        connection.exec_driver_sql(statement)
