"""The rulings on outputs in memory. No method awaits half-way, so each one is a transaction."""

from collections.abc import Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.audit import Action, held_output_entry, output_held_entry
from gnomon.core.model import Run, Task, TaskId
from gnomon.core.output_policy.late import (
    LateCheck,
    LateResult,
    has_read,
    is_last_step,
    late_note,
    late_record,
    needs_stored_input,
    reader_name,
    referring_tasks,
    runs_with_input_of,
)
from gnomon.core.output_policy.ruling import (
    OUTPUT_QUARANTINED,
    HeldDecision,
    HeldOutput,
    HeldStatus,
    OutputDecision,
    StoredOutputRuling,
)
from gnomon.core.runs.outcomes import dead_letter_id
from gnomon.core.runs.rollback import is_compensation
from gnomon.core.runs.states import TaskState
from gnomon.errors import HeldOutputDecided, NotFound
from gnomon.ports.output_policy import HeldOutputQuery
from gnomon.ports.tasks import AttemptRef


class MemoryOutputRulings:
    """Implements OutputRulings."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def of_task(self, tenant: str, task_id: TaskId) -> StoredOutputRuling | None:
        """See OutputRulings.of_task."""
        found = [one for (name, _), one in sorted(self._state.output_rulings.items()) if name == task_id]
        return found[-1] if found and found[-1].tenant == tenant else None

    async def is_exempt(self, tenant: str, content_digest: str) -> bool:
        """See OutputRulings.is_exempt."""
        return (tenant, content_digest) in self._state.output_exemptions


class MemoryLateChecks:
    """Implements LateChecks."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state, self._rules = state, rules

    async def oldest(self, limit: int) -> Sequence[LateCheck]:
        """See LateChecks.oldest."""
        state = self._state
        found = sorted((at, name) for name, at in state.output_checks.items())[:limit]
        tasks = [(at, state.tasks[name]) for at, name in found]
        return [LateCheck(task=task, run=state.runs[task.run_id], added_at=at) for at, task in tasks]

    async def settle(self, check: LateCheck, result: LateResult, *, now: int) -> bool:
        """See LateChecks.settle."""
        state, task_id, ruling = self._state, check.task.task_id, result.ruling
        if state.output_checks.pop(task_id, None) is None:
            return False
        task = state.tasks[task_id]
        if ruling is None or not result.changes_output or task.state is not TaskState.SUCCEEDED:
            return True
        run = state.runs[task.run_id]
        state.payloads.pop((task_id, "output"), None)
        if ruling.decision is OutputDecision.QUARANTINE:
            note = late_note(ruling)
            state.tasks[task_id] = replace(task, state=TaskState.OUTPUT_QUARANTINED, note=note)
            self._rules.write_letter(state.tasks[task_id], OUTPUT_QUARANTINED, note, now)
        elif ruling.redacted is not None:
            state.payloads[task_id, "output"] = ruling.redacted
        referring = [one for of, step in self._places(task, run) for one in self._referring(of, step)]
        for one in referring:
            if not needs_stored_input(one):
                state.payloads.pop((one.task_id, "input"), None)
        names = [reader_name(one, run) for one in referring if has_read(one)]
        record = late_record(LateCheck(task=task, run=run, added_at=check.added_at), ruling, names, now=now)
        state.output_rulings[task_id, task.fence] = record
        if result.held is not None:
            state.held_outputs[task_id, task.fence] = result.held
            state.write_audit([output_held_entry(record)])
        if result.held is not None and task.parent is None and not is_compensation(task.step):
            self._rules.decide_again(task, now)
        return True

    def _places(self, task: Task, run: Run) -> list[tuple[Run, str]]:
        """The step of the task, and all those above it; the outputs of these are made again."""
        state, found = self._state, [(run, task.step)]
        while (name := task.parent or run.parent_task) is not None:
            above = state.tasks[name]
            if above.state is not TaskState.SUCCEEDED or is_compensation(above.step):
                break
            if task.parent is None and not is_last_step(self._rules.workflow_of(run), task.step):
                break
            output = self._rules.run_output(run) if task.parent is None else self._rules.items_output(above)
            state.payloads.pop((name, "output"), None)
            if output is not None:
                state.payloads[name, "output"] = output
            task, run = above, state.runs[above.run_id]
            found.append((run, task.step))
        return found

    def _referring(self, run: Run, step: str) -> list[Task]:
        """The tasks that refer to the output of the step, and all of the runs that got it with their input."""
        state, workflow = self._state, self._rules.workflow_of(run)
        found = referring_tasks(workflow, step, self._rules.tasks_of(run.run_id))
        started = runs_with_input_of(workflow, found)
        while started:
            below = [state.runs[name] for name in started if name in state.runs]
            started = []
            for one in below:
                tasks_below = self._rules.tasks_of(one.run_id)
                if one.over:
                    self._forget_input(one, tasks_below)
                started += runs_with_input_of(self._rules.workflow_of(one), tasks_below)
                found += tasks_below
        return found

    def _forget_input(self, run: Run, tasks: Sequence[Task]) -> None:
        """Delete the input of a run, and the copies in the dead letters of its tasks."""
        self._state.payloads.pop((run.run_id, "input"), None)
        for name in {dead_letter_id(one.task_id) for one in tasks} & self._state.dead_letters.keys():
            self._state.dead_letters[name] = replace(self._state.dead_letters[name], input=None)


class MemoryHeldOutputs:
    """Implements HeldOutputs."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state, self._rules = state, rules

    async def page(self, query: HeldOutputQuery) -> Sequence[HeldOutput]:
        """See HeldOutputs.page."""
        found = [
            one
            for one in self._state.output_rulings.values()
            if one.tenant == query.tenant and one.status is not None and query.status in (None, one.status)
        ]
        found.sort(key=lambda one: (one.ruled_at, one.task_id), reverse=True)
        page = [one for one in found if query.after is None or (one.ruled_at, one.task_id) < query.after]
        return [HeldOutput(ruling=one, body=None) for one in page[: query.limit]]

    async def find(self, tenant: str, task_id: TaskId) -> HeldOutput | None:
        """See HeldOutputs.find."""
        ref = self._ref(tenant, task_id)
        return None if ref is None else self._held(ref)

    async def look(self, tenant: str, task_id: TaskId, looked: HeldDecision) -> HeldOutput:
        """See HeldOutputs.look."""
        held = self._held(self._known(tenant, task_id))
        self._state.write_audit([held_output_entry(Action.LOOK, held.ruling, looked)])
        return held

    async def release(self, tenant: str, task_id: TaskId, output: bytes, decided: HeldDecision) -> bool:
        """See HeldOutputs.release."""
        state, ref = self._state, self._known(tenant, task_id)
        self._decide(ref, HeldStatus.RELEASED, decided)
        task = state.tasks[task_id]
        state.tasks[task_id] = replace(task, state=TaskState.SUCCEEDED, note=None)
        state.payloads[task_id, "output"] = output
        state.output_exemptions.setdefault((tenant, state.output_rulings[ref].content_digest), task_id)
        return self._rules.go_on_after_release(task, decided.at, held_at=state.output_rulings[ref].ruled_at)

    async def discard(self, tenant: str, task_id: TaskId, decided: HeldDecision) -> None:
        """See HeldOutputs.discard."""
        self._decide(self._known(tenant, task_id), HeldStatus.DISCARDED, decided)

    def _decide(self, ref: AttemptRef, status: HeldStatus, decided: HeldDecision) -> None:
        state, held = self._state, self._state.output_rulings[ref]
        if held.status is not HeldStatus.HELD:
            raise HeldOutputDecided(held.task_id, str(held.status))
        state.output_rulings[ref] = replace(
            held, status=status, decided_by=decided.actor, decided_at=decided.at, decided_why=decided.reason
        )
        state.held_outputs.pop(ref, None)
        self._rules.resolve(dead_letter_id(held.task_id), f"output {status.value}", decided.at)
        action = Action.RELEASE if status is HeldStatus.RELEASED else Action.DISCARD
        state.write_audit([held_output_entry(action, held, decided)])

    def _held(self, ref: AttemptRef) -> HeldOutput:
        return HeldOutput(ruling=self._state.output_rulings[ref], body=self._state.held_outputs.get(ref))

    def _known(self, tenant: str, task_id: TaskId) -> AttemptRef:
        ref = self._ref(tenant, task_id)
        if ref is None:
            raise NotFound("output that is held back", task_id)
        return ref

    def _ref(self, tenant: str, task_id: TaskId) -> AttemptRef | None:
        found = [
            ref
            for ref, one in sorted(self._state.output_rulings.items())
            if ref[0] == task_id and one.tenant == tenant and one.status is not None
        ]
        return found[-1] if found else None
