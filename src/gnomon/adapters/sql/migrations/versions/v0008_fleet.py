"""Remote workers: the labels, capabilities and load of each worker, and the placement of tasks.

It only extends the schema: programs of an older schema continue, but they ignore the placement of tasks.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SCHEDULED = "state = 'SCHEDULED'"


def upgrade() -> None:
    """Extend the tables of workers and tasks, and create the indexes by which a worker finds its tasks."""
    for column in (
        sa.Column("labels", sa.Text, nullable=False, server_default="{}"),
        sa.Column("capabilities", sa.Text, nullable=False, server_default="[]"),
        sa.Column("in_hand", sa.Integer, nullable=False, server_default="0"),
        sa.Column("cpu", sa.Integer),
        sa.Column("gpu", sa.Integer),
        sa.Column("draining", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("seen_at", sa.BigInteger, nullable=False, server_default="0"),
    ):
        op.add_column("worker", column)
    for column in (
        sa.Column("pool", _Name),
        sa.Column("rank", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("directed_to", _Name),
        sa.Column("function", _Name),
    ):
        op.add_column("task", column)
    op.drop_index("task_scheduled")
    _index("task_scheduled", "pool", "rank", "available_at", "task_id", where=_SCHEDULED)
    choosy = f"{_SCHEDULED} AND (directed_to IS NOT NULL OR function IS NOT NULL)"
    _index("task_choosy", "directed_to", "function", "pool", where=choosy)
    op.execute("UPDATE gnomon_meta SET value = '8' WHERE key = 'schema'")


def _index(name: str, *columns: str, where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "task", list(columns), sqlite_where=condition, postgresql_where=condition)
