"""A job: a workflow and its schedule under one name, as users write it."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from msgspec import Struct

from gnomon.core.agents.frequency import agent_warnings, with_gaps
from gnomon.core.cron import Cron
from gnomon.core.instants import instant_of
from gnomon.core.jobs.fields import FieldReader
from gnomon.core.jobs.inputs import read_schema
from gnomon.core.jobs.schedule_fields import (
    MOST_JITTER_MS,
    OTHER_CHOICES,
    Defaults,
    check_zone,
    read_active_window,
    read_dst,
    read_event_trigger,
)
from gnomon.core.jobs.steps import WORK_FIELDS, read_workflow
from gnomon.core.model import DAY_MS, MINUTE_MS, Catchup, Overlap, Spec
from gnomon.core.runs.workflow import Workflow
from gnomon.core.schedule_parser import parse_schedule
from gnomon.core.triggers import LONGEST_PERIOD, SHORTEST_PERIOD, At, Every, OnDemand, OnEvent
from gnomon.errors import CronError, FieldError

_MS = timedelta(milliseconds=1)
_TRIGGERS = ("schedule", "at", "every", "on")
#: The fields that define when a job runs.
TIME_FIELDS = (
    *_TRIGGERS, "timezone", "dialect", "dst", "start_at", "end_at", "jitter", "overlap", "catchup", "misfire_grace",
    "catchup_window", "queue_limit", "enabled", "delete_after_run", "lock", "user_id",
)  # fmt: skip
JOB_FIELDS = tuple(dict.fromkeys(("name", *TIME_FIELDS, *WORK_FIELDS)))


class Job(Struct, frozen=True, kw_only=True):
    """A workflow and its schedule under one name. Registration assigns the version."""

    name: str
    spec: Spec
    workflow: Workflow
    enabled: bool = True


def read_job(definition: Mapping[str, Any], defaults: Defaults, *, now: int) -> Job:
    """Read a job; raise FieldError, which names the first wrong field by its path."""
    fields = FieldReader(definition, JOB_FIELDS)
    workflow = read_workflow(fields)
    spec = _spec(fields, workflow, defaults, now)
    return Job(
        name=workflow.workflow_id,
        spec=spec,
        workflow=with_gaps(workflow, workflow.workflow_id, spec),
        enabled=fields.flag("enabled", default=True),
    )


def read_job_timing(definition: Mapping[str, Any], defaults: Defaults, *, now: int) -> Job:
    """The job; if it cannot run as written, only its name and schedule, with a workflow without steps.

    This shows the fires of a file before everything in it is complete. Raise CronError if the schedule is wrong.
    """
    try:
        return read_job(definition, defaults, now=now)
    except FieldError:
        fields = FieldReader(definition, JOB_FIELDS)
    name = fields.required("name")
    if not isinstance(name, str) or not name:
        raise fields.refused("name", "must be a text")
    kind = next((field for field in _TRIGGERS if field in fields), None)
    if kind is None:
        raise fields.refused("schedule", "is missing")
    trigger = _read_trigger(fields, kind)
    if isinstance(trigger, Every):
        trigger = trigger.anchored(instant_of(now))
    spec = Spec(trigger=trigger, workflow_id=name, first_steps=())
    return Job(name=name, spec=spec, workflow=Workflow(workflow_id=name, version=1, steps=()))


def load_readers() -> None:
    """Load what is imported only when a job needs it: the grammar of sentences, and the library for JSON Schema.

    Both take tens of milliseconds, which a server spends in a thread.
    """
    parse_schedule("every day at 09:00").describe()
    with suppress(CronError):
        parse_schedule("every day at noon in berln")
    read_schema("input_schema", {})


def warnings(job: Job) -> list[str]:
    """Warnings about combinations that are allowed but may not do what the author meant."""
    found = []
    if job.spec.catchup in (Catchup.ALL, Catchup.SPREAD) and job.spec.overlap is Overlap.SKIP:
        found.append(
            f"catchup {job.spec.catchup} with overlap skip: of the ticks that are caught up, those that come due while "
            "one runs are skipped; overlap queue runs them all"
        )
    if isinstance(job.spec.trigger, OnEvent) and job.spec.overlap is Overlap.SKIP:
        found.append("on with overlap skip: an event during a run starts nothing; overlap queue runs them all")
    return found + agent_warnings(job.workflow)


def _spec(fields: FieldReader, workflow: Workflow, defaults: Defaults, now: int) -> Spec:
    start, end = read_active_window(fields)
    trigger = _trigger(fields)
    check_zone(fields, trigger, defaults)
    if isinstance(trigger, Every):
        trigger = trigger.anchored(instant_of(now if start is None else start))
    delete = fields.flag("delete_after_run", default=False)
    if delete and not isinstance(trigger, At):
        raise fields.refused("delete_after_run", "is only for a job that runs once, at an instant")
    return Spec(
        trigger=trigger,
        workflow_id=workflow.workflow_id,
        workflow_version=workflow.version,
        first_steps=workflow.first_steps,
        deadlines=workflow.deadlines,
        user_id=fields.text("user_id", ""),
        start_at=start,
        end_at=end,
        overlap=_overlap(fields, defaults),
        catchup=fields.choice("catchup", Catchup, defaults.catchup, other_names=OTHER_CHOICES),
        jitter_ms=fields.duration("jitter", defaults.jitter_ms, high=MOST_JITTER_MS),
        misfire_grace_ms=fields.duration("misfire_grace", MINUTE_MS, high=365 * DAY_MS),
        catchup_window_ms=fields.duration("catchup_window", DAY_MS, high=365 * DAY_MS),
        catchup_cap=defaults.catchup_cap,
        queue_limit=fields.whole("queue_limit", 100, low=1, high=10_000),
        lookahead_ms=defaults.lookahead_ms,
        delete_after_run=delete,
    )


def _overlap(fields: FieldReader, defaults: Defaults) -> Overlap:
    if "lock" not in fields:
        return fields.choice("overlap", Overlap, defaults.overlap)
    locked = fields.flag("lock", default=False)
    overlap = fields.choice("overlap", Overlap, Overlap.SKIP if locked else Overlap.ALLOW)
    if locked and overlap is not Overlap.SKIP:
        raise fields.refused("overlap", "contradicts lock: true, under which a tick during a run is skipped")
    return overlap


def _trigger(fields: FieldReader) -> Cron | Every | At | OnDemand | OnEvent:
    named = [field for field in _TRIGGERS if field in fields]
    if len(named) > 1:
        raise fields.refused(named[1], f"cannot be beside {named[0]}: a job has one trigger")
    kind = named[0] if named else None
    for field, kinds in (("timezone", ("schedule", "at")), ("dialect", ("schedule",)), ("dst", ("schedule",))):
        if field in fields and kind not in kinds:
            raise fields.refused(field, f"means nothing without {' or '.join(kinds)}")
    try:
        return _read_trigger(fields, kind)
    except CronError as error:
        raise schedule_field_error(fields, kind or "", error) from None


def _read_trigger(fields: FieldReader, kind: str | None) -> Cron | Every | At | OnDemand | OnEvent:
    zone = fields.text("timezone") if "timezone" in fields else None
    if kind is None:
        return OnDemand()
    if kind == "on":
        return read_event_trigger(fields)
    if kind == "every":
        low, high = SHORTEST_PERIOD // _MS, LONGEST_PERIOD // _MS
        return Every(fields.duration("every", 0, low=low, high=high) * _MS)
    if kind == "schedule":
        dialect: Any = fields.text("dialect", "standard")
        return parse_schedule(fields.text("schedule"), timezone=zone, dialect=dialect, dst=read_dst(fields))
    trigger = parse_schedule(fields.text("at"), timezone=zone)
    if not isinstance(trigger, At):
        raise fields.refused("at", "is no instant such as 2026-12-01T09:00:00Z; cron and sentences go under schedule")
    return trigger


def schedule_field_error(fields: FieldReader, kind: str, error: CronError) -> FieldError:
    """The error of a schedule as an error of the field that holds it."""
    field = error.field if error.field.partition(".")[0] in ("timezone", "dialect", "dst") else kind
    hint = f'; did you mean "{error.suggestion}"?' if error.suggestion else ""
    within = f"is refused: {error.subject} " if field == kind and error.subject.endswith("field") else ""
    return FieldError(fields.at(field), error.expression, f"{within}{error.reason}{hint}")
