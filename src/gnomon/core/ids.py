"""Deterministic ids: every node computes the same id for the same tick, run and task, without randomness."""

from functools import lru_cache
from hashlib import sha256

from gnomon.core.model import Run, RunId, RunSource, ScheduleUid, Task, TaskId
from gnomon.core.runs.rollback import is_compensation, undone_step
from gnomon.core.runs.workflow import ONLY_STEP, Step

SHARDS = 256


def tick_key(schedule_id: str, planned_at: int) -> bytes:
    """The idempotency key of a tick: sha256 of `schedule_id:epoch`, in seconds, with decimals only below one."""
    second, ms = divmod(planned_at, 1000)
    epoch = f"{second}.{ms:03d}".rstrip("0") if ms else str(second)
    return sha256(f"{schedule_id}:{epoch}".encode()).digest()


def idempotency_key(run: Run) -> str:
    """The idempotency key of a run: the same for every attempt, and different from that of any other run."""
    if run.source is RunSource.CRON and run.schedule_id is not None:
        return tick_key(run.schedule_id, run.planned_at).hex()
    return run.idempotency_key or run.run_id


def attempt_key(run: Run, task: Task, step: Step) -> str:
    """The idempotency key that a function gets: that of its run; a compensation has one of its own."""
    return compensation_key(run, task, step) if is_compensation(step.name) else idempotency_key(run)


def compensation_key(run: Run, task: Task, step: Step) -> str:
    """The idempotency key of a compensation: the same in every attempt and in every rollback of the run."""
    parts = run.workflow_id, undone_task_id(task), step.topic, step.capability, undone_step(step.name)
    return sha256("|".join(parts).encode()).hexdigest()


def call_key(run: Run, task: Task, step: Step) -> str:
    """The idempotency key of an HTTP call: that of the run if it has only this task, else one of the task itself.

    It consists of ASCII characters. The key of a run may hold any text that its caller chose.
    """
    if is_compensation(step.name):
        return compensation_key(run, task, step)
    key = idempotency_key(run)
    if task.task_id != task_id(run.run_id, ONLY_STEP):
        key = sha256(f"{key}:{task.task_id}".encode()).hexdigest()
    return key if key.isascii() and key.isprintable() else sha256(key.encode()).hexdigest()


def hash_fraction(key: bytes) -> float:
    """A number in [0, 1) that follows from `key`."""
    return (int.from_bytes(key[:8], "big") >> 11) / 2**53


def shard_of(uid: ScheduleUid) -> int:
    """The virtual shard of a schedule, which never changes."""
    return sha256(uid.encode()).digest()[0]


def run_id(uid: ScheduleUid, planned_at: int) -> RunId:
    """The id of the only run that a tick can have: its planned time, then its schedule.

    Runs created together are neighbours in every index, in the order in which schedules come due; with digests as ids
    a burst of ticks would rewrite a database page for each of them.
    """
    return RunId(f"run_{planned_at & (1 << 48) - 1:012x}{uid.removeprefix('sch_')}")


def task_id(run: RunId, step: str) -> TaskId:
    """The id of the only task that a step or a compensation of a run can have."""
    if is_compensation(step):
        found = sha256(f"{run}:{step}".encode()).hexdigest()
        return TaskId(f"comp-{found[:8]}-{found[8:12]}-{found[12:16]}-{found[16:20]}-{found[20:32]}")
    return TaskId(f"task_{run[4:]}{_digest(step)}")


def item_id(parent: TaskId, number: int) -> TaskId:
    """The id of the task of an item."""
    return TaskId(f"{parent}.{number:06}")


def undone_task_id(compensation: Task) -> TaskId:
    """The id of the task that a compensation undoes."""
    of_step = task_id(compensation.run_id, undone_step(compensation.step))
    return of_step if compensation.item is None else item_id(of_step, compensation.item)


@lru_cache(maxsize=4096)
def _digest(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:12]
