"""Schedules know until when their overdue ticks are spread, and up to which time retention has removed ticks that ran.

It only extends the schema: programs of older schemas spread the ticks that they decide over a time of their own, and do
not note which ticks they remove.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 23


def upgrade() -> None:
    """Add the columns."""
    op.add_column("schedule", sa.Column("spread_until", sa.BigInteger))
    op.add_column("schedule", sa.Column("ticks_removed_until", sa.BigInteger))
    op.execute("UPDATE gnomon_meta SET value = '24' WHERE key = 'schema'")
