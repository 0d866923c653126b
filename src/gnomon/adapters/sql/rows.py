"""Rows of the tables as values of the core, and back.

Rows that every task needs hold `_value_` of their states: the property `value` is Python code, and takes five times as
long.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeVar, assert_never

import msgspec
import sqlalchemy as sa
from msgspec import Struct
from msgspec.structs import replace

from gnomon.adapters.sql import bulk, schema
from gnomon.core.announcements.model import Announcement, AnnouncementFacts, AnnouncementState, AnnounceMoment
from gnomon.core.cron import Cron, Dst
from gnomon.core.instants import instant_of, ms_of
from gnomon.core.model import (
    Attempt,
    Catchup,
    DeadLetter,
    Decision,
    MarkCorrection,
    Overlap,
    Reason,
    Result,
    Run,
    RunId,
    RunSource,
    RunStatus,
    Schedule,
    ScheduleUid,
    Spec,
    Task,
    Tick,
    TickException,
    TickKind,
    TickStatus,
)
from gnomon.core.output_policy.ruling import (
    HeldStatus,
    OutputDecision,
    OutputPhase,
    ScanFinding,
    StoredOutputRuling,
)
from gnomon.core.policy.constraints import Constraints
from gnomon.core.policy.ruling import PolicyDecision, StoredRuling
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.rollback import RollbackCause, RollbackStatus
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import AlteredWorkflow, RunDeadlines, Workflow
from gnomon.core.triggers import At, Every, OnDemand, OnEvent
from gnomon.errors import UsageError
from gnomon.ports.schedules import Pause, Revision

#: A row as the driver returns it; its types are those of the columns.
Row = Sequence[Any]

_NAMES = [column.name for column in schema.schedule.columns]
_SPEC_STARTS, _STATE_STARTS, _STATE_ENDS = map(_NAMES.index, ("trigger_kind", "revision", "deleted_at"))
_TRIGGER_ENDS = _NAMES.index("workflow_id") - _SPEC_STARTS
#: Columns of later migrations are at the end of the table; these are no columns of a Spec.
_LATER_STATE = ("mark_correction", "spread_until")
#: Only retention and the setting back of marks read and write it.
_NO_STATE = ("ticks_removed_until",)
_LATER_SPEC = [name for name in _NAMES[_STATE_ENDS + 1 :] if name not in (*_LATER_STATE, *_NO_STATE)]
#: The columns of a Spec.
_SPEC = [*_NAMES[_SPEC_STARTS:_STATE_STARTS], *_LATER_SPEC]
_SPEC_ENDS = _SPEC_STARTS + len(_SPEC)
_ORDER = (*_NAMES[:_SPEC_STARTS], *_SPEC, *_NAMES[_STATE_STARTS:_STATE_ENDS], *_LATER_STATE)
#: The columns of a Schedule.
SCHEDULE = tuple(schema.schedule.c[name] for name in _ORDER)

#: The errors that an unknown zone, an unknown value or an inconsistent row raises.
_UNREADABLE = (ValueError, LookupError, TypeError, ArithmeticError)
_MS = timedelta(milliseconds=1)
_OVERLAPS = {str(one): one for one in Overlap}
_CATCHUPS = {str(one): one for one in Catchup}
#: The options of an event trigger: filter, debounce and batch. Options of a newer version are unknown here.
_OPTIONS = ("where", "debounce_ms", "most", "batch_ms")
_STEPS = msgspec.json.Decoder(tuple[str, ...])
_GROUPS, _NO_GROUPS = msgspec.json.Decoder(tuple[str, ...]), "[]"
_FACTS = msgspec.json.Decoder(AnnouncementFacts)
_CONSTRAINTS = msgspec.json.Decoder(Constraints)
_DEADLINES = msgspec.json.Decoder(RunDeadlines)
_CORRECTION = msgspec.json.Decoder(MarkCorrection)
_EXCEPTIONS = msgspec.json.Decoder(tuple[tuple[int, int | None], ...])


# ---- schedules -----------------------------------------------------------------------------------


def schedule_row(schedule: Schedule) -> tuple[Any, ...]:
    """The schedule as a row of SCHEDULE."""
    return (
        schedule.uid,
        schedule.tenant,
        schedule.schedule_id,
        *_spec_row(schedule.spec),
        schedule.revision,
        schedule.shard,
        schedule.mark_at,
        schedule.next_fire_at,
        schedule.paused_at,
        schedule.active_runs,
        schedule.queued_runs,
        schedule.created_at,
        schedule.updated_at,
        None if schedule.mark_correction is None else msgspec.json.encode(schedule.mark_correction).decode(),
        schedule.spread_until,
    )


def schedule_of(row: Row) -> Schedule:
    """The schedule of a row; UsageError with its name if this program cannot read it."""
    try:
        return _schedule_of(row)
    except _UNREADABLE as error:
        _, tenant, name = row[:_SPEC_STARTS]
        reason = f"{type(error).__name__} {error}" if isinstance(error, LookupError) else str(error)
        raise UsageError(f"schedule {name!r} of tenant {tenant!r} cannot be read here: {reason}") from error


def _schedule_of(row: Row) -> Schedule:
    uid, tenant, schedule_id = row[:_SPEC_STARTS]
    state = row[_SPEC_ENDS : len(SCHEDULE)]
    revision, shard, mark_at, next_fire_at, paused_at, active_runs, queued_runs = state[:7]
    created_at, updated_at, correction, spread_until = state[7:]
    return Schedule(
        uid=uid,
        tenant=tenant,
        schedule_id=schedule_id,
        spec=_spec_of(row[_SPEC_STARTS:_SPEC_ENDS]),
        revision=revision,
        shard=shard,
        mark_at=mark_at,
        next_fire_at=next_fire_at,
        paused_at=paused_at,
        active_runs=active_runs,
        queued_runs=queued_runs,
        created_at=created_at,
        updated_at=updated_at,
        mark_correction=None if correction is None else _CORRECTION.decode(correction),
        spread_until=spread_until,
    )


def _spec_row(spec: Spec) -> tuple[Any, ...]:
    return (
        *_trigger_row(spec.trigger),
        spec.workflow_id,
        spec.workflow_version,
        spec.user_id,
        _steps_text(spec.first_steps),
        spec.start_at,
        spec.end_at,
        spec.overlap.value,
        spec.catchup.value,
        spec.jitter_ms,
        spec.misfire_grace_ms,
        spec.catchup_window_ms,
        spec.catchup_cap,
        spec.queue_limit,
        spec.lookahead_ms,
        spec.delete_after_run,
        _options_text(spec.trigger),
        _exceptions_text(spec.exceptions) if spec.exceptions else None,
        spec.origin,
        spec.orphaned,
        None if spec.deadlines is None else msgspec.json.encode(spec.deadlines).decode(),
    )


def _trigger_row(trigger: Cron | Every | At | OnDemand | OnEvent) -> tuple[Any, ...]:
    match trigger:
        case Cron(expression=expression, timezone=timezone, dialect=dialect, dst=dst):
            return ("cron", expression, timezone, dialect, dst.gap, dst.fold, None, None, None)
        case Every(period=period, anchor=anchor):
            return ("every", None, None, None, None, None, period // _MS, ms_of(anchor), None)
        case At(instant=instant):
            return ("at", None, None, None, None, None, None, None, ms_of(instant))
        case OnDemand():
            return ("on_demand", *[None] * 8)
        case OnEvent(event=event):
            return ("event", event, *[None] * 7)
        case _:
            assert_never(trigger)


def _options_text(trigger: Cron | Every | At | OnDemand | OnEvent) -> str | None:
    if not isinstance(trigger, OnEvent):
        return None
    options = {name: getattr(trigger, name) for name in _OPTIONS}
    return msgspec.json.encode({name: value for name, value in options.items() if value is not None}).decode()


def _spec_of(row: Row) -> Spec:
    values = row[_TRIGGER_ENDS:]
    workflow_id, version, user_id, steps, start_at, end_at, overlap, catchup = values[:8]
    jitter, grace, window, cap, queue, ahead, once, options, exceptions, origin, orphaned, deadlines = values[8:]
    return Spec(
        trigger=_trigger_of(*row[:_TRIGGER_ENDS], options),
        workflow_id=workflow_id,
        workflow_version=version,
        user_id=user_id,
        first_steps=_steps_of(steps),
        start_at=start_at,
        end_at=end_at,
        overlap=_OVERLAPS[overlap],
        catchup=_CATCHUPS[catchup],
        jitter_ms=jitter,
        misfire_grace_ms=grace,
        catchup_window_ms=window,
        catchup_cap=cap,
        queue_limit=queue,
        lookahead_ms=ahead,
        # Revisions of earlier versions lack some columns.
        delete_after_run=bool(once),
        exceptions=_exceptions_of(exceptions) if exceptions else (),
        origin=origin or "",
        orphaned=bool(orphaned),
        deadlines=_DEADLINES.decode(deadlines) if deadlines else None,
    )


@lru_cache(maxsize=8192)  # many schedules share few triggers, and a cron expression is costly to read
def _trigger_of(kind: str, *columns: Any) -> Cron | Every | At | OnDemand | OnEvent:  # noqa: ANN401 - as the columns are
    expression, timezone, dialect, gap, fold, period_ms, anchor_at, at_at, options = columns
    match kind:
        case "cron":
            return Cron(expression, timezone, dialect, Dst(gap, fold))
        case "every":
            return Every(period_ms * _MS, instant_of(anchor_at))
        case "at":
            return At(instant_of(at_at))
        case "on_demand":
            return OnDemand()
        case "event":
            return OnEvent(expression, **msgspec.json.decode(options))
        case _:
            raise ValueError(f"a trigger of the unknown kind {kind!r}")


@lru_cache(maxsize=1024)
def _steps_text(steps: tuple[str, ...]) -> str:
    return msgspec.json.encode(steps).decode()


@lru_cache(maxsize=1024)
def _steps_of(text: str) -> tuple[str, ...]:
    return _STEPS.decode(text)


def _exceptions_text(exceptions: tuple[TickException, ...]) -> str:
    return msgspec.json.encode([(one.planned_at, one.moved_to) for one in exceptions]).decode()


def _exceptions_of(text: str) -> tuple[TickException, ...]:
    return tuple(TickException(planned_at, moved_to) for planned_at, moved_to in _EXCEPTIONS.decode(text))


# ---- revisions and pauses ------------------------------------------------------------------------


def revision_row(schedule: Schedule, actor: str, tzdata: str) -> tuple[Any, ...]:
    """The revision that the last change of a schedule made. Its identity is in the row of the schedule."""
    spec = {name: value for name, value in zip(_SPEC, _spec_row(schedule.spec), strict=True) if value is not None}
    return (
        schedule.uid,
        schedule.revision,
        msgspec.json.encode(spec).decode(),
        schedule.mark_at,
        schedule.next_fire_at,
        schedule.paused_at,
        schedule.active_runs,
        schedule.queued_runs,
        schedule.updated_at,
        actor,
        tzdata,
    )


def revision_of(schedule: Schedule, row: Row) -> Revision:
    """A revision of a schedule, which may have changed since."""
    _, revision, spec, mark_at, next_fire_at, paused_at, active_runs, queued_runs, from_at, actor, tzdata = row
    fields: dict[str, Any] = msgspec.json.decode(spec)
    then = msgspec.structs.replace(
        schedule,
        spec=_spec_of([fields.get(name) for name in _SPEC]),
        revision=revision,
        mark_at=mark_at,
        next_fire_at=next_fire_at,
        paused_at=paused_at,
        active_runs=active_runs,
        queued_runs=queued_runs,
        updated_at=from_at,
    )
    return Revision(revision=revision, schedule=then, from_at=from_at, actor=actor, tzdata=tzdata)


def pause_of(row: Row) -> Pause:
    """A pause, open or over."""
    _, _, paused_at, paused_by, resumed_at, resumed_by = row
    return Pause(paused_at=paused_at, paused_by=paused_by, resumed_at=resumed_at, resumed_by=resumed_by)


# ---- ticks ---------------------------------------------------------------------------------------


def tick_row(tick: Tick) -> tuple[Any, ...]:
    """The tick as a row."""
    decision = tick.decision
    return (
        tick.uid,
        decision.planned_at,
        tick.tenant,
        tick.schedule_id,
        decision.last_at,
        decision.count,
        decision.kind.value,
        decision.reason.value,
        tick.key,
        tick.status.value,
        tick.run_id,
        decision.fire_at,
        tick.decided_at,
        tick.term,
        tick.revision,
    )


def tick_of(row: Row, run_changed_at: int | None = None) -> Tick:
    """The tick of a row."""
    uid, planned_at, tenant, schedule_id, last_at, count, kind, reason, key, status, run_id, fire_at = row[:12]
    decided_at, term, revision = row[12:]
    return Tick(
        uid=ScheduleUid(uid),
        tenant=tenant,
        schedule_id=schedule_id,
        decision=Decision(
            kind=TickKind(kind),
            reason=Reason(reason),
            planned_at=planned_at,
            last_at=last_at,
            count=count,
            fire_at=fire_at,
        ),
        key=key,
        status=TickStatus(status),
        run_id=None if run_id is None else RunId(run_id),
        decided_at=decided_at,
        term=term,
        revision=revision,
        run_changed_at=run_changed_at,
    )


_VERSION = bulk.statement(
    "SELECT definition, digest FROM workflow WHERE tenant = ? AND workflow_id = ? AND version = ?"
)
_DECODER = msgspec.json.Decoder(Workflow)


def load_workflow(conn: sa.Connection, tenant: str, workflow_id: str, version: int) -> Workflow | None:
    """The version of the workflow, if it exists."""
    found = bulk.fetch_rows(conn, _VERSION, tenant, workflow_id, version)
    return stored_workflow(*found[0]) if found else None


# Cached by text, not by name: a version that was rolled back may be stored again with another definition.
@lru_cache(maxsize=512)
def decode_workflow(text: str) -> Workflow:
    """The workflow that a text defines."""
    return _DECODER.decode(text)


@lru_cache(maxsize=512)
def stored_workflow(text: str, digest: str) -> Workflow:
    """The workflow of a row; it says so if its content is not the one that was registered."""
    found = decode_workflow(text)
    if sha256(text.encode()).hexdigest() == digest:
        return found
    return AlteredWorkflow(**{name: getattr(found, name) for name in found.__struct_fields__})


E = TypeVar("E", bound=StrEnum)


def _columns(table: sa.Table, kind: type[Struct]) -> tuple[sa.Column[Any], ...]:
    """The columns of a value in the order of its fields."""
    return tuple(table.c[name] for name in kind.__struct_fields__)


RUN = _columns(schema.run, Run)
TASK = _columns(schema.task, Task)
ATTEMPT = _columns(schema.attempt, Attempt)
DEAD_LETTER = _columns(schema.dead_letter, DeadLetter)
ANNOUNCEMENT = _columns(schema.announcement, Announcement)
RULING = _columns(schema.ruling, StoredRuling)
OUTPUT_RULING = _columns(schema.output_ruling, StoredOutputRuling)
_TASK_ENDS = len(TASK)
_RUN_ENDS = _TASK_ENDS + len(RUN)


#: Ids are ASCII: those that begin with a text lie between that text and it with this character.
LAST_CHARACTER = "\x7f"


def column_list(columns: Iterable[sa.Column[Any]], table: str | None = None) -> str:
    """The columns as SQL text, qualified by their table or by the alias `table`."""
    return ", ".join(f"{table or column.table.name}.{column.name}" for column in columns)


def _by_value(kind: type[E]) -> dict[str, E]:
    return {one.value: one for one in kind}


_SOURCES, _STATUSES = _by_value(RunSource), _by_value(RunStatus)
_STATES, _WAITS = _by_value(TaskState), _by_value(WaitReason)


# ---- runs ----------------------------------------------------------------------------------------

#: The columns of a new run.
NEW_RUN = tuple(column.name for column in RUN[: Run.__struct_fields__.index("started_at")])
#: The columns of a new run that was requested, not started by a tick.
REQUESTED_RUN = (
    *NEW_RUN,
    "idempotency_key",
    "replay_of",
    "parent_task",
    "depth",
    "actor",
    "root_run_id",
    "deadline_at",
    "actor_groups",
)
#: The columns of a new run with a deadline.
LIMITED_RUN = (*NEW_RUN, "deadline_at")


def run_row(run: Run) -> tuple[Any, ...]:
    """A new run as a row of NEW_RUN, the first columns of the table."""
    return (
        run.run_id,
        run.tenant,
        run.schedule_uid,
        run.schedule_id,
        run.workflow_id,
        run.workflow_version,
        run.user_id,
        run.source._value_,
        run.status._value_,
        run.queued,
        run.planned_at,
        run.fire_at,
        run.created_at,
    )


def requested_run_row(run: Run) -> tuple[Any, ...]:
    """A new run as a row of REQUESTED_RUN."""
    return (
        *run_row(run),
        run.idempotency_key,
        run.replay_of,
        run.parent_task,
        run.depth,
        run.actor,
        run.root_run_id,
        run.deadline_at,
        msgspec.json.encode(run.actor_groups).decode() if run.actor_groups else _NO_GROUPS,
    )


def limited_run_row(run: Run) -> tuple[Any, ...]:
    """A new run with a deadline as a row of LIMITED_RUN."""
    return (*run_row(run), run.deadline_at)


def run_of(row: Row) -> Run:
    """The run of a row of RUN."""
    run_id, tenant, schedule_uid, schedule_id, workflow_id, workflow_version, user_id, source, status, queued = row[:10]
    planned_at, fire_at, created_at, started_at, completed_at, cancel_requested_at, error, key, replay_of = row[10:19]
    parent_task, depth, actor, root_run_id, deadline_at, rollback, rollback_cause, rollback_number, groups = row[19:]
    return Run(
        run_id=run_id,
        tenant=tenant,
        schedule_uid=schedule_uid,
        schedule_id=schedule_id,
        workflow_id=workflow_id,
        workflow_version=workflow_version,
        user_id=user_id,
        source=_SOURCES[source],
        status=_STATUSES[status],
        # SQLite stores booleans as numbers.
        queued=bool(queued),
        planned_at=planned_at,
        fire_at=fire_at,
        created_at=created_at,
        started_at=started_at,
        completed_at=completed_at,
        cancel_requested_at=cancel_requested_at,
        error=error,
        idempotency_key=key,
        replay_of=replay_of,
        parent_task=parent_task,
        depth=depth,
        rollback=None if rollback is None else RollbackStatus(rollback),
        rollback_cause=None if rollback_cause is None else RollbackCause(rollback_cause),
        rollback_number=rollback_number,
        # Runs of older programs have none.
        actor=actor or "",
        root_run_id=root_run_id,
        deadline_at=deadline_at,
        actor_groups=() if groups is None or groups == _NO_GROUPS else _GROUPS.decode(groups),
    )


# ---- tasks ---------------------------------------------------------------------------------------


def task_row(task: Task) -> tuple[Any, ...]:
    """A new task as a row of the first columns of the table; all others have their defaults."""
    return (
        task.task_id,
        task.tenant,
        task.run_id,
        task.step,
        task.state._value_,
        task.wait_reason._value_,
        task.available_at,
        task.created_at,
    )


#: The columns of a new task in a graph, and of a new item. Most tasks need neither.
NEW_STEP = (*(column.name for column in TASK[:8]), "note", "skipped", "upstream_failed")
NEW_ITEM = (*(column.name for column in TASK[:8]), "parent", "item", "has_input")
#: The values of the last columns of a task that is in no graph and has neither constraints nor a deadline.
_PLAIN = (None, None, False, False, 0, 0, None, None)


def step_row(task: Task) -> tuple[Any, ...]:
    """A new task of a graph as a row of NEW_STEP."""
    return (*task_row(task), task.note, task.skipped, task.upstream_failed)


def item_row(task: Task) -> tuple[Any, ...]:
    """A new task of an item as a row of NEW_ITEM. Its input is stored apart."""
    return (*task_row(task), task.parent, task.item, True)


def task_of(row: Row) -> Task:
    """The task of a row of TASK."""
    task_id, tenant, run_id, step, state, wait_reason, available_at, created_at = row[:8]
    attempts, fence, losses, routings, note = row[8:13]
    task = Task(
        task_id=task_id,
        tenant=tenant,
        run_id=run_id,
        step=step,
        state=_STATES[state],
        wait_reason=_WAITS[wait_reason],
        available_at=available_at,
        created_at=created_at,
        attempts=attempts,
        fence=fence,
        losses=losses,
        routings=routings,
        note=note,
    )
    return task if row[13:] == _PLAIN else _with_rare_columns(task, row[13:])


def _with_rare_columns(task: Task, row: Row) -> Task:
    parent, item, skipped, upstream_failed, open_items, failed_items, constraints, deadline_at = row
    return replace(
        task,
        parent=parent,
        item=item,
        skipped=bool(skipped),
        upstream_failed=bool(upstream_failed),
        open_items=open_items,
        failed_items=failed_items,
        constraints=None if constraints is None else constraints_of(constraints),
        deadline_at=deadline_at,
    )


@lru_cache(maxsize=1024)
def constraints_of(text: str) -> Constraints:
    """The constraints in a column."""
    return _CONSTRAINTS.decode(text)


@lru_cache(maxsize=1024)
def constraints_text(constraints: Constraints | None) -> str | None:
    """The constraints as a column holds them."""
    return None if constraints is None else msgspec.json.encode(constraints).decode()


def task_and_run_of(row: Row) -> tuple[Task, Run]:
    """The task and the run of a row of TASK and RUN."""
    return task_of(row[:_TASK_ENDS]), run_of(row[_TASK_ENDS:_RUN_ENDS])


def ready_task_of(row: Row) -> ReadyTask:
    """The ready task of a row of TASK, RUN, the input of the run and the input of the task itself."""
    task, run = task_and_run_of(row)
    return ReadyTask(task=task, run=run, input=row[_RUN_ENDS], own_input=row[_RUN_ENDS + 1])


# ---- attempts and dead letters -------------------------------------------------------------------


def attempt_of(row: Row) -> Attempt:
    """The attempt of a row of ATTEMPT."""
    task_id, number, worker, lease_until, dispatched_at, started_at, ended_at, result, error = row
    return Attempt(
        task_id=task_id,
        number=number,
        worker=worker,
        lease_until=lease_until,
        dispatched_at=dispatched_at,
        started_at=started_at,
        ended_at=ended_at,
        result=None if result is None else Result(result),
        error=error,
    )


def announcement_row(one: Announcement) -> tuple[Any, ...]:
    """The announcement as a row of ANNOUNCEMENT."""
    values = {name: getattr(one, name) for name in one.__struct_fields__}
    values |= {"moment": one.moment.value, "state": one.state.value, "facts": msgspec.json.encode(one.facts).decode()}
    return tuple(values.values())


def announcement_of(row: Row) -> Announcement:
    """The announcement of a row."""
    values = dict(zip(Announcement.__struct_fields__, row, strict=True))
    values["moment"], values["state"] = AnnounceMoment(values["moment"]), AnnouncementState(values["state"])
    values["best_effort"], values["facts"] = bool(values["best_effort"]), _FACTS.decode(values["facts"])
    return Announcement(**values)


def ruling_row(one: StoredRuling) -> tuple[Any, ...]:
    """The ruling as a row of RULING."""
    values = msgspec.structs.asdict(one)
    values |= {"decision": one.decision.value, "constraints": constraints_text(one.constraints)}
    return tuple(values.values())


def ruling_of(row: Row) -> StoredRuling:
    """The ruling of a row of RULING."""
    values = dict(zip(StoredRuling.__struct_fields__, row, strict=True))
    values["decision"] = PolicyDecision(values["decision"])
    values["digest"] = bytes(values["digest"])
    if values["constraints"] is not None:
        values["constraints"] = constraints_of(values["constraints"])
    return StoredRuling(**values)


def output_ruling_row(one: StoredOutputRuling) -> tuple[Any, ...]:
    """The ruling as a row of OUTPUT_RULING."""
    values = msgspec.structs.asdict(one)
    values |= {
        "phase": one.phase.value,
        "decision": one.decision.value,
        "findings": msgspec.json.encode(one.findings).decode(),
        "status": None if one.status is None else one.status.value,
        "readers": msgspec.json.encode(one.readers).decode(),
    }
    return tuple(values.values())


def output_ruling_of(row: Row) -> StoredOutputRuling:
    """The ruling of a row of OUTPUT_RULING."""
    values = dict(zip(StoredOutputRuling.__struct_fields__, row, strict=True))
    values["phase"] = OutputPhase(values["phase"])
    values["decision"] = OutputDecision(values["decision"])
    values["findings"] = msgspec.json.decode(values["findings"], type=tuple[ScanFinding, ...])
    values["status"] = None if values["status"] is None else HeldStatus(values["status"])
    values["readers"] = msgspec.json.decode(values["readers"] or "[]", type=tuple[str, ...])
    return StoredOutputRuling(**values)


def dead_letter_row(letter: DeadLetter) -> tuple[Any, ...]:
    """The dead letter as a row."""
    return msgspec.structs.astuple(letter)


def dead_letter_of(row: Row) -> DeadLetter:
    """The dead letter of a row of DEAD_LETTER."""
    return DeadLetter(**dict(zip(DeadLetter.__struct_fields__, row, strict=True)))
