"""Execution: attempts, dead letters, workers, logs of tasks, and the columns of runs and tasks for them.

It only extends the schema: programs of schema 1 continue, because new columns have defaults or may be null. The table
of attempts is created anew, because no program of schema 1 has written or read it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_tables = sa.MetaData()
_NOT_OVER = "completed_at IS NULL"


def _partial(name: str, *columns: str, where: str) -> sa.Index:
    condition = sa.text(where)
    return sa.Index(name, *columns, sqlite_where=condition, postgresql_where=condition)


sa.Table(
    "attempt",
    _tables,
    sa.Column("task_id", _Name, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("worker", _Name, nullable=False),
    sa.Column("lease_until", sa.BigInteger, nullable=False),
    sa.Column("dispatched_at", sa.BigInteger, nullable=False),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("result", sa.Text),
    sa.Column("error", sa.Text),
    _partial("attempt_open", "task_id", where="ended_at IS NULL"),
    sqlite_with_rowid=False,
)

sa.Table(
    "task_log",
    _tables,
    sa.Column("task_id", _Name, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("level", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)

sa.Table(
    "dead_letter",
    _tables,
    sa.Column("dead_letter_id", _Name, primary_key=True),
    sa.Column("tenant", _Name, nullable=False),
    sa.Column("job", _Name, nullable=False),
    sa.Column("run_id", _Name, nullable=False),
    sa.Column("task_id", _Name, nullable=False),
    sa.Column("step", _Name, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("last_error", sa.Text),
    sa.Column("input", sa.LargeBinary),
    sa.Column("first_attempt_at", sa.BigInteger, nullable=False),
    sa.Column("last_attempt_at", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("resolved_at", sa.BigInteger),
    sa.Column("resolved_by", sa.Text),
    sa.Column("replayed_by", _Name),
    sa.Index("dead_letter_listed", "tenant", "dead_letter_id"),
    sa.Index("dead_letter_of_job", "tenant", "job", "dead_letter_id"),
    _partial("dead_letter_unresolved", "tenant", "dead_letter_id", where="resolved_at IS NULL"),
)

sa.Table(
    "worker",
    _tables,
    sa.Column("worker", _Name, primary_key=True),
    sa.Column("pool", _Name, nullable=False),
    sa.Column("functions", sa.Text, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("started_at", sa.BigInteger, nullable=False),
    sa.Column("seen_until", sa.BigInteger, nullable=False),
)


def upgrade() -> None:
    """Extend the tables, and create the new tables and the indexes that find work."""
    op.drop_table("attempt")
    _tables.create_all(op.get_bind(), checkfirst=False)
    _add("schedule", sa.Column("delete_after_run", sa.Boolean, nullable=False, server_default=sa.false()))
    _add(
        "run",
        sa.Column("started_at", sa.BigInteger),
        sa.Column("error", sa.Text),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("replay_of", _Name),
    )
    _add(
        "task",
        sa.Column("losses", sa.Integer, nullable=False, server_default="0"),
        sa.Column("routings", sa.Integer, nullable=False, server_default="0"),
        sa.Column("note", sa.Text),
    )
    op.drop_index("run_of_schedule")
    op.create_index("run_of_schedule", "run", ["schedule_uid", "planned_at", "run_id"])
    op.drop_index("run_not_over")
    _index("run_not_over", "run", "schedule_uid", "planned_at", where=_NOT_OVER)
    _index("run_queued", "run", "schedule_uid", "planned_at", "run_id", where="queued")
    _index("run_to_stop", "run", "run_id", where=f"cancel_requested_at IS NOT NULL AND {_NOT_OVER}")
    op.create_index("run_listed", "run", ["tenant", "created_at", "run_id"])
    op.create_index("run_of_job", "run", ["tenant", "schedule_id", "created_at", "run_id"])
    op.drop_index("task_waiting")
    waits = "state = 'PENDING' AND wait_reason NOT IN ('deps', 'queue')"
    _index("task_waiting", "task", "available_at", "task_id", where=waits)
    _index("task_scheduled", "task", "available_at", "task_id", where="state = 'SCHEDULED'")
    op.execute("UPDATE gnomon_meta SET value = '2' WHERE key = 'schema'")


def _add(table: str, *columns: sa.Column[object]) -> None:
    for column in columns:
        op.add_column(table, column)


def _index(name: str, table: str, *columns: str, where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, list(columns), sqlite_where=condition, postgresql_where=condition)
