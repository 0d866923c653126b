"""Sums of ticks by schedule, day and quarter of an hour, for calendars.

Older programs may not go on: they would remove ticks, and leave them in the sums.
"""

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 45

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the sums of days, and how far each schedule is summed up."""
    op.create_table(
        "tick_day",
        sa.Column("uid", _Name, primary_key=True),
        sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("open", sa.Boolean, nullable=False),
        sa.Column("sums", sa.Text, nullable=False),
    )
    where = sa.text("open")
    op.create_index("tick_day_open", "tick_day", ["uid", "day"], sqlite_where=where, postgresql_where=where)
    op.create_table(
        "tick_summed",
        sa.Column("uid", _Name, primary_key=True),
        sa.Column("until_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute("UPDATE gnomon_meta SET value = '45' WHERE key IN ('schema', 'min_compatible')")
