"""Marks that were ahead of the clock and were set back, with the ticks after them that are decided already.

Programs of older schemas would decide these ticks again, which the unique key of ticks refuses. They also fire ticks
that an operator skipped (before 6), write no audit trail (before 7) and accept revoked tokens (before 12). So they are
kept out from here on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 16


def upgrade() -> None:
    """Extend the table of schedules."""
    op.add_column("schedule", sa.Column("mark_correction", sa.Text))
    op.execute("UPDATE gnomon_meta SET value = '16' WHERE key = 'schema'")
    op.execute("UPDATE gnomon_meta SET value = '16' WHERE key = 'min_compatible'")
