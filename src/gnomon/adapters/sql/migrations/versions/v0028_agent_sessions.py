"""The sessions of agents.

It only extends the schema. Older programs may go on: they start no run in a session, since they know no sessions.
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 26

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "agent_session",
        sa.Column("tenant", _Name, primary_key=True),
        sa.Column("session", _Name, primary_key=True),
        sa.Column("task_id", _Name, nullable=False),
        sa.Column("held_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "agent_turn",
        sa.Column("tenant", _Name, primary_key=True),
        sa.Column("session", _Name, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("task_id", _Name, nullable=False),
        sa.Column("run_id", _Name, nullable=False),
        sa.Column("job", _Name, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("agent_turn_of_task", "agent_turn", ["tenant", "session", "task_id"], unique=True)
    op.execute("UPDATE gnomon_meta SET value = '28' WHERE key = 'schema'")
