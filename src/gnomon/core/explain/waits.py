"""The sentences about the open steps of a run: what each of them waits for."""

from collections.abc import Iterator, Mapping, Sequence

from gnomon.core.durations import span_text
from gnomon.core.explain.evidence import JobEvidence, RunEvidence, WorkerEvidence
from gnomon.core.explain.phrases import USUAL_DELAY_MS, TimeFormatter, join_names, one_line, pluralized
from gnomon.core.explain.runs import previous_queued_run
from gnomon.core.model import ENGINE, Attempt, Result, Run, Task
from gnomon.core.runs.dag import topological_order
from gnomon.core.runs.launch import sub_run_id
from gnomon.core.runs.rollback import is_compensation, undone_step
from gnomon.core.runs.routing import DEFAULT_POOL, Placement, ReasonCode
from gnomon.core.runs.states import TERMINAL, TaskState, WaitReason
from gnomon.core.runs.workflow import Step, Workflow

#: The beginning of the note of a task whose function no worker has registered.
_NO_WORKER_NOTE = f"{ReasonCode.NO_WORKERS}: no worker has registered"
#: The largest number of items of a step that get a sentence.
_MAX_ITEMS = 3

#: The sentence about a task, by its state or, if it is PENDING, by its wait reason.
WAIT_SENTENCES: Mapping[TaskState | WaitReason, str] = {
    WaitReason.READY: "{it.who} has been ready since {it.available}, and no dispatcher has looked at it yet.{it.idle}",
    WaitReason.DEPS: "{it.who} waits for others to end: {it.limit}.",
    WaitReason.RETRY: "{it.who} will be tried again {it.then}: attempt {it.number} {it.ended}.{it.allowed}",
    WaitReason.DELAY: "{it.who} will start {it.then}{it.delayed}.",
    WaitReason.QUEUE: "{it.who} waits in the queue for the end of {it.ahead}.",
    WaitReason.ROUTE: "{it.who} cannot be dispatched: {it.note}.{it.alive} It will be tried again {it.then}.",
    WaitReason.POLICY: "{it.who} waits at the gate: {it.note}. It will be asked again {it.then}.",
    WaitReason.BREAKER: "{it.who} waits: {it.note}. It will be asked again {it.then}.",
    TaskState.APPROVAL_REQUIRED: "{it.who} waits for an approval: {it.note}.",
    TaskState.SCHEDULED: "{it.who} has been ready for a worker since {it.available}, and none took it:{it.workers}",
    TaskState.DISPATCHED: "{it.who} was sent to {it.worker} at {it.dispatched}, which has not started it.{it.lease}",
    TaskState.RUNNING: "{it.who} has been with {it.worker} since {it.started}, under fence {it.number}.{it.lease}",
}


class WaitingTaskFacts:
    """The facts that the sentence about a task may use; each is computed only when it is used."""

    def __init__(self, evidence: JobEvidence, run: Run, task: Task, clocks: TimeFormatter, *, now: int) -> None:
        self._evidence = evidence
        self._run = run
        self._task = task
        self._clocks = clocks
        self._now = now
        details = evidence.run_evidence[run.run_id]
        self._details: RunEvidence = details
        attempts = [attempt for attempt in details.attempts if attempt.task_id == task.task_id]
        self._last: Attempt | None = attempts[-1] if attempts else None
        self._step: Step | None = details.workflow.step(task.step) if details.workflow else None

    @property
    def who(self) -> str:
        """The subject of the sentence."""
        if self._task.item is not None:
            return f"Item {self._task.item} of step {self._task.step}"
        return (
            "It"
            if self._details.workflow is None or self._details.workflow.is_single_step
            else f"Step {self._task.step}"
        )

    @property
    def available(self) -> str:
        """The time from which it may start."""
        return self._clocks(self._task.available_at)

    @property
    def then(self) -> str:
        """When it will start."""
        left = self._task.available_at - self._now
        return f"at {self.available}, in {span_text(left)}" if left > 0 else f"at once: its time was {self.available}"

    @property
    def idle(self) -> str:
        """A hint if a dispatcher should have handled it by now."""
        return " Is gnomon up running?" if self._now - self._task.available_at > USUAL_DELAY_MS else ""

    @property
    def limit(self) -> str:
        """How many steps or items may run at once, and which do."""
        workflow, item = self._details.workflow, self._task.item is not None
        limit = self._step.max_parallel if item and self._step else workflow.max_parallel if workflow else None
        running = [
            str(task.item) if item else task.step
            for task in self._details.tasks
            if task.parent == self._task.parent and task.state not in TERMINAL and not _is_held(task)
        ]
        allowed = "no more may run at once" if limit is None else f"max_parallel is {limit}"
        busy = f", and {join_names(running)} {'is' if len(running) == 1 else 'are'} under way" if running else ""
        return allowed + busy

    @property
    def number(self) -> int:
        """The number of its last attempt."""
        return self._task.fence if self._last is None else self._last.number

    @property
    def ended(self) -> str:
        """How its last attempt ended."""
        if self._last is None or self._last.result is None:
            return "ended"
        error = f" ({one_line(self._last.error)})" if self._last.error else ""
        return f"{_ENDED.get(self._last.result, 'ended')}{error}"

    @property
    def allowed(self) -> str:
        """How many attempts it has left."""
        retry = self._step.retry if self._step else None
        return f" It has {pluralized(retry.max_attempts - self._task.attempts, 'attempt')} left." if retry else ""

    @property
    def delayed(self) -> str:
        """The reason of the delay."""
        if self._last is not None and self._last.result is Result.SNOOZED:
            return ": it asked to be called again then"
        if self._run.started_at is None and self._run.fire_at == self._task.available_at:
            return ", the time of its run"
        return ": the step has a delay"

    @property
    def ahead(self) -> str:
        """The run that it waits for."""
        found = previous_queued_run(self._evidence, self._run)
        return "an earlier run" if found is None else f"{found.run_id} (planned for {self._clocks(found.planned_at)})"

    @property
    def note(self) -> str:
        """The reason given by the gate or by routing."""
        code, colon, text = (self._task.note or "").partition(": ")
        reason = text if colon and code.isidentifier() else code
        routed = self._task.wait_reason is WaitReason.ROUTE
        return one_line(reason) or ("it was dispatched, and never started" if routed else "it gave no reason")

    @property
    def alive(self) -> str:
        """The live workers, if none has registered its function."""
        if self._step is None or not self._step.function or not (self._task.note or "").startswith(_NO_WORKER_NOTE):
            return ""
        workers = [worker for worker in self._evidence.workers if worker.pool == DEFAULT_POOL]
        if _able_workers(workers, self._step, Placement()):
            return " By now one has."
        names = join_names([worker.worker for worker in workers]) if workers else ""
        return f" Alive, without it: {names}." if workers else " No worker is alive."

    @property
    def workers(self) -> str:
        """Why no worker takes it."""
        function = self._step.function if self._step else ""
        where = self._evidence.placements.get(self._task.task_id, Placement())
        able = _able_workers(self._evidence.workers, self._step, where)
        if not able:
            if where.directed_to is not None:
                return f" it is for {where.directed_to} alone, which is not alive."
            there = "no worker is alive" if not self._evidence.workers else f"no worker alive knows {function}"
            return f" {there}{'' if where.pool is None else f' in pool {where.pool}'}."
        free = [worker.worker for worker in able if worker.busy < worker.slots]
        if free:
            return f" {join_names(free)} could, and will soon."
        slots = pluralized(sum(worker.slots for worker in able), "slot")
        return f" {'the' if slots == '1 slot' else 'all'} {slots} of {join_names([each.worker for each in able])} " + (
            "is in use." if slots == "1 slot" else "are in use."
        )

    @property
    def worker(self) -> str:
        """The worker that has it."""
        return "nobody" if self._last is None else self._last.worker

    @property
    def dispatched(self) -> str:
        """When it was dispatched."""
        return "" if self._last is None else self._clocks(self._last.dispatched_at)

    @property
    def started(self) -> str:
        """When its last attempt started."""
        return "" if self._last is None or self._last.started_at is None else self._clocks(self._last.started_at)

    @property
    def deadline(self) -> str:
        """A sentence about its deadline, if it has one."""
        at = self._task.deadline_at
        if at is None:
            return ""
        if at <= self._now:
            return f" Its deadline was {self._clocks(at)}: it is about to be ended."
        return f" If it is not over by {self._clocks(at)}, its deadline, it is ended."

    @property
    def lease(self) -> str:
        """A remark if the lease of its worker has expired."""
        if self._last is None or self._last.lease_until > self._now:
            return ""
        return f" Its worker has not been heard of: its lease ended at {self._clocks(self._last.lease_until)}."


_ENDED = {
    Result.FAILED: "failed",
    Result.TIMED_OUT: "ran out of time",
    Result.LOST: "was lost with its worker",
    Result.INTERRUPTED: "was interrupted",
    Result.NEVER_STARTED: "was never started",
}


def explain_waits(evidence: JobEvidence, run: Run, clocks: TimeFormatter, *, now: int) -> Iterator[str]:
    """One sentence for each open step of the run."""
    details = evidence.run_evidence.get(run.run_id)
    if details is None or run.over:
        return
    made = {task.step: task for task in details.tasks if task.parent is None}
    for task in made.values():
        if task.state not in TERMINAL:
            yield _sentence(evidence, run, task, clocks, now)
            if task.open_items:
                yield from _items(evidence, run, task, clocks, now)
    if details.workflow is not None:
        yield from _not_made(details.workflow, made)


def _sentence(evidence: JobEvidence, run: Run, task: Task, clocks: TimeFormatter, now: int) -> str:
    facts = WaitingTaskFacts(evidence, run, task, clocks, now=now)
    if facts.worker == ENGINE and task.state is TaskState.RUNNING:
        return _fan_out_sentence(task, facts) + facts.deadline
    sentence = WAIT_SENTENCES[task.wait_reason if task.state is TaskState.PENDING else task.state]
    return sentence.format(it=facts) + facts.deadline


def _fan_out_sentence(task: Task, facts: WaitingTaskFacts) -> str:
    """The sentence about a task that no worker runs: it waits for its items or for another run."""
    if task.open_items:
        failed = f"; {task.failed_items} did not succeed" if task.failed_items else ""
        return f"{facts.who} waits for its items: {task.open_items} are not over{failed}."
    if is_compensation(task.step):
        return f"{facts.who} waits until what {undone_step(task.step)} has started is rolled back."
    return f"{facts.who} waits for {sub_run_id(task)}, which it started at {facts.started}."


def _items(evidence: JobEvidence, run: Run, parent: Task, clocks: TimeFormatter, now: int) -> Iterator[str]:
    tasks = evidence.run_evidence[run.run_id].tasks
    items = [task for task in tasks if task.parent == parent.task_id and task.state not in TERMINAL]
    for task in sorted(items, key=lambda item: (_is_held(item), item.item or 0))[:_MAX_ITEMS]:
        yield _sentence(evidence, run, task, clocks, now)


def _not_made(workflow: Workflow, made: Mapping[str, Task]) -> Iterator[str]:
    """The sentences about steps that have no task yet."""
    for step in topological_order(workflow):
        if step.name not in made:
            open_ = [name for name in step.depends_on if name not in made or made[name].state not in TERMINAL]
            yield f"Step {step.name} waits for {join_names(open_ or step.depends_on)}."


def _is_held(task: Task) -> bool:
    return task.state is TaskState.PENDING and task.wait_reason is WaitReason.DEPS


def _able_workers(workers: Sequence[WorkerEvidence], step: Step | None, where: Placement) -> list[WorkerEvidence]:
    """The workers that may take a task with this placement."""
    return [
        worker
        for worker in workers
        if step is not None
        and step.function in worker.functions
        and worker.pool == (where.pool or DEFAULT_POOL)
        and where.directed_to in (None, worker.worker)
    ]
