"""The tables of the store.

Instants are milliseconds since 1970 in UTC. `tenant` is part of every name that must be unique. A test compares these
tables with the result of all migrations.
"""

import sqlalchemy as sa

#: Sorted by code point on both databases and in Python, whatever the locale of the server.
NameType = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
InstantType = sa.BigInteger

#: Literals, because a partial index is only used by a query that contains its condition word for word.
# Not a condition on the status: an index is written whenever a column of its condition changes.
NOT_OVER = "completed_at IS NULL"
TO_STOP = f"cancel_requested_at IS NOT NULL AND {NOT_OVER}"
WAITS = "state = 'PENDING' AND wait_reason NOT IN ('deps', 'queue')"
UNROUTABLE = "state = 'PENDING' AND wait_reason = 'route' AND unroutable_since IS NOT NULL"
HELD = "state = 'PENDING' AND wait_reason = 'deps'"
SCHEDULED = "state = 'SCHEDULED'"
TARGETED = f"{SCHEDULED} AND (directed_to IS NOT NULL OR function IS NOT NULL)"
CONSTRAINED = "constraints IS NOT NULL AND state IN ('SCHEDULED', 'DISPATCHED', 'RUNNING')"
LIMITED = "deadline_at IS NOT NULL AND state IN ('PENDING', 'APPROVAL_REQUIRED', 'SCHEDULED', 'DISPATCHED', 'RUNNING')"
OPEN = "ended_at IS NULL"
SEVERAL_TICKS = "count > 1"
SUMS_OPEN = "open"
NOT_ON_TIME = "reason <> 'on_time'"
# Not a condition on the status either: a run fails with an error, and another one has none while it is under way.
WITH_ERROR = "error IS NOT NULL"
IDLE = "next_fire_at IS NULL AND paused_at IS NULL AND deleted_at IS NULL AND trigger_kind IN ('cron', 'every', 'at')"
LISTENS = "trigger_kind = 'event' AND deleted_at IS NULL"
GATHERED = "kind = 'gathered'"
ROLLING_BACK = "rollback = 'running'"
TO_ANNOUNCE = "state = 'pending'"
TO_ANNOUNCE_AGAIN = f"{TO_ANNOUNCE} AND tries > 0"
OF_TICK = "run_id IS NULL"
AWAITED = "status = 'waiting'"
OF_TASK = "task_id IS NOT NULL"
HELD_BACK = "status IS NOT NULL"
TO_APPROVE = "state = 'APPROVAL_REQUIRED'"
REVOKED, STANDING = "revoked_at IS NOT NULL", "revoked_at IS NULL"

metadata = sa.MetaData()


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> sa.Index:
    """An index on the rows that meet a condition."""
    condition = sa.text(where)
    return sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


schedule = sa.Table(
    "schedule",
    metadata,
    sa.Column("uid", NameType, primary_key=True),
    sa.Column("tenant", NameType, nullable=False),
    sa.Column("schedule_id", NameType, nullable=False),
    # ---- the spec
    sa.Column("trigger_kind", sa.Text, nullable=False),
    sa.Column("expression", sa.Text),
    sa.Column("timezone", sa.Text),
    sa.Column("dialect", sa.Text),
    sa.Column("dst_gap", sa.Text),
    sa.Column("dst_fold", sa.Text),
    sa.Column("period_ms", sa.BigInteger),
    sa.Column("anchor_at", InstantType),
    sa.Column("at_at", InstantType),
    sa.Column("workflow_id", NameType, nullable=False),
    sa.Column("workflow_version", sa.Integer, nullable=False),
    sa.Column("user_id", NameType, nullable=False),
    sa.Column("first_steps", sa.Text, nullable=False),
    sa.Column("start_at", InstantType),
    sa.Column("end_at", InstantType),
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
    sa.Column("mark_at", InstantType, nullable=False),
    sa.Column("next_fire_at", InstantType),
    sa.Column("paused_at", InstantType),
    sa.Column("active_runs", sa.Integer, nullable=False),
    sa.Column("queued_runs", sa.Integer, nullable=False),
    sa.Column("created_at", InstantType, nullable=False),
    sa.Column("updated_at", InstantType, nullable=False),
    sa.Column("deleted_at", InstantType),
    sa.Column("delete_after_run", sa.Boolean, nullable=False, server_default=sa.false()),
    # Options of an event trigger, as JSON.
    sa.Column("trigger_options", sa.Text),
    # Ticks that are skipped or moved, as JSON; null if there are none.
    sa.Column("exceptions", sa.Text),
    # The last time that the mark was set back, as JSON; null if it never was.
    sa.Column("mark_correction", sa.Text),
    # Where the definition comes from, and whether that declares it no more.
    sa.Column("origin", sa.Text, nullable=False, server_default=""),
    sa.Column("orphaned", sa.Boolean, nullable=False, server_default=sa.false()),
    # Until when overdue ticks are spread; null or past if they are not.
    sa.Column("spread_until", InstantType),
    # The newest planned time of a tick that had a run and was removed by retention. A Schedule does not have it.
    sa.Column("ticks_removed_until", InstantType),
    # How long runs and their first tasks may take, as JSON; null without a limit.
    sa.Column("deadlines", sa.Text),
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
    sa.Column("uid", NameType, primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("mark_at", InstantType, nullable=False),
    sa.Column("next_fire_at", InstantType),
    sa.Column("paused_at", InstantType),
    sa.Column("active_runs", sa.Integer, nullable=False),
    sa.Column("queued_runs", sa.Integer, nullable=False),
    sa.Column("from_at", InstantType, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("tzdata", sa.Text, nullable=False),
)

pause = sa.Table(
    "pause",
    metadata,
    sa.Column("uid", NameType, primary_key=True),
    # Two pauses may begin in one millisecond.
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("paused_at", InstantType, nullable=False),
    sa.Column("paused_by", sa.Text, nullable=False),
    sa.Column("resumed_at", InstantType),
    sa.Column("resumed_by", sa.Text),
)

tick = sa.Table(
    "tick",
    metadata,
    sa.Column("uid", NameType, primary_key=True),
    sa.Column("planned_at", InstantType, primary_key=True),
    sa.Column("tenant", NameType, nullable=False),
    sa.Column("schedule_id", NameType, nullable=False),
    sa.Column("last_at", InstantType, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("key", sa.LargeBinary, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("run_id", NameType),
    sa.Column("fire_at", InstantType),
    sa.Column("decided_at", InstantType, nullable=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    # In order of time.
    sa.Index("tick_planned", "tenant", "planned_at", "uid"),
    partial_index("tick_range_planned", "tenant", "planned_at", "uid", "last_at", where=SEVERAL_TICKS),
    partial_index("tick_range", "uid", "last_at", "planned_at", where=SEVERAL_TICKS),
    # Few ticks are late or do not run, so that it costs hardly anything to write.
    partial_index("tick_not_on_time", "tenant", "reason", "last_at", "planned_at", "count", where=NOT_ON_TIME),
)

#: The sums of the ticks of a schedule on a day in UTC, by kind and quarter of an hour, as JSON.
tick_day = sa.Table(
    "tick_day",
    metadata,
    sa.Column("uid", NameType, primary_key=True),
    # Counts from 1970.
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    # Some quarters are to be looked at again.
    sa.Column("open", sa.Boolean, nullable=False),
    sa.Column("sums", sa.Text, nullable=False),
    partial_index("tick_day_open", "uid", "day", where=SUMS_OPEN),
)

#: How far the ticks of a schedule are summed up.
tick_summed = sa.Table(
    "tick_summed",
    metadata,
    sa.Column("uid", NameType, primary_key=True),
    sa.Column("until_at", InstantType, nullable=False),
    sqlite_with_rowid=False,
)

run = sa.Table(
    "run",
    metadata,
    sa.Column("run_id", NameType, primary_key=True),
    sa.Column("tenant", NameType, nullable=False),
    sa.Column("schedule_uid", NameType),
    sa.Column("schedule_id", NameType),
    sa.Column("workflow_id", NameType, nullable=False),
    sa.Column("workflow_version", sa.Integer, nullable=False),
    sa.Column("user_id", NameType, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("queued", sa.Boolean, nullable=False),
    sa.Column("planned_at", InstantType, nullable=False),
    sa.Column("fire_at", InstantType, nullable=False),
    sa.Column("created_at", InstantType, nullable=False),
    sa.Column("completed_at", InstantType),
    sa.Column("cancel_requested_at", InstantType),
    sa.Column("started_at", InstantType),
    sa.Column("error", sa.Text),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("replay_of", NameType),
    sa.Column("parent_task", NameType),
    sa.Column("depth", sa.Integer, nullable=False, server_default="0"),
    sa.Column("actor", NameType),
    sa.Column("root_run_id", NameType),
    sa.Column("deadline_at", InstantType),
    sa.Column("rollback", sa.Text),
    sa.Column("rollback_cause", sa.Text),
    sa.Column("rollback_number", sa.Integer, nullable=False, server_default="0"),
    # As JSON; null if a schedule has started it, or an older program.
    sa.Column("actor_groups", sa.Text),
    sa.Index("run_of_schedule", "schedule_uid", "planned_at", "run_id"),
    partial_index("run_not_over", "schedule_uid", "planned_at", where=NOT_OVER),
    partial_index("run_queued", "schedule_uid", "planned_at", "run_id", where="queued"),
    partial_index("run_to_stop", "run_id", where=TO_STOP),
    partial_index("run_rolling_back", "run_id", where=ROLLING_BACK),
    partial_index("run_with_error", "tenant", "created_at", "run_id", where=WITH_ERROR),
    partial_index("run_waited_for", "parent_task", where=f"parent_task IS NOT NULL AND {NOT_OVER}"),
    # In the order in which runs are listed, of a tenant and of one of its jobs.
    sa.Index("run_listed", "tenant", "created_at", "run_id"),
    sa.Index("run_of_job", "tenant", "schedule_id", "created_at", "run_id"),
)

task = sa.Table(
    "task",
    metadata,
    sa.Column("task_id", NameType, primary_key=True),
    sa.Column("tenant", NameType, nullable=False),
    sa.Column("run_id", NameType, nullable=False),
    sa.Column("step", NameType, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("wait_reason", sa.Text, nullable=False),
    sa.Column("available_at", InstantType, nullable=False),
    sa.Column("created_at", InstantType, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("losses", sa.Integer, nullable=False, server_default="0"),
    sa.Column("routings", sa.Integer, nullable=False, server_default="0"),
    sa.Column("note", sa.Text),
    sa.Column("parent", NameType),
    sa.Column("item", sa.Integer),
    sa.Column("skipped", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("upstream_failed", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("open_items", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failed_items", sa.Integer, nullable=False, server_default="0"),
    # Few tasks have an input of their own. The others save the lookup.
    sa.Column("has_input", sa.Boolean, nullable=False, server_default=sa.false()),
    # ---- the placement: null for the default pool, any of its workers, and any function
    sa.Column("pool", NameType),
    sa.Column("rank", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("directed_to", NameType),
    sa.Column("function", NameType),
    # ---- since when no worker can take it; old while it does not wait for a route
    sa.Column("unroutable_since", InstantType),
    # ---- the ruling of its last admission: version and rule, the digest of what was asked, and limits as JSON; null
    # without a policy
    sa.Column("policy_rule", NameType),
    sa.Column("request_digest", sa.LargeBinary),
    sa.Column("constraints", sa.Text),
    sa.Column("deadline_at", InstantType),
    # Finds the steps of a run without reading their items, of which there may be a hundred thousand.
    sa.Index("task_of_run", "run_id", "parent", "item"),
    partial_index("task_held", "parent", "item", where=HELD),
    # In the order in which tasks are admitted and taken: a page needs no sort
    # even if a hundred thousand wait since one instant.
    partial_index("task_waiting", "available_at", "task_id", where=WAITS),
    partial_index("task_waiting_of_tenant", "tenant", "available_at", "task_id", where=WAITS),
    partial_index("task_scheduled", "pool", "tenant", "rank", "available_at", "task_id", where=SCHEDULED),
    partial_index("task_unroutable", "unroutable_since", "task_id", where=UNROUTABLE),
    partial_index("task_choosy", "directed_to", "function", "pool", where=TARGETED),
    partial_index("task_constrained", "policy_rule", where=CONSTRAINED),
    partial_index("task_limited", "deadline_at", "task_id", where=LIMITED),
    partial_index("task_to_approve", "task_id", where=TO_APPROVE),
)

attempt = sa.Table(
    "attempt",
    metadata,
    sa.Column("task_id", NameType, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("worker", NameType, nullable=False),
    sa.Column("lease_until", InstantType, nullable=False),
    sa.Column("dispatched_at", InstantType, nullable=False),
    sa.Column("started_at", InstantType),
    sa.Column("ended_at", InstantType),
    sa.Column("result", sa.Text),
    sa.Column("error", sa.Text),
    partial_index("attempt_open", "task_id", where=OPEN),
    sqlite_with_rowid=False,
)

task_log = sa.Table(
    "task_log",
    metadata,
    sa.Column("task_id", NameType, primary_key=True),
    # Counts from 1, over all attempts.
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("at", InstantType, nullable=False),
    sa.Column("level", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)

dead_letter = sa.Table(
    "dead_letter",
    metadata,
    sa.Column("dead_letter_id", NameType, primary_key=True),
    sa.Column("tenant", NameType, nullable=False),
    sa.Column("job", NameType, nullable=False),
    sa.Column("run_id", NameType, nullable=False),
    sa.Column("task_id", NameType, nullable=False),
    sa.Column("step", NameType, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("last_error", sa.Text),
    sa.Column("input", sa.LargeBinary),
    sa.Column("first_attempt_at", InstantType, nullable=False),
    sa.Column("last_attempt_at", InstantType, nullable=False),
    sa.Column("created_at", InstantType, nullable=False),
    sa.Column("resolved_at", InstantType),
    sa.Column("resolved_by", sa.Text),
    sa.Column("replayed_by", NameType),
    sa.Index("dead_letter_listed", "tenant", "dead_letter_id"),
    sa.Index("dead_letter_newest", "tenant", "created_at", "dead_letter_id"),
    sa.Index("dead_letter_newest_of_job", "tenant", "job", "created_at", "dead_letter_id"),
    partial_index("dead_letter_newest_open", "tenant", "created_at", "dead_letter_id", where="resolved_at IS NULL"),
)

announcement = sa.Table(
    "announcement",
    metadata,
    sa.Column("announcement_id", NameType, primary_key=True),
    sa.Column("tenant", NameType, nullable=False),
    sa.Column("job", NameType, nullable=False),
    sa.Column("run_id", NameType),
    sa.Column("schedule_uid", NameType),
    sa.Column("planned_at", InstantType, nullable=False),
    sa.Column("moment", sa.Text, nullable=False),
    sa.Column("channel", NameType, nullable=False),
    sa.Column("recipient", NameType, nullable=False),
    sa.Column("template", sa.Text),
    sa.Column("best_effort", sa.Boolean, nullable=False),
    # As JSON.
    sa.Column("facts", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("parts_sent", sa.Integer, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("next_at", InstantType, nullable=False),
    sa.Column("since_at", InstantType, nullable=False),
    sa.Column("created_at", InstantType, nullable=False),
    sa.Column("ended_at", InstantType),
    sa.Column("note", sa.Text),
    # ---- the claim of the process that sends it
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("claimed_by", NameType),
    sa.Column("claimed_until", InstantType, nullable=False, server_default="0"),
    sa.Index("announcement_of_run", "run_id"),
    partial_index("announcement_of_tick", "schedule_uid", "planned_at", where=OF_TICK),
    sa.Index("announcement_listed", "tenant", "created_at", "announcement_id"),
    sa.Index("announcement_of_job", "tenant", "job", "created_at", "announcement_id"),
    partial_index("announcement_next", "next_at", where=TO_ANNOUNCE),
    partial_index("announcement_due", "tenant", "channel", "next_at", "announcement_id", where=TO_ANNOUNCE),
    partial_index("announcement_again", "tenant", "channel", "recipient", "job", where=TO_ANNOUNCE_AGAIN),
)

#: How many runs of a job have failed in a row, if its announcements depend on it.
failure_streak = sa.Table(
    "failure_streak",
    metadata,
    # The uid of the schedule, or tenant and workflow of runs without one.
    sa.Column("uid", NameType, primary_key=True),
    sa.Column("failures", sa.Integer, nullable=False),
)

event = sa.Table(
    "event",
    metadata,
    sa.Column("event_id", NameType, primary_key=True),
    sa.Column("tenant", NameType, nullable=False),
    sa.Column("name", NameType, nullable=False),
    sa.Column("key", sa.Text),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("emitted_at", InstantType, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Index("event_listed", "tenant", "emitted_at", "event_id"),
    sa.Index("event_of_name", "tenant", "name", "emitted_at", "event_id"),
)

event_entry = sa.Table(
    "event_entry",
    metadata,
    sa.Column("event_id", NameType, primary_key=True),
    sa.Column("schedule_uid", NameType, primary_key=True),
    sa.Column("schedule_id", NameType, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("run_id", NameType),
    sa.Column("decided_at", InstantType, nullable=False),
    partial_index("event_gathered", "schedule_uid", where=GATHERED),
)

gathering = sa.Table(
    "gathering",
    metadata,
    sa.Column("schedule_uid", NameType, primary_key=True),
    sa.Column("first_at", InstantType, nullable=False),
    sa.Column("due_at", InstantType, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Index("gathering_due", "due_at", "schedule_uid"),
)

backfill = sa.Table(
    "backfill",
    metadata,
    sa.Column("backfill_id", NameType, primary_key=True),
    sa.Column("tenant", NameType, nullable=False),
    sa.Column("schedule_uid", NameType, nullable=False),
    sa.Column("schedule_id", NameType, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("from_at", InstantType, nullable=False),
    sa.Column("until_at", InstantType, nullable=False),
    sa.Column("max_parallel", sa.Integer, nullable=False),
    sa.Column("again", sa.Boolean, nullable=False),
    sa.Column("planned", sa.Integer, nullable=False),
    sa.Column("mark_at", InstantType, nullable=False),
    sa.Column("created_at", InstantType, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("ended_at", InstantType),
    sa.Column("cancelled", sa.Boolean, nullable=False),
    partial_index("backfill_open", "backfill_id", where=OPEN),
    sa.Index("backfill_listed", "tenant", "created_at", "backfill_id"),
)

backfill_tick = sa.Table(
    "backfill_tick",
    metadata,
    sa.Column("backfill_id", NameType, primary_key=True),
    sa.Column("planned_at", InstantType, primary_key=True),
    sa.Column("schedule_uid", NameType, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("run_id", NameType),
    sa.Column("decided_at", InstantType, nullable=False),
    sa.Index("backfill_tick_of_schedule", "schedule_uid", "planned_at"),
)

payload = sa.Table(
    "payload",
    metadata,
    sa.Column("owner_id", NameType, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

workflow = sa.Table(
    "workflow",
    metadata,
    sa.Column("tenant", NameType, primary_key=True),
    sa.Column("workflow_id", NameType, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("created_at", InstantType, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
)


SEALED = "seq IS NOT NULL"
UNSEALED = "seq IS NULL"

worker = sa.Table(
    "worker",
    metadata,
    sa.Column("worker", NameType, primary_key=True),
    sa.Column("pool", NameType, nullable=False),
    sa.Column("functions", sa.Text, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("started_at", InstantType, nullable=False),
    sa.Column("seen_until", InstantType, nullable=False),
    sa.Column("labels", sa.Text, nullable=False, server_default="{}"),
    sa.Column("capabilities", sa.Text, nullable=False, server_default="[]"),
    sa.Column("in_hand", sa.Integer, nullable=False, server_default="0"),
    # In percent; null if it cannot be measured.
    sa.Column("cpu", sa.Integer),
    sa.Column("gpu", sa.Integer),
    sa.Column("draining", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("seen_at", InstantType, nullable=False, server_default="0"),
)

shard = sa.Table(
    "shard",
    metadata,
    sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("holder", NameType),
    sa.Column("lease_until", InstantType, nullable=False),
)

node = sa.Table(
    "node",
    metadata,
    sa.Column("holder", NameType, primary_key=True),
    sa.Column("seen_until", InstantType, nullable=False),
)

singleton_lease = sa.Table(
    "turn",
    metadata,
    sa.Column("name", NameType, primary_key=True),
    sa.Column("holder", NameType, nullable=False),
    sa.Column("until_at", InstantType, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
)

#: The commits of processes that serve no metrics, until a server has counted them.
metrics_outbox = sa.Table(
    "metrics_outbox",
    metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("created_at", InstantType, nullable=False),
    sa.Column("changes", sa.LargeBinary, nullable=False),
)

gnomon_meta = sa.Table(
    "gnomon_meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

token = sa.Table(
    "token",
    metadata,
    sa.Column("tenant", NameType, primary_key=True),
    sa.Column("token_id", NameType, primary_key=True),
    sa.Column("subject", NameType, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("issued_at", InstantType),
    sa.Column("issued_by", NameType, nullable=False),
    sa.Column("expires_at", InstantType, nullable=False),
    sa.Column("revoked_at", InstantType),
    sa.Column("revoked_by", NameType, nullable=False),
    # Servers look at it every few seconds.
    partial_index("token_revoked", "revoked_at", where=REVOKED),
    sqlite_with_rowid=False,
)

#: The tokens of a tenant that were issued before an instant are revoked.
token_cutoff = sa.Table(
    "token_cutoff",
    metadata,
    sa.Column("tenant", NameType, primary_key=True),
    sa.Column("issued_before", InstantType, nullable=False),
)

#: Codes that sign a browser in to the dashboard; of each caller one.
sign_in_code = sa.Table(
    "sign_in_code",
    metadata,
    sa.Column("tenant", NameType, primary_key=True),
    sa.Column("subject", NameType, primary_key=True),
    sa.Column("digest", NameType, nullable=False),
    #: The caller as JSON.
    sa.Column("caller", sa.Text, nullable=False),
    sa.Column("expires_at", InstantType, nullable=False),
    sa.Index("sign_in_code_of_digest", "digest", unique=True),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("at", InstantType, nullable=False),
    sa.Column("actor", NameType, nullable=False),
    sa.Column("tenant", NameType, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", NameType, nullable=False),
    sa.Column("before", sa.Text),
    sa.Column("after", sa.Text),
    sa.Column("details", sa.Text, nullable=False),
    # ---- the chain; empty until it is sealed
    sa.Column("seq", sa.BigInteger),
    sa.Column("prev_hash", sa.Text),
    sa.Column("hash", sa.Text),
    sa.Index("audit_listed", "tenant", "number"),
    sa.Index("audit_of_subject", "tenant", "kind", "name", "number"),
    sa.Index("audit_of_kind", "tenant", "kind", "number"),
    partial_index("audit_sealed", "seq", where=SEALED, unique=True),
    partial_index("audit_unsealed", "number", where=UNSEALED),
)

#: The signed end of the audit trail, by the key that has signed it.
audit_checkpoint = sa.Table(
    "audit_checkpoint",
    metadata,
    sa.Column("kid", NameType, primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("at", InstantType, nullable=False),
    sa.Column("signature", sa.Text, nullable=False),
)

#: The servers whose callers follow changes.
change_follower = sa.Table(
    "change_follower",
    metadata,
    sa.Column("server", NameType, primary_key=True),
    sa.Column("until_at", InstantType, nullable=False),
)

#: The changes that these servers publish for other processes, kept for a minute.
change_log = sa.Table(
    "change_log",
    metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("origin", NameType, nullable=False),
    sa.Column("created_at", InstantType, nullable=False),
    sa.Column("changes", sa.LargeBinary, nullable=False),
)

#: The approvals of definitions and tasks, whatever became of them.
approval = sa.Table(
    "approval",
    metadata,
    sa.Column("approval_id", NameType, primary_key=True),
    sa.Column("tenant", NameType, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("subject", NameType, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    # The decision: by whom and when; empty and 0 while it waits.
    sa.Column("granted_by", NameType, nullable=False),
    sa.Column("granted_at", InstantType, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("revoked_at", InstantType),
    sa.Column("revoked_by", NameType),
    sa.Column("status", sa.Text, nullable=False, server_default="approved"),
    # Why it is void.
    sa.Column("note", sa.Text),
    # ---- of a task: the question, as the task has raised it
    sa.Column("task_id", NameType),
    sa.Column("run_id", NameType),
    sa.Column("step", NameType),
    sa.Column("item", sa.Integer),
    sa.Column("rule", NameType),
    sa.Column("version", sa.Integer),
    sa.Column("rule_digest", sa.Text),
    sa.Column("request_digest", sa.LargeBinary),
    # As JSON: limits, null without any; and who may vote.
    sa.Column("constraints", sa.Text),
    sa.Column("terms", sa.Text),
    sa.Column("asked_at", InstantType),
    sa.Column("expires_at", InstantType),
    # The digests of the inputs of all items of a step, one after another; null if it is about one task.
    sa.Column("item_digests", sa.LargeBinary),
    partial_index("approval_standing", "tenant", "kind", "subject", "digest", where=STANDING, unique=True),
    sa.Index("approval_listed", "tenant", "approval_id"),
    partial_index("approval_waiting", "tenant", "approval_id", where=AWAITED),
    partial_index("approval_expiring", "expires_at", "approval_id", where=AWAITED),
    partial_index("approval_by_version", "version", "approval_id", where=AWAITED),
    partial_index("approval_of_task", "task_id", "approval_id", where=OF_TASK),
)

#: The votes on approvals of tasks.
approval_vote = sa.Table(
    "approval_vote",
    metadata,
    sa.Column("approval_id", NameType, primary_key=True),
    sa.Column("voter", NameType, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("at", InstantType, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    # Counts from 1 within the approval.
    sa.Column("number", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)

#: The actions that count towards the hourly budgets of tenants: for a command its task, and the number of its attempt;
#: for a change of a model an id of its own, and 0.
action = sa.Table(
    "action",
    metadata,
    sa.Column("action_id", NameType, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("tenant", NameType, nullable=False),
    sa.Column("at", InstantType, nullable=False),
    sa.Index("action_of_tenant", "tenant", "at"),
    sqlite_with_rowid=False,
)

#: The circuit breakers that have been used, by tenant; those of the installation have an empty tenant.
breaker = sa.Table(
    "breaker",
    metadata,
    sa.Column("tenant", NameType, primary_key=True),
    sa.Column("name", NameType, primary_key=True),
    sa.Column("failures", sa.Integer, nullable=False),
    # Null while it is closed.
    sa.Column("open_until", InstantType),
    sa.Column("successes", sa.Integer, nullable=False),
    # As JSON: until when each request occupies its slot; and the limits by user.
    sa.Column("probes", sa.Text, nullable=False),
    sa.Column("definitions", sa.Text, nullable=False),
    sa.Column("opened_by", sa.Text, nullable=False),
    sa.Column("changed_at", InstantType, nullable=False),
    sqlite_with_rowid=False,
)

#: The expenses and reservations of the budgets of the policy, by window.
budget_window = sa.Table(
    "budget_window",
    metadata,
    # The budget, the beginning of the window, and the values by which the budget is divided.
    sa.Column("window_id", NameType, primary_key=True),
    sa.Column("ends_at", InstantType, nullable=False),
    sa.Column("spent", sa.BigInteger, nullable=False),
    sa.Column("reserved", sa.BigInteger, nullable=False),
    sa.Index("budget_window_ends", "ends_at"),
    sqlite_with_rowid=False,
)

#: The parts of budgets that attempts may spend, until they end.
budget_reservation = sa.Table(
    "budget_reservation",
    metadata,
    sa.Column("task_id", NameType, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("window_id", NameType, primary_key=True),
    sa.Column("meter", sa.Text, nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

#: The versions of the policy, in the order in which they were applied.
policy_version = sa.Table(
    "policy_version",
    metadata,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.Text, nullable=False),
    # The file as it was written.
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("author", NameType, nullable=False),
    sa.Column("created_at", InstantType, nullable=False),
)

#: The file that is judged beside the policy in force: one row at most.
policy_shadow = sa.Table(
    "policy_shadow",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("author", NameType, nullable=False),
    sa.Column("started_at", InstantType, nullable=False),
    sa.Column("ended_at", InstantType),
    sa.Column("same", sa.BigInteger, nullable=False),
    sa.Column("different", sa.BigInteger, nullable=False),
    sa.Column("not_judged", sa.BigInteger, nullable=False),
    sa.Column("left_out", sa.BigInteger, nullable=False),
)

#: The ways in which its rulings differ from those in force.
shadow_difference = sa.Table(
    "shadow_difference",
    metadata,
    sa.Column("tenant", NameType, primary_key=True),
    sa.Column("job", NameType, primary_key=True),
    sa.Column("before", NameType, primary_key=True),
    sa.Column("before_rule", NameType, primary_key=True),
    sa.Column("after", NameType, primary_key=True),
    sa.Column("after_rule", NameType, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("first_at", InstantType, nullable=False),
    sa.Column("last_at", InstantType, nullable=False),
    sa.Column("run_id", NameType, nullable=False),
    sa.Column("step", NameType, nullable=False),
    sqlite_with_rowid=False,
)

#: The rulings that are more than a plain permission.
ruling = sa.Table(
    "ruling",
    metadata,
    sa.Column("task_id", NameType, primary_key=True),
    # Counts from 1 within the task.
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("run_id", NameType, nullable=False),
    sa.Column("decision", sa.Text, nullable=False),
    sa.Column("rule", NameType, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("code", sa.Text, nullable=False),
    # As JSON; null without limits.
    sa.Column("constraints", sa.Text),
    sa.Column("ruled_by", NameType, nullable=False),
    sa.Column("rule_digest", sa.Text, nullable=False),
    sa.Column("at", InstantType, nullable=False),
    sa.Column("last_at", InstantType, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)

#: The rulings that redacted or held back an output, and the outputs that are held back.
output_ruling = sa.Table(
    "output_ruling",
    metadata,
    sa.Column("task_id", NameType, primary_key=True),
    # The number of the attempt.
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("tenant", NameType, nullable=False),
    sa.Column("run_id", NameType, nullable=False),
    sa.Column("job", NameType, nullable=False),
    sa.Column("step", NameType, nullable=False),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("decision", sa.Text, nullable=False),
    sa.Column("rule", NameType, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    # As JSON: where something was found, never the text itself.
    sa.Column("findings", sa.Text, nullable=False),
    sa.Column("content_digest", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("ruled_at", InstantType, nullable=False),
    # Null if nothing is held back: the output was redacted, or dropped with a failed attempt.
    sa.Column("status", sa.Text),
    sa.Column("decided_by", NameType),
    sa.Column("decided_at", InstantType),
    sa.Column("decided_why", sa.Text, nullable=False),
    # The output that is held back, encrypted if there is a key; null once that is decided.
    sa.Column("body", sa.LargeBinary),
    # As JSON: the steps that had read the output before it was checked; null in rows of older programs.
    sa.Column("readers", sa.Text),
    partial_index("output_held", "tenant", "ruled_at", "task_id", where=HELD_BACK),
)

#: The tasks whose outputs are stored, and have to be checked.
output_check = sa.Table(
    "output_check",
    metadata,
    sa.Column("task_id", NameType, primary_key=True),
    sa.Column("added_at", InstantType, nullable=False),
    sa.Index("output_check_in_order", "added_at", "task_id"),
    sqlite_with_rowid=False,
)

#: The contents that an operator has released.
output_exemption = sa.Table(
    "output_exemption",
    metadata,
    sa.Column("tenant", NameType, primary_key=True),
    sa.Column("content_digest", sa.Text, primary_key=True),
    sa.Column("task_id", NameType, nullable=False),
    sa.Column("exempted_by", NameType, nullable=False),
    sa.Column("exempted_at", InstantType, nullable=False),
    sqlite_with_rowid=False,
)

#: The usage of agents: one row for each attempt from its first answer on. It outlives its run, since it is an account.
agent_usage = sa.Table(
    "agent_usage",
    metadata,
    sa.Column("task_id", NameType, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("run_id", NameType, nullable=False),
    sa.Column("tenant", NameType, nullable=False),
    sa.Column("job", NameType, nullable=False),
    sa.Column("at", InstantType, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("requests", sa.BigInteger, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    # In millionths of the currency of the prices.
    sa.Column("cost_micros", sa.BigInteger, nullable=False),
    sa.Column("tool_calls", sa.BigInteger, nullable=False),
    sa.Column("actions", sa.BigInteger, nullable=False),
    sa.Index("agent_usage_of_tenant", "tenant", "at"),
    sa.Index("agent_usage_of_run", "run_id"),
    sa.Index("agent_usage_of_job", "tenant", "job", "at"),
    sqlite_with_rowid=False,
)

#: The logs of running attempts. If their worker is lost they move to the log of the task; any other end has its own.
agent_log = sa.Table(
    "agent_log",
    metadata,
    sa.Column("task_id", NameType, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    # Counts from 0 within the attempt.
    sa.Column("place", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", InstantType, nullable=False),
    sa.Column("level", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)

#: The sessions of agents, and the task that holds each of them: no two runs use one at the same time.
agent_session = sa.Table(
    "agent_session",
    metadata,
    sa.Column("tenant", NameType, primary_key=True),
    sa.Column("session", NameType, primary_key=True),
    sa.Column("task_id", NameType, nullable=False),
    sa.Column("held_at", InstantType, nullable=False),
    sqlite_with_rowid=False,
)

#: How many tasks the sub-runs under a run have together. A fan-out locks it, so it is no column of the run.
sub_run_tasks = sa.Table(
    "sub_run_tasks",
    metadata,
    sa.Column("root_run_id", NameType, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

#: The histories of sessions: the messages of each run that has succeeded.
agent_turn = sa.Table(
    "agent_turn",
    metadata,
    sa.Column("tenant", NameType, primary_key=True),
    sa.Column("session", NameType, primary_key=True),
    # Counts from 1 within the session.
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("task_id", NameType, nullable=False),
    sa.Column("run_id", NameType, nullable=False),
    sa.Column("job", NameType, nullable=False),
    sa.Column("at", InstantType, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Index("agent_turn_of_task", "tenant", "session", "task_id", unique=True),
    sqlite_with_rowid=False,
)
