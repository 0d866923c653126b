"""Two stores that must agree after the same operations."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from msgspec.structs import replace

from contracts.store import NOON
from gnomon.core.model import Attempt, Schedule, TaskId
from gnomon.ports.runs import RunQuery
from gnomon.ports.store import Store


class StorePair:
    """Calls two stores with the same arguments and compares the results."""

    def __init__(self, memory: Store, sql: Store) -> None:
        self.memory, self.sql = memory, sql

    async def call_both(self, asked: Callable[[Store], Awaitable[Any]]) -> Any:  # noqa: ANN401 - whatever they answer
        expected, found = await asked(self.memory), await asked(self.sql)
        assert found == expected
        return found


async def full_snapshot(store: Store, schedules: Iterable[Schedule]) -> list[Any]:
    """All data that the ports show of a store."""
    runs = list(await store.executions.list_runs(RunQuery(limit=1000)))
    tasks = await store.history.tasks(runs)
    events = await store.events.page("default", limit=1000)
    still_open = await store.attempts.open_attempts(after=TaskId(""), limit=1000)
    of_schedules: Iterable[Any] = [
        (
            await store.schedules.find("default", schedule.schedule_id),
            await store.history.ticks(schedule.uid, before=NOON * 2, limit=1000),
            await store.history.runs(schedule.uid, before=NOON * 2, limit=1000),
            await store.history.pauses(schedule.uid),
            [(kept.revision, kept.actor, kept.schedule) for kept in await store.history.revisions(schedule.uid)],
        )
        for schedule in schedules
    ]
    return [
        runs,
        list(tasks),
        [_without_lease(attempt) for attempt in await store.executions.attempts([task.task_id for task in tasks])],
        [await store.executions.payloads([task.task_id for task in tasks], kind) for kind in ("input", "output")],
        await store.executions.payloads([run.run_id for run in runs], "input"),
        [list(await store.executions.log_lines(task.task_id)) for task in tasks],
        list(await store.dead_letters.page("default", limit=1000)),
        list(events),
        list(await store.events.effects([event.event_id for event in events])),
        [(one.task, one.run, _without_lease(one.attempt)) for one in still_open.attempts],
        *of_schedules,
    ]


def _without_lease(attempt: Attempt) -> Attempt:
    """The attempt, whatever the clock of the store says."""
    return replace(attempt, lease_until=0)
