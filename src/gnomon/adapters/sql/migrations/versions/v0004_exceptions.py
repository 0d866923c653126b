"""Exceptions: ticks that are skipped or moved.

It only widens: programs of schema 3 go on, because what is new may be missing. They do not know of exceptions yet, and
fire a tick that is to be skipped.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Widen the schedules."""
    op.add_column("schedule", sa.Column("exceptions", sa.Text))
    op.execute("UPDATE gnomon_meta SET value = '4' WHERE key = 'schema'")
