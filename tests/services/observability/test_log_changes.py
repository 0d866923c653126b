"""Changes of logs, which are told at most once in a while for each execution."""

import asyncio
from datetime import UTC, datetime

from gnomon.ports.change_log import Change
from gnomon.services.observability.log_changes import LogChanges


def change(execution: str = "run_1", step: str = "main", lines: int = 1, tenant: str = "default") -> Change:
    facts = {"job": "report", "step": step, "attempt": 1, "execution_id": execution, "lines": lines}
    return Change("log", tenant, datetime(2026, 3, 2, tzinfo=UTC), facts)


class Told(list[Change]):
    """The changes that were published."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def append(self, change: Change) -> None:
        super().append(change)
        self._more.set()

    async def until(self, count: int) -> None:
        """Wait until there are so many."""
        async with asyncio.timeout(30):
            while len(self) < count:
                self._more.clear()
                await self._more.wait()


async def test_the_first_change_is_told_at_once_and_the_next_ones_together() -> None:
    told = Told()
    changes = LogChanges(told.append, interval=0.01)
    for lines in (1, 2, 3):
        changes.add(change(lines=lines))
    changes.add(change("run_2"))
    changes.add(change(tenant="acme"))
    assert told == [change(), change("run_2"), change(tenant="acme")]

    await told.until(4)
    assert told[3] == change(lines=5)


async def test_changes_of_several_steps_are_told_without_a_step() -> None:
    told = Told()
    changes = LogChanges(told.append, interval=0.01)
    for step in ("a", "b", "c"):
        changes.add(change(step=step))
    await told.until(2)

    assert told[0].facts["step"] == "a"
    assert (told[1].facts["step"], told[1].facts["attempt"], told[1].facts["lines"]) == (None, None, 2)


async def test_an_execution_that_was_quiet_is_told_at_once_again() -> None:
    told = Told()
    changes = LogChanges(told.append, interval=0.0)
    changes.add(change())
    loop, passed = asyncio.get_running_loop(), asyncio.Event()
    loop.call_later(0.01, passed.set)
    await passed.wait()
    changes.add(change(lines=2))

    assert told == [change(), change(lines=2)]
