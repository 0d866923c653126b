"""The NATS subjects, and the names of the streams and consumers.

    mq.scheduled.{job}                   a task for the default pool; stored until a worker has reported its outcome
    mq.scheduled.{job}.pool.{pool}       a task for another pool
    mq.scheduler.direct.{worker}         a task for one worker only; not stored, acknowledged by that worker
    mq.scheduler.complete.report.{worker}     started and ended attempts of a worker; stored until processed
    mq.scheduler.complete.heartbeat.{worker}  a worker is alive; the reply lists attempts that it must stop
    mq.scheduler.complete.grant.{worker}      a worker asks whether it may start attempts; the reply lists those it may
    mq.scheduler.dead.{stream}           an unreadable message; stored for operators

A dot would split a subject, so a dot in a name is written `~`, which no name contains. A subject only decides who
receives a message; everything else is in the message.
"""

import re

DEFAULT_POOL = "default"
#: The prefix of the ids of remote workers: only they are sent tasks over NATS.
REMOTE_WORKER_PREFIX = "field"
#: The streams, and the consumer group of the servers that read reports.
WORK, REPORTS, DEAD = "GNOMON_WORK", "GNOMON_REPORTS", "GNOMON_DEAD"
SCHEDULERS = "schedulers"
_EXECUTORS = "job-executors"

WORK_SUBJECTS = "mq.scheduled.>"
REPORT_SUBJECTS = "mq.scheduler.complete.report.*"
HEARTBEATS = "mq.scheduler.complete.heartbeat.*"
GRANTS = "mq.scheduler.complete.grant.*"
DEAD_SUBJECTS = "mq.scheduler.dead.*"
#: How long a server may take to process reports before another one gets them: so short that the reports are written,
#: whichever server dies, before their attempts count as lost.
_REPORT_SHARE, _REPORT_MS = 6, 1_000
_UNSAFE = re.compile(r"[^A-Za-z0-9_~-]")


def work_subject(job: str, pool: str = DEFAULT_POOL) -> str:
    """The subject of tasks of the job for workers of the pool."""
    base = f"mq.scheduled.{_token(job)}"
    return base if pool == DEFAULT_POOL else f"{base}.pool.{_token(pool)}"


def consumer_name(pool: str = DEFAULT_POOL) -> str:
    """The consumer that the workers of a pool share."""
    return _EXECUTORS if pool == DEFAULT_POOL else f"{_EXECUTORS}-{_token(pool)}"


def pool_subjects(pool: str = DEFAULT_POOL) -> str:
    """The subject filter for all tasks of a pool, and for no others."""
    return "mq.scheduled.*" if pool == DEFAULT_POOL else f"mq.scheduled.*.pool.{_token(pool)}"


def direct_subject(worker: str) -> str:
    """The subject of tasks for this worker only."""
    return f"mq.scheduler.direct.{_token(worker)}"


def report_subject(worker: str) -> str:
    """The subject of a worker's reports."""
    return f"mq.scheduler.complete.report.{_token(worker)}"


def heartbeat_subject(worker: str) -> str:
    """The subject of a worker's heartbeats."""
    return f"mq.scheduler.complete.heartbeat.{_token(worker)}"


def grant_subject(worker: str) -> str:
    """The subject on which a worker asks for permission to start attempts."""
    return f"mq.scheduler.complete.grant.{_token(worker)}"


def report_ack_wait_ms(lease_ms: int) -> int:
    """How long a server may take to process reports before another one gets them."""
    return max(_REPORT_MS, lease_ms // _REPORT_SHARE)


def dead_subject(stream: str) -> str:
    """The subject of unreadable messages of a stream."""
    return f"mq.scheduler.dead.{stream}"


def _token(name: str) -> str:
    return _UNSAFE.sub("_", name.replace(".", "~"))
