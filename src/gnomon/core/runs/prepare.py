"""Preparing a due task: resolve its references, then ask the gate, fan it out, delay it, skip it, or fail it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from gnomon.core.ids import task_id, undone_task_id
from gnomon.core.instants import instant_of, ms_of
from gnomon.core.model import Run, RunStatus, TaskId
from gnomon.core.output_policy.ruling import HeldStatus, OutputPhase, StoredOutputRuling
from gnomon.core.payloads import is_sealed
from gnomon.core.runs.admission import (
    Admission,
    AdmissionRequest,
    FanOut,
    ReadyTask,
    bad_input_admission,
    delayed_admission,
    merged_input,
    run_input,
    skipped_admission,
)
from gnomon.core.runs.deadlines import first_spans, run_deadline
from gnomon.core.runs.expressions import (
    DataAllowance,
    Scope,
    check_condition,
    evaluate_condition,
    references,
    resolve_references,
    segments,
)
from gnomon.core.runs.http_urls import fill_url
from gnomon.core.runs.launch import LaunchRequest, next_tasks, sub_run_id
from gnomon.core.runs.outcomes import Assignment, TaskCompletion
from gnomon.core.runs.prompts import framed_prompt
from gnomon.core.runs.rollback import is_compensation, undone_step
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Step, When, Workflow
from gnomon.errors import FieldError

#: The largest number of items of a step.
MOST_ITEMS = 100_000
#: The largest size of the inputs of all items together, in bytes.
LARGEST_ITEMS = 64 << 20
#: How many bytes the references of a step may repeat, beyond all of the data once.
LARGEST_REPETITION = 256 << 10
#: How deep workflows may be nested.
DEEPEST = 8
#: The characters of the shortest path in a condition, such as `input`.
_SHORTEST_PATH = 5
PreparedTask = AdmissionRequest | FanOut | Admission


def outputs_needed(step: Step) -> frozenset[str]:
    """The steps whose outputs must be loaded before the step can be prepared."""
    paths = [*_references(step), *(check_condition("if", step.condition) if step.condition is not None else ())]
    return _steps_in(paths)


def _steps_in(paths: Iterable[str]) -> frozenset[str]:
    found = (segments(path) for path in paths)
    return frozenset(path[1] for path in found if path[0] == "steps" and len(path) > 1)


def output_owners(request: AdmissionRequest) -> dict[TaskId, str]:
    """The tasks whose outputs must be loaded before the task can be prepared, each with its step."""
    task, step = request.waiting.task, request.step
    owners = {task_id(task.run_id, name): name for name in _outputs_to_load(request)}
    undone = undone_step(step.name)
    if task.item is not None and owners.pop(task_id(task.run_id, undone), None) is not None:
        owners[undone_task_id(task)] = undone
    return owners


def _outputs_to_load(request: AdmissionRequest) -> frozenset[str]:
    """The steps that the task refers to."""
    step = request.step
    # No item looks through the list of its step: all items together would take the square of its length.
    if has_input(request):
        return frozenset()
    if request.waiting.task.parent is not None:
        return _steps_in(references(_item_template(step)))
    if is_compensation(step.name) and step.foreach is not None:
        return _steps_in(references(step.foreach)) if _refers_to_item(step) else frozenset()
    return outputs_needed(step)


def has_input(request: AdmissionRequest) -> bool:
    """Whether the task has the input of its function: an item of a fan-out got it when its step began."""
    return request.waiting.task.parent is not None and not _undoes_item(request)


def _undoes_item(request: AdmissionRequest) -> bool:
    """Whether the task undoes an item by a compensation, and has not got its input yet."""
    waiting = request.waiting
    undoes = waiting.task.parent is not None and is_compensation(request.step.name)
    return undoes and waiting.own_input is None and request.step.workflow is None


def awaits_held_output(request: AdmissionRequest) -> bool:
    """Whether the task undoes a step and got no input, since that refers to an output that is held back.

    Nothing stores such an input: each attempt gets it when it begins.
    """
    step, waiting = request.step, request.waiting
    if waiting.own_input is not None or step.workflow is not None or not is_compensation(step.name):
        return False
    return _undoes_item(request) or (waiting.task.parent is None and any(True for _ in references(step.input)))


def without_held_output(
    request: AdmissionRequest, step: str, held: StoredOutputRuling, *, now: int
) -> AdmissionRequest | Admission | None:
    """The next state of a task that refers to an output that is or was held back; None: the output counts as null.

    A compensation may use what is held back, but nobody else may read it: its input is not resolved here. A step that
    could begin because another had succeeded neither runs nor is tried again without the output of that.
    """
    undoes = is_compensation(request.step.name)
    if undoes and held.status is HeldStatus.HELD:
        return request
    late = held.phase is OutputPhase.LATE and request.step.when is When.ALL_SUCCESS
    if held.status is HeldStatus.RELEASED or not (undoes or late):
        return None
    fate = "is held back" if held.status is HeldStatus.HELD else "was held back and discarded"
    reason = f"bad_input: it refers to the output of step {step}, which {fate}"
    return bad_input_admission(request.waiting, request.workflow, reason, now=now)


def _refers_to_item(step: Step) -> bool:
    """Whether the input of each of its items holds the item."""
    return any(segments(path)[0] == "item" for path in references(_item_template(step)))


def _item_template(step: Step) -> Mapping[str, Any]:
    return step.input or {"item": "${item}", "index": "${index}"}


def undone_item_payloads(request: AdmissionRequest) -> tuple[tuple[str, str], ...]:
    """Owner and kind of what a task that undoes an item needs besides: the input of its run, and the item."""
    task = request.waiting.task
    return ((task.run_id, "input"), (task.task_id, "item")) if _undoes_item(request) else ()


def count_references(request: AdmissionRequest) -> int:
    """How many times the task names data, at most."""
    step = request.step
    if has_input(request):
        return 0
    if request.waiting.task.parent is not None:
        return sum(1 for _ in references(step.input))
    return sum(1 for _ in _references(step)) + len(step.condition or "") // _SHORTEST_PATH


def _references(step: Step) -> Iterator[str]:
    """The paths of all references in the step, without those of its condition."""
    for value in (step.input, step.foreach, step.delay_until):
        yield from references(value)


def immediate_successors(held: Assignment, ended: TaskCompletion) -> list[ReadyTask]:
    """The tasks that can start as soon as this completion is written, whatever else happens in the run."""
    workflow, before = held.workflow, held.step.name
    if ended.state is not TaskState.SUCCEEDED or ended.graph is None or held.task.parent is not None:
        return []
    if workflow.max_parallel is not None or is_compensation(before):
        # Only the store knows how many other steps are running, and which step is undone next.
        return []
    steps = tuple(step.name for step in workflow.steps if _is_immediate_successor(step, before))
    made = next_tasks(held.run, steps, workflow, held=False, now=ended.ended_at)
    behind = ended.task_id, ended.fence
    return [ReadyTask(task=task, run=held.run, input=held.given, behind=behind) for task in made]


def has_other_successors(held: Assignment, immediate: Sequence[ReadyTask]) -> bool:
    """Whether the end of this step may lead to more than those tasks."""
    return not immediate or sum(held.step.name in step.depends_on for step in held.workflow.steps) > len(immediate)


def _is_immediate_successor(step: Step, before: str) -> bool:
    """Whether a step calls its function at once, with nothing but the run's input and the output of `before`."""
    later = step.foreach or step.condition or step.delay_ms or step.delay_until
    at_once = step.depends_on == (before,) and step.when is not When.ANY_FAILED and bool(step.function)
    return at_once and not later and outputs_needed(step) <= {before}


def reference_scope(workflow: Workflow, waiting: ReadyTask, outputs: Mapping[str, bytes | None]) -> Scope:
    """The values that references in a step can name."""
    run = waiting.run
    return {
        "steps": {name: {"output": _decoded(f"steps.{name}.output", raw)} for name, raw in outputs.items()},
        "input": run_input(workflow, waiting),
        "run": {
            "id": run.run_id,
            "job": run.schedule_id or run.workflow_id,
            "planned_at": instant_of(run.planned_at).isoformat(),
        },
    }


def _decoded(field: str, raw: bytes | None) -> Any:  # noqa: ANN401 - any JSON
    if raw is None:
        return None
    if is_sealed(raw):
        # A condition must not be decided on an envelope.
        reason = "is encrypted with a key that payload.keys lacks, or was altered"
        raise FieldError(field, "[hidden]", reason)
    return msgspec.json.decode(raw)


def data_size(workflow: Workflow, waiting: ReadyTask, outputs: Mapping[str, bytes | None]) -> int:
    """The size of the data that references in a step can name, in bytes."""
    own = len(msgspec.json.encode(workflow.input)) if workflow.input else 0
    return own + len(waiting.input or b"") + sum(len(one or b"") for one in outputs.values())


def prepare_task(
    request: AdmissionRequest,
    outputs: Mapping[str, bytes | None],
    sub: Workflow | None,
    *,
    now: int,
    of_item: Sequence[bytes | None] = (),
) -> PreparedTask:
    """The task, prepared for the gate, or its outcome without it.

    `outputs` are those of the steps that it refers to; `sub` is the workflow that its step runs, if any; `of_item` are
    the payloads that a task needs to undo an item (`undone_item_payloads`).
    """
    waiting, workflow, step = request.waiting, request.workflow, request.step
    try:
        if is_compensation(step.name) and (step.foreach is not None or step.workflow is not None):
            return _undoing(request, outputs, of_item)
        if waiting.task.parent is None:
            scope = reference_scope(workflow, waiting, outputs)
            allowance = DataAllowance(data_size(workflow, waiting, outputs) + LARGEST_REPETITION)
            early = _delay_or_skip(waiting, workflow, step, scope, allowance, now)
            if early is not None:
                return early
            if step.foreach is not None:
                return _fan_out_items(request, scope, allowance)
            request = _with_input(request, scope, allowance)
    except FieldError as error:
        return bad_input_admission(waiting, workflow, f"bad_input: {error}", now=now)
    if step.workflow is not None and sub is not None:
        return _fan_out_sub_run(request, sub, now)
    return request if step.function else _fan_out(request)


def _undoing(
    request: AdmissionRequest, outputs: Mapping[str, bytes | None], of_item: Sequence[bytes | None]
) -> FanOut | AdmissionRequest:
    """The fan-out that undoes the items or the runs of a step; or the request of a task that undoes one item."""
    waiting, workflow, step = request.waiting, request.workflow, request.step
    undone = undone_step(step.name)
    if step.foreach is None or waiting.task.parent is not None:
        if step.workflow is not None:
            return _fan_out(request, undoes=undone)
        return _undoing_item(request, outputs, of_item) if _undoes_item(request) else request
    items = tuple[bytes, ...]()
    if step.workflow is None and _refers_to_item(step):
        scope = reference_scope(workflow, waiting, outputs)
        found = _foreach_items(step, scope, DataAllowance(data_size(workflow, waiting, outputs) + LARGEST_REPETITION))
        items = tuple(map(msgspec.json.encode, found))
    return _fan_out(request, items=items, limit=step.max_parallel, undoes=undone)


def _undoing_item(
    request: AdmissionRequest, outputs: Mapping[str, bytes | None], of_item: Sequence[bytes | None]
) -> AdmissionRequest:
    """The request with the input of a task that undoes an item. The output of the step is that of the item."""
    step, waiting = request.step, request.waiting
    given, item = of_item
    _decoded("input", given)
    scope = {
        **reference_scope(request.workflow, msgspec.structs.replace(waiting, input=given), outputs),
        "item": _decoded("item", item),
        "index": waiting.task.item,
    }
    own = _resolved_input(step, _item_template(step), scope, DataAllowance(LARGEST_ITEMS))
    return msgspec.structs.replace(request, input=own, own_input=msgspec.json.encode(own))


def _delay_or_skip(
    waiting: ReadyTask, workflow: Workflow, step: Step, scope: Scope, allowance: DataAllowance, now: int
) -> Admission | None:
    start = _start(waiting, step, scope, allowance)
    if start > now:
        return delayed_admission(waiting, workflow, start)
    if step.condition is not None and not evaluate_condition(step.condition, scope):
        return skipped_admission(waiting, workflow, f"its condition does not hold: {step.condition}", now=now)
    return None


def _start(waiting: ReadyTask, step: Step, scope: Scope, allowance: DataAllowance) -> int:
    start = waiting.task.created_at + (step.delay_ms or 0)
    if step.delay_until is None:
        return start
    text = resolve_references(step.delay_until, scope, allowance)
    try:
        until = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise FieldError("delay_until", text, "is no ISO instant") from None
    if until.tzinfo is None:
        raise FieldError("delay_until", text, "names no time zone")
    return max(start, ms_of(until))


def _with_input(request: AdmissionRequest, scope: Scope, allowance: DataAllowance) -> AdmissionRequest:
    step = request.step
    if not any(True for _ in references(step.input)):
        return request
    own = _resolved_input(step, step.input, scope, allowance)
    resolved = {**merged_input(request.workflow, step, request.waiting), **own}
    return msgspec.structs.replace(request, input=resolved, own_input=msgspec.json.encode(resolved))


def _resolved_input(step: Step, template: Mapping[str, Any], scope: Scope, allowance: DataAllowance) -> dict[str, Any]:
    """The input with its references resolved. In the URL of a call, data is percent-encoded; in a prompt, framed."""
    if step.is_agent:
        return {**template, "prompt": framed_prompt(template["prompt"], scope, allowance)}
    if not step.is_http_call:
        resolved: dict[str, Any] = resolve_references(template, scope, allowance)
        return resolved
    url = fill_url("http.url", template["url"], scope, allowance)
    rest = {field: value for field, value in template.items() if field != "url"}
    return {"url": url, **resolve_references(rest, scope, allowance)}


def _fan_out_items(request: AdmissionRequest, scope: Scope, allowance: DataAllowance) -> FanOut:
    step = request.step
    items = _foreach_items(step, scope, allowance)
    # Only the input of the step, without the run's input: that may be the very list, repeated for each of its items.
    template = _item_template(step)
    inputs: list[bytes] = []
    size = 0
    for number, item in enumerate(items):
        of_item = {**scope, "item": item, "index": number}
        given = _resolved_input(step, template, of_item, DataAllowance(LARGEST_ITEMS))
        inputs.append(msgspec.json.encode(given))
        size += len(inputs[-1])
        if size > LARGEST_ITEMS:
            reason = (
                f"is given more than {LARGEST_ITEMS} bytes in all: pass references to large data to each item instead"
            )
            raise FieldError("foreach", f"{len(items)} items", reason)
    added = len(items) if request.waiting.run.depth else 0
    return _fan_out(
        request,
        items=tuple(inputs),
        limit=step.max_parallel,
        output=None if items else b"[]",
        sub_run_tasks=added,
    )


def _foreach_items(step: Step, scope: Scope, allowance: DataAllowance) -> list[Any]:
    items = resolve_references(step.foreach, scope, allowance)
    if not isinstance(items, list):
        raise FieldError("foreach", items, "is no list")
    if len(items) > MOST_ITEMS:
        raise FieldError("foreach", f"{len(items)} items", f"has more than {MOST_ITEMS} items")
    return items


def _fan_out_sub_run(request: AdmissionRequest, sub: Workflow, now: int) -> FanOut | Admission:
    waiting = request.waiting
    if waiting.run.depth >= DEEPEST:
        reason = f"bad_input: workflows run workflows more than {DEEPEST} deep"
        return bad_input_admission(waiting, request.workflow, reason, now=now)
    run = waiting.run
    task = msgspec.structs.replace(waiting.task, fence=waiting.task.fence + 1)
    started = Run(
        run_id=sub_run_id(task),
        tenant=run.tenant,
        schedule_uid=None,
        schedule_id=None,
        workflow_id=sub.workflow_id,
        workflow_version=sub.version,
        user_id=run.user_id,
        source=run.source,
        status=RunStatus.PENDING,
        queued=False,
        planned_at=run.planned_at,
        fire_at=now,
        created_at=now,
        parent_task=task.task_id,
        depth=run.depth + 1,
        actor=run.actor,
        actor_groups=run.actor_groups,
        root_run_id=run.root,
        deadline_at=run_deadline(sub.deadline_ms, created_at=now, planned_at=now, inherited=task.deadline_at),
    )
    merged: dict[str, Any] = {**sub.input, **request.input}
    launch = LaunchRequest(
        run=started,
        first_steps=sub.first_steps,
        first_spans_ms=first_spans(sub.deadlines),
        input=msgspec.json.encode(merged),
    )
    return _fan_out(request, launch=launch, sub_run_tasks=len(sub.steps))


def _fan_out(request: AdmissionRequest, **fields: Any) -> FanOut:  # noqa: ANN401 - fields of FanOut
    task = request.waiting.task
    return FanOut(
        task_id=task.task_id,
        run_id=task.run_id,
        schedule_uid=request.waiting.run.schedule_uid,
        fence=task.fence,
        graph=request.workflow,
        root=request.waiting.run.root,
        **fields,
    )
