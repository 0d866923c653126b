"""The lock of a job with `lock: true`: a view of its active run, which excludes others, for others to see."""

import msgspec
from msgspec import Struct

from gnomon.core.instants import instant_of
from gnomon.core.model import MINUTE_MS, Run, RunId
from gnomon.core.runs.workflow import Workflow

#: The prefix of the keys of locks.
LOCK_PREFIX = "scheduler.lock"
#: The duration of a lock is the longest timeout of a step plus this margin.
_MARGIN_MS = MINUTE_MS
#: The bytes of a name that a key shows as they are. NATS and its tools give others a meaning.
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_DEFAULT_TENANT = "default"
_ENCODER = msgspec.json.Encoder()


class RunLock(Struct, frozen=True, kw_only=True):
    """A lock that an execution holds."""

    tenant: str
    job: str
    execution_id: RunId
    acquired_at: int
    ttl_ms: int

    @property
    def key(self) -> str:
        """Its name, as operators know it."""
        return f"{LOCK_PREFIX}.{self.job}"

    @property
    def published_key(self) -> str:
        """Its key in NATS and Redis: every other character of a name is written as `=` and a hexadecimal number.

        Jobs of other tenants than `default` have their tenant before the name.
        """
        names = [self.job] if self.tenant == _DEFAULT_TENANT else [self.tenant, self.job]
        return ".".join([LOCK_PREFIX, *map(key_token, names)])

    def body(self) -> bytes:
        """Its value in NATS and Redis, as JSON; `ttl` in seconds."""
        facts = {
            "execution_id": self.execution_id,
            "acquired_at": instant_of(self.acquired_at),
            "ttl": self.ttl_ms // 1000,
        }
        return _ENCODER.encode(facts)


def job_lock(run: Run, workflow: Workflow | None, *, default_timeout_ms: int) -> RunLock | None:
    """The lock that the run holds; None if its job has none."""
    if workflow is None or not workflow.lock or run.queued or run.over:
        return None
    timeout_ms = max(step.timeout_ms or default_timeout_ms for step in workflow.all_steps)
    return RunLock(
        tenant=run.tenant,
        job=run.schedule_id or run.workflow_id,
        execution_id=run.run_id,
        acquired_at=run.created_at,
        ttl_ms=timeout_ms + _MARGIN_MS,
    )


def key_token(name: str) -> str:
    """A name as one token of a key."""
    return "".join(chr(one) if one in _PLAIN else f"={one:02X}" for one in name.encode())
