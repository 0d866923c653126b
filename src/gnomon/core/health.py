"""Whether a node is well: every component by itself, and what follows for those who ask.

A job that fails is the job's illness, and nothing here. A store that does not answer, a service that cannot do its
work, and a ledger whose mark does not move, are ours.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

#: How long after a failure that nobody expected a component counts as ill.
UNEXPECTED_ERROR_MS = 10_000
#: Beyond two ticks, how long nothing need be heard of the ledger.
_GRACE_MS = 5_000
#: How long a ticker may be silent before its process is better started again.
_HUNG_SECONDS = 60.0


class HealthCondition(StrEnum):
    """How a component is."""

    OK = "ok"
    #: It has nothing to do here: another node does it.
    IDLE = "idle"
    ERROR = "error"


class ComponentStatus(Struct, frozen=True):
    """What a component shows at a moment."""

    condition: HealthCondition
    message: str = ""


class ComponentHealth(Struct, frozen=True, kw_only=True):
    """A component, and since when it has been in its condition."""

    name: str
    condition: HealthCondition
    message: str = ""
    since_at: int


class NodeHealth(Struct, frozen=True, kw_only=True):
    """A node as a whole."""

    at: int
    components: tuple[ComponentHealth, ...]
    #: Whoever sends it work may do so.
    ready: bool
    #: It is worth keeping; if not, only a new process will do.
    alive: bool

    @property
    def condition(self) -> HealthCondition:
        """The worst of all components."""
        ill = any(one.condition is HealthCondition.ERROR for one in self.components)
        return HealthCondition.ERROR if ill else HealthCondition.OK


class LedgerStall(Struct, frozen=True):
    """What has been due for longest, and since when it has been that."""

    oldest_due_at: int
    since_at: int


def ledger_stall_limit_ms(tick_ms: int) -> int:
    """How long the mark of the ledger may stand still while something is due."""
    return 2 * tick_ms + _GRACE_MS


def update_stall(before: LedgerStall | None, oldest_due_at: int | None, now: int) -> LedgerStall | None:
    """What has been due for longest, now; None if nothing is due. A mark that moves begins anew."""
    if oldest_due_at is None:
        return None
    if before is not None and before.oldest_due_at == oldest_due_at:
        return before
    return LedgerStall(oldest_due_at, now)


def ledger_status(
    found: LedgerStall | None, overdue: int, *, set_aside: int, now: int, limit_ms: int
) -> ComponentStatus:
    """Whether marks move. What was set aside because it cannot be planned holds up nobody, and is not counted."""
    if found is None or overdue <= set_aside or now - found.since_at <= limit_ms:
        return ComponentStatus(HealthCondition.OK)
    late = (now - found.oldest_due_at) // 1000
    return ComponentStatus(
        HealthCondition.ERROR, f"{overdue - set_aside} schedules are overdue, by up to {late} s, and none is decided"
    )


def ticker_status(condition: HealthCondition, silent_seconds: float, *, limit_ms: int) -> ComponentStatus:
    """Whether ticks are looked at."""
    if silent_seconds * 1000 > limit_ms:
        return ComponentStatus(
            HealthCondition.ERROR, f"no look at what is due has succeeded for {silent_seconds:.0f} s"
        )
    if condition is HealthCondition.ERROR:
        return ComponentStatus(condition, "the last look at what is due has failed")
    return ComponentStatus(condition)


def is_hung(condition: HealthCondition, silent_seconds: float) -> bool:
    """Whether the ticker stands still without saying that anything failed: nothing but a new process will help."""
    return condition is not HealthCondition.ERROR and silent_seconds > _HUNG_SECONDS


def update_components(
    before: Sequence[ComponentHealth], signs: Sequence[tuple[str, ComponentStatus]], *, now: int
) -> tuple[ComponentHealth, ...]:
    """The components by their signs; one whose condition is what it was has been so for as long as before."""
    known = {one.name: one for one in before}
    made = []
    for name, sign in signs:
        old = known.get(name)
        since_at = old.since_at if old is not None and old.condition is sign.condition else now
        made.append(ComponentHealth(name=name, condition=sign.condition, message=sign.message, since_at=since_at))
    return tuple(made)
