"""The environment that Alembic runs. The caller provides the connection and its transaction."""

from alembic import context

from gnomon.adapters.sql.postgres_schema import VERSION_TABLE
from gnomon.adapters.sql.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    version_table_schema=context.config.attributes["schema"],
    # SQLite cannot alter a column: the table is copied instead.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
