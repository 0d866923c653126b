"""Indexes on the ticks of a tenant in order of time, for the ledger of all jobs.

It only extends the schema. Older programs may go on: they do not use the indexes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 45


def upgrade() -> None:
    """Add the indexes."""
    op.create_index("tick_planned", "tick", ["tenant", "planned_at", "uid"])
    where = sa.text("count > 1")
    columns = ["tenant", "planned_at", "uid", "last_at"]
    op.create_index("tick_range_planned", "tick", columns, sqlite_where=where, postgresql_where=where)
    op.execute("UPDATE gnomon_meta SET value = '46' WHERE key = 'schema'")
