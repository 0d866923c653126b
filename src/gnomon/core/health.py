"""The health of a node: the condition of every component, and readiness and liveness of the whole.

A failing job does not affect health. A store that does not answer, a service that cannot work, a ledger whose mark does
not move, and tasks that no worker can take, do.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from gnomon.core import component_names
from gnomon.core.runs.routing import ReasonCode

#: How long a component counts as failed after an unexpected error.
UNEXPECTED_ERROR_MS = 10_000
#: How long the ledger may stand still beyond two ticks.
_GRACE_MS = 5_000
#: How long there may be no worker, and how long a task may wait for one that can take it.
NO_WORKER_MS = 60_000
#: How long a ticker may be silent before its process should be restarted.
_HUNG_SECONDS = 60.0


class HealthCondition(StrEnum):
    """The condition of a component."""

    OK = "ok"
    #: It has nothing to do on this node: another node does it.
    IDLE = "idle"
    #: It works, but lacks a part that it should have.
    WARNING = "warning"
    ERROR = "error"


class ComponentStatus(Struct, frozen=True):
    """The condition of a component at a moment, with a message."""

    condition: HealthCondition
    message: str = ""


class ComponentHealth(Struct, frozen=True, kw_only=True):
    """A component, and the time since which it has had its condition."""

    name: str
    condition: HealthCondition
    message: str = ""
    since_at: int


class NodeHealth(Struct, frozen=True, kw_only=True):
    """The health of a whole node."""

    at: int
    components: tuple[ComponentHealth, ...]
    #: It accepts work.
    ready: bool
    #: It works; if not, only a restart of the process helps.
    alive: bool

    @property
    def condition(self) -> HealthCondition:
        """The worst of all components."""
        return HealthCondition.ERROR if any(self._failed()) else HealthCondition.OK

    @property
    def serves(self) -> bool:
        """Whether it should receive requests: all fails that fails is what every other node sees fail as well."""
        return all(component.name in component_names.SHARED for component in self._failed())

    def _failed(self) -> Iterator[ComponentHealth]:
        return (component for component in self.components if component.condition is HealthCondition.ERROR)


class LedgerStall(Struct, frozen=True):
    """The oldest due fire, and the time since which it has been the oldest."""

    oldest_due_at: int
    since_at: int


def ledger_stall_limit_ms(tick_ms: int) -> int:
    """How long the mark of the ledger may stand still while a fire is due."""
    return 2 * tick_ms + _GRACE_MS


def update_stall(before: LedgerStall | None, oldest_due_at: int | None, now: int) -> LedgerStall | None:
    """The stall with the oldest due fire now; None if nothing is due. A mark that moves starts a new stall."""
    if oldest_due_at is None:
        return None
    if before is not None and before.oldest_due_at == oldest_due_at:
        return before
    return LedgerStall(oldest_due_at, now)


def ledger_status(
    found: LedgerStall | None, overdue: int, *, set_aside: int, now: int, limit_ms: int
) -> ComponentStatus:
    """The status of the ledger: whether marks move. Schedules set aside as unplannable are not counted."""
    if found is None or overdue <= set_aside or now - found.since_at <= limit_ms:
        return ComponentStatus(HealthCondition.OK)
    late = (now - found.oldest_due_at) // 1000
    return ComponentStatus(
        HealthCondition.ERROR, f"{overdue - set_aside} schedules are overdue, by up to {late} s, and none is decided"
    )


class TaskBacklog(Struct, frozen=True, kw_only=True):
    """The tasks that no worker can take, and the workers."""

    workers: int
    #: Since when there has been no worker, as far as this process has seen.
    no_workers_since_at: int | None = None
    unroutable: int = 0
    unroutable_since_at: int | None = None
    #: The note of the task that has waited longest.
    unroutable_reason: str = ""

    @property
    def only_busy(self) -> bool:
        """Whether the task that has waited longest has able workers, which are overloaded."""
        return self.unroutable_reason.startswith(ReasonCode.POOL_OVERLOADED)

    def waiting(self, now: int) -> str:
        """The tasks that no worker can take, in words."""
        waits = (now - (self.unroutable_since_at or now)) // 1000
        # The note begins with a code for programs.
        reason = self.unroutable_reason.partition(": ")[2] or self.unroutable_reason
        many = "1 waits" if self.unroutable == 1 else f"{self.unroutable} wait, the oldest"
        return f"{many} for {waits} s: {reason}"


def tasks_status(found: TaskBacklog, now: int) -> ComponentStatus:
    """The status of the tasks: whether workers are there that can take them."""
    if not found.workers:
        # This process may have looked for the first time just now; tasks have waited since before.
        known = (found.no_workers_since_at, found.unroutable_since_at)
        since = min((at for at in known if at is not None), default=now)
        condition = HealthCondition.ERROR if now - since > NO_WORKER_MS else HealthCondition.OK
        return ComponentStatus(condition, "no worker is alive")
    if found.unroutable_since_at is None:
        return ComponentStatus(HealthCondition.OK)
    lasting = now - found.unroutable_since_at > NO_WORKER_MS and not found.only_busy
    return ComponentStatus(HealthCondition.ERROR if lasting else HealthCondition.OK, found.waiting(now))


def ticker_status(condition: HealthCondition, silent_seconds: float, *, limit_ms: int) -> ComponentStatus:
    """The status of the ticker: whether its passes succeed."""
    if silent_seconds * 1000 > limit_ms:
        return ComponentStatus(
            HealthCondition.ERROR, f"no pass over due schedules has succeeded for {silent_seconds:.0f} s"
        )
    if condition is HealthCondition.ERROR:
        return ComponentStatus(condition, "the last pass over due schedules failed")
    return ComponentStatus(condition)


def is_hung(condition: HealthCondition, silent_seconds: float) -> bool:
    """Whether the ticker stands still without reporting an error: only a restart of the process helps."""
    return condition is not HealthCondition.ERROR and silent_seconds > _HUNG_SECONDS


def update_components(
    before: Sequence[ComponentHealth], statuses: Sequence[tuple[str, ComponentStatus]], *, now: int
) -> tuple[ComponentHealth, ...]:
    """The components with their new statuses; an unchanged condition keeps its `since_at`."""
    known = {component.name: component for component in before}
    made = []
    for name, status in statuses:
        old = known.get(name)
        since_at = old.since_at if old is not None and old.condition is status.condition else now
        made.append(ComponentHealth(name=name, condition=status.condition, message=status.message, since_at=since_at))
    return tuple(made)
