"""An index on the runs that are being rolled back.

It only extends the schema. Older programs may go on: they do not use the index.
"""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 36


def upgrade() -> None:
    """Add the index."""
    where = sa.text("rollback = 'running'")
    op.create_index("run_rolling_back", "run", ["run_id"], sqlite_where=where, postgresql_where=where)
    op.execute("UPDATE gnomon_meta SET value = '37' WHERE key = 'schema'")
