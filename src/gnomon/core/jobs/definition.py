"""Workflow definitions as other programs deploy them: a DAG in JSON, with its triggers."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.jobs.fields import FieldReader, schedule_name
from gnomon.core.jobs.job import schedule_field_error
from gnomon.core.jobs.schedule_fields import Defaults, read_schedule_request
from gnomon.core.jobs.steps import COMMAND_FIELDS, WORK_FIELDS, read_workflow
from gnomon.core.model import Spec
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import CronError, FieldError

#: The fields that a definition shares with a job, besides its name, steps and triggers.
_SHARED_FIELDS = tuple(
    field for field in WORK_FIELDS if field not in ("name", "function", *COMMAND_FIELDS, "http", "agent", "dag", "lock")
)
DEFINITION_FIELDS = ("workflow_id", "version", "steps", "triggers", *_SHARED_FIELDS)
_OTHER_NAMES = {"id": "workflow_id", "nodes": "steps"}
#: The only type of trigger read here; triggers of other types belong to other programs and are ignored.
_SCHEDULED = "schedule_based"
_LAST_VERSION = 2**31 - 1


class Definition(Struct, frozen=True, kw_only=True):
    """A workflow and the schedules that its triggers define."""

    #: Its version is 1 until it is deployed.
    workflow: Workflow
    #: The version that the definition names, if any.
    version: int | None
    schedules: Mapping[str, Spec]
    #: The name under which it has its steps.
    list_field: str = "steps"


def read_definition(definition: Mapping[str, Any], defaults: Defaults, *, now: int) -> Definition:
    """Read a definition; raise FieldError, which names the first wrong field by its path."""
    fields = FieldReader(definition, DEFINITION_FIELDS, other_names=_OTHER_NAMES)
    id_field = "id" if "id" in definition else "workflow_id"
    list_field = "nodes" if "nodes" in definition else "steps"
    name = schedule_name(id_field, fields.required("workflow_id"))
    steps_field = fields.required("steps")
    steps = [_step(step) for step in steps_field] if isinstance(steps_field, list | tuple) else steps_field
    shared = {field: fields[field] for field in _SHARED_FIELDS if field in fields}
    try:
        workflow = read_workflow(FieldReader({"name": name, "dag": steps, **shared}, WORK_FIELDS))
    except FieldError as error:
        root = "dag"
        field = list_field + error.field.removeprefix(root) if error.field.startswith(root) else error.field
        raise FieldError(field, error.value, error.reason) from None
    return Definition(
        workflow=workflow,
        version=fields.whole("version", 1, low=1, high=_LAST_VERSION) if "version" in fields else None,
        schedules=dict(_schedules(fields, workflow, defaults, now)),
        list_field=list_field,
    )


def _step(step: Any) -> Any:  # noqa: ANN401 - `read_workflow` checks whether it is a step
    """A step with the field names of a job, which calls the name `step`."""
    if not isinstance(step, Mapping) or "step" in step:
        return step
    name = next((field for field in ("id", "name") if field in step), None)
    return {"step" if field == name else field: value for field, value in step.items()}


def _schedules(fields: FieldReader, workflow: Workflow, defaults: Defaults, now: int) -> list[tuple[str, Spec]]:
    found: dict[str, Spec] = {}
    for index, (path, trigger) in enumerate(fields.entries("triggers")):
        if not isinstance(trigger, Mapping) or not isinstance(trigger.get("type"), str):
            raise FieldError(path, trigger, f"must be a mapping with a type, such as {_SCHEDULED}")
        if trigger["type"] != _SCHEDULED:
            continue
        name = schedule_name(f"{path}.id", f"{workflow.workflow_id}.{trigger.get('id', index)}")
        if name in found:
            raise FieldError(f"{path}.id", trigger.get("id", index), "is the id of an earlier trigger")
        found[name] = _spec(path, trigger, workflow, defaults, now)
    return list(found.items())


def _spec(path: str, trigger: Mapping[str, Any], workflow: Workflow, defaults: Defaults, now: int) -> Spec:
    words = {field: value for field, value in trigger.items() if field not in ("type", "id")}
    for field in ("workflow_id", "workflow_version", "version", "schedule_id"):
        if field in words:
            raise FieldError(f"{path}.{field}", words[field], "is set by the workflow and cannot be given here")
    try:
        _, spec = read_schedule_request({**words, "workflow_id": workflow.workflow_id}, defaults, now=now)
    except FieldError as error:
        raise FieldError(f"{path}.{error.field}", error.value, error.reason) from None
    except CronError as error:
        raise schedule_field_error(
            FieldReader(words, words, path=path), "cron_expr" if "cron_expr" in words else "schedule", error
        ) from None
    return replace(spec, first_steps=workflow.first_steps, deadlines=workflow.deadlines)
