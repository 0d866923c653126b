"""The usage of agents.

It only extends the schema. Older programs may go on: they run no agents, and write no usage.
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 26

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "agent_usage",
        sa.Column("task_id", _Name, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("run_id", _Name, nullable=False),
        sa.Column("tenant", _Name, nullable=False),
        sa.Column("job", _Name, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("cost_micros", sa.BigInteger, nullable=False),
        sa.Column("tool_calls", sa.BigInteger, nullable=False),
        sa.Column("actions", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("agent_usage_of_tenant", "agent_usage", ["tenant", "at"])
    op.create_index("agent_usage_of_run", "agent_usage", ["run_id"])
    op.execute("UPDATE gnomon_meta SET value = '27' WHERE key = 'schema'")
