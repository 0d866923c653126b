"""Running a function once, without a job: the terms are kept as a workflow of their own."""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from gnomon.core.jobs.export import workflow_as_data
from gnomon.core.jobs.fields import FieldReader, printable, schedule_name
from gnomon.core.jobs.steps import COMMAND_FIELDS, WORK_FIELDS, read_workflow
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import NotFound
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import JobChangeset, Jobs
from gnomon.services.operations.launcher import Launcher, LaunchResult

#: What may be said about a task: as of a job with one function.
_NOT_OF_A_TASK = frozenset((*COMMAND_FIELDS, "name", "dag", "max_parallel", "lock", "ping"))
TASK_FIELDS = tuple(field for field in WORK_FIELDS if field not in _NOT_OF_A_TASK)
_LONGEST_FUNCTION = 80


class TaskService:
    """Submit."""

    def __init__(self, jobs: Jobs, launcher: Launcher, clock: Clock) -> None:
        self._jobs = jobs
        self._launcher = launcher
        self._clock = clock

    async def submit(
        self, said: Mapping[str, Any], *, actor: str, key: str | None = None, tenant: str = "default"
    ) -> LaunchResult:
        """Start a run of one function, once for each key.

        Tasks on the same terms share a workflow, whose name follows from the terms: so there are as many of these as
        there are terms, and not as many as there are tasks.
        """
        schedule_name("tenant", tenant)
        printable("actor", actor)
        fields = FieldReader(said, TASK_FIELDS)
        fields.required("function")
        workflow = read_workflow(FieldReader({"name": "task", **said}, WORK_FIELDS))
        given, terms = workflow.input, _with_digest_name(replace(workflow, tenant=tenant, input={}))
        if key is not None:
            # Before the terms are kept: what is refused leaves nothing.
            await self._launcher.reject_other_workflow(key, terms)
        return await self._launcher.run(await self._kept(terms, actor), actor=actor, input=given, key=key)

    async def _kept(self, terms: Workflow, actor: str) -> Workflow:
        found = await self._jobs.workflow(terms.tenant, terms.workflow_id, 1)
        if found is None:
            # If it cannot be done, someone was quicker with the same.
            wish = JobChangeset(workflows=[terms])
            await self._jobs.apply(wish, now=self._clock.now(), actor=actor, tzdata="")
            found = await self._jobs.workflow(terms.tenant, terms.workflow_id, 1)
        if found is None:
            raise NotFound("workflow", terms.workflow_id)
        return found


def _with_digest_name(terms: Workflow) -> Workflow:
    digest = sha256(msgspec.json.encode(workflow_as_data(terms), order="deterministic")).hexdigest()[:12]
    function = re.sub("[^a-z0-9._-]+", "-", terms.steps[0].function.lower())[:_LONGEST_FUNCTION].strip("-._")
    return replace(terms, workflow_id=f"task.{function}.{digest}" if function else f"task.{digest}")
