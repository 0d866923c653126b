"""Announcements of runs and ticks, and the numbers of failures in a row on which they depend.

Programs of older schemas would leave out the announcements of the runs that they end, and end runs that wait for
theirs. So they are kept out from here on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 23

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_PENDING = "state = 'pending'"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "announcement",
        sa.Column("announcement_id", _Name, primary_key=True),
        sa.Column("tenant", _Name, nullable=False),
        sa.Column("job", _Name, nullable=False),
        sa.Column("run_id", _Name),
        sa.Column("schedule_uid", _Name),
        sa.Column("planned_at", sa.BigInteger, nullable=False),
        sa.Column("moment", sa.Text, nullable=False),
        sa.Column("channel", _Name, nullable=False),
        sa.Column("recipient", _Name, nullable=False),
        sa.Column("template", sa.Text),
        sa.Column("best_effort", sa.Boolean, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("parts_sent", sa.Integer, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("next_at", sa.BigInteger, nullable=False),
        sa.Column("since_at", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("note", sa.Text),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("claimed_by", _Name),
        sa.Column("claimed_until", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_index("announcement_of_run", "announcement", ["run_id"])
    op.create_index("announcement_listed", "announcement", ["tenant", "created_at", "announcement_id"])
    op.create_index("announcement_of_job", "announcement", ["tenant", "job", "created_at", "announcement_id"])
    _partial_index("announcement_of_tick", "schedule_uid", "planned_at", where="run_id IS NULL")
    _partial_index("announcement_next", "next_at", where=_PENDING)
    _partial_index("announcement_due", "tenant", "channel", "next_at", "announcement_id", where=_PENDING)
    _partial_index("announcement_again", "tenant", "channel", "recipient", "job", where=f"{_PENDING} AND tries > 0")
    op.create_table(
        "failure_streak",
        sa.Column("uid", _Name, primary_key=True),
        sa.Column("failures", sa.Integer, nullable=False),
    )
    op.execute("UPDATE gnomon_meta SET value = '23' WHERE key = 'schema'")
    op.execute("UPDATE gnomon_meta SET value = '23' WHERE key = 'min_compatible'")


def _partial_index(name: str, *columns: str, where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "announcement", list(columns), sqlite_where=condition, postgresql_where=condition)
