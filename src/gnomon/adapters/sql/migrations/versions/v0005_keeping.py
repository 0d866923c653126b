"""Maintenance: singleton leases (the table `turn`), and an index of schedules without a next fire.

It only extends the schema: programs of older schemas continue, because they do not use it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_IDLE = "next_fire_at IS NULL AND paused_at IS NULL AND deleted_at IS NULL AND trigger_kind IN ('cron', 'every', 'at')"


def upgrade() -> None:
    """Create the table of singleton leases, and the index of schedules without a next fire."""
    op.create_table(
        "turn",
        sa.Column("name", _Name, primary_key=True),
        sa.Column("holder", _Name, nullable=False),
        sa.Column("until_at", sa.BigInteger, nullable=False),
    )
    op.create_index("schedule_idle", "schedule", ["uid"], sqlite_where=sa.text(_IDLE), postgresql_where=sa.text(_IDLE))
    op.execute("UPDATE gnomon_meta SET value = '5' WHERE key = 'schema'")
