"""Issued and revoked tokens.

It only extends the schema: programs of older schemas continue, and accept revoked tokens.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_REVOKED = "revoked_at IS NOT NULL"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "token",
        sa.Column("tenant", _Name, primary_key=True),
        sa.Column("token_id", _Name, primary_key=True),
        sa.Column("subject", _Name, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("issued_at", sa.BigInteger),
        sa.Column("issued_by", _Name, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger),
        sa.Column("revoked_by", _Name, nullable=False),
        sqlite_with_rowid=False,
    )
    where = sa.text(_REVOKED)
    op.create_index("token_revoked", "token", ["revoked_at"], sqlite_where=where, postgresql_where=where)
    op.create_table(
        "token_cutoff",
        sa.Column("tenant", _Name, primary_key=True),
        sa.Column("issued_before", sa.BigInteger, nullable=False),
    )
    op.execute("UPDATE gnomon_meta SET value = '12' WHERE key = 'schema'")
