"""What is kept of a task that has failed for good."""

from collections.abc import Sequence

from gnomon.core.model import Attempt, DeadLetter, Run, Task, TaskId


def dead_letter_id(task_id: TaskId) -> str:
    """The one dead letter that a task can leave."""
    return f"dl_{task_id.removeprefix('task_')}"


def dead_letter(
    task: Task, run: Run, attempts: Sequence[Attempt], reason: str, error: str | None, given: bytes | None, *, now: int
) -> DeadLetter:
    """The dead letter of a task, written at its end."""
    started = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
    return DeadLetter(
        dead_letter_id=dead_letter_id(task.task_id),
        tenant=run.tenant,
        job=run.schedule_id or run.workflow_id,
        run_id=run.run_id,
        task_id=task.task_id,
        step=task.step,
        reason=reason,
        attempts=task.attempts,
        last_error=error,
        input=given,
        first_attempt_at=min(started, default=now),
        last_attempt_at=max(started, default=now),
        created_at=now,
    )
