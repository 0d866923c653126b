"""Calls to the gate: bounded in number and in time, so that a gate that fails delays only what it was asked about.

The dispatcher and the worker never await a gate. They start calls, and collect the answers in a later step. Every call
runs in an asyncio task of its own; its done callback wakes the service. Time limits are checked when answers are
collected, by the service's clock, so that they hold on a virtual clock too.

Calls are grouped by workflow, and four rules keep a gate that hangs for some workflows from the others:

- A group without a call may always start one. All further calls share a number of calls, and a group has at most a part
  of them.
- A group whose call was not answered in time is *suspect*: until a call of it is answered, it has one call at a time,
  its probe, which the shared calls do not count.
- A call that was given up is cancelled. If it ignores that, it no longer takes a shared call, but it counts until it
  ends: for its group, for its tenant, and in all.
- There is a limit on all calls that have not ended. A tenant may have as many of them as are still free, so that some
  are left for every other tenant. Only groups without a call may use more than a part of this limit.

A request to admit a task that waits too long for a free call is given back unanswered, and the dispatcher puts its task
off in the store. Otherwise the tasks of one workflow could fill the batch that the dispatcher reads, and hide all tasks
behind them.

A group is at fault if it is suspect, or if none of its calls was answered for too long. Only then the gate counts as
failed. Otherwise it is busy, with this group or with others: a task is put off until its turn, as the speed of the
answers tells it, and an output keeps waiting.
"""

import asyncio
from collections import Counter, OrderedDict, deque
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
from gnomon.ports.output_policy import OutputPolicy
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.tasks import AttemptRef

#: So many answers are collected at once, and the first one waits so long for others.
_ANSWERS_AT_ONCE, _MORE_ANSWERS_SECONDS = 64, 0.01
#: How many calls the groups share, and how many calls one group may have that have not ended.
_MAX_SHARED_CALLS, _MAX_CALLS_PER_GROUP = 64, 16
#: How many calls there may be in all that have not ended, and from how many on a group may not start a second one.
_MAX_UNENDED_CALLS, _MANY_UNENDED_CALLS = 1024, 256
#: How many suspect groups are remembered.
_MAX_SUSPECTS = 10_000
#: How long a request to admit a task may wait for a free call.
_QUEUE_SECONDS = 1.0
#: A group is at fault if no call was answered for so many times as long as a call usually takes.
_QUIET_FACTOR = 3
#: The weight of the last call in the mean duration; and the longest time for which a busy gate puts a task off.
_MEAN_WEIGHT, _LONGEST_TURN_SECONDS = 0.2, 30.0
#: Of how many tasks it is remembered how often the gate has failed.
_MAX_FAILURES = 10_000

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
#: Calls a function a moment later: more answers may have come by then.
Delay = Callable[[Callable[[], None]], None]
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


class _GroupCalls:
    """The calls of one group that have not ended, and how fast the gate has answered."""

    def __init__(self) -> None:
        #: How many calls have not ended, and when those of them started that were not given up, in this order.
        self.unended = 0
        self.under_way: dict[AttemptRef, float] = {}
        self._answered_at, self._mean_seconds = float("-inf"), 0.0
        self._next_turn = float("-inf")

    @property
    def answers(self) -> bool:
        """Whether a call was answered."""
        return self._answered_at > float("-inf")

    def oldest(self, default: float) -> float:
        """When the oldest call under way started."""
        return next(iter(self.under_way.values()), default)

    def answered(self, now: float, seconds: float) -> None:
        """Count an answer that took so long."""
        self._mean_seconds += (_MEAN_WEIGHT if self.answers else 1.0) * (seconds - self._mean_seconds)
        self._answered_at = now

    def quiet_too_long(self, now: float, since: float, patience: float) -> bool:
        """Whether there was no answer since then, nor since the last one, for longer than usual."""
        return now >= max(since, self._answered_at) + max(patience, _QUIET_FACTOR * self._mean_seconds)

    def reserve_turn(self, now: float) -> float:
        """Seconds until one more request would be answered, behind those that have a turn already."""
        self._next_turn = max(now, self._next_turn) + self._mean_seconds / max(1, len(self.under_way))
        return min(self._next_turn - now, _LONGEST_TURN_SECONDS)


class GateCalls(Generic[Asked, Answer]):
    """The calls to one method of a gate.

    `call` asks the gate. `check` returns its answer, or raises ValueError. `failed` returns the answer to use instead
    if there is no valid one. `put_off` returns the answer to use if a request has waited too long though its group is
    not at fault: with a reason and the seconds until its turn; without it, the request keeps waiting. `on_answer` wakes
    the service that collects the answers; with `delay`, not for each of several answers that come one after the other.
    """

    def __init__(  # noqa: PLR0913 - the answers for every case
        self,
        clock: Clock,
        call: Callable[[Asked], Awaitable[object]],
        check: Callable[[Asked, object], Answer],
        failed: Callable[[Asked, str], Answer],
        *,
        timeout_seconds: float,
        queue_seconds: float,
        on_answer: Callable[[], None],
        put_off: Callable[[Asked, str, float], Answer] | None = None,
        delay: Delay | None = None,
    ) -> None:
        self._clock, self._delay = clock, delay
        self._call, self._check, self._failed, self._put_off = call, check, failed, put_off
        self._timeout_seconds, self._queue_seconds = timeout_seconds, queue_seconds
        self._on_answer = on_answer
        #: Requests that wait for a free call, by group; the group that has waited longest for one comes first.
        self._waiting: OrderedDict[Group, deque[_Call[Asked]]] = OrderedDict()
        #: Calls under way; answers that are not settled; and the keys of all three.
        self._started: dict[AttemptRef, _Call[Asked]] = {}
        self._answers: dict[AttemptRef, tuple[Asked, Answer]] = {}
        self._unsettled: set[AttemptRef] = set()
        #: The calls that have not ended, by group, and their number by tenant.
        self._groups: dict[Group, _GroupCalls] = {}
        self._tenants: Counter[str] = Counter()
        #: Their tasks, which nobody else may hold.
        self._tasks: set[asyncio.Future[object]] = set()
        #: The groups of which no call was answered since one took too long; and their calls under way.
        self._suspects: OrderedDict[Group, None] = OrderedDict()
        self._probes: set[AttemptRef] = set()
        #: When all requests are given up that are not answered.
        self._deadline = float("inf")
        self._closed = False
        #: Whether the service will be woken soon.
        self._announcing = False

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
        if self._is_hopeless(group):
            self._answers[key] = asked, self._not_answered(group, asked)
            return
        self._waiting.setdefault(group, deque()).append(_Call(key, group, asked, self._clock.elapsed()))
        if self._may_start(group):
            self._start_next(group)

    async def _run_quick_calls(self) -> None:
        """Let calls run that have nothing to wait for: they have answered after that."""
        answers = -1
        while self._started and answers < len(self._answers):
            answers = len(self._answers)
            await _run_calls()

    async def collect(self) -> list[tuple[Asked, Answer]]:
        """The answers so far. The same ones come back until they are settled."""
        await self._run_quick_calls()
        if self._give_up_overdue():
            await _run_calls()
            self._start_waiting()
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
        return max(0.0, min(*ends, self._deadline) - self._clock.elapsed()) if ends else float("inf")

    def finish_within(self, seconds: float) -> None:
        """Give up all requests that are not answered by then: the process stops."""
        self._deadline = self._clock.elapsed() + seconds

    def close(self) -> None:
        """Cancel all calls, and wait for none of them."""
        self._closed = True
        for call in self._started.values():
            if call.task is not None:
                call.task.cancel()
        for kept in (self._waiting, self._started, self._answers, self._unsettled):
            kept.clear()

    def _start_waiting(self) -> None:
        """Start waiting calls while there are free ones: one of each group after the other, suspect groups last."""
        while group := self._next_group():
            self._start_next(group)

    def _next_group(self) -> Group | None:
        suspect = None
        for group in self._waiting:
            if self._may_start(group):
                if group not in self._suspects:
                    return group
                suspect = suspect or group
        return suspect

    def _start_next(self, group: Group) -> None:
        self._start(self._waiting[group].popleft())
        self._waiting.move_to_end(group)
        if not self._waiting[group]:
            del self._waiting[group]

    def _may_start(self, group: Group) -> bool:
        """Whether the group has a free call. The essay of this module has the rules."""
        calls = self._groups.get(group)
        if calls is None or not calls.unended:
            return self._tenants[group[0]] < _MAX_UNENDED_CALLS - len(self._tasks)
        if calls.unended >= _MAX_CALLS_PER_GROUP or len(self._tasks) >= _MANY_UNENDED_CALLS:
            return False
        return not calls.under_way or (
            group not in self._suspects and len(self._started) - len(self._probes) < _MAX_SHARED_CALLS
        )

    def _start(self, call: _Call[Asked]) -> None:
        call.since = self._clock.elapsed()
        self._started[call.key] = call
        if call.group in self._suspects:
            self._probes.add(call.key)
        calls = self._groups.setdefault(call.group, _GroupCalls())
        calls.unended += 1
        calls.under_way[call.key] = call.since
        self._tenants[call.group[0]] += 1
        call.task = asyncio.ensure_future(self._asked(call.asked))
        self._tasks.add(call.task)
        call.task.add_done_callback(lambda task: self._on_done(call, task))

    async def _asked(self, asked: Asked) -> object:
        return await self._call(asked)

    def _on_done(self, call: _Call[Asked], task: "asyncio.Future[object]") -> None:
        calls, given_up = self._groups[call.group], self._started.get(call.key) is not call
        if not given_up:
            self._take_back(call)
        self._count_ended(call.group)
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if self._closed:
            return
        if not given_up:
            self._suspects.pop(call.group, None)
            now = self._clock.elapsed()
            calls.answered(now, now - call.since)
            self._answers[call.key] = call.asked, self._checked(call.asked, task, error)
        self._start_waiting()
        self._announce_answers()

    def _announce_answers(self) -> None:
        """Wake the service: soon if more answers are about to come, because it stores all that there are at once."""
        if self._delay is None or not self._started or len(self._answers) >= _ANSWERS_AT_ONCE:
            self._on_answer()
        elif not self._announcing:
            self._announcing = True
            self._delay(self._announce_now)

    def _announce_now(self) -> None:
        self._announcing = False
        self._on_answer()

    def _take_back(self, call: _Call[Asked]) -> None:
        """The call is no longer under way: it was answered or given up."""
        del self._started[call.key], self._groups[call.group].under_way[call.key]
        self._probes.discard(call.key)

    def _count_ended(self, group: Group) -> None:
        self._groups[group].unended -= 1
        self._forget_idle(group)
        tenant = group[0]
        self._tenants[tenant] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]

    def _forget_idle(self, group: Group) -> None:
        calls = self._groups.get(group)
        if calls is not None and not calls.unended and group not in self._waiting:
            del self._groups[group]

    def _checked(self, asked: Asked, task: "asyncio.Future[object]", error: BaseException | None) -> Answer:
        if task.cancelled():
            return self._failed(asked, "the gate has cancelled the call")
        if error is not None:
            return self._failed(asked, f"the gate has raised {type(error).__name__}: {_text_of(error)}")
        try:
            return self._check(asked, task.result())
        except Exception as invalid:  # noqa: BLE001 - an object of any type may fail the check in any way
            return self._failed(asked, f"the gate has given no valid answer: {_text_of(invalid)}")

    def _is_hopeless(self, group: Group) -> bool:
        """Whether a request of the group would wait in vain: its calls take too long, and it may have no other."""
        calls = self._groups.get(group)
        if calls is None or self._may_start(group):
            return False
        given_up = float("-inf") if group in self._suspects else float("inf")
        return calls.quiet_too_long(self._clock.elapsed(), calls.oldest(given_up), self._queue_seconds)

    def _is_at_fault(self, group: Group, now: float) -> bool:
        """Whether requests of the group wait because the gate does not answer others of it."""
        suspect, calls = group in self._suspects, self._groups.get(group)
        if calls is None:
            return suspect
        since = float("-inf") if suspect else calls.oldest(float("inf"))
        return calls.quiet_too_long(now, since, self._queue_seconds)

    def _waited_too_long(self, call: _Call[Asked], now: float) -> Answer | None:
        """The answer to a request that has waited for its whole time; None if it may keep waiting."""
        if now >= self._deadline:
            return self._failed(call.asked, "the gate had no free call before the process stopped")
        if self._is_at_fault(call.group, now):
            return self._not_answered(call.group, call.asked)
        if self._put_off is None:
            return None
        calls = self._groups.get(call.group)
        if calls is None or not calls.unended:
            return self._put_off(call.asked, "the gate is busy with requests of other workflows", self._queue_seconds)
        seconds = calls.reserve_turn(now) if calls.answers else self._queue_seconds
        return self._put_off(call.asked, "the gate is busy with earlier requests of this workflow", seconds)

    def _not_answered(self, group: Group, asked: Asked) -> Answer:
        calls = self._groups.get(group)
        earlier = f"{calls.unended} " if calls is not None and calls.unended > 1 else ""
        return self._failed(asked, f"the gate has not answered {earlier}earlier requests of this workflow")

    def _give_up_overdue(self) -> bool:
        """Answer requests without the gate that have waited for too long. Return whether calls were cancelled."""
        now = self._clock.elapsed()
        overdue = [
            one for one in self._started.values() if now >= min(one.since + self._timeout_seconds, self._deadline)
        ]
        for call in overdue:
            self._give_up(call, now)
        for group, calls in list(self._waiting.items()):
            while calls and now >= min(calls[0].since + self._queue_seconds, self._deadline):
                call = calls.popleft()
                answer = self._waited_too_long(call, now)
                if answer is None:
                    # Its place in the queue is the same as before.
                    call.since = now
                    calls.appendleft(call)
                    break
                self._answers[call.key] = call.asked, answer
            if not calls:
                del self._waiting[group]
                self._forget_idle(group)
        return bool(overdue)

    def _give_up(self, call: _Call[Asked], now: float) -> None:
        """Cancel the call, and answer the request without the gate."""
        self._take_back(call)
        if call.task is not None:
            call.task.cancel()
        self._suspects[call.group] = None
        if len(self._suspects) > _MAX_SUSPECTS:
            self._suspects.popitem(last=False)
        late = "in time for the stop" if now >= self._deadline else f"within {self._timeout_seconds:g} s"
        self._answers[call.key] = call.asked, self._failed(call.asked, f"the gate has not answered {late}")


class AdmissionGate:
    """The input side of a gate. It fails closed: without a valid answer a task waits, and is asked about again."""

    def __init__(
        self,
        gate: Gate,
        clock: Clock,
        *,
        timeout_ms: int,
        on_answer: Callable[[], None],
        delay: Delay | None = None,
    ) -> None:
        self._gate = gate
        self.calls: GateCalls[AdmissionRequest, GateDecision] = GateCalls(
            clock,
            gate.admit,
            self._checked,
            self._failed,
            timeout_seconds=timeout_ms / 1000,
            queue_seconds=_QUEUE_SECONDS,
            on_answer=on_answer,
            put_off=_put_off,
            delay=delay,
        )
        #: The last valid decision that is about no task in particular: most gates return the same one again and again.
        self._known: GateDecision | None = None
        #: How often in a row the gate has failed, by task.
        self._failures: OrderedDict[TaskId, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self.calls)

    def asks_about_items(self, request: AdmissionRequest) -> bool:
        """Whether to ask the gate about a step before it has its items. A gate that cannot say is asked."""
        try:
            return bool(self._gate.asks_about_items(request))
        except Exception:  # noqa: BLE001 - it fails again when it is asked, and the task waits
            return True

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
            if answer is None or answer is self._known:
                return answer
            decision = check_decision(request, answer)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - nothing was awaited; `admit` is asked instead
            return None
        if decision is answer and decision.task_id is None:
            self._known = decision
        return decision

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
    """The output side of a gate, and the policy of outputs, which sees what the gate has released.

    The gate fails open: without a valid answer an output is stored as it is, unless the policy of outputs says
    otherwise.

    An output waits for a free call unless the gate fails to answer others of its workflow, however many there are. A
    failed attempt may have an output, too, if it ran a command. If that must be held back, it is dropped, and the
    attempt stays failed.
    """

    def __init__(
        self,
        gate: Gate,
        clock: Clock,
        events: Events,
        *,
        timeout_ms: int,
        on_answer: Callable[[], None],
        policy: OutputPolicy | None = None,
    ) -> None:
        self._gate, self._clock, self._events = gate, clock, events
        self._policy = policy
        self._timeout_seconds = timeout_ms / 1000
        self.calls: GateCalls[Finished, AttemptOutcome] = GateCalls(
            clock,
            self._asked,
            _valid_outcome,
            self._failed,
            timeout_seconds=self._timeout_seconds,
            queue_seconds=self._timeout_seconds,
            on_answer=on_answer,
        )

    def __len__(self) -> int:
        return len(self.calls)

    def release_now(self, finished: Finished) -> AttemptOutcome | None:
        """The outcome to store, if the gate decides at once."""
        try:
            released = self._released_now(finished)
            if released is None or self._policy is None:
                return released
            return self._policy.check_now(Finished(finished.assignment, released))
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - nothing was awaited; `release` is asked instead
            return None

    def _released_now(self, finished: Finished) -> AttemptOutcome | None:
        if not _has_output(finished.outcome):
            return finished.outcome
        answer = self._gate.release_now(finished.assignment, finished.outcome.output)
        return None if answer is None else _released(finished, answer)

    async def _asked(self, finished: Finished) -> object:
        if self._policy is None:
            return await self._gate.release(finished.assignment, finished.outcome.output)
        outcome = finished.outcome
        if _has_output(outcome):
            outcome = _released(finished, await self._gate.release(finished.assignment, outcome.output))
        return await self._policy.check(Finished(finished.assignment, outcome))

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

    def finish_after(self, seconds: float) -> None:
        """The process stops: attempts end for so long, and then the gate has twice its time limit for their outputs."""
        self.calls.finish_within(seconds + 2 * self._timeout_seconds)

    def close(self) -> None:
        """Cancel all calls."""
        self.calls.close()

    def _failed(self, finished: Finished, reason: str) -> AttemptOutcome:
        task, outcome = finished.assignment.task, finished.outcome
        with suppress(Exception):  # a faulty event sink must not cost the outcome
            self._events.emit("output_unchecked", task=task.task_id, run=task.run_id, reason=reason)
        if self._policy is not None:
            outcome = self._policy.unchecked(finished, reason)
        if outcome.quarantine is not None:
            return outcome
        line = LogLine(self._clock.now(), "warning", f"the output was stored unchecked: {reason}")
        return replace(outcome, logs=(*outcome.logs, line))


def call_in_a_moment(callback: Callable[[], None]) -> None:
    """The delay of a process in real time."""
    asyncio.get_running_loop().call_later(_MORE_ANSWERS_SECONDS, callback)


async def _run_calls() -> None:
    """Let calls run that have just started or were cancelled, and then their callbacks."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _put_off(request: AdmissionRequest, reason: str, seconds: float) -> GateDecision:
    """The decision about a task whose turn comes so much later: that the gate is busy is no failure."""
    del request
    return GateDecision(GateVerdict.LATER, reason, after_ms=round(seconds * 1000))


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


def _has_output(outcome: AttemptOutcome) -> bool:
    return outcome.result is Result.SUCCEEDED or outcome.output is not None


def _valid_outcome(finished: Finished, answer: object) -> AttemptOutcome:
    return answer if isinstance(answer, AttemptOutcome) else _released(finished, answer)


def _released(finished: Finished, answer: object) -> AttemptOutcome:
    outcome = finished.outcome
    released = check_release(outcome.output, answer)
    if released.quarantine is None and released.output is outcome.output:
        return outcome
    if released.quarantine is not None and outcome.result is not Result.SUCCEEDED:
        return replace(outcome, output=None)
    return replace(outcome, output=released.output, quarantine=released.quarantine)
