"""Keeping house: whose turn it is to do what one is enough for, and the schedules that have no next fire.

It only widens: programs of older schemas go on, because they know nothing of it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_IDLE = "next_fire_at IS NULL AND paused_at IS NULL AND deleted_at IS NULL AND trigger_kind IN ('cron', 'every', 'at')"


def upgrade() -> None:
    """Make the table of turns, and lay the index of schedules that have no next fire."""
    op.create_table(
        "turn",
        sa.Column("name", _Name, primary_key=True),
        sa.Column("holder", _Name, nullable=False),
        sa.Column("until_at", sa.BigInteger, nullable=False),
    )
    op.create_index("schedule_idle", "schedule", ["uid"], sqlite_where=sa.text(_IDLE), postgresql_where=sa.text(_IDLE))
    op.execute("UPDATE gnomon_meta SET value = '5' WHERE key = 'schema'")
