"""A runner that runs nothing: bodies are a time to last and a way to end, and a witness notes both."""

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

#: How long a body goes on that was told to stop.
_STOPPING_MS = (0, 100, 2_000)
_SNOOZES_MS = (5_000, 60_000, 200_000)


@dataclass
class WorkloadModel:
    """How bodies behave."""

    #: How long they last, in milliseconds; what exceeds its timeout is ended by it.
    durations: tuple[int, ...] = (10, 500, 20_000, 90_000)
    #: How they end by themselves, and how often each compared to the others.
    endings: Mapping[Result, int] = field(default_factory=lambda: {Result.SUCCEEDED: 1})
    #: Functions whose bodies take their process down with them instead, and how likely that is.
    crash_probability: Mapping[str, float] = field(default_factory=dict)


class ExecutionObserver:
    """Notes starts and ends of bodies. Asks neither the store nor the services."""

    def __init__(self, history: SimulationHistory, clock: VirtualClock) -> None:
        self._history = history
        self._clock = clock

    def note(self, assignment: Assignment, worker: str, *, starts: bool, result: Result | None = None) -> None:
        """A body has begun or ended."""
        task = assignment.task
        self._history.witness.append(
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
    """The bodies of one process: they stand still while it does, and die with it."""

    def __init__(
        self,
        queue: EventQueue,
        witness: ExecutionObserver,
        dice: random.Random,
        habits: WorkloadModel,
        *,
        worker: str,
        functions: Callable[[], Collection[str]],
        default_timeout_ms: int,
    ) -> None:
        self._queue = queue
        self._witness = witness
        self._dice = dice
        self._habits = habits
        self._worker = worker
        self._functions = functions
        self._default_timeout_ms = default_timeout_ms
        self._running: dict[AttemptRef, Assignment] = {}
        self._finished: list[Finished] = []
        #: Called when something has ended.
        self.on_finished: Callable[[], None] = lambda: None
        #: Called when a body takes the process down.
        self.on_death: Callable[[], None] = lambda: None
        #: How long the process stands still, from now on.
        self.still_ms: Callable[[], int] = lambda: 0

    @property
    def functions(self) -> Collection[str]:
        """See Runner.functions."""
        return self._functions()

    @property
    def overrunning(self) -> int:
        """See Runner.overrunning: what is told to stop here does."""
        return 0

    @property
    def occupied(self) -> int:
        """See Runner.occupied."""
        return len(self._running)

    def start(self, assignments: Sequence[Assignment]) -> None:
        """See Runner.start."""
        for one in assignments:
            self._running[one.task.task_id, one.task.fence] = one
            self._witness.note(one, self._worker, starts=True)
            lasts, timeout = self._dice.choice(self._habits.durations), one.step.timeout_ms or self._default_timeout_ms
            endings = self._habits.endings
            [result] = self._dice.choices(list(endings), list(endings.values()))
            if result is Result.SNOOZED and one.workflow.delivery is Delivery.AT_MOST_ONCE:
                # Whoever may be started only once does not ask to be called again.
                result = Result.SUCCEEDED
            if lasts > timeout:
                lasts, result = timeout, Result.TIMED_OUT
            self._end_after(lasts, one, result)

    def _end_after(self, ms: int, assignment: Assignment, result: Result) -> None:
        held = assignment.task.task_id, assignment.task.fence

        async def end() -> None:
            if self._running.get(held) is not assignment:
                return
            if still := self.still_ms():
                self._end_after(still, assignment, result)
                return
            if self._dice.random() < self._habits.crash_probability.get(assignment.step.function, 0):
                self.on_death()
                return
            del self._running[held]
            self._witness.note(assignment, self._worker, starts=False, result=result)
            self._finished.append(Finished(assignment, self._outcome(result)))
            self.on_finished()

        self._queue.after(ms, end)

    def _outcome(self, result: Result) -> AttemptOutcome:
        if result is Result.SNOOZED:
            return AttemptOutcome(result=result, snooze_ms=self._dice.choice(_SNOOZES_MS))
        return AttemptOutcome(result=result, error=None if result is Result.SUCCEEDED else f"simulated: {result}")

    def finished(self) -> Sequence[Finished]:
        """See Runner.finished."""
        found, self._finished = self._finished, []
        return found

    def stop(self, held: Collection[AttemptRef], *, why: Result) -> None:
        """See Runner.stop."""
        for one in sorted(held):
            if one in self._running:
                self._end_after(self._dice.choice(_STOPPING_MS), self._running[one], why)

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        """See Runner.close: no process of a simulation is ever asked to stop."""
        del drain_ms, grace_ms
        self.stop(list(self._running), why=Result.LOST)

    def die(self) -> None:
        """Nothing runs any more, and what has ended will never be told."""
        for one in self._running.values():
            self._witness.note(one, self._worker, starts=False)
        self._running, self._finished = {}, []
