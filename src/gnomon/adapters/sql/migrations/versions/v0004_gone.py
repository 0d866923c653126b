"""Schedules that were deleted are found by their names.

It only widens: programs of schema 3 go on, because nothing but an index is new.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Lay the index by which schedules are found that had a name and are gone."""
    gone = sa.text("deleted_at IS NOT NULL")
    columns = ["tenant", "schedule_id", "deleted_at", "uid"]
    op.create_index("schedule_gone", "schedule", columns, sqlite_where=gone, postgresql_where=gone)
    op.execute("UPDATE gnomon_meta SET value = '4' WHERE key = 'schema'")
