"""Schedules and workflows, as answers for those who ask."""

from gnomon.core import responses
from gnomon.core.instants import instant_of
from gnomon.core.runs.workflow import Workflow
from gnomon.services.answering import at, next_run_at, ticks, zone_of
from gnomon.services.registrar import View
from gnomon.services.wording import in_words
from gnomon.services.workflows import Deployed


def schedule_detail(view: View) -> responses.ScheduleDetail:
    """The schedule with its next planned times and its last decisions."""
    schedule, spec = view.schedule, view.schedule.spec
    return responses.ScheduleDetail(
        schedule_id=schedule.schedule_id,
        workflow_id=spec.workflow_id,
        version=spec.workflow_version,
        user_id=spec.user_id,
        schedule=in_words(spec),
        timezone=zone_of(spec),
        start_at=at(spec.start_at),
        end_at=at(spec.end_at),
        next_run_at=at(next_run_at(view)),
        paused=schedule.paused_at is not None,
        jitter_ms=spec.jitter_ms,
        overlap=spec.overlap.value,
        catchup=spec.catchup.value,
        revision=schedule.revision,
        updated_at=instant_of(schedule.updated_at),
        next_runs=[instant_of(one) for one in view.next_runs],
        last_ticks=ticks(view.last_ticks),
    )


def workflow_deployed(done: Deployed) -> responses.WorkflowDeployed:
    """What a deployment came to."""
    return responses.WorkflowDeployed(
        workflow_id=done.workflow_id,
        version=done.version,
        new=done.new,
        schedules=list(done.schedules),
        removed=list(done.removed),
    )


def workflow_summary(workflow: Workflow) -> responses.WorkflowSummary:
    """The workflow as it is listed."""
    return responses.WorkflowSummary(
        workflow_id=workflow.workflow_id,
        version=workflow.version,
        steps=[step.name for step in workflow.steps],
        tags=list(workflow.tags),
    )
