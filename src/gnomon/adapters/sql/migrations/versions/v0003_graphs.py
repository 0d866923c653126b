"""Graphs of steps, with items and runs inside runs; and events with their effects.

It only extends the schema: programs of schema 2 continue, because new columns have defaults or may be null.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_tables = sa.MetaData()


def _partial(name: str, *columns: str, where: str) -> sa.Index:
    condition = sa.text(where)
    return sa.Index(name, *columns, sqlite_where=condition, postgresql_where=condition)


sa.Table(
    "event",
    _tables,
    sa.Column("event_id", _Name, primary_key=True),
    sa.Column("tenant", _Name, nullable=False),
    sa.Column("name", _Name, nullable=False),
    sa.Column("key", sa.Text),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("emitted_at", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Index("event_listed", "tenant", "emitted_at", "event_id"),
    sa.Index("event_of_name", "tenant", "name", "emitted_at", "event_id"),
)

sa.Table(
    "event_entry",
    _tables,
    sa.Column("event_id", _Name, primary_key=True),
    sa.Column("schedule_uid", _Name, primary_key=True),
    sa.Column("schedule_id", _Name, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("run_id", _Name),
    sa.Column("decided_at", sa.BigInteger, nullable=False),
    _partial("event_gathered", "schedule_uid", where="kind = 'gathered'"),
)

sa.Table(
    "gathering",
    _tables,
    sa.Column("schedule_uid", _Name, primary_key=True),
    sa.Column("first_at", sa.BigInteger, nullable=False),
    sa.Column("due_at", sa.BigInteger, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Index("gathering_due", "due_at", "schedule_uid"),
)


def upgrade() -> None:
    """Extend the tables, and create the new tables and the indexes that find steps, items and listeners."""
    _tables.create_all(op.get_bind(), checkfirst=False)
    _add("schedule", sa.Column("trigger_options", sa.Text))
    _add("run", sa.Column("parent_task", _Name), sa.Column("depth", sa.Integer, nullable=False, server_default="0"))
    _add(
        "task",
        sa.Column("parent", _Name),
        sa.Column("item", sa.Integer),
        sa.Column("skipped", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("upstream_failed", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("open_items", sa.Integer, nullable=False, server_default="0"),
        sa.Column("failed_items", sa.Integer, nullable=False, server_default="0"),
        sa.Column("has_input", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    _index("schedule_listening", "schedule", "tenant", "expression", where=_LISTENS)
    _index("run_waited_for", "run", "parent_task", where="parent_task IS NOT NULL AND completed_at IS NULL")
    op.drop_index("task_of_run")
    op.create_index("task_of_run", "task", ["run_id", "parent", "item"])
    _index("task_held", "task", "parent", "item", where="state = 'PENDING' AND wait_reason = 'deps'")
    op.execute("UPDATE gnomon_meta SET value = '3' WHERE key = 'schema'")


_LISTENS = "trigger_kind = 'event' AND deleted_at IS NULL"


def _add(table: str, *columns: sa.Column[object]) -> None:
    for column in columns:
        op.add_column(table, column)


def _index(name: str, table: str, *columns: str, where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, list(columns), sqlite_where=condition, postgresql_where=condition)
