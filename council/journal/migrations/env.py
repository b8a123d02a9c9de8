"""Migrates a store, run by alembic: on the connection, and within the transaction, that it is handed."""

from alembic import context

from council.journal.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"], version_table=VERSION_TABLE, transactional_ddl=True
)
with context.begin_transaction():
    context.run_migrations()
