"""The signed end of the audit trail.

It only extends the schema: programs of older schemas seal entries without a checkpoint.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "audit_checkpoint",
        sa.Column("kid", _Name, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("signature", sa.Text, nullable=False),
    )
    op.execute("UPDATE gnomon_meta SET value = '14' WHERE key = 'schema'")
