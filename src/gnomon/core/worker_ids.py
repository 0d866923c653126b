"""The ids of remote workers, and which attempts a worker may start, renew and end.

A worker that shares a NATS user with others has the id `field_{start}`. An enrolled worker has a user of its own and
the id `field_{pool}.{name}.{start}`. `start` differs with every start of the process, so that a new process never
counts as the one before. The rest is the *identity* of the worker. Every message of a worker is published on a subject
with its identity, and NATS permits each enrolled user its own subjects only. An enrolled worker can therefore lie
neither about its name nor about its pool.
"""

import re

from gnomon.core.runs.routing import DEFAULT_POOL
from gnomon.errors import FieldError

#: The prefix of the ids of remote workers: only they are sent tasks over NATS.
REMOTE_WORKER_PREFIX = "field"
#: The id of a report, which begins with that of its worker, has at most 200 characters.
_LONGEST_ID = 180
_LONGEST_NAME = 60
#: How many starts of one enrolled worker are registered at once; the one that was heard of longest ago makes way.
MOST_STARTS = 50
_WORD = r"[A-Za-z0-9_-]+"
_ID = re.compile(rf"{REMOTE_WORKER_PREFIX}_{_WORD}((\.{_WORD}){{2,}})?")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_POOL = re.compile(rf"{_NAME.pattern}(\.[a-z0-9_-]+)*")


def checked_worker_id(field: str, value: str) -> str:
    """The id; FieldError unless it has the form of a remote worker's id."""
    if len(value) > _LONGEST_ID or not _ID.fullmatch(value):
        raise FieldError(field, value[:_LONGEST_ID], "is not the id of a remote worker")
    return value


def checked_identity(pool: str, name: str) -> str:
    """The identity of the enrolled worker of that name and pool; FieldError if a subject cannot hold one of them."""
    for field, value, form in (("name", name, _NAME), ("pool", pool, _POOL)):
        if len(value) > _LONGEST_NAME or not form.fullmatch(value):
            dot = "" if field == "name" else "single dots, "
            reason = (
                f"must be 1 to {_LONGEST_NAME} of a-z, 0-9, {dot}dash and underscore, beginning with a letter or digit"
            )
            raise FieldError(field, value, reason)
    return f"{REMOTE_WORKER_PREFIX}_{pool}.{name}"


def identity_of(worker: str) -> str:
    """The id without the part that differs with every start; that of a worker without enrolment as it is."""
    identity, _, _ = worker.rpartition(".")
    return identity or worker


def enrolled_pool(worker: str) -> str | None:
    """The pool that the worker was enrolled for; None for a worker without enrolment."""
    prefix = f"{REMOTE_WORKER_PREFIX}_"
    pool, *rest = worker.removeprefix(prefix).rsplit(".", 2)
    return pool if worker.startswith(prefix) and len(rest) == 2 else None


def is_remote(worker: str) -> bool:
    """Whether the worker gets its tasks over NATS."""
    return worker.startswith(f"{REMOTE_WORKER_PREFIX}_")


def may_hold(worker: str, *, holder: str, started: bool, pool: str | None) -> bool:
    """Whether the worker may start, renew or end an attempt that the store has under the name of `holder`.

    Until a worker starts it, a task for a whole pool is held by the server that sent it. Then any worker of the pool
    may; the first start decides who holds it from then on.
    """
    if worker == holder:
        return True
    if started or is_remote(holder):
        return False
    return enrolled_pool(worker) in (None, pool or DEFAULT_POOL)
