"""The progress of agents that run, and the usage of a job.

It only extends the schema. Older programs may go on: they lose the log of an agent with its worker.
"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 29

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the table and the index."""
    op.create_table(
        "agent_log",
        sa.Column("task_id", _Name, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("place", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("agent_usage_of_job", "agent_usage", ["tenant", "job", "at"])
    op.execute("UPDATE gnomon_meta SET value = '30' WHERE key = 'schema'")
