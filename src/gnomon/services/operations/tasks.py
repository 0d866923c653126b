"""Runs a function once, without a job; its options are stored as a workflow."""

import re
from collections.abc import Collection, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from gnomon.core.jobs.export import workflow_as_data
from gnomon.core.jobs.fields import FieldReader, printable, schedule_name
from gnomon.core.jobs.steps import COMMAND_FIELDS, SANDBOX_FIELDS, WORK_FIELDS, read_workflow
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import NotFound
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import JobChangeset, Jobs
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.launcher import Launcher, LaunchResult

#: The fields of a task: those of a job with one function.
_NOT_OF_A_TASK = frozenset(
    (*COMMAND_FIELDS, *SANDBOX_FIELDS, "http", "agent", "name", "dag", "max_parallel", "lock", "ping")
)
TASK_FIELDS = tuple(field for field in WORK_FIELDS if field not in _NOT_OF_A_TASK)
_LONGEST_FUNCTION = 80


class TaskService:
    """Submits single tasks."""

    def __init__(self, jobs: Jobs, launcher: Launcher, clock: Clock, compute: ComputeQueue | None = None) -> None:
        self._compute = compute or ComputeQueue()
        self._jobs = jobs
        self._launcher = launcher
        self._clock = clock

    async def submit(
        self,
        definition: Mapping[str, Any],
        *,
        actor: str,
        groups: Collection[str] = (),
        key: str | None = None,
        tenant: str = "default",
    ) -> LaunchResult:
        """Start a run of one function, once per key.

        Tasks with the same options share a workflow, which is named by a digest of the options. So the number of
        workflows does not grow with the number of tasks.
        """
        schedule_name("tenant", tenant)
        printable("actor", actor)
        fields = FieldReader(definition, TASK_FIELDS)
        fields.required("function")
        whole = FieldReader({"name": "task", **definition}, WORK_FIELDS)
        workflow = await self._compute.read(definition, partial(read_workflow, whole))
        given, terms = workflow.input, _with_digest_name(replace(workflow, tenant=tenant, input={}))
        if key is not None:
            # Before the workflow is stored: a refused request leaves nothing behind.
            await self._launcher.reject_other_workflow(key, terms)
        stored = await self._stored(terms, actor)
        return await self._launcher.run(stored, actor=actor, groups=groups, input=given, key=key)

    async def _stored(self, terms: Workflow, actor: str) -> Workflow:
        found = await self._jobs.workflow(terms.tenant, terms.workflow_id, 1)
        if found is None:
            # If this fails, a concurrent request has stored the same workflow.
            changes = JobChangeset(workflows=[terms])
            await self._jobs.apply(changes, now=self._clock.now(), actor=actor, tzdata="")
            found = await self._jobs.workflow(terms.tenant, terms.workflow_id, 1)
        if found is None:
            raise NotFound("workflow", terms.workflow_id)
        return found


def _with_digest_name(terms: Workflow) -> Workflow:
    digest = sha256(msgspec.json.encode(workflow_as_data(terms), order="deterministic")).hexdigest()[:12]
    function = re.sub("[^a-z0-9._-]+", "-", terms.steps[0].function.lower())[:_LONGEST_FUNCTION].strip("-._")
    return replace(terms, workflow_id=f"task.{function}.{digest}" if function else f"task.{digest}")
