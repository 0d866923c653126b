"""Tasks whose steps name a breaker: which of them may start now, and what their ends tell about the service.

A task that finds its breaker open goes on waiting. It has had no attempt, and no worker was looked for in vain, so
nothing counts against it. The store calls these functions in the transaction that admits tasks and in the one that ends
attempts.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.breakers import BreakerState, release
from gnomon.core.model import Result, Run, TaskId
from gnomon.core.named_breakers import (
    BreakerKey,
    BreakerUse,
    NamedBreaker,
    NamedPermission,
    RequestOutcome,
    ask_permission,
    record_outcome,
)
from gnomon.core.runs.states import ASSIGNED, TaskState
from gnomon.core.runs.workflow import ONLY_STEP, Step

#: How long a task waits for a half-open breaker whose probes are all under way, as a part of its open time.
_RETRY_PARTS, _SHORTEST_RETRY_MS, _LONGEST_RETRY_MS = 10, 1_000, 30_000
#: The results that tell something about the service. A function that gives up says that its input is at fault; a lost
#: or interrupted attempt says something about its worker.
_OUTCOMES = {
    Result.SUCCEEDED: RequestOutcome.SUCCEEDED,
    Result.FAILED: RequestOutcome.FAILED,
    Result.TIMED_OUT: RequestOutcome.FAILED,
}


def breaker_use(step: Step, run: Run, task_id: TaskId, number: int) -> BreakerUse | None:
    """The use of a breaker by an attempt at the task; None if its step names none."""
    if step.breaker is None:
        return None
    job = run.schedule_id or run.workflow_id
    return BreakerUse(
        key=BreakerKey(run.tenant, step.breaker.name),
        limits=step.breaker.limits,
        user=job if step.name == ONLY_STEP else f"{job}/{step.name}",
        request=f"{task_id}/{number}",
    )


def attempt_of_request(request: str) -> tuple[TaskId, int]:
    """The task and the number of its attempt, of a use of a breaker by a task."""
    task_id, _, number = request.rpartition("/")
    return TaskId(task_id), int(number)


def outcome_of(result: Result) -> RequestOutcome:
    """The outcome of the request that an attempt with this result was."""
    return _OUTCOMES.get(result, RequestOutcome.NEITHER)


class TaskPermissions(Struct, frozen=True):
    """The answers to several tasks, and the breakers after them."""

    #: When to ask again, and why, by task; for those that may not start.
    waiting: Mapping[TaskId, tuple[int, str]]
    breakers: Mapping[BreakerKey, NamedBreaker]


def ask_for_tasks(
    uses: Sequence[tuple[TaskId, BreakerUse]], known: Mapping[BreakerKey, NamedBreaker], *, now: int
) -> TaskPermissions:
    """Which of these tasks may start now."""
    breakers, waiting = dict(known), {}
    for task_id, use in uses:
        permission = ask_permission(breakers.get(use.key), use, now=now)
        breakers[use.key] = permission.named
        if not permission.granted:
            waiting[task_id] = _asks_again_at(permission, now), _waiting_text(permission.named, now)
    return TaskPermissions(waiting, breakers)


class AttemptEnding(Protocol):
    """The end of an attempt."""

    @property
    def result(self) -> Result:
        """How it ended."""
        ...

    @property
    def ended_at(self) -> int:
        """When it ended."""
        ...


def record_ends(
    ends: Iterable[tuple[BreakerUse, AttemptEnding]], known: Mapping[BreakerKey, NamedBreaker]
) -> dict[BreakerKey, NamedBreaker]:
    """The breakers after the ends of these attempts."""
    breakers = dict(known)
    for use, end in ends:
        breakers[use.key] = record_outcome(breakers.get(use.key), use, outcome_of(end.result), now=end.ended_at)
    return breakers


def gone_probes(named: NamedBreaker, tasks: Mapping[TaskId, tuple[TaskState, int]]) -> list[str]:
    """The probes of tasks that have moved on, by the states and fences of the tasks."""
    return [name for name in named.breaker.probes if not _is_under_way(*attempt_of_request(name), tasks)]


def _is_under_way(task_id: TaskId, number: int, tasks: Mapping[TaskId, tuple[TaskState, int]]) -> bool:
    """Whether the attempt is still to come or to end."""
    if task_id not in tasks:
        return False
    state, fence = tasks[task_id]
    return fence == number - 1 if state is TaskState.SCHEDULED else state in ASSIGNED and fence == number


def without_probes(named: NamedBreaker, gone: Collection[str]) -> NamedBreaker:
    """The breaker without the probes of tasks that are no longer under way."""
    return replace(named, breaker=reduce(release, gone, named.breaker)) if gone else named


def _asks_again_at(permission: NamedPermission, now: int) -> int:
    """When a task that may not start asks again. While a probe runs, nobody knows for how long."""
    named = permission.named
    if named.state(now) is BreakerState.OPEN and named.breaker.open_until is not None:
        return named.breaker.open_until
    part = named.limits.open_ms // _RETRY_PARTS
    return now + min(max(part, _SHORTEST_RETRY_MS), _LONGEST_RETRY_MS)


def _waiting_text(named: NamedBreaker, now: int) -> str:
    """Why a task waits for the breaker, as a clause."""
    if named.state(now) is BreakerState.OPEN:
        failures = "1 failure" if named.breaker.failures == 1 else f"{named.breaker.failures} failures in a row"
        return f"the breaker {named.name} is open after {failures}"
    count = len(named.breaker.probes)
    probes = "a probe is" if count == 1 else f"{count} probes are"
    return f"the breaker {named.name} is half open, and {probes} under way"
