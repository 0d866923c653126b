"""Tasks record since when no worker can take them, and processes without metrics leave what they commit to be counted.

It only extends the schema. Programs of older schemas do not set the time, and leave nothing: a server of this schema
does not count the commits of their workers.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_UNROUTABLE = "state = 'PENDING' AND wait_reason = 'route' AND unroutable_since IS NOT NULL"


def upgrade() -> None:
    """Add the column with its index, and the table."""
    op.add_column("task", sa.Column("unroutable_since", sa.BigInteger))
    condition = sa.text(_UNROUTABLE)
    columns = ["unroutable_since", "task_id"]
    op.create_index("task_unroutable", "task", columns, sqlite_where=condition, postgresql_where=condition)
    op.create_table(
        "metrics_outbox",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("changes", sa.LargeBinary, nullable=False),
    )
    op.execute("UPDATE gnomon_meta SET value = '15' WHERE key = 'schema'")
