"""Deadlines of runs and tasks.

It only extends the schema. Older programs may go on: they give no deadlines, and newer ones keep those that there are.
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 29

_LIMITED = "deadline_at IS NOT NULL AND state IN ('PENDING', 'APPROVAL_REQUIRED', 'SCHEDULED', 'DISPATCHED', 'RUNNING')"


def upgrade() -> None:
    """Add the columns and the index."""
    op.add_column("schedule", sa.Column("deadlines", sa.Text))
    op.add_column("run", sa.Column("deadline_at", sa.BigInteger))
    op.add_column("task", sa.Column("deadline_at", sa.BigInteger))
    where = sa.text(_LIMITED)
    op.create_index("task_limited", "task", ["deadline_at", "task_id"], sqlite_where=where, postgresql_where=where)
    op.execute("UPDATE gnomon_meta SET value = '32' WHERE key = 'schema'")
