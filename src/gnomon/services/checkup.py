"""What a doctor finds about a database: what is well, what somebody should look at, and what is wrong."""

from enum import StrEnum

from msgspec import Struct

from gnomon.core.health import longest_silence_ms
from gnomon.core.ids import SHARDS
from gnomon.ports.maintenance import Survey
from gnomon.settings import Settings

_MIB = 2**20
#: Less free space than the first is worth a look, less than the second is wrong.
_FEW_MIB, _TOO_FEW_MIB = 1024, 64
#: How long a task may wait for a worker before somebody should look.
_LONG_MS = 60_000


class Grade(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Struct, frozen=True):
    """One thing that was looked at."""

    about: str
    grade: Grade
    message: str


def findings(survey: Survey, settings: Settings, *, now: int) -> list[Finding]:
    """What follows from a look at the store, at the time that this machine has."""
    return [
        _leader(survey),
        _workers(survey),
        _ledger(survey, settings, now),
        _tasks(survey, now),
        _letters(survey),
        _clock(survey, settings, now),
    ]


def _leader(survey: Survey) -> Finding:
    if not survey.shards:
        return Finding("leader", Grade.WARNING, "nobody decides ticks: gnomon up starts a node")
    grade = Grade.OK if survey.shards == SHARDS else Grade.WARNING
    nodes = "1 node decides" if survey.holders == 1 else f"{survey.holders} nodes decide"
    return Finding("leader", grade, f"{nodes}, for {survey.shards} of {SHARDS} shards")


def _workers(survey: Survey) -> Finding:
    if not survey.workers:
        return Finding("workers", Grade.WARNING, "no worker is alive: gnomon up starts one")
    return Finding("workers", Grade.OK, f"{survey.workers} alive")


def _ledger(survey: Survey, settings: Settings, now: int) -> Finding:
    jobs = f"{survey.jobs} jobs"
    if not survey.overdue or survey.oldest_due_at is None:
        return Finding("ledger", Grade.OK, f"{jobs}, nothing is overdue")
    late, limit = (now - survey.oldest_due_at) // 1000, longest_silence_ms(settings.ticker.tick_ms) // 1000
    said = f"{jobs}, {survey.overdue} overdue for more than {limit} s, the oldest by {late} s"
    return Finding("ledger", Grade.ERROR, said)


def _tasks(survey: Survey, now: int) -> Finding:
    if survey.ready_since_at is None:
        return Finding("tasks", Grade.OK, "none waits for a worker")
    waits = now - survey.ready_since_at
    grade = Grade.WARNING if waits > _LONG_MS else Grade.OK
    return Finding("tasks", grade, f"the oldest has waited for a worker for {waits // 1000} s")


def _letters(survey: Survey) -> Finding:
    if not survey.unresolved:
        return Finding("dead letters", Grade.OK, "none")
    said = f"{survey.unresolved} that nobody has dealt with: gnomon dead-letters list --unresolved"
    return Finding("dead letters", Grade.WARNING, said)


def _clock(survey: Survey, settings: Settings, now: int) -> Finding:
    off = abs(now - survey.store_at)
    said = f"{off / 1000:.1f} s from that of the store"
    if off > settings.leader.skew_limit_ms:
        return Finding("clock", Grade.ERROR, f"{said}: a node here would not decide ticks")
    return Finding("clock", Grade.WARNING if off > settings.leader.skew_warning_ms else Grade.OK, said)


def disk(free_bytes: int | None) -> Finding | None:
    """What follows from the free space beside the database; nothing if it is on a server."""
    if free_bytes is None:
        return None
    free = free_bytes // _MIB
    grade = Grade.ERROR if free < _TOO_FEW_MIB else Grade.WARNING if free < _FEW_MIB else Grade.OK
    return Finding("disk", grade, f"{free:,} MiB free")
