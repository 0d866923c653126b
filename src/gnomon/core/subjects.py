"""The NATS subjects, and the names of the streams and consumers.

    mq.scheduled.{job}                   a task for the default pool; stored until a worker has reported its outcome
    mq.scheduled.{job}.pool.{pool}       a task for another pool
    mq.scheduler.direct.{worker}         a task for one worker only; not stored, acknowledged by that worker
    mq.scheduler.complete.report.{worker}     started and ended attempts of a worker; stored until processed
    mq.scheduler.complete.heartbeat.{worker}  a worker is alive; the reply lists attempts that it must stop
    mq.scheduler.complete.grant.{worker}      a worker asks whether it may start attempts; the reply lists those it may
    mq.scheduler.dead.{stream}           an unreadable message; stored for operators

A dot would split a subject, so a dot in a name is written `~`, which no name contains. `{worker}` is the identity of
the worker (see worker_ids.py); the subject of an enrolled worker's directed tasks has one more token for its start.

NATS permits an enrolled worker its own subjects only. A server therefore believes the worker that the subject names,
and refuses a message that names another one.
"""

import re
from typing import NamedTuple

from gnomon.core.worker_ids import checked_worker_id, identity_of
from gnomon.errors import FieldError

DEFAULT_POOL = "default"
#: The streams, and the consumer group of the servers that read reports.
WORK, REPORTS, DEAD = "GNOMON_WORK", "GNOMON_REPORTS", "GNOMON_DEAD"
SCHEDULERS = "schedulers"
_EXECUTORS = "job-executors"

WORK_SUBJECTS = "mq.scheduled.>"
REPORT_SUBJECTS = "mq.scheduler.complete.report.*"
HEARTBEATS = "mq.scheduler.complete.heartbeat.*"
GRANTS = "mq.scheduler.complete.grant.*"
DIRECT_SUBJECTS = "mq.scheduler.direct.>"
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
    identity = identity_of(worker)
    start = worker.removeprefix(identity)
    return f"mq.scheduler.direct.{_token(identity)}{start}"


def report_subject(worker: str) -> str:
    """The subject of a worker's reports."""
    return f"mq.scheduler.complete.report.{worker_token(worker)}"


def heartbeat_subject(worker: str) -> str:
    """The subject of a worker's heartbeats."""
    return f"mq.scheduler.complete.heartbeat.{worker_token(worker)}"


def grant_subject(worker: str) -> str:
    """The subject on which a worker asks for permission to start attempts."""
    return f"mq.scheduler.complete.grant.{worker_token(worker)}"


def worker_token(worker: str) -> str:
    """The token of a worker in the subjects of its messages."""
    return _token(identity_of(worker))


def sender_of(subject: str) -> str:
    """The token of the worker that published a message on the subject."""
    return subject.rpartition(".")[2]


def is_enrolled_token(sender: str) -> bool:
    """Whether the token is that of an enrolled worker: only their identities contain a dot."""
    return "~" in sender


def check_sender(field: str, worker: str, sender: str) -> None:
    """Raise FieldError unless the worker that a message names may publish with that token in the subject."""
    if worker_token(checked_worker_id(field, worker)) != sender:
        raise FieldError(field, worker, f"is not the worker of the subject, which is {sender!r}")


def report_ack_wait_ms(lease_ms: int) -> int:
    """How long a server may take to process reports before another one gets them."""
    return max(_REPORT_MS, lease_ms // _REPORT_SHARE)


class DeliveryTimes(NamedTuple):
    """How long the bus and the servers wait, in milliseconds, before a message is delivered or processed again."""

    #: Without an acknowledgement of a task, and of a report.
    tasks: int
    reports: int
    #: While a server that has begun to process a report may still be alive.
    in_flight: int


def delivery_times(lease_ms: int, *, ack_wait_ms: int = 0, in_flight_ms: int = 0, longest_ms: int) -> DeliveryTimes:
    """The times of the settings. Those that are 0 follow from the lease of workers; `longest_ms` limits the mark."""
    reports = ack_wait_ms or report_ack_wait_ms(lease_ms)
    return DeliveryTimes(ack_wait_ms or lease_ms, reports, in_flight_ms or min(longest_ms, reports))


def dead_subject(stream: str) -> str:
    """The subject of unreadable messages of a stream."""
    return f"mq.scheduler.dead.{stream}"


def _token(name: str) -> str:
    return _UNSAFE.sub("_", name.replace(".", "~"))
