"""The key that seals cursors, generated once for all processes on the database.

It is stored as a number: programs of an older schema read every entry of the table as one.
"""

import secrets

import sqlalchemy as sa
from alembic import op

from gnomon.adapters.sql.migrator import CURSOR_KEY, CURSOR_KEY_BYTES

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Generate the key."""
    key = int.from_bytes(secrets.token_bytes(CURSOR_KEY_BYTES))
    insert = sa.text("INSERT INTO gnomon_meta (key, value) VALUES (:key, :value)")
    op.execute(insert.bindparams(key=CURSOR_KEY, value=str(key)))
    op.execute("UPDATE gnomon_meta SET value = '11' WHERE key = 'schema'")
