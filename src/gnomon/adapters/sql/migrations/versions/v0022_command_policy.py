"""Approvals of definitions, and the actions that count towards hourly budgets.

It only extends the schema. Programs of older schemas must not go on: they admit commands that the policy refuses, and
count none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 22

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_STANDING = "revoked_at IS NULL"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "approval",
        sa.Column("approval_id", _Name, primary_key=True),
        sa.Column("tenant", _Name, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", _Name, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("granted_by", _Name, nullable=False),
        sa.Column("granted_at", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("revoked_at", sa.BigInteger),
        sa.Column("revoked_by", _Name),
    )
    where = sa.text(_STANDING)
    op.create_index(
        "approval_standing",
        "approval",
        ["tenant", "kind", "subject", "digest"],
        unique=True,
        sqlite_where=where,
        postgresql_where=where,
    )
    op.create_table(
        "action",
        sa.Column("action_id", _Name, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tenant", _Name, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("action_of_tenant", "action", ["tenant", "at"])
    op.execute("UPDATE gnomon_meta SET value = '22' WHERE key IN ('schema', 'min_compatible')")
