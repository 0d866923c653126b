"""Starts runs on request: triggers of jobs, replays of dead letters, runs of workflows and single tasks."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.jobs.fields import idempotency_key, printable, schedule_name
from gnomon.core.jobs.inputs import check_input, read_data, read_input
from gnomon.core.model import Overlap, Run, RunId, RunSource, RunStatus, Schedule
from gnomon.core.model_names import owner_of
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.deadlines import first_spans, run_deadline
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest, first_tasks, keyed_run_id, new_requested_run
from gnomon.core.runs.secret_text import escape_data
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import FieldError, KeyTaken, NotFound, Overlapping, QueueFull, Unavailable
from gnomon.ports.runs import Executions, RunQuery, Runs
from gnomon.ports.runtime import Clock, Ids
from gnomon.ports.schedules import Jobs, Schedules
from gnomon.services.execution.local_dispatch import WriteAndAdmit
from gnomon.services.loop import ComputeQueue

#: The delays between the tries of `start` while the store is unavailable.
_BACKOFF_SECONDS = (0.1, 0.4, 1.6)
#: The key of a replay without one: a repeated replay starts no second run.
_ONLY_REPLAY = "once"


class LaunchResult(Struct, frozen=True):
    """The result of a request to start a run."""

    run_id: RunId
    became: LaunchOutcome


class ReplayedLetter(Struct, frozen=True, kw_only=True):
    """A dead letter to replay: the execution that failed, and its input."""

    letter: str
    execution: RunId
    input: bytes | None
    tenant: str


class Launcher:
    """Triggers jobs, starts workflows and replays dead letters."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        runs: Runs,
        executions: Executions,
        jobs: Jobs,
        schedules: Schedules,
        clock: Clock,
        ids: Ids,
        *,
        write_and_admit: WriteAndAdmit | None = None,
        compute: ComputeQueue | None = None,
    ) -> None:
        """`write_and_admit` writes a launch and hands its tasks to the dispatcher of this process, if there is one."""
        self._compute = compute or ComputeQueue()
        self._runs = runs
        self._executions = executions
        self._jobs = jobs
        self._schedules = schedules
        self._clock = clock
        self._ids = ids
        self._write_and_admit = write_and_admit

    async def trigger(  # noqa: PLR0913 - everything that a caller may choose
        self,
        job: str,
        *,
        actor: str,
        groups: Collection[str] = (),
        input: Mapping[str, Any] | None = None,  # noqa: A002 - named as in jobs files and the API
        key: str | None = None,
        force: bool = False,
        source: RunSource = RunSource.MANUAL,
        tenant: str = "default",
        deadline_ms: int | None = None,
    ) -> LaunchResult:
        """Start a run of the job, even if it is paused; a repeated key starts no second run.

        `groups` are those to which the actor belongs now.
        It ends after `deadline_ms`, whatever it does, or earlier if its job says so.

        Overlapping if the job's overlap policy admits no run now; KeyTaken if the run of the key has another
        input.
        """
        printable("actor", actor)
        schedule = await self._job(tenant, job)
        spec = schedule.spec
        workflow = await self._workflow(tenant, spec.workflow_id, spec.workflow_version)
        given = None if input is None else await self._compute.read(input, partial(_checked_data, input, workflow))
        now = self._clock.now()
        run_id = (
            RunId(self._ids.new("run", now))
            if key is None
            else keyed_run_id(tenant, schedule.uid, idempotency_key(key))
        )
        run = new_requested_run(
            run_id,
            schedule,
            source=source,
            now=now,
            actor=actor,
            groups=groups,
            key=key,
            user_id=owner_of(actor),
            deadline_ms=deadline_ms,
        )
        launch = _launch_request(run, workflow, given, force=force)
        done = await self._launch(launch, schedule, now)
        if key is not None and done.became is LaunchOutcome.ALREADY:
            await self._reject_other_input(key, done.run_id, given)
        return done

    async def replay(
        self,
        job: str,
        replayed: ReplayedLetter,
        *,
        actor: str,
        groups: Collection[str] = (),
        key: str | None = None,
        noted_key: str | None = None,
        waits: bool = False,
    ) -> LaunchResult:
        """Start a run of the job's newest version with the input of a dead letter; once per key.

        Without a key, `noted_key` is that of a request for many replays: the run tells that it comes from there.
        `waits` queues it where the overlap policy would refuse it.
        """
        schedule = await self._job(replayed.tenant, job)
        workflow = await self._workflow(replayed.tenant, schedule.spec.workflow_id)
        now, run_id = self._clock.now(), _replay_id(replayed, key)
        run = new_requested_run(
            run_id,
            schedule,
            source=RunSource.MANUAL,
            now=now,
            actor=printable("actor", actor),
            groups=groups,
            key=key if noted_key is None else noted_key,
            user_id=owner_of(actor),
        )
        run = replace(run, workflow_version=workflow.version, replay_of=replayed.letter)
        launch = _launch_request(run, workflow, replayed.input, waits=waits)
        return await self._launch(launch, schedule, now)

    async def replay_workflow(
        self,
        workflow_id: str,
        replayed: ReplayedLetter,
        *,
        actor: str,
        groups: Collection[str] = (),
        key: str | None = None,
        noted_key: str | None = None,
    ) -> LaunchResult:
        """Like `replay`, for a dead letter of a run without a job."""
        workflow = await self._workflow(replayed.tenant, workflow_id)
        now, run_id = self._clock.now(), _replay_id(replayed, key)
        run = _unscheduled_run(
            run_id, workflow, actor=printable("actor", actor), user_id=owner_of(actor), planned_at=now, now=now
        )
        noted = key if noted_key is None else noted_key
        run = replace(run, source=RunSource.MANUAL, replay_of=replayed.letter, idempotency_key=noted)
        run = replace(run, actor_groups=tuple(sorted(groups)))
        launch = _launch_request(run, workflow, replayed.input)
        return await self._launch(launch, None, now)

    async def run(
        self,
        workflow: Workflow,
        *,
        actor: str,
        groups: Collection[str] = (),
        input: Mapping[str, Any] | None = None,  # noqa: A002 - named as in jobs files and the API
        key: str | None = None,
        source: RunSource = RunSource.API,
    ) -> LaunchResult:
        """Start a run of a workflow without a job, once per key; KeyTaken as for `trigger`.

        The input is a part of the definition: it may name secrets.
        """
        given = None if input is None else await self._compute.read(input, partial(_checked_input, input, workflow))
        now = self._clock.now()
        run_id = RunId(self._ids.new("run", now)) if key is None else _unscheduled_id(workflow.tenant, key)
        run = _unscheduled_run(
            run_id, workflow, actor=printable("actor", actor), user_id=owner_of(actor), planned_at=now, now=now
        )
        run = replace(run, source=source, idempotency_key=key, actor_groups=tuple(sorted(groups)))
        done = await self._launch(_launch_request(run, workflow, given), None, now)
        if key is not None and done.became is LaunchOutcome.ALREADY:
            await self.reject_other_workflow(key, workflow)
            await self._reject_other_input(key, done.run_id, given)
        return done

    async def reject_other_workflow(self, key: str, workflow: Workflow) -> None:
        """Raise KeyTaken if the run of that key belongs to another workflow."""
        kept = await self._executions.find_run(_unscheduled_id(workflow.tenant, key))
        if kept is not None and kept.workflow_id != workflow.workflow_id:
            raise KeyTaken(key, kept.run_id)

    async def start(  # noqa: PLR0913 - everything that a caller may choose
        self,
        workflow_id: str,
        version: int,
        user_id: str,
        scheduled_for: int,
        key: str,
        *,
        actor: str,
        groups: Collection[str] = (),
        tenant: str = "default",
    ) -> bool:
        """Start a run of that version, planned at that time, once per key; return False if that is not possible.

        The run is on behalf of `user_id`, which the actor chooses; the audit trail records the actor. KeyTaken if the
        run of the key has another version or time.
        """
        schedule_name("tenant", tenant)
        schedule_name("workflow_id", workflow_id)
        run_id = keyed_run_id(tenant, f"start {workflow_id}", idempotency_key(key))
        printable("user_id", user_id)
        printable("actor", actor)
        for delay in (*_BACKOFF_SECONDS, None):
            try:
                workflow = await self._jobs.workflow(tenant, workflow_id, version)
                if workflow is None:
                    return False
                now = self._clock.now()
                run = _unscheduled_run(
                    run_id, workflow, actor=actor, user_id=user_id, planned_at=scheduled_for, now=now
                )
                run = replace(run, idempotency_key=key, actor_groups=tuple(sorted(groups)))
                return await self._started(run, workflow, key)
            except Unavailable:
                if delay is not None:
                    await self._clock.sleep(delay)
        return False

    async def _started(self, run: Run, workflow: Workflow, key: str) -> bool:
        launch = _launch_request(run, workflow, None)
        [became] = await self._runs.launch([launch], now=run.created_at)
        kept = await self._executions.find_run(run.run_id) if became is LaunchOutcome.ALREADY else None
        if kept is not None and (kept.workflow_version, kept.planned_at) != (run.workflow_version, run.planned_at):
            raise KeyTaken(key, run.run_id)
        return became in (LaunchOutcome.STARTED, LaunchOutcome.QUEUED, LaunchOutcome.ALREADY)

    async def _job(self, tenant: str, job: str) -> Schedule:
        found = await self._schedules.find(schedule_name("tenant", tenant), schedule_name("job", job))
        if found is None:
            raise NotFound("job", job)
        return found

    async def _workflow(self, tenant: str, workflow_id: str, version: int | None = None) -> Workflow:
        found = await self._jobs.workflow(tenant, workflow_id, version)
        if found is None:
            raise NotFound("workflow" if version is None else f"version {version} of workflow", workflow_id)
        return found

    async def _launch(self, launch: LaunchRequest, schedule: Schedule | None, now: int) -> LaunchResult:
        """Launch the run and return the result, or raise the error that explains why it cannot start."""
        became = await self._launched(launch, schedule, now)
        name = launch.run.schedule_id or launch.run.workflow_id
        if became is LaunchOutcome.GONE:
            raise NotFound("job", name)
        if became is LaunchOutcome.OVERLAP:
            raise Overlapping(name, await self._under_way(launch.run))
        if became is LaunchOutcome.QUEUE_FULL and schedule is not None:
            raise QueueFull(name, schedule.spec.queue_limit)
        return LaunchResult(launch.run.run_id, became)

    async def _launched(self, launch: LaunchRequest, schedule: Schedule | None, now: int) -> LaunchOutcome:
        async def write() -> LaunchOutcome:
            [became] = await self._runs.launch([launch], now=now)
            return became

        never_waits = launch.force or schedule is None or schedule.spec.overlap is Overlap.ALLOW
        # With a key, the store may have the run already, with another input: only what is stored may run.
        may_exist = launch.run.idempotency_key is not None or launch.run.replay_of is not None
        if self._write_and_admit is None or may_exist or not never_waits:
            # The run may have to queue, which only the store can decide.
            return await write()
        tasks = first_tasks(launch.run, launch.first_steps, now=now, spans_ms=launch.first_spans_ms)
        made = [ReadyTask(task=task, run=launch.run, input=launch.input) for task in tasks]
        return await self._write_and_admit(made, write)

    async def _reject_other_input(self, key: str, run_id: RunId, given: bytes | None) -> None:
        kept = await self._executions.payload(run_id, "input")
        if _decoded_input(kept) != _decoded_input(given):
            raise KeyTaken(key, run_id)

    async def _under_way(self, run: Run) -> RunId | None:
        """The run that blocks another one, if it is still active."""
        for status in (RunStatus.RUNNING, RunStatus.PENDING):
            query = RunQuery(tenant=run.tenant, schedule_id=run.schedule_id, status=status, limit=1)
            for other in await self._executions.list_runs(query):
                return other.run_id
        return None


def _launch_request(
    run: Run, workflow: Workflow, given: bytes | None, *, force: bool = False, waits: bool = False
) -> LaunchRequest:
    spans = first_spans(workflow.deadlines)
    steps = workflow.first_steps
    return LaunchRequest(run=run, first_steps=steps, first_spans_ms=spans, input=given, force=force, waits=waits)


def _checked_data(given: Mapping[str, Any], workflow: Workflow) -> bytes:
    """The input that a caller gives to a run: it is data, and names no secrets."""
    if not isinstance(given, Mapping):
        raise FieldError("input", given, "must be a mapping")
    plain = read_data("input", given)
    check_input("input", plain, workflow.input_schema)
    return msgspec.json.encode(escape_data(plain))


def _checked_input(given: Mapping[str, Any], workflow: Workflow) -> bytes:
    plain = read_input("input", given)
    check_input("input", plain, workflow.input_schema)
    return msgspec.json.encode(plain)


def _decoded_input(given: bytes | None) -> object:
    """The input, independent of the order of its keys."""
    return None if given is None else msgspec.json.decode(given)


def _replay_id(replayed: ReplayedLetter, key: str | None) -> RunId:
    """The id of the only replay of an execution, or of the only one with that key of a letter."""
    if key is None:
        return keyed_run_id(replayed.tenant, replayed.execution, _ONLY_REPLAY)
    return keyed_run_id(replayed.tenant, replayed.letter, idempotency_key(key))


def _unscheduled_id(tenant: str, key: str) -> RunId:
    return keyed_run_id(tenant, "run", idempotency_key(key))


def _unscheduled_run(run_id: RunId, workflow: Workflow, *, actor: str, user_id: str, planned_at: int, now: int) -> Run:
    """A run of a workflow without a schedule."""
    return Run(
        run_id=run_id,
        tenant=workflow.tenant,
        schedule_uid=None,
        schedule_id=None,
        workflow_id=workflow.workflow_id,
        workflow_version=workflow.version,
        user_id=user_id,
        source=RunSource.CRON,
        status=RunStatus.PENDING,
        queued=False,
        planned_at=planned_at,
        fire_at=planned_at,
        created_at=now,
        actor=actor,
        deadline_at=run_deadline(workflow.deadline_ms, created_at=now, planned_at=planned_at),
    )
