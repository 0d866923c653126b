"""Circuit breakers.

It only extends the schema. Programs of older schemas must not go on: they start tasks that a breaker holds, and cannot
read why those wait.
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 29

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "breaker",
        sa.Column("tenant", _Name, primary_key=True),
        sa.Column("name", _Name, primary_key=True),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("open_until", sa.BigInteger),
        sa.Column("successes", sa.Integer, nullable=False),
        sa.Column("probes", sa.Text, nullable=False),
        sa.Column("definitions", sa.Text, nullable=False),
        sa.Column("opened_by", sa.Text, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute("UPDATE gnomon_meta SET value = '29' WHERE key IN ('schema', 'min_compatible')")
