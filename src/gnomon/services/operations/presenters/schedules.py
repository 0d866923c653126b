"""Presents schedules and workflows."""

from gnomon.core.instants import instant_of
from gnomon.core.responses.schedules import ScheduleDetail, WorkflowDeployed, WorkflowSummary
from gnomon.core.runs.workflow import Workflow
from gnomon.services.operations.presenters.common import (
    cron_expression,
    next_run_at,
    optional_instant,
    schedule_sentence,
)
from gnomon.services.operations.presenters.jobs import ledger_ticks
from gnomon.services.operations.schedules import ScheduleView
from gnomon.services.operations.workflows import DeployResult


def schedule_detail(view: ScheduleView) -> ScheduleDetail:
    """A schedule with its next planned times and its last ticks."""
    schedule, spec = view.schedule, view.schedule.spec
    return ScheduleDetail(
        schedule_id=schedule.schedule_id,
        workflow_id=spec.workflow_id,
        version=spec.workflow_version,
        user_id=spec.user_id,
        schedule=schedule_sentence(spec),
        cron=cron_expression(spec),
        timezone=spec.timezone,
        start_at=optional_instant(spec.start_at),
        end_at=optional_instant(spec.end_at),
        next_run_at=optional_instant(next_run_at(view)),
        paused=schedule.paused_at is not None,
        jitter_ms=spec.jitter_ms,
        overlap=spec.overlap.value,
        catchup=spec.catchup.value,
        revision=schedule.revision,
        updated_at=instant_of(schedule.updated_at),
        next_runs=[instant_of(one) for one in view.next_runs],
        last_ticks=ledger_ticks(view.last_ticks),
    )


def workflow_deployed(done: DeployResult) -> WorkflowDeployed:
    """The result of a deployment."""
    return WorkflowDeployed(
        workflow_id=done.workflow_id,
        version=done.version,
        new=done.new,
        schedules=list(done.schedules),
        removed=list(done.removed),
        warnings=list(done.warnings),
    )


def workflow_summary(workflow: Workflow) -> WorkflowSummary:
    """A workflow in a list."""
    return WorkflowSummary(
        workflow_id=workflow.workflow_id,
        version=workflow.version,
        steps=[step.name for step in workflow.steps],
        tags=list(workflow.tags),
    )
