"""What is said about attempts that have ended, to whoever listens."""

from gnomon.core.runs.outcomes import Assignment, Ending
from gnomon.core.runs.states import TaskState
from gnomon.ports.runtime import Events


def announce(events: Events, ended: Ending, assignment: Assignment | None) -> None:
    """Whoever listens hears what became of the task."""
    if assignment is None:
        return
    run = assignment.run
    facts: dict[str, object] = {
        "tenant": run.tenant,
        "job": run.schedule_id or run.workflow_id,
        "run": run.run_id,
        "step": assignment.step.name,
        "result": ended.result,
        "attempt": assignment.attempt,
        "started_at": run.started_at,
        "ended_at": ended.ended_at,
    }
    if ended.state is TaskState.SUCCEEDED:
        events.emit("task_succeeded", **facts)
        return
    facts |= {"error": ended.error, "available_at": None if ended.over else ended.available_at}
    events.emit("task_failed" if ended.over else "task_waits", **facts)
    if ended.dead_letter is not None:
        job, reason = facts["job"], ended.dead_letter
        events.emit("dead_letter", tenant=run.tenant, job=job, run=run.run_id, reason=reason)
