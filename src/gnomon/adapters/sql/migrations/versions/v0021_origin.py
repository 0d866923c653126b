"""Schedules know where their definition comes from, and whether that still declares them.

It only extends the schema: the schedules that programs of older schemas register have an unknown origin.
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 16


def upgrade() -> None:
    """Add the columns."""
    op.add_column("schedule", sa.Column("origin", sa.Text, nullable=False, server_default=""))
    op.add_column("schedule", sa.Column("orphaned", sa.Boolean, nullable=False, server_default=sa.false()))
    op.execute("UPDATE gnomon_meta SET value = '21' WHERE key = 'schema'")
