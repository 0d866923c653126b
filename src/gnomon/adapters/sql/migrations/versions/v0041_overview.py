"""Indexes on the ticks that are not on time, and on the runs with an error, for the counts of an overview.

A run that failed without an error gets one, so that the index has it. Older programs may go on: they do not
use the indexes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 40


def upgrade() -> None:
    """Add the indexes."""
    where = sa.text("reason <> 'on_time'")
    columns = ["tenant", "reason", "last_at", "planned_at", "count"]
    op.create_index("tick_not_on_time", "tick", columns, sqlite_where=where, postgresql_where=where)
    where = sa.text("error IS NOT NULL")
    columns = ["tenant", "created_at", "run_id"]
    op.execute("UPDATE run SET error = 'no reason was given' WHERE error IS NULL AND status = 'failed'")
    op.create_index("run_with_error", "run", columns, sqlite_where=where, postgresql_where=where)
    op.execute("UPDATE gnomon_meta SET value = '41' WHERE key = 'schema'")
