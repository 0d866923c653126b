"""The tables of the store.

Instants are milliseconds since 1970 in UTC. `tenant` is part of every name that must be unique. A test compares these
tables with the result of all migrations.
"""

import sqlalchemy as sa

#: Sorted by code point on both databases and in Python, whatever the locale of the server.
Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
Instant = sa.BigInteger

#: Literals, because a partial index is only used by a query that contains its condition word for word.
# Not a condition on the status: an index is written whenever a column of its condition changes.
NOT_OVER = "completed_at IS NULL"
TO_STOP = f"cancel_requested_at IS NOT NULL AND {NOT_OVER}"
WAITS = "state = 'PENDING' AND wait_reason NOT IN ('deps', 'queue')"
HELD = "state = 'PENDING' AND wait_reason = 'deps'"
SCHEDULED = "state = 'SCHEDULED'"
TARGETED = f"{SCHEDULED} AND (directed_to IS NOT NULL OR function IS NOT NULL)"
OPEN = "ended_at IS NULL"
IDLE = "next_fire_at IS NULL AND paused_at IS NULL AND deleted_at IS NULL AND trigger_kind IN ('cron', 'every', 'at')"
LISTENS = "trigger_kind = 'event' AND deleted_at IS NULL"
GATHERED = "kind = 'gathered'"

metadata = sa.MetaData()


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> sa.Index:
    """An index on the rows that meet a condition."""
    condition = sa.text(where)
    return sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


schedule = sa.Table(
    "schedule",
    metadata,
    sa.Column("uid", Name, primary_key=True),
    sa.Column("tenant", Name, nullable=False),
    sa.Column("schedule_id", Name, nullable=False),
    # ---- the spec
    sa.Column("trigger_kind", sa.Text, nullable=False),
    sa.Column("expression", sa.Text),
    sa.Column("timezone", sa.Text),
    sa.Column("dialect", sa.Text),
    sa.Column("dst_gap", sa.Text),
    sa.Column("dst_fold", sa.Text),
    sa.Column("period_ms", sa.BigInteger),
    sa.Column("anchor_at", Instant),
    sa.Column("at_at", Instant),
    sa.Column("workflow_id", Name, nullable=False),
    sa.Column("workflow_version", sa.Integer, nullable=False),
    sa.Column("user_id", Name, nullable=False),
    sa.Column("first_steps", sa.Text, nullable=False),
    sa.Column("start_at", Instant),
    sa.Column("end_at", Instant),
    sa.Column("overlap", sa.Text, nullable=False),
    sa.Column("catchup", sa.Text, nullable=False),
    sa.Column("jitter_ms", sa.BigInteger, nullable=False),
    sa.Column("misfire_grace_ms", sa.BigInteger, nullable=False),
    sa.Column("catchup_window_ms", sa.BigInteger, nullable=False),
    sa.Column("catchup_cap", sa.Integer, nullable=False),
    sa.Column("queue_limit", sa.Integer, nullable=False),
    sa.Column("lookahead_ms", sa.BigInteger, nullable=False),
    # ---- the progress of its ticks
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("shard", sa.SmallInteger, nullable=False),
    sa.Column("mark_at", Instant, nullable=False),
    sa.Column("next_fire_at", Instant),
    sa.Column("paused_at", Instant),
    sa.Column("active_runs", sa.Integer, nullable=False),
    sa.Column("queued_runs", sa.Integer, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("updated_at", Instant, nullable=False),
    sa.Column("deleted_at", Instant),
    sa.Column("delete_after_run", sa.Boolean, nullable=False, server_default=sa.false()),
    # Options of an event trigger, as JSON.
    sa.Column("trigger_options", sa.Text),
    # Ticks that are skipped or moved, as JSON; null if there are none.
    sa.Column("exceptions", sa.Text),
    partial_index("schedule_name", "tenant", "schedule_id", where="deleted_at IS NULL", unique=True),
    # In the order in which due schedules are read: a page needs no sort
    # even if a hundred thousand are due at one instant.
    partial_index("schedule_due", "next_fire_at", "uid", "shard", where="next_fire_at IS NOT NULL"),
    # By name, newest first.
    partial_index("schedule_gone", "tenant", "schedule_id", "deleted_at", "uid", where="deleted_at IS NOT NULL"),
    partial_index("schedule_listening", "tenant", "expression", where=LISTENS),
    partial_index("schedule_idle", "uid", where=IDLE),
)

schedule_revision = sa.Table(
    "schedule_revision",
    metadata,
    sa.Column("uid", Name, primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("mark_at", Instant, nullable=False),
    sa.Column("next_fire_at", Instant),
    sa.Column("paused_at", Instant),
    sa.Column("active_runs", sa.Integer, nullable=False),
    sa.Column("queued_runs", sa.Integer, nullable=False),
    sa.Column("from_at", Instant, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("tzdata", sa.Text, nullable=False),
)

pause = sa.Table(
    "pause",
    metadata,
    sa.Column("uid", Name, primary_key=True),
    # Two pauses may begin in one millisecond.
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("paused_at", Instant, nullable=False),
    sa.Column("paused_by", sa.Text, nullable=False),
    sa.Column("resumed_at", Instant),
    sa.Column("resumed_by", sa.Text),
)

tick = sa.Table(
    "tick",
    metadata,
    sa.Column("uid", Name, primary_key=True),
    sa.Column("planned_at", Instant, primary_key=True),
    sa.Column("tenant", Name, nullable=False),
    sa.Column("schedule_id", Name, nullable=False),
    sa.Column("last_at", Instant, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("key", sa.LargeBinary, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("run_id", Name),
    sa.Column("fire_at", Instant),
    sa.Column("decided_at", Instant, nullable=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
)

run = sa.Table(
    "run",
    metadata,
    sa.Column("run_id", Name, primary_key=True),
    sa.Column("tenant", Name, nullable=False),
    sa.Column("schedule_uid", Name),
    sa.Column("schedule_id", Name),
    sa.Column("workflow_id", Name, nullable=False),
    sa.Column("workflow_version", sa.Integer, nullable=False),
    sa.Column("user_id", Name, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("queued", sa.Boolean, nullable=False),
    sa.Column("planned_at", Instant, nullable=False),
    sa.Column("fire_at", Instant, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("completed_at", Instant),
    sa.Column("cancel_requested_at", Instant),
    sa.Column("started_at", Instant),
    sa.Column("error", sa.Text),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("replay_of", Name),
    sa.Column("parent_task", Name),
    sa.Column("depth", sa.Integer, nullable=False, server_default="0"),
    sa.Index("run_of_schedule", "schedule_uid", "planned_at", "run_id"),
    partial_index("run_not_over", "schedule_uid", "planned_at", where=NOT_OVER),
    partial_index("run_queued", "schedule_uid", "planned_at", "run_id", where="queued"),
    partial_index("run_to_stop", "run_id", where=TO_STOP),
    partial_index("run_waited_for", "parent_task", where=f"parent_task IS NOT NULL AND {NOT_OVER}"),
    # In the order in which runs are listed, of a tenant and of one of its jobs.
    sa.Index("run_listed", "tenant", "created_at", "run_id"),
    sa.Index("run_of_job", "tenant", "schedule_id", "created_at", "run_id"),
)

task = sa.Table(
    "task",
    metadata,
    sa.Column("task_id", Name, primary_key=True),
    sa.Column("tenant", Name, nullable=False),
    sa.Column("run_id", Name, nullable=False),
    sa.Column("step", Name, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("wait_reason", sa.Text, nullable=False),
    sa.Column("available_at", Instant, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("losses", sa.Integer, nullable=False, server_default="0"),
    sa.Column("routings", sa.Integer, nullable=False, server_default="0"),
    sa.Column("note", sa.Text),
    sa.Column("parent", Name),
    sa.Column("item", sa.Integer),
    sa.Column("skipped", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("upstream_failed", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("open_items", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failed_items", sa.Integer, nullable=False, server_default="0"),
    # Few tasks have an input of their own. The others save the lookup.
    sa.Column("has_input", sa.Boolean, nullable=False, server_default=sa.false()),
    # ---- the placement: null for the default pool, any of its workers, and any function
    sa.Column("pool", Name),
    sa.Column("rank", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("directed_to", Name),
    sa.Column("function", Name),
    # Finds the steps of a run without reading their items, of which there may be a hundred thousand.
    sa.Index("task_of_run", "run_id", "parent", "item"),
    partial_index("task_held", "parent", "item", where=HELD),
    # In the order in which tasks are admitted and taken: a page needs no sort
    # even if a hundred thousand wait since one instant.
    partial_index("task_waiting", "available_at", "task_id", where=WAITS),
    partial_index("task_scheduled", "pool", "rank", "available_at", "task_id", where=SCHEDULED),
    partial_index("task_choosy", "directed_to", "function", "pool", where=TARGETED),
)

attempt = sa.Table(
    "attempt",
    metadata,
    sa.Column("task_id", Name, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("worker", Name, nullable=False),
    sa.Column("lease_until", Instant, nullable=False),
    sa.Column("dispatched_at", Instant, nullable=False),
    sa.Column("started_at", Instant),
    sa.Column("ended_at", Instant),
    sa.Column("result", sa.Text),
    sa.Column("error", sa.Text),
    partial_index("attempt_open", "task_id", where=OPEN),
    sqlite_with_rowid=False,
)

task_log = sa.Table(
    "task_log",
    metadata,
    sa.Column("task_id", Name, primary_key=True),
    # Counts from 1, over all attempts.
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("at", Instant, nullable=False),
    sa.Column("level", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)

dead_letter = sa.Table(
    "dead_letter",
    metadata,
    sa.Column("dead_letter_id", Name, primary_key=True),
    sa.Column("tenant", Name, nullable=False),
    sa.Column("job", Name, nullable=False),
    sa.Column("run_id", Name, nullable=False),
    sa.Column("task_id", Name, nullable=False),
    sa.Column("step", Name, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("last_error", sa.Text),
    sa.Column("input", sa.LargeBinary),
    sa.Column("first_attempt_at", Instant, nullable=False),
    sa.Column("last_attempt_at", Instant, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("resolved_at", Instant),
    sa.Column("resolved_by", sa.Text),
    sa.Column("replayed_by", Name),
    sa.Index("dead_letter_listed", "tenant", "dead_letter_id"),
    sa.Index("dead_letter_of_job", "tenant", "job", "dead_letter_id"),
    partial_index("dead_letter_unresolved", "tenant", "dead_letter_id", where="resolved_at IS NULL"),
)

event = sa.Table(
    "event",
    metadata,
    sa.Column("event_id", Name, primary_key=True),
    sa.Column("tenant", Name, nullable=False),
    sa.Column("name", Name, nullable=False),
    sa.Column("key", sa.Text),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("emitted_at", Instant, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Index("event_listed", "tenant", "emitted_at", "event_id"),
    sa.Index("event_of_name", "tenant", "name", "emitted_at", "event_id"),
)

event_entry = sa.Table(
    "event_entry",
    metadata,
    sa.Column("event_id", Name, primary_key=True),
    sa.Column("schedule_uid", Name, primary_key=True),
    sa.Column("schedule_id", Name, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("run_id", Name),
    sa.Column("decided_at", Instant, nullable=False),
    partial_index("event_gathered", "schedule_uid", where=GATHERED),
)

gathering = sa.Table(
    "gathering",
    metadata,
    sa.Column("schedule_uid", Name, primary_key=True),
    sa.Column("first_at", Instant, nullable=False),
    sa.Column("due_at", Instant, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Index("gathering_due", "due_at", "schedule_uid"),
)

backfill = sa.Table(
    "backfill",
    metadata,
    sa.Column("backfill_id", Name, primary_key=True),
    sa.Column("tenant", Name, nullable=False),
    sa.Column("schedule_uid", Name, nullable=False),
    sa.Column("schedule_id", Name, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("from_at", Instant, nullable=False),
    sa.Column("until_at", Instant, nullable=False),
    sa.Column("max_parallel", sa.Integer, nullable=False),
    sa.Column("again", sa.Boolean, nullable=False),
    sa.Column("planned", sa.Integer, nullable=False),
    sa.Column("mark_at", Instant, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("ended_at", Instant),
    sa.Column("cancelled", sa.Boolean, nullable=False),
    partial_index("backfill_open", "backfill_id", where=OPEN),
    sa.Index("backfill_listed", "tenant", "created_at", "backfill_id"),
)

backfill_tick = sa.Table(
    "backfill_tick",
    metadata,
    sa.Column("backfill_id", Name, primary_key=True),
    sa.Column("planned_at", Instant, primary_key=True),
    sa.Column("schedule_uid", Name, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("run_id", Name),
    sa.Column("decided_at", Instant, nullable=False),
    sa.Index("backfill_tick_of_schedule", "schedule_uid", "planned_at"),
)

payload = sa.Table(
    "payload",
    metadata,
    sa.Column("owner_id", Name, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

workflow = sa.Table(
    "workflow",
    metadata,
    sa.Column("tenant", Name, primary_key=True),
    sa.Column("workflow_id", Name, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
)


SEALED = "seq IS NOT NULL"
UNSEALED = "seq IS NULL"

worker = sa.Table(
    "worker",
    metadata,
    sa.Column("worker", Name, primary_key=True),
    sa.Column("pool", Name, nullable=False),
    sa.Column("functions", sa.Text, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("started_at", Instant, nullable=False),
    sa.Column("seen_until", Instant, nullable=False),
    sa.Column("labels", sa.Text, nullable=False, server_default="{}"),
    sa.Column("capabilities", sa.Text, nullable=False, server_default="[]"),
    sa.Column("in_hand", sa.Integer, nullable=False, server_default="0"),
    # In percent; null if it cannot be measured.
    sa.Column("cpu", sa.Integer),
    sa.Column("gpu", sa.Integer),
    sa.Column("draining", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("seen_at", Instant, nullable=False, server_default="0"),
)

shard = sa.Table(
    "shard",
    metadata,
    sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("holder", Name),
    sa.Column("lease_until", Instant, nullable=False),
)

node = sa.Table(
    "node",
    metadata,
    sa.Column("holder", Name, primary_key=True),
    sa.Column("seen_until", Instant, nullable=False),
)

singleton_lease = sa.Table(
    "turn",
    metadata,
    sa.Column("name", Name, primary_key=True),
    sa.Column("holder", Name, nullable=False),
    sa.Column("until_at", Instant, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
)

gnomon_meta = sa.Table(
    "gnomon_meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("at", Instant, nullable=False),
    sa.Column("actor", Name, nullable=False),
    sa.Column("tenant", Name, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", Name, nullable=False),
    sa.Column("before", sa.Text),
    sa.Column("after", sa.Text),
    sa.Column("details", sa.Text, nullable=False),
    # ---- the chain; empty until it is sealed
    sa.Column("seq", sa.BigInteger),
    sa.Column("prev_hash", sa.Text),
    sa.Column("hash", sa.Text),
    sa.Index("audit_listed", "tenant", "number"),
    sa.Index("audit_of_subject", "tenant", "kind", "name", "number"),
    partial_index("audit_sealed", "seq", where=SEALED, unique=True),
    partial_index("audit_unsealed", "number", where=UNSEALED),
)
