"""Jobs and workflows as plain data that `read_job` and `read_definition` read back."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from gnomon.core.commands.sandbox import SandboxMode
from gnomon.core.cron import Cron, Dst
from gnomon.core.durations import duration_text
from gnomon.core.instants import instant_of
from gnomon.core.jobs.agent_fields import agent_as_data
from gnomon.core.jobs.announce_fields import announcements_as_data
from gnomon.core.jobs.breaker_fields import breaker_as_data
from gnomon.core.jobs.job import Job
from gnomon.core.jobs.routing_fields import ROUTE_FIELDS, route_as_data
from gnomon.core.jobs.schedule_fields import event_trigger_as_data
from gnomon.core.jobs.steps import COMMAND_FIELDS, RISK_FIELDS, SANDBOX_FIELDS, ping_as_data
from gnomon.core.model import DAY_MS, MINUTE_MS, Spec
from gnomon.core.runs.rollback import COMPENSATION_TERMS
from gnomon.core.runs.workflow import ONLY_STEP, Delivery, Isolation, RetryPolicy, Step, When, Workflow
from gnomon.core.triggers import At, Every, OnEvent

_MS = timedelta(milliseconds=1)
#: The fields in which a job with one function describes its only step.
_STEP_FIELDS = (
    "function", *COMMAND_FIELDS, *SANDBOX_FIELDS, "http", "agent", "timeout", "retry", "isolation", "lock",
    *ROUTE_FIELDS, *RISK_FIELDS, "breaker",
)  # fmt: skip


def job_as_data(job: Job) -> dict[str, Any]:
    """The fields that define this job. Default values are left out, unless a setting could change the default.

    The start of an interval's grid is not exported: registering the same interval again does not move its grid.
    """
    workflow = job.workflow
    data: dict[str, Any] = {"name": job.name}
    data |= _unless("description", workflow.description, "")
    data |= dict(_trigger(job.spec))
    data |= dict(_policies(job.spec))
    data |= _unless("enabled", job.enabled, True) | dict(_work(workflow))
    return data


def workflow_as_data(workflow: Workflow) -> dict[str, Any]:
    """The definition that deploys this workflow."""
    work = dict(_work(workflow))
    steps = [{"step": step.name} | dict(_step(step)) for step in workflow.steps]
    rest = {field: value for field, value in work.items() if field not in ("dag", *_STEP_FIELDS)}
    rest |= _unless("input", workflow.input, {})
    about = _unless("description", workflow.description, "")
    return {"workflow_id": workflow.workflow_id, "version": workflow.version, **about, "steps": steps, **rest}


def _unless(field: str, value: object, default: object) -> dict[str, Any]:
    """The field with its value, unless that is the default."""
    return {} if value == default else {field: value}


def _duration_unless(field: str, span_ms: int | None, default_ms: int | None) -> dict[str, Any]:
    return {} if span_ms is None or span_ms == default_ms else {field: duration_text(span_ms)}


def _trigger(spec: Spec) -> Iterator[tuple[str, Any]]:
    trigger = spec.trigger
    if isinstance(trigger, Cron):
        yield "schedule", trigger.expression
        yield "timezone", trigger.timezone
        yield from _unless("dialect", trigger.dialect, "standard").items()
        if trigger.dst != Dst():
            yield "dst", {"gap": trigger.dst.gap, "fold": trigger.dst.fold}
    elif isinstance(trigger, Every):
        yield "every", duration_text(trigger.period // _MS)
    elif isinstance(trigger, At):
        yield "at", trigger.instant.isoformat()
    elif isinstance(trigger, OnEvent):
        yield "on", event_trigger_as_data(trigger)


def _policies(spec: Spec) -> Iterator[tuple[str, Any]]:
    for field, at in (("start_at", spec.start_at), ("end_at", spec.end_at)):
        if at is not None:
            yield field, instant_of(at).isoformat()
    yield "overlap", spec.overlap.value
    yield "catchup", spec.catchup.value
    yield "jitter", duration_text(spec.jitter_ms)
    yield from _duration_unless("misfire_grace", spec.misfire_grace_ms, MINUTE_MS).items()
    yield from _duration_unless("catchup_window", spec.catchup_window_ms, DAY_MS).items()
    yield from _unless("queue_limit", spec.queue_limit, 100).items()
    yield from _unless("delete_after_run", spec.delete_after_run, False).items()
    yield from _unless("user_id", spec.user_id, "").items()


def _work(workflow: Workflow) -> Iterator[tuple[str, Any]]:
    if _is_a_graph(workflow):
        yield "dag", [{"step": step.name} | dict(_step(step)) for step in workflow.steps]
    else:
        yield from _step(workflow.steps[0])
    yield from _unless("max_parallel", workflow.max_parallel, None).items()
    yield from _duration_unless("deadline", workflow.deadline_ms, None).items()
    yield from _unless("input", workflow.input, {}).items()
    yield from _unless("input_schema", workflow.input_schema, None).items()
    if workflow.delivery is not Delivery.AT_LEAST_ONCE:
        yield "delivery", workflow.delivery.value
    yield from _unless("lock", workflow.lock, False).items()
    yield from _unless("dead_letter", workflow.dead_letter, False).items()
    yield from _unless("rollback_on", list(workflow.rollback_on), []).items()
    yield from _unless("retention", _retention(workflow), None).items()
    if workflow.ping is not None:
        yield "ping", ping_as_data(workflow.ping)
    if workflow.announce:
        yield "announce", announcements_as_data(workflow.announce)
    yield from _unless("tags", list(workflow.tags), []).items()


def _is_a_graph(workflow: Workflow) -> bool:
    first = workflow.steps[0]
    plain = Step(
        name=ONLY_STEP,
        function=first.function,
        command=first.command,
        sandbox=first.sandbox,
        network=first.network,
        input=first.input if first.command or first.is_http_call or first.agent else {},
        agent=first.agent,
        timeout_ms=first.timeout_ms,
        retry=first.retry,
        isolation=first.isolation,
        route=first.route,
        capability=first.capability,
        risk_tags=first.risk_tags,
        breaker=first.breaker,
    )
    return workflow.steps != (plain,) or not first.function or workflow.max_parallel is not None


def _step(step: Step) -> Iterator[tuple[str, Any]]:
    if step.command:
        yield "command", step.command
        yield from step.input.items()
        if step.sandbox is not SandboxMode.AUTO:
            yield "sandbox", step.sandbox.value
        yield from _unless("network", step.network, True).items()
    elif step.is_http_call:
        yield "http", step.input
    elif step.agent is not None:
        yield "agent", agent_as_data(step.agent, step.input)
    else:
        yield from _unless("function", step.function, "").items()
        yield from _unless("input", step.input, {}).items()
    yield from _unless("workflow", step.workflow, None).items()
    yield from _unless("depends_on", list(step.depends_on), []).items()
    if step.when is not When.ALL_SUCCESS:
        yield "when", step.when.value
    yield from _unless("if", step.condition, None).items()
    yield from _unless("foreach", step.foreach, None).items()
    yield from _unless("max_parallel", step.max_parallel, None).items()
    yield from _duration_unless("delay", step.delay_ms, None).items()
    yield from _unless("delay_until", step.delay_until, None).items()
    yield from _duration_unless("timeout", step.timeout_ms, None).items()
    yield from _duration_unless("deadline", step.deadline_ms, None).items()
    if step.retry is not None:
        yield "retry", _retry(step.retry)
    if step.isolation is not Isolation.NONE:
        yield "isolation", step.isolation.value
    yield from route_as_data(step.route)
    yield from _unless("capability", step.capability, "").items()
    yield from _unless("risk_tags", list(step.risk_tags), []).items()
    if step.breaker is not None:
        yield "breaker", breaker_as_data(step.breaker)
    if step.compensate is not None:
        yield "compensate", _compensation(step.compensate)


def _compensation(step: Step) -> dict[str, Any]:
    """The compensation without the terms that every compensation has."""
    data = dict(_step(step))
    for field in ("priority", "foreach", "max_parallel"):
        data.pop(field, None)
    for field in ("labels", "env"):
        own = {name: value for name, value in data.pop(field, {}).items() if name not in COMPENSATION_TERMS}
        data |= _unless(field, own, {})
    return data


def _retention(workflow: Workflow) -> int | dict[str, int] | None:
    if workflow.retention_runs is None:
        return workflow.retention_days
    days = {} if workflow.retention_days is None else {"days": workflow.retention_days}
    return {"runs": workflow.retention_runs, **days}


def _retry(retry: RetryPolicy) -> dict[str, Any]:
    return {
        "max_attempts": retry.max_attempts,
        "initial_delay": duration_text(retry.initial_delay_ms),
        "multiplier": retry.multiplier,
        "max_delay": duration_text(retry.max_delay_ms),
        "jitter": duration_text(retry.jitter_ms) if retry.jitter_ms else retry.jitter,
    }
