"""What the steps of a run wait for that are not over: a sentence for each."""

from collections.abc import Iterator, Mapping, Sequence

from gnomon.core.durations import span_text
from gnomon.core.explain.evidence import JobEvidence, RunEvidence, WorkerEvidence
from gnomon.core.explain.phrases import USUAL_DELAY_MS, TimeFormatter, join_names, one_line, pluralized
from gnomon.core.explain.runs import previous_queued_run
from gnomon.core.model import ENGINE, Attempt, Result, Run, Task
from gnomon.core.runs.dag import topological_order
from gnomon.core.runs.launch import sub_run_id
from gnomon.core.runs.routing import DEFAULT_POOL, Placement, ReasonCode
from gnomon.core.runs.states import TERMINAL, TaskState, WaitReason
from gnomon.core.runs.workflow import Step, Workflow

#: How the note of a task begins that nobody can run.
_UNHEARD_OF = f"{ReasonCode.NO_WORKERS}: no worker has registered"
#: Of how many items of a step it is told what they wait for.
_MOST_ITEMS = 3

#: What a task waits for, by its state and, if it is PENDING, by its wait reason.
WAIT_SENTENCES: Mapping[TaskState | WaitReason, str] = {
    WaitReason.READY: "{it.who} has been ready since {it.available}, and no dispatcher has looked at it yet.{it.idle}",
    WaitReason.DEPS: "{it.who} waits for others to end: {it.limit}.",
    WaitReason.RETRY: "{it.who} will be tried again {it.then}: attempt {it.number} {it.ended}.{it.allowed}",
    WaitReason.DELAY: "{it.who} will start {it.then}{it.delayed}.",
    WaitReason.QUEUE: "{it.who} waits in the queue for the end of {it.ahead}.",
    WaitReason.ROUTE: "{it.who} cannot be handed out: {it.note}.{it.alive} It will be tried again {it.then}.",
    WaitReason.POLICY: "{it.who} waits at the gate: {it.note}. It will be asked again {it.then}.",
    TaskState.APPROVAL_REQUIRED: "{it.who} waits for an approval: {it.note}.",
    TaskState.SCHEDULED: "{it.who} has been ready for a worker since {it.available}, and none has taken it:{it.hands}",
    TaskState.DISPATCHED: "{it.who} was handed to {it.worker} at {it.dispatched}, which has not begun it.{it.lease}",
    TaskState.RUNNING: "{it.who} has been with {it.worker} since {it.started}, under fence {it.number}.{it.lease}",
}


class WaitingTaskFacts:
    """What a sentence about a task can speak of, each worked out when it is spoken of."""

    def __init__(self, evidence: JobEvidence, run: Run, task: Task, clocks: TimeFormatter, *, now: int) -> None:
        self._evidence = evidence
        self._run = run
        self._task = task
        self._clocks = clocks
        self._now = now
        ran = evidence.ran[run.run_id]
        self._ran: RunEvidence = ran
        tried = [one for one in ran.attempts if one.task_id == task.task_id]
        self._last: Attempt | None = tried[-1] if tried else None
        self._step: Step | None = ran.workflow.step(task.step) if ran.workflow else None

    @property
    def who(self) -> str:
        """The task, as a sentence begins with it."""
        if self._task.item is not None:
            return f"Item {self._task.item} of step {self._task.step}"
        return "It" if self._ran.workflow is None or self._ran.workflow.is_single_step else f"Step {self._task.step}"

    @property
    def available(self) -> str:
        """Since when its time has come."""
        return self._clocks(self._task.available_at)

    @property
    def then(self) -> str:
        """When its time will have come."""
        left = self._task.available_at - self._now
        return f"at {self.available}, in {span_text(left)}" if left > 0 else f"at once: its time was {self.available}"

    @property
    def idle(self) -> str:
        """That somebody should have looked by now."""
        return " Is gnomon up running?" if self._now - self._task.available_at > USUAL_DELAY_MS else ""

    @property
    def limit(self) -> str:
        """How many may be under way at once, and which are."""
        workflow, item = self._ran.workflow, self._task.item is not None
        most = self._step.max_parallel if item and self._step else workflow.max_parallel if workflow else None
        under_way = [
            str(one.item) if item else one.step
            for one in self._ran.tasks
            if one.parent == self._task.parent and one.state not in TERMINAL and not _is_held(one)
        ]
        allowed = "no more may run at once" if most is None else f"max_parallel is {most}"
        busy = f", and {join_names(under_way)} {'is' if len(under_way) == 1 else 'are'} under way" if under_way else ""
        return allowed + busy

    @property
    def number(self) -> int:
        """Of its last attempt."""
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
        """How many attempts it has."""
        retry = self._step.retry if self._step else None
        return f" It has {pluralized(retry.max_attempts - self._task.attempts, 'attempt')} left." if retry else ""

    @property
    def delayed(self) -> str:
        """What puts it off."""
        if self._last is not None and self._last.result is Result.SNOOZED:
            return ": it asked to be called again then"
        if self._run.started_at is None and self._run.fire_at == self._task.available_at:
            return ", the time of its run"
        return ": the step has a delay"

    @property
    def ahead(self) -> str:
        """The run before it."""
        found = previous_queued_run(self._evidence, self._run)
        return "an earlier run" if found is None else f"{found.run_id} (planned for {self._clocks(found.planned_at)})"

    @property
    def note(self) -> str:
        """What the one who turned it away has said."""
        code, colon, text = (self._task.note or "").partition(": ")
        said = text if colon and code.isidentifier() else code
        usual = (
            "it was handed out, and never begun" if self._task.wait_reason is WaitReason.ROUTE else "it did not say why"
        )
        return one_line(said) or usual

    @property
    def alive(self) -> str:
        """Who is there, if nobody knows its function."""
        if self._step is None or not self._step.function or not (self._task.note or "").startswith(_UNHEARD_OF):
            return ""
        hands = [one for one in self._evidence.hands if one.pool == DEFAULT_POOL]
        if _workers_with_function(hands, self._step, Placement()):
            return " By now one has."
        names = join_names([one.worker for one in hands]) if hands else ""
        return f" Alive, without it: {names}." if hands else " No worker is alive."

    @property
    def hands(self) -> str:
        """Why no worker takes it."""
        function = self._step.function if self._step else ""
        where = self._evidence.placements.get(self._task.task_id, Placement())
        knowing = _workers_with_function(self._evidence.hands, self._step, where)
        if not knowing:
            if where.directed_to is not None:
                return f" it is for {where.directed_to} alone, which is not alive."
            there = "no worker is alive" if not self._evidence.hands else f"no worker alive knows {function}"
            return f" {there}{'' if where.pool is None else f' in pool {where.pool}'}."
        free = [one.worker for one in knowing if one.busy < one.slots]
        if free:
            return f" {join_names(free)} could, and will soon."
        slots = pluralized(sum(one.slots for one in knowing), "slot")
        return f" {'the' if slots == '1 slot' else 'all'} {slots} of {join_names([one.worker for one in knowing])} " + (
            "is in use." if slots == "1 slot" else "are in use."
        )

    @property
    def worker(self) -> str:
        """Who has it in hand."""
        return "nobody" if self._last is None else self._last.worker

    @property
    def dispatched(self) -> str:
        """When it was handed out."""
        return "" if self._last is None else self._clocks(self._last.dispatched_at)

    @property
    def started(self) -> str:
        """When its last attempt began."""
        return "" if self._last is None or self._last.started_at is None else self._clocks(self._last.started_at)

    @property
    def lease(self) -> str:
        """Whether its worker has been heard of."""
        if self._last is None or self._last.lease_until > self._now:
            return ""
        return f" Its worker has not been heard of: its lease ended at {self._clocks(self._last.lease_until)}."


_ENDED = {
    Result.FAILED: "failed",
    Result.TIMED_OUT: "ran out of time",
    Result.LOST: "was lost with its worker",
    Result.INTERRUPTED: "was interrupted",
    Result.NEVER_STARTED: "was never begun",
}


def explain_waits(evidence: JobEvidence, run: Run, clocks: TimeFormatter, *, now: int) -> Iterator[str]:
    """What each step of the run waits for that is not over."""
    ran = evidence.ran.get(run.run_id)
    if ran is None or run.over:
        return
    made = {task.step: task for task in ran.tasks if task.parent is None}
    for task in made.values():
        if task.state not in TERMINAL:
            yield _sentence(evidence, run, task, clocks, now)
            if task.open_items:
                yield from _items(evidence, run, task, clocks, now)
    if ran.workflow is not None:
        yield from _not_made(ran.workflow, made)


def _sentence(evidence: JobEvidence, run: Run, task: Task, clocks: TimeFormatter, now: int) -> str:
    told = WaitingTaskFacts(evidence, run, task, clocks, now=now)
    if told.worker == ENGINE and task.state is TaskState.RUNNING:
        return _within(task, told)
    return WAIT_SENTENCES[task.wait_reason if task.state is TaskState.PENDING else task.state].format(it=told)


def _within(task: Task, told: WaitingTaskFacts) -> str:
    """What a task waits for that no worker has in hand."""
    if task.open_items:
        failed = f"; {task.failed_items} did not succeed" if task.failed_items else ""
        return f"{told.who} waits for its items: {task.open_items} are not over{failed}."
    return f"{told.who} waits for {sub_run_id(task)}, which it started at {told.started}."


def _items(evidence: JobEvidence, run: Run, parent: Task, clocks: TimeFormatter, now: int) -> Iterator[str]:
    tasks = evidence.ran[run.run_id].tasks
    items = [one for one in tasks if one.parent == parent.task_id and one.state not in TERMINAL]
    for task in sorted(items, key=lambda one: (_is_held(one), one.item or 0))[:_MOST_ITEMS]:
        yield _sentence(evidence, run, task, clocks, now)


def _not_made(workflow: Workflow, made: Mapping[str, Task]) -> Iterator[str]:
    """Steps whose turn has not come."""
    for step in topological_order(workflow):
        if step.name not in made:
            open_ = [name for name in step.depends_on if name not in made or made[name].state not in TERMINAL]
            yield f"Step {step.name} waits for {join_names(open_ or step.depends_on)}."


def _is_held(task: Task) -> bool:
    return task.state is TaskState.PENDING and task.wait_reason is WaitReason.DEPS


def _workers_with_function(
    hands: Sequence[WorkerEvidence], step: Step | None, where: Placement
) -> list[WorkerEvidence]:
    """Those who could take a task that waits there."""
    return [
        one
        for one in hands
        if step is not None
        and step.function in one.functions
        and one.pool == (where.pool or DEFAULT_POOL)
        and where.directed_to in (None, one.worker)
    ]
