"""An index of deleted schedules by name.

It only extends the schema: programs of schema 3 continue, because only an index is new.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the index of deleted schedules."""
    gone = sa.text("deleted_at IS NOT NULL")
    columns = ["tenant", "schedule_id", "deleted_at", "uid"]
    op.create_index("schedule_gone", "schedule", columns, sqlite_where=gone, postgresql_where=gone)
    op.execute("UPDATE gnomon_meta SET value = '4' WHERE key = 'schema'")
