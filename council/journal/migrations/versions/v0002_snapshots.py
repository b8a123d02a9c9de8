"""Snapshots of a council's state, beside the journal that they are taken from."""

from alembic import op

revision = "0002"
down_revision = "0001"

SQLITE = """
    CREATE TABLE snapshots (
        journal TEXT NOT NULL,
        position INTEGER NOT NULL CHECK (position > 0),
        part TEXT NOT NULL CHECK (part IN ('base', 'more')),
        content BLOB NOT NULL,
        PRIMARY KEY (journal, position, part)
    ) STRICT
"""
POSTGRESQL = """
    CREATE TABLE snapshots (
        journal TEXT NOT NULL,
        position BIGINT NOT NULL CHECK (position > 0),
        part TEXT NOT NULL CHECK (part IN ('base', 'more')),
        content BYTEA NOT NULL,
        PRIMARY KEY (journal, position, part)
    )
"""


def upgrade() -> None:
    connection = op.get_bind()
    connection.exec_driver_sql(SQLITE if connection.dialect.name == "sqlite" else POSTGRESQL)
