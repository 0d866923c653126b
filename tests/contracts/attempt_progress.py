"""The contract of the logs of attempts that go on, for any store."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.core.model import LogLine, Overlap, Result, RunId, RunSource
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.progress import AttemptProgress
from gnomon.core.runs.workflow import RetryPolicy
from gnomon.ports.runs import LogQuery
from gnomon.ports.store import Store
from support.task_steps import completion_of, take_task, workflow

AGAIN = workflow(retry=RetryPolicy(max_attempts=9, initial_delay_ms=0))


def said(*texts: str, at: int = NOON) -> tuple[LogLine, ...]:
    """Lines, each a moment after the one before."""
    return tuple(LogLine(at + number, "info", text) for number, text in enumerate(texts))


class AttemptProgressContract:
    """Tests for any store. `store` is a fresh one."""

    async def talking(self, store: Store, name: str = "slow") -> ReadyTask:
        """The task of a run, which a worker has begun."""
        schedule = minutely(name, overlap=Overlap.ALLOW)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        run = new_requested_run(RunId(f"run_{name}"), schedule, source=RunSource.API, now=NOON)
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
        return await take_task(store, "w1", run, now=NOON)

    async def keep(self, store: Store, held: ReadyTask, first: int, *lines: LogLine) -> bool:
        """Keep these lines of the attempt, from a place on."""
        progress = AttemptProgress(task_id=held.task.task_id, fence=held.task.fence, first=first, lines=lines)
        return await store.attempts.keep_progress(progress, worker=None, now=NOON)

    async def log(self, store: Store, held: ReadyTask, **query: object) -> list[tuple[int, str]]:
        """The numbers and texts of the log of its run."""
        found: Sequence[object] = await store.run_tasks.log(LogQuery(run_id=held.run.run_id, **query))  # type: ignore[arg-type]
        return [(one.number, one.line.text) for one in found]  # type: ignore[attr-defined]

    async def test_lines_of_an_attempt_that_goes_on_are_read_and_its_end_doubles_none(self, store: Store) -> None:
        held = await self.talking(store)
        one, two, three = said("one", "two", "three")

        assert await self.keep(store, held, 0, one)
        assert await self.log(store, held) == [(1, "one")]
        assert await self.keep(store, held, 0, one, two)
        assert await self.keep(store, held, 1, two)
        assert await self.log(store, held) == [(1, "one"), (2, "two")]
        await store.attempts.report(
            [completion_of(held, Result.SUCCEEDED, now=NOON, logs=(one, two, three), log_kept=True)]
        )

        assert await self.log(store, held) == [(1, "one"), (2, "two"), (3, "three")]
        assert await self.keep(store, held, 3, three) is False
        assert len(await self.log(store, held)) == 3

    async def test_the_end_of_an_attempt_replaces_the_lines_that_were_kept(self, store: Store) -> None:
        held = await self.talking(store)
        await self.keep(store, held, 0, *said("key=1", "more"))

        await store.attempts.report(
            [completion_of(held, Result.SUCCEEDED, now=NOON, logs=said("[REDACTED]"), log_kept=True)]
        )

        assert await self.log(store, held) == [(1, "[REDACTED]")]

    async def test_an_end_without_lines_leaves_none_of_those_that_were_kept(self, store: Store) -> None:
        held = await self.talking(store)
        await self.keep(store, held, 0, *said("held back"))

        await store.attempts.report([completion_of(held, Result.TIMED_OUT, now=NOON, log_kept=True)])

        assert await self.log(store, held) == []

    async def test_a_log_that_is_too_large_for_the_report_keeps_the_lines_before(self, store: Store) -> None:
        held = await self.talking(store)
        await self.keep(store, held, 0, *said("one", "two"))

        rest = said("[too large]", at=NOON + 9)
        await store.attempts.report(
            [completion_of(held, Result.SUCCEEDED, now=NOON, logs=rest, log_kept=True, log_left_out=True)]
        )

        assert await self.log(store, held) == [(1, "one"), (2, "two"), (3, "[too large]")]

    @pytest.mark.parametrize("result", [Result.LOST, Result.TIMED_OUT, Result.CANCELLED])
    async def test_a_lost_attempt_leaves_its_lines_and_the_next_one_goes_on_counting(
        self, store: Store, result: Result
    ) -> None:
        held = await self.talking(store)
        await self.keep(store, held, 0, *said("one", "two"))

        await store.attempts.report([completion_of(held, result, now=NOON, definition=AGAIN)])

        assert await self.log(store, held) == [(1, "one"), (2, "two")]
        assert await self.keep(store, held, 2, *said("late")) is False
        if result is Result.CANCELLED:
            return
        again = await take_task(store, "w2", held.run, now=NOON)
        await self.keep(store, again, 0, *said("three", at=NOON + 9))
        assert await self.log(store, held) == [(1, "one"), (2, "two"), (3, "three")]
        await store.attempts.report(
            [completion_of(again, Result.SUCCEEDED, now=NOON, logs=said("three", at=NOON + 9), log_kept=True)]
        )
        assert await self.log(store, held) == [(1, "one"), (2, "two"), (3, "three")]

    async def test_lines_of_others_are_not_kept(self, store: Store) -> None:
        held = await self.talking(store)
        stale = AttemptProgress(task_id=held.task.task_id, fence=held.task.fence + 1, lines=said("x"))
        ours = replace(stale, fence=held.task.fence)

        assert not await store.attempts.keep_progress(stale, worker=None, now=NOON)
        assert not await store.attempts.keep_progress(ours, worker="remote_x", now=NOON)

        assert await self.log(store, held) == []

    @pytest.mark.parametrize("kept", [True, False], ids=["goes on", "has ended"])
    async def test_a_log_is_read_from_both_ends_and_narrowed(self, store: Store, *, kept: bool) -> None:
        held, other = await self.talking(store), await self.talking(store, "other")
        lines = said("begin", "50% done", "Half 50_", "end: É")
        if kept:
            await self.keep(store, held, 0, *lines)
            await self.keep(store, other, 0, *said("foreign"))
        else:
            await store.attempts.report([completion_of(held, Result.SUCCEEDED, now=NOON, logs=lines)])
        every = [(number, line.text) for number, line in enumerate(lines, 1)]

        assert await self.log(store, held) == every
        assert await self.log(store, held, newest_first=True) == every[::-1]
        assert await self.log(store, held, newest_first=True, limit=2) == every[:1:-1]
        task = held.task.task_id
        assert await self.log(store, held, newest_first=True, after=(NOON + 2, task, 3)) == every[1::-1]
        assert await self.log(store, held, after=(NOON + 1, task, 2), limit=1) == every[2:3]
        assert await self.log(store, held, after_line=3) == every[3:]
        assert await self.log(store, held, since=NOON + 3) == every[3:]
        assert await self.log(store, held, step="main") == every
        assert await self.log(store, held, step="x") == []
        assert await self.log(store, held, find="hALF") == every[2:3]
        assert await self.log(store, held, find="0%") == every[1:2]
        assert await self.log(store, held, find="0_") == every[2:3]
        assert await self.log(store, held, find=": É") == every[3:]
        assert await self.log(store, held, find="nowhere") == []

    async def test_a_line_of_a_running_attempt_and_stored_ones_come_in_one_order(self, store: Store) -> None:
        held = await self.talking(store)
        early = said("one", "two")
        await store.attempts.report([completion_of(held, Result.FAILED, now=NOON, logs=early, definition=AGAIN)])
        again = await take_task(store, "w2", held.run, now=NOON)
        await self.keep(store, again, 0, *said("three", "four", at=NOON + 5))

        assert [number for number, _ in await self.log(store, held)] == [1, 2, 3, 4]
        assert await self.log(store, held, newest_first=True, limit=3) == [(4, "four"), (3, "three"), (2, "two")]
        assert await self.log(store, held, limit=3) == [(1, "one"), (2, "two"), (3, "three")]
