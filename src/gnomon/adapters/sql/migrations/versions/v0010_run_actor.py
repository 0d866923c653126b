"""Runs record the caller that requested them, apart from the user on whose behalf they run.

It only extends the schema: programs of older schemas leave the column empty.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column."""
    op.add_column("run", sa.Column("actor", _Name))
    op.execute("UPDATE gnomon_meta SET value = '10' WHERE key = 'schema'")
