"""The ledger: schedules, ticks, runs, tasks, shards and nodes.

The tables as they were in this schema, not as they are now.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_SHARDS = 256
_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_tables = sa.MetaData()


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> sa.Index:
    condition = sa.text(where)
    return sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


sa.Table(
    "schedule",
    _tables,
    sa.Column("uid", _Name, primary_key=True),
    sa.Column("tenant", _Name, nullable=False),
    sa.Column("schedule_id", _Name, nullable=False),
    sa.Column("trigger_kind", sa.Text, nullable=False),
    sa.Column("expression", sa.Text),
    sa.Column("timezone", sa.Text),
    sa.Column("dialect", sa.Text),
    sa.Column("dst_gap", sa.Text),
    sa.Column("dst_fold", sa.Text),
    sa.Column("period_ms", sa.BigInteger),
    sa.Column("anchor_at", sa.BigInteger),
    sa.Column("at_at", sa.BigInteger),
    sa.Column("workflow_id", _Name, nullable=False),
    sa.Column("workflow_version", sa.Integer, nullable=False),
    sa.Column("user_id", _Name, nullable=False),
    sa.Column("first_steps", sa.Text, nullable=False),
    sa.Column("start_at", sa.BigInteger),
    sa.Column("end_at", sa.BigInteger),
    sa.Column("overlap", sa.Text, nullable=False),
    sa.Column("catchup", sa.Text, nullable=False),
    sa.Column("jitter_ms", sa.BigInteger, nullable=False),
    sa.Column("misfire_grace_ms", sa.BigInteger, nullable=False),
    sa.Column("catchup_window_ms", sa.BigInteger, nullable=False),
    sa.Column("catchup_cap", sa.Integer, nullable=False),
    sa.Column("queue_limit", sa.Integer, nullable=False),
    sa.Column("lookahead_ms", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("shard", sa.SmallInteger, nullable=False),
    sa.Column("mark_at", sa.BigInteger, nullable=False),
    sa.Column("next_fire_at", sa.BigInteger),
    sa.Column("paused_at", sa.BigInteger),
    sa.Column("active_runs", sa.Integer, nullable=False),
    sa.Column("queued_runs", sa.Integer, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("deleted_at", sa.BigInteger),
    _partial("schedule_name", "tenant", "schedule_id", where="deleted_at IS NULL", unique=True),
    _partial("schedule_due", "next_fire_at", "uid", "shard", where="next_fire_at IS NOT NULL"),
)

sa.Table(
    "schedule_revision",
    _tables,
    sa.Column("uid", _Name, primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("mark_at", sa.BigInteger, nullable=False),
    sa.Column("next_fire_at", sa.BigInteger),
    sa.Column("paused_at", sa.BigInteger),
    sa.Column("active_runs", sa.Integer, nullable=False),
    sa.Column("queued_runs", sa.Integer, nullable=False),
    sa.Column("from_at", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("tzdata", sa.Text, nullable=False),
)

sa.Table(
    "pause",
    _tables,
    sa.Column("uid", _Name, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("paused_at", sa.BigInteger, nullable=False),
    sa.Column("paused_by", sa.Text, nullable=False),
    sa.Column("resumed_at", sa.BigInteger),
    sa.Column("resumed_by", sa.Text),
)

sa.Table(
    "tick",
    _tables,
    sa.Column("uid", _Name, primary_key=True),
    sa.Column("planned_at", sa.BigInteger, primary_key=True),
    sa.Column("tenant", _Name, nullable=False),
    sa.Column("schedule_id", _Name, nullable=False),
    sa.Column("last_at", sa.BigInteger, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("key", sa.LargeBinary, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("run_id", _Name),
    sa.Column("fire_at", sa.BigInteger),
    sa.Column("decided_at", sa.BigInteger, nullable=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
)

sa.Table(
    "run",
    _tables,
    sa.Column("run_id", _Name, primary_key=True),
    sa.Column("tenant", _Name, nullable=False),
    sa.Column("schedule_uid", _Name),
    sa.Column("schedule_id", _Name),
    sa.Column("workflow_id", _Name, nullable=False),
    sa.Column("workflow_version", sa.Integer, nullable=False),
    sa.Column("user_id", _Name, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("queued", sa.Boolean, nullable=False),
    sa.Column("planned_at", sa.BigInteger, nullable=False),
    sa.Column("fire_at", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("completed_at", sa.BigInteger),
    sa.Column("cancel_requested_at", sa.BigInteger),
    sa.Index("run_of_schedule", "schedule_uid", "planned_at"),
    _partial("run_not_over", "schedule_uid", "planned_at", where="status IN ('pending', 'running')"),
)

sa.Table(
    "task",
    _tables,
    sa.Column("task_id", _Name, primary_key=True),
    sa.Column("tenant", _Name, nullable=False),
    sa.Column("run_id", _Name, nullable=False),
    sa.Column("step", _Name, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("wait_reason", sa.Text, nullable=False),
    sa.Column("available_at", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index("task_of_run", "run_id", "step"),
    _partial("task_waiting", "available_at", where="state = 'PENDING' AND wait_reason NOT IN ('deps', 'queue')"),
)

sa.Table(
    "attempt",
    _tables,
    sa.Column("task_id", _Name, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("worker", _Name, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("lease_until", sa.BigInteger),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("error", sa.Text),
    _partial("attempt_lease", "lease_until", where="ended_at IS NULL"),
)

sa.Table(
    "payload",
    _tables,
    sa.Column("owner_id", _Name, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

sa.Table(
    "workflow",
    _tables,
    sa.Column("tenant", _Name, primary_key=True),
    sa.Column("workflow_id", _Name, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
)

_shard = sa.Table(
    "shard",
    _tables,
    sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("holder", _Name),
    sa.Column("lease_until", sa.BigInteger, nullable=False),
)

sa.Table(
    "node",
    _tables,
    sa.Column("holder", _Name, primary_key=True),
    sa.Column("seen_until", sa.BigInteger, nullable=False),
)

_gnomon_meta = sa.Table(
    "gnomon_meta",
    _tables,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)


def upgrade() -> None:
    """Create the tables, the shards with term 0, and the numbers that identify the schema."""
    _tables.create_all(op.get_bind(), checkfirst=False)
    shards = [{"shard": shard, "term": 0, "holder": None, "lease_until": 0} for shard in range(_SHARDS)]
    op.bulk_insert(_shard, shards)
    op.bulk_insert(_gnomon_meta, [{"key": "schema", "value": "1"}, {"key": "min_compatible", "value": "1"}])
