"""Every subject that we speak on over NATS, in one table, and the names of what keeps the messages.

    mq.scheduled.{job}                   a task for the default pool; kept until a worker has reported what came of it
    mq.scheduled.{job}.pool.{pool}       a task for another pool
    mq.scheduler.direct.{worker}         a task for one worker alone; kept by nobody, answered once that worker has it
    mq.scheduler.complete.report.{worker}     what a worker has begun, and what came of it; kept until written down
    mq.scheduler.complete.heartbeat.{worker}  a worker is alive; answered with what it is to stop
    mq.scheduler.complete.grant.{worker}      a worker asks whether it may start; answered with what it may
    mq.scheduler.dead.{stream}           a message that nobody can make anything of; kept for people

A dot in a name would be a border in a subject, so there it is written `~`, which no name has. Nothing is read from a
subject but who may listen to it: what counts stands in the message.
"""

import re

DEFAULT_POOL = "default"
#: What the names of workers begin with that are reached over the bus: only their slots are sent tasks.
REMOTE_WORKER_PREFIX = "field"
#: The streams, and who reads what workers report.
WORK, REPORTS, DEAD = "GNOMON_WORK", "GNOMON_REPORTS", "GNOMON_DEAD"
SCHEDULERS = "schedulers"
_EXECUTORS = "job-executors"

WORK_SUBJECTS = "mq.scheduled.>"
REPORT_SUBJECTS = "mq.scheduler.complete.report.*"
HEARTBEATS = "mq.scheduler.complete.heartbeat.*"
GRANTS = "mq.scheduler.complete.grant.*"
DEAD_SUBJECTS = "mq.scheduler.dead.*"
#: How long a server may take over reports before another one gets them: so short that they are written down, whoever
#: dies, before what they are about passes for lost.
_REPORT_SHARE, _REPORT_MS = 6, 1_000
_UNSAFE = re.compile(r"[^A-Za-z0-9_~-]")


def work_subject(job: str, pool: str = DEFAULT_POOL) -> str:
    """Where a task of the job is sent to workers of the pool."""
    every = f"mq.scheduled.{_token(job)}"
    return every if pool == DEFAULT_POOL else f"{every}.pool.{_token(pool)}"


def consumer_name(pool: str = DEFAULT_POOL) -> str:
    """The group of consumers that workers of a pool share."""
    return _EXECUTORS if pool == DEFAULT_POOL else f"{_EXECUTORS}-{_token(pool)}"


def pool_subjects(pool: str = DEFAULT_POOL) -> str:
    """All that is sent to workers of a pool, and nothing that is sent to others."""
    return "mq.scheduled.*" if pool == DEFAULT_POOL else f"mq.scheduled.*.pool.{_token(pool)}"


def direct_subject(worker: str) -> str:
    """Where a task is sent that is for this worker alone."""
    return f"mq.scheduler.direct.{_token(worker)}"


def report_subject(worker: str) -> str:
    """Where a worker says what it has begun and what came of it."""
    return f"mq.scheduler.complete.report.{_token(worker)}"


def heartbeat_subject(worker: str) -> str:
    """Where a worker says that it is alive."""
    return f"mq.scheduler.complete.heartbeat.{_token(worker)}"


def grant_subject(worker: str) -> str:
    """Where a worker asks whether it may start."""
    return f"mq.scheduler.complete.grant.{_token(worker)}"


def report_ack_wait_ms(lease_ms: int) -> int:
    """How long a server may take over reports before another one gets them."""
    return max(_REPORT_MS, lease_ms // _REPORT_SHARE)


def dead_subject(stream: str) -> str:
    """Where messages of a stream are kept that nobody can make anything of."""
    return f"mq.scheduler.dead.{stream}"


def _token(name: str) -> str:
    return _UNSAFE.sub("_", name.replace(".", "~"))
