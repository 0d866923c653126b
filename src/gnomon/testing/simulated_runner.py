"""A runner that runs nothing: it draws a duration and a result for each attempt, and an observer records both."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gnomon.core.model import Result
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.workflow import Delivery
from gnomon.ports.execution import Finished
from gnomon.ports.tasks import AttemptRef
from gnomon.testing.clock import VirtualClock
from gnomon.testing.event_queue import EventQueue
from gnomon.testing.history import ExecutionObservation, SimulationHistory

#: How long an attempt continues after a stop request.
_STOPPING_MS = (0, 100, 2_000)
#: Longer than any attempt.
_FOREVER_MS = 1 << 62
_SNOOZES_MS = (5_000, 60_000, 200_000)


@dataclass
class WorkloadModel:
    """The behaviour of simulated attempts."""

    #: Durations in milliseconds; a longer one than the timeout ends at the timeout.
    durations: tuple[int, ...] = (10, 500, 20_000, 90_000)
    #: Results, with their relative frequencies.
    endings: Mapping[Result, int] = field(default_factory=lambda: {Result.SUCCEEDED: 1})
    #: Functions that crash their process instead of ending, with the probability of that.
    crash_probability: Mapping[str, float] = field(default_factory=dict)


class ExecutionObserver:
    """Records starts and ends of functions. Reads neither the store nor the services."""

    def __init__(self, history: SimulationHistory, clock: VirtualClock) -> None:
        self._history = history
        self._clock = clock

    def now(self) -> int:
        """The time of the wall clock."""
        return self._clock.now()

    def note(self, assignment: Assignment, worker: str, *, starts: bool, result: Result | None = None) -> None:
        """Record the start or the end of a function."""
        task = assignment.task
        self._history.observations.append(
            ExecutionObservation(
                moment=self._history.moment(),
                result=result,
                starts=starts,
                run_id=task.run_id,
                task_id=task.task_id,
                fence=task.fence,
                worker=worker,
                at=self._clock.now(),
                elapsed_ms=round(self._clock.elapsed() * 1000),
            )
        )


class SimulatedRunner:
    """The attempts of one process: they freeze and die with it."""

    def __init__(  # noqa: PLR0913 - all of its collaborators
        self,
        queue: EventQueue,
        observer: ExecutionObserver,
        rng: random.Random,
        workload: WorkloadModel,
        *,
        worker: str,
        functions: Callable[[], Collection[str]],
        default_timeout_ms: int,
        on_finished: Callable[[], None],
        on_death: Callable[[], None],
        frozen_ms: Callable[[], int],
    ) -> None:
        """`on_finished` is called when an attempt has ended, `on_death` when an attempt crashes the process.

        `frozen_ms` tells how long the process stays frozen from now on.
        """
        self._queue = queue
        self._observer = observer
        self._rng = rng
        self._workload = workload
        self._worker = worker
        self._functions = functions
        self._default_timeout_ms = default_timeout_ms
        self._running: dict[AttemptRef, Assignment] = {}
        self._finished: list[Finished] = []
        self._on_finished = on_finished
        self._on_death = on_death
        self._frozen_ms = frozen_ms

    @property
    def functions(self) -> Collection[str]:
        """See Runner.functions."""
        return self._functions()

    @property
    def overrunning(self) -> int:
        """See Runner.overrunning. Simulated attempts stop soon."""
        return 0

    @property
    def occupied(self) -> int:
        """See Runner.occupied."""
        return len(self._running)

    def start(self, assignments: Sequence[Assignment]) -> None:
        """See Runner.start."""
        for one in assignments:
            self._running[one.task.task_id, one.task.fence] = one
            left = self._left_ms(one)
            if not left:
                # It came too late: nothing starts.
                self._end_after(0, one, Result.TIMED_OUT, past_deadline=True, began=False)
                continue
            lasts = self._rng.choice(self._workload.durations)
            timeout = one.step.timeout_ms or self._default_timeout_ms
            endings = self._workload.endings
            [result] = self._rng.choices(list(endings), list(endings.values()))
            if result is Result.DENIED:
                # Its worker refuses it: nothing starts.
                self._end_after(0, one, result, began=False)
                continue
            self._observer.note(one, self._worker, starts=True)
            if result is Result.SNOOZED and one.workflow.delivery is Delivery.AT_MOST_ONCE:
                # A task that may be started only once does not snooze.
                result = Result.SUCCEEDED
            if lasts > min(timeout, left):
                lasts, result = min(timeout, left), Result.TIMED_OUT
            self._end_after(lasts, one, result, past_deadline=left <= timeout)

    def _left_ms(self, one: Assignment) -> int:
        """The time until the deadline of the task, by the clock of the process; very long without one."""
        at = one.task.deadline_at
        return _FOREVER_MS if at is None else max(0, at - self._observer.now())

    def _end_after(
        self, ms: int, assignment: Assignment, result: Result, *, past_deadline: bool = False, began: bool = True
    ) -> None:
        held = assignment.task.task_id, assignment.task.fence

        async def end() -> None:
            if self._running.get(held) is not assignment:
                return
            if frozen := self._frozen_ms():
                self._end_after(frozen, assignment, result, past_deadline=past_deadline, began=began)
                return
            if began and self._rng.random() < self._workload.crash_probability.get(assignment.step.function, 0):
                self._on_death()
                return
            del self._running[held]
            if began:
                self._observer.note(assignment, self._worker, starts=False, result=result)
            self._finished.append(Finished(assignment, self._outcome(result, past_deadline=past_deadline)))
            self._on_finished()

        self._queue.after(ms, end)

    def _crashes(self, assignment: Assignment) -> bool:
        return self._rng.random() < self._workload.crash_probability.get(assignment.step.function, 0)

    def _outcome(self, result: Result, *, past_deadline: bool) -> AttemptOutcome:
        if result is Result.SNOOZED:
            return AttemptOutcome(result=result, snooze_ms=self._rng.choice(_SNOOZES_MS))
        error = None if result is Result.SUCCEEDED else f"simulated: {result}"
        return AttemptOutcome(result=result, error=error, past_deadline=past_deadline and result is Result.TIMED_OUT)

    def finished(self) -> Sequence[Finished]:
        """See Runner.finished."""
        found, self._finished = self._finished, []
        return found

    def stop(self, held: Collection[AttemptRef], *, why: Result) -> None:
        """See Runner.stop."""
        for one in sorted(held):
            if one in self._running:
                self._end_after(self._rng.choice(_STOPPING_MS), self._running[one], why)

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        """See Runner.close. A simulation never stops a process gracefully."""
        del drain_ms, grace_ms
        self.stop(list(self._running), why=Result.LOST)

    def die(self) -> None:
        """Drop all attempts, and the outcomes that were not collected."""
        for one in self._running.values():
            self._observer.note(one, self._worker, starts=False)
        self._running, self._finished = {}, []
