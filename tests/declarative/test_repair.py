"""States with records that cannot be read, and what becomes of them."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from gnomon.declarative import MemoryState, Scheduler, UnreadableRecord, errors, repair_state
from gnomon.declarative.state import StateFile

GOOD = '{"name":"good","cronExpression":"0 0 * * *","retryDelayMs":0,"registeredAt":0}'
OTHER = GOOD.replace("good", "other")
BAD = GOOD.replace('"good"', '""')


async def initialize(state: MemoryState) -> None:
    async def task() -> None: ...

    scheduler = Scheduler(state)
    await scheduler.initialize([("good", "0 0 * * *", task, timedelta())])
    await scheduler.stop()


@pytest.mark.req("D-16")
async def test_a_record_that_cannot_be_read_is_dropped_and_the_others_stay() -> None:
    state = MemoryState([(1, GOOD), (2, "{"), (3, BAD), (4, GOOD)])
    with pytest.raises(errors.TaskTryDeserializeError):
        await initialize(state)

    dropped = await repair_state(state)

    assert [(record.index, record.value, type(record.error)) for record in dropped] == [
        (1, "{", errors.TaskInvalidStructureError),
        (2, BAD, errors.TaskInvalidValueError),
        (3, GOOD, errors.TaskInvalidValueError),
    ]
    assert state.rows == {1: GOOD}
    assert not state.is_open
    await initialize(state)


async def test_a_record_can_be_written_anew() -> None:
    state = MemoryState([(1, GOOD), (2, BAD)])

    await repair_state(state, lambda record: str(record.value).replace('""', '"other"'))

    assert state.rows == {1: GOOD, 2: OTHER}


async def test_a_state_that_can_be_read_is_not_written(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "scheduler.db")
    await state.open()
    await state.write([(1, GOOD)])
    await state.close()

    assert await repair_state(tmp_path / "scheduler.db") == []


@pytest.mark.parametrize("result", ["{", BAD, GOOD], ids=["no JSON", "still bad", "a name twice"])
async def test_a_repair_that_repairs_nothing_changes_nothing(result: str) -> None:
    rows = {1: GOOD, 2: "{", 3: BAD}
    state = MemoryState(rows.items())

    def repair(record: UnreadableRecord) -> str | None:
        return OTHER if record.index == 1 else result

    with pytest.raises(errors.SchedulerError):
        await repair_state(state, repair)

    assert state.rows == rows
    assert not state.is_open


async def test_a_file_that_does_not_exist_is_refused_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="existing file"):
        await repair_state(tmp_path / "shceduler.db")

    assert not (tmp_path / "shceduler.db").exists()


async def test_a_state_in_use_is_not_repaired() -> None:
    state = MemoryState([(1, "{")])
    await state.open()

    with pytest.raises(errors.StateInUseError):
        await repair_state(state)

    assert msgspec.json.encode(state.rows) == b'{"1":"{"}'
