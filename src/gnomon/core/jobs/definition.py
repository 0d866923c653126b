"""Workflows as other programs write them: a DAG in JSON, with the triggers that belong to it."""

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

#: What a workflow may say besides its name, its steps and its triggers: the same as a job, in the same words.
_SAME = tuple(field for field in WORK_FIELDS if field not in ("name", "function", *COMMAND_FIELDS, "dag", "lock"))
DEFINITION_FIELDS = ("workflow_id", "version", "steps", "triggers", *_SAME)
_OTHER_NAMES = {"id": "workflow_id", "nodes": "steps"}
#: The kind of trigger that is ours; those of other kinds are for others to read.
_SCHEDULED = "schedule_based"
_LAST_VERSION = 2**31 - 1


class Definition(Struct, frozen=True, kw_only=True):
    """A workflow and the schedules that its triggers ask for."""

    #: Its version is 1 until it is deployed.
    workflow: Workflow
    #: The version that it is said to have.
    version: int | None
    schedules: Mapping[str, Spec]


def read_definition(said: Mapping[str, Any], defaults: Defaults, *, now: int) -> Definition:
    """The workflow that was written; the first field that is wrong is named by the FieldError."""
    fields = FieldReader(said, DEFINITION_FIELDS, other_names=_OTHER_NAMES)
    words = {
        "workflow_id": "id" if "id" in said else "workflow_id",
        "steps": "nodes" if "nodes" in said else "steps",
    }
    name = schedule_name(words["workflow_id"], fields.required("workflow_id"))
    wanted = fields.required("steps")
    steps = [_step(step) for step in wanted] if isinstance(wanted, list | tuple) else wanted
    given = {field: fields[field] for field in _SAME if field in fields}
    try:
        workflow = read_workflow(FieldReader({"name": name, "dag": steps, **given}, WORK_FIELDS))
    except FieldError as error:
        root = "dag"
        field = words["steps"] + error.field.removeprefix(root) if error.field.startswith(root) else error.field
        raise FieldError(field, error.value, error.reason) from None
    return Definition(
        workflow=workflow,
        version=fields.whole("version", 1, low=1, high=_LAST_VERSION) if "version" in fields else None,
        schedules=dict(_schedules(fields, workflow, defaults, now)),
    )


def _step(said: Any) -> Any:  # noqa: ANN401 - whether it is a step is for others to say
    """A step in the words of a job, which calls its name `step`."""
    if not isinstance(said, Mapping) or "step" in said:
        return said
    name = next((field for field in ("id", "name") if field in said), None)
    return {"step" if field == name else field: value for field, value in said.items()}


def _schedules(said: FieldReader, workflow: Workflow, defaults: Defaults, now: int) -> list[tuple[str, Spec]]:
    found: dict[str, Spec] = {}
    for index, (path, trigger) in enumerate(said.entries("triggers")):
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
            raise FieldError(f"{path}.{field}", words[field], "follows from the workflow, and is not said here")
    try:
        _, spec = read_schedule_request({**words, "workflow_id": workflow.workflow_id}, defaults, now=now)
    except FieldError as error:
        raise FieldError(f"{path}.{error.field}", error.value, error.reason) from None
    except CronError as error:
        raise schedule_field_error(
            FieldReader(words, words, path=path), "cron_expr" if "cron_expr" in words else "schedule", error
        ) from None
    return replace(spec, first_steps=workflow.first_steps)
