"""SQLite finds packets by words that are entered later, in batches, instead of by indexes of the table.

With indexes, each commit of a decision wrote to a page of every index and waited for all of them. PostgreSQL keeps
its indexes.
"""

from alembic import op

from council.journal.words import WORDS

revision = "0003"
down_revision = "0002"

SQLITE = [
    # A packet whose number is not above ``upto`` has its words; every other one is looked through.
    "CREATE TABLE words_entered (one INTEGER PRIMARY KEY CHECK (one = 1), upto INTEGER NOT NULL) STRICT",
    "INSERT INTO words_entered VALUES (1, 0)",
    "CREATE TABLE packet_words (word TEXT NOT NULL, moment TEXT NOT NULL, packet INTEGER NOT NULL, "
    "PRIMARY KEY (word, moment, packet)) STRICT, WITHOUT ROWID",
    # To move the mark is what enters the words, so that the two can't part.
    f"""
    CREATE TRIGGER words_entered_on AFTER UPDATE ON words_entered WHEN NEW.upto > OLD.upto BEGIN
        INSERT OR IGNORE INTO packet_words
            {WORDS.format(union="UNION ALL", which="sequence > OLD.upto AND sequence <= NEW.upto")};
    END
    """,
    "UPDATE words_entered SET upto = (SELECT coalesce(max(sequence), 0) FROM packet_store)",
    "DROP TRIGGER packet_store_written",
    "DROP TRIGGER packet_store_removed",
    "DROP TABLE packet_tags",
    "DROP TABLE packet_parents",
    "DROP INDEX idx_packet_store_packet_type",
    "DROP INDEX idx_packet_store_timestamp",
    "DROP INDEX idx_packet_thread",
    # The number of the last packet is given again once that is removed: the mark steps back to the one before.
    """
    CREATE TRIGGER packet_store_removed AFTER DELETE ON packet_store BEGIN
        DELETE FROM packet_words WHERE packet = OLD.sequence AND moment = OLD."timestamp" AND word IN (
            SELECT 'time' UNION ALL SELECT 'type ' || OLD.packet_type
            UNION ALL SELECT 'thread ' || OLD.thread_id WHERE OLD.thread_id IS NOT NULL
            UNION ALL SELECT 'tag ' || value FROM json_each(OLD.tags)
            UNION ALL SELECT 'parent ' || value FROM json_each(OLD.parent_ids)
        );
        UPDATE words_entered SET upto = (SELECT coalesce(max(sequence), 0) FROM packet_store)
            WHERE upto > (SELECT coalesce(max(sequence), 0) FROM packet_store);
    END
    """,
    "CREATE TRIGGER packet_words_frozen BEFORE UPDATE ON packet_words BEGIN "
    "SELECT RAISE(ABORT, 'packet_words: a row is never changed'); END",
    "CREATE TRIGGER packet_words_kept BEFORE DELETE ON packet_words "
    "WHEN EXISTS (SELECT 1 FROM packet_store WHERE sequence = OLD.packet) BEGIN "
    "SELECT RAISE(ABORT, 'packet_words: a row goes with its packet'); END",
    "CREATE TRIGGER words_entered_kept BEFORE DELETE ON words_entered BEGIN "
    "SELECT RAISE(ABORT, 'words_entered: its row is never removed'); END",
    # INSERT OR REPLACE would remove it without asking the trigger on DELETE.
    "CREATE TRIGGER words_entered_once BEFORE INSERT ON words_entered BEGIN "
    "SELECT RAISE(ABORT, 'words_entered: its row is never added to'); END",
    """
    CREATE TRIGGER words_entered_within BEFORE UPDATE ON words_entered
    WHEN NEW.upto > OLD.upto AND NEW.upto > (SELECT coalesce(max(sequence), 0) FROM packet_store) BEGIN
        SELECT RAISE(ABORT, 'words_entered: never ahead of what is kept');
    END
    """,
]


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        for statement in SQLITE:
            connection.exec_driver_sql(statement)
