"""Turns have tokens, by which leases are told apart.

It only widens: programs of an older schema go on taking turns.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the column."""
    op.add_column("turn", sa.Column("token", sa.BigInteger, nullable=False, server_default="0"))
    op.execute("UPDATE gnomon_meta SET value = '9' WHERE key = 'schema'")
