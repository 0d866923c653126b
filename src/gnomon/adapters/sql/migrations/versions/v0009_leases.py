"""Singleton leases get a token, which distinguishes one acquisition from the next.

It only extends the schema: programs of an older schema continue to acquire singleton leases.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the column."""
    op.add_column("turn", sa.Column("token", sa.BigInteger, nullable=False, server_default="0"))
    op.execute("UPDATE gnomon_meta SET value = '9' WHERE key = 'schema'")
