"""Exceptions (ticks that are skipped or moved) and backfills (past times that are run after all).

It only extends the schema: programs of schema 3 continue, because new columns may be null. They do not know exceptions,
and fire a tick that should be skipped.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_OPEN = sa.text("ended_at IS NULL")
_tables = sa.MetaData()

sa.Table(
    "backfill",
    _tables,
    sa.Column("backfill_id", _Name, primary_key=True),
    sa.Column("tenant", _Name, nullable=False),
    sa.Column("schedule_uid", _Name, nullable=False),
    sa.Column("schedule_id", _Name, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("from_at", sa.BigInteger, nullable=False),
    sa.Column("until_at", sa.BigInteger, nullable=False),
    sa.Column("max_parallel", sa.Integer, nullable=False),
    sa.Column("again", sa.Boolean, nullable=False),
    sa.Column("planned", sa.Integer, nullable=False),
    sa.Column("mark_at", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("cancelled", sa.Boolean, nullable=False),
    sa.Index("backfill_open", "backfill_id", sqlite_where=_OPEN, postgresql_where=_OPEN),
    sa.Index("backfill_listed", "tenant", "created_at", "backfill_id"),
)

sa.Table(
    "backfill_tick",
    _tables,
    sa.Column("backfill_id", _Name, primary_key=True),
    sa.Column("planned_at", sa.BigInteger, primary_key=True),
    sa.Column("schedule_uid", _Name, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("run_id", _Name),
    sa.Column("decided_at", sa.BigInteger, nullable=False),
    sa.Index("backfill_tick_of_schedule", "schedule_uid", "planned_at"),
)


def upgrade() -> None:
    """Extend the table of schedules, and create the tables of backfills."""
    op.add_column("schedule", sa.Column("exceptions", sa.Text))
    _tables.create_all(op.get_bind(), checkfirst=False)
    op.execute("UPDATE gnomon_meta SET value = '6' WHERE key = 'schema'")
