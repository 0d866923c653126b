"""Calls to the gate: bounded in number and in time, so that a gate that fails delays only what it was asked about.

The dispatcher and the worker never await a gate. They start calls, and collect the answers in a later step. Every call
runs in an asyncio task of its own; its done callback wakes the service. Time limits are checked when answers are
collected, by the service's clock, so that they hold on a virtual clock too.

Calls are grouped by workflow. A group may have only a part of all calls under way at once: if the gate hangs for one
workflow, the requests of the others still find a free call. A request that waits too long for a free call is given
back unanswered, and the dispatcher puts its task off in the store. Otherwise the tasks of one workflow could fill the
batch that the dispatcher reads, and hide all tasks behind them.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Generic, TypeVar

from msgspec.structs import replace

from gnomon.core.model import LogLine, Result, Task, TaskId
from gnomon.core.runs.admission import (
    AdmissionRequest,
    GateDecision,
    GateVerdict,
    check_decision,
    check_release,
    clean_reason,
)
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.retry import routing_delay_ms, share_of
from gnomon.ports.execution import Finished, Gate
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.tasks import AttemptRef

#: How many calls may be under way at once, and how many of them for one workflow.
_MAX_CALLS, _MAX_CALLS_PER_GROUP = 64, 16
#: How long a request to admit a task may wait for a free call.
_QUEUE_SECONDS = 1.0
#: Of how many tasks it is remembered how often the gate has failed.
_MAX_FAILURES = 10_000

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
#: The tenant and the workflow that a call is about.
Group = tuple[str, str]
#: A request, and the gate's decision about it.
Decided = tuple[AdmissionRequest, GateDecision]


class _Call(Generic[Asked]):
    """One request to the gate, waiting or under way."""

    def __init__(self, key: AttemptRef, group: Group, asked: Asked, since: float) -> None:
        self.key, self.group, self.asked = key, group, asked
        #: When it began to wait for a free call, or, if it was started, when that was.
        self.since = since
        self.task: asyncio.Future[object] | None = None


class GateCalls(Generic[Asked, Answer]):
    """The calls to one method of a gate.

    `call` asks the gate. `check` returns its answer, or raises ValueError. `failed` returns the answer to use instead
    if there is no valid one. `on_answer` wakes the service that collects the answers.
    """

    def __init__(
        self,
        clock: Clock,
        call: Callable[[Asked], Awaitable[object]],
        check: Callable[[Asked, object], Answer],
        failed: Callable[[Asked, str], Answer],
        *,
        timeout_seconds: float,
        queue_seconds: float,
        on_answer: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._call, self._check, self._failed = call, check, failed
        self._timeout_seconds, self._queue_seconds = timeout_seconds, queue_seconds
        self._on_answer = on_answer
        #: Requests that wait for a free call, by group; the group that has waited longest for one comes first.
        self._waiting: OrderedDict[Group, deque[_Call[Asked]]] = OrderedDict()
        #: Calls under way; answers that are not settled; and the keys of all three.
        self._started: dict[AttemptRef, _Call[Asked]] = {}
        self._answers: dict[AttemptRef, tuple[Asked, Answer]] = {}
        self._unsettled: set[AttemptRef] = set()
        #: How many calls have not ended, by group, and their tasks, which nobody else may hold. A call that was given
        #: up counts until it has ended.
        self._running: dict[Group, int] = {}
        self._tasks: set[asyncio.Future[object]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._unsettled)

    def __contains__(self, key: AttemptRef) -> bool:
        return key in self._unsettled

    @property
    def queued(self) -> bool:
        """Whether requests wait for a free call."""
        return bool(self._waiting)

    def ask(self, key: AttemptRef, group: Group, asked: Asked) -> None:
        """Start a call, now or as soon as one is free. A request that is not settled is not asked again."""
        if key in self._unsettled or self._closed:
            return
        self._unsettled.add(key)
        if self._is_stalled(group):
            self._answers[key] = asked, self._busy(group, asked)
            return
        self._waiting.setdefault(group, deque()).append(_Call(key, group, asked, self._clock.elapsed()))
        self._start_waiting()

    async def _run_quick_calls(self) -> None:
        """Let calls run that have nothing to wait for: they have answered after that."""
        answers = -1
        while self._started and answers < len(self._answers):
            answers = len(self._answers)
            # The first pass of the event loop runs the calls, the second one their callbacks.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def collect(self) -> list[tuple[Asked, Answer]]:
        """The answers so far. The same ones come back until they are settled."""
        await self._run_quick_calls()
        self._give_up_overdue()
        return list(self._answers.values())

    def settle(self, keys: Iterable[AttemptRef]) -> None:
        """Forget these answers: the caller has stored or kept them."""
        for key in keys:
            if self._answers.pop(key, None) is not None:
                self._unsettled.discard(key)

    def next_answer_in(self) -> float:
        """Seconds until there is something to collect, at the latest; infinite if nothing is asked."""
        if self._answers:
            return 0.0
        ends = [call.since + self._timeout_seconds for call in self._started.values()]
        ends += [calls[0].since + self._queue_seconds for calls in self._waiting.values()]
        return max(0.0, min(ends, default=float("inf")) - self._clock.elapsed())

    def close(self) -> None:
        """Cancel all calls, and wait for none of them."""
        self._closed = True
        for call in self._started.values():
            if call.task is not None:
                call.task.cancel()
        for kept in (self._waiting, self._started, self._answers, self._unsettled):
            kept.clear()

    def _start_waiting(self) -> None:
        """Start waiting calls while there are free ones, one of each group after the other."""
        while sum(self._running.values()) < _MAX_CALLS:
            group = next((one for one in self._waiting if self._running.get(one, 0) < _MAX_CALLS_PER_GROUP), None)
            if group is None:
                return
            self._start(self._waiting[group].popleft())
            self._waiting.move_to_end(group)
            if not self._waiting[group]:
                del self._waiting[group]

    def _start(self, call: _Call[Asked]) -> None:
        call.since = self._clock.elapsed()
        self._started[call.key] = call
        self._running[call.group] = self._running.get(call.group, 0) + 1
        call.task = asyncio.ensure_future(self._asked(call.asked))
        self._tasks.add(call.task)
        call.task.add_done_callback(lambda task: self._on_done(call, task))

    async def _asked(self, asked: Asked) -> object:
        return await self._call(asked)

    def _on_done(self, call: _Call[Asked], task: "asyncio.Future[object]") -> None:
        self._tasks.discard(task)
        self._running[call.group] -= 1
        if not self._running[call.group]:
            del self._running[call.group]
        error = None if task.cancelled() else task.exception()
        if self._closed:
            return
        if self._started.pop(call.key, None) is not None:
            # The call was not given up before.
            self._answers[call.key] = call.asked, self._checked(call.asked, task, error)
        self._start_waiting()
        self._on_answer()

    def _checked(self, asked: Asked, task: "asyncio.Future[object]", error: BaseException | None) -> Answer:
        if task.cancelled():
            return self._failed(asked, "the gate has cancelled the call")
        if error is not None:
            return self._failed(asked, f"the gate has raised {type(error).__name__}: {_text_of(error)}")
        try:
            return self._check(asked, task.result())
        except Exception as invalid:  # noqa: BLE001 - an object of any type may fail the check in any way
            return self._failed(asked, f"the gate has given no valid answer: {_text_of(invalid)}")

    def _is_stalled(self, group: Group) -> bool:
        """Whether a request of the group would wait in vain: all calls that it may have take too long."""
        if self._running.get(group, 0) < _MAX_CALLS_PER_GROUP:
            return False
        since = min((call.since for call in self._started.values() if call.group == group), default=float("-inf"))
        return self._clock.elapsed() >= since + self._queue_seconds

    def _busy(self, group: Group, asked: Asked) -> Answer:
        return self._failed(
            asked, f"the gate has not answered {self._running.get(group, 0)} earlier requests of this workflow"
        )

    def _give_up_overdue(self) -> None:
        now = self._clock.elapsed()
        for call in [one for one in self._started.values() if now >= one.since + self._timeout_seconds]:
            del self._started[call.key]
            if call.task is not None:
                call.task.cancel()
            late = f"the gate has not answered within {self._timeout_seconds:g} s"
            self._answers[call.key] = call.asked, self._failed(call.asked, late)
        for group, calls in list(self._waiting.items()):
            while calls and now >= calls[0].since + self._queue_seconds:
                call = calls.popleft()
                self._answers[call.key] = call.asked, self._busy(group, call.asked)
            if not calls:
                del self._waiting[group]


class AdmissionGate:
    """The input side of a gate. It fails closed: without a valid answer a task waits, and is asked about again."""

    def __init__(self, gate: Gate, clock: Clock, *, timeout_ms: int, on_answer: Callable[[], None]) -> None:
        self._gate = gate
        self.calls: GateCalls[AdmissionRequest, GateDecision] = GateCalls(
            clock,
            gate.admit,
            self._checked,
            self._failed,
            timeout_seconds=timeout_ms / 1000,
            queue_seconds=_QUEUE_SECONDS,
            on_answer=on_answer,
        )
        #: How often in a row the gate has failed, by task.
        self._failures: OrderedDict[TaskId, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self.calls)

    def is_asked(self, task: Task) -> bool:
        """Whether there is a request about the task that is not settled."""
        return (task.task_id, task.fence) in self.calls

    def decide_now(self, requests: Iterable[AdmissionRequest]) -> tuple[list[Decided], list[AdmissionRequest]]:
        """The decisions that the gate makes at once, and the requests that it has to be asked about."""
        decided: list[Decided] = []
        unanswered: list[AdmissionRequest] = []
        for request in requests:
            answer = self._decision_now(request)
            if answer is None:
                unanswered.append(request)
            else:
                decided.append((request, answer))
        return decided, unanswered

    def _decision_now(self, request: AdmissionRequest) -> GateDecision | None:
        try:
            answer = self._gate.admit_now(request)
            return None if answer is None else check_decision(request, answer)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - nothing was awaited; `admit` is asked instead
            return None

    def ask(self, requests: Iterable[AdmissionRequest]) -> None:
        """Ask the gate about these tasks."""
        for request in requests:
            run = request.waiting.run
            self.calls.ask(_request_key(request), (run.tenant, run.workflow_id), request)

    async def collect(self) -> list[Decided]:
        """The decisions so far. The same ones come back until they are settled."""
        return await self.calls.collect()

    def settle(self, decided: Iterable[Decided]) -> None:
        """Forget these decisions: the caller has stored them."""
        self.calls.settle(_request_key(request) for request, _ in decided)

    def close(self) -> None:
        """Cancel all calls. The next process asks again about tasks without a stored decision."""
        self.calls.close()

    def _checked(self, request: AdmissionRequest, answer: object) -> GateDecision:
        decision = check_decision(request, answer)
        self._failures.pop(request.waiting.task.task_id, None)
        return decision

    def _failed(self, request: AdmissionRequest, reason: str) -> GateDecision:
        task_id = request.waiting.task.task_id
        failures = self._failures.pop(task_id, 0)
        self._failures[task_id] = failures + 1
        if len(self._failures) > _MAX_FAILURES:
            self._failures.popitem(last=False)
        delay_ms = routing_delay_ms(failures, share_of(task_id, failures))
        return GateDecision(GateVerdict.LATER, f"gate_failed: {reason}", after_ms=delay_ms)


class OutputGate:
    """The output side of a gate. It fails open: without a valid answer an output is stored as it is.

    An outcome that did not succeed has no output to check.
    """

    def __init__(
        self, gate: Gate, clock: Clock, events: Events, *, timeout_ms: int, on_answer: Callable[[], None]
    ) -> None:
        self._gate, self._clock, self._events = gate, clock, events
        self.calls: GateCalls[Finished, AttemptOutcome] = GateCalls(
            clock,
            lambda finished: gate.release(finished.assignment, finished.outcome.output),
            _released,
            self._failed,
            timeout_seconds=timeout_ms / 1000,
            queue_seconds=timeout_ms / 1000,
            on_answer=on_answer,
        )

    def __len__(self) -> int:
        return len(self.calls)

    def release_now(self, finished: Finished) -> AttemptOutcome | None:
        """The outcome to store, if the gate decides at once."""
        if finished.outcome.result is not Result.SUCCEEDED:
            return finished.outcome
        try:
            answer = self._gate.release_now(finished.assignment, finished.outcome.output)
            return None if answer is None else _released(finished, answer)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - nothing was awaited; `release` is asked instead
            return None

    def ask(self, finished: Finished) -> None:
        """Ask the gate about an output."""
        run = finished.assignment.run
        self.calls.ask(attempt_ref(finished), (run.tenant, run.workflow_id), finished)

    async def collect(self) -> list[tuple[Finished, AttemptOutcome]]:
        """The outcomes to store. The same ones come back until they are settled."""
        return await self.calls.collect()

    def settle(self, attempts: Iterable[AttemptRef]) -> None:
        """Forget these outcomes: the caller has stored or kept them."""
        self.calls.settle(attempts)

    def close(self) -> None:
        """Cancel all calls."""
        self.calls.close()

    def _failed(self, finished: Finished, reason: str) -> AttemptOutcome:
        task, outcome = finished.assignment.task, finished.outcome
        with suppress(Exception):  # a faulty event sink must not cost the outcome
            self._events.emit("output_unchecked", task=task.task_id, run=task.run_id, reason=reason)
        line = LogLine(self._clock.now(), "warning", f"the output was stored unchecked: {reason}")
        return replace(outcome, logs=(*outcome.logs, line))


def _text_of(error: BaseException) -> str:
    """The text of an error that code of any kind has raised: not even its text can be relied on."""
    try:
        return clean_reason(str(error))
    except Exception:  # noqa: BLE001
        return "(no text)"


def attempt_ref(finished: Finished) -> AttemptRef:
    """The attempt that has finished."""
    return finished.assignment.task.task_id, finished.assignment.task.fence


def _request_key(request: AdmissionRequest) -> AttemptRef:
    return request.waiting.task.task_id, request.waiting.task.fence


def _released(finished: Finished, answer: object) -> AttemptOutcome:
    outcome = finished.outcome
    released = check_release(outcome.output, answer)
    if released.quarantine is None and released.output is outcome.output:
        return outcome
    return replace(outcome, output=released.output, quarantine=released.quarantine)
