"""Budgets of the policy: what is spent and reserved within each window, and the reservations of attempts.

It only extends the schema. Programs of older schemas must not go on: they start tasks without asking the budgets.
"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 34

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "budget_window",
        sa.Column("window_id", _Name, primary_key=True),
        sa.Column("ends_at", sa.BigInteger, nullable=False),
        sa.Column("spent", sa.BigInteger, nullable=False),
        sa.Column("reserved", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("budget_window_ends", "budget_window", ["ends_at"])
    op.create_table(
        "budget_reservation",
        sa.Column("task_id", _Name, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("window_id", _Name, primary_key=True),
        sa.Column("meter", sa.Text, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute("UPDATE gnomon_meta SET value = '34' WHERE key IN ('schema', 'min_compatible')")
