"""Requests to admit a task, without a store."""

from typing import Any

from msgspec.structs import replace

from gnomon.core.runs.admission import AdmissionRequest, ReadyTask
from gnomon.core.runs.states import TaskState
from support.running_assignments import running_assignment


def request_to_admit(
    task: str = "task_1",
    given: dict[str, Any] | None = None,
    **step: Any,  # noqa: ANN401 - fields of a step
) -> AdmissionRequest:
    """A request about a pending task of a step with these fields."""
    one = running_assignment()
    made = replace(one.step, **step)
    return AdmissionRequest(
        waiting=ReadyTask(task=replace(one.task, task_id=task, state=TaskState.PENDING), run=one.run),
        workflow=replace(one.workflow, steps=(made,)),
        step=made,
        input=given or {},
    )
