"""Codes that sign a browser in to the dashboard.

It only extends the schema. Older programs may go on: they issue no codes, and accept none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 42

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "sign_in_code",
        sa.Column("tenant", _Name, primary_key=True),
        sa.Column("subject", _Name, primary_key=True),
        sa.Column("digest", _Name, nullable=False),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )
    op.create_index("sign_in_code_of_digest", "sign_in_code", ["digest"], unique=True)
    op.execute("UPDATE gnomon_meta SET value = '44' WHERE key = 'schema'")
