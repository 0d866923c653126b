"""An index on the rows of the ledger that stand for several ticks, for calendars.

It only extends the schema. Older programs may go on: they do not use the index.
"""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 42


def upgrade() -> None:
    """Add the index."""
    where = sa.text("count > 1")
    columns = ["uid", "last_at", "planned_at"]
    op.create_index("tick_range", "tick", columns, sqlite_where=where, postgresql_where=where)
    op.execute("UPDATE gnomon_meta SET value = '43' WHERE key = 'schema'")
