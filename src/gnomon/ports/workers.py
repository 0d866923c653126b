"""Who can execute what."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.ports.runs import Payloads
from gnomon.ports.work import Work


class WorkerCard(Struct, frozen=True, kw_only=True):
    """A worker as it presents itself."""

    #: A name that no other start of a process has ever had.
    worker: str
    functions: tuple[str, ...]
    slots: int
    pool: str = "default"
    started_at: int


class Workers(Protocol):
    """Every method is one transaction. The store's clock says who is alive."""

    async def enlist(self, card: WorkerCard, *, ttl_ms: int) -> None:
        """The worker is known, and counts as alive for so long."""
        ...

    async def workers(self) -> Sequence[WorkerCard]:
        """Those alive, by name."""
        ...

    async def dismiss(self, worker: str) -> None:
        """The worker is known no longer."""
        ...


class Workplace(Work, Workers, Payloads, Protocol):
    """Where work is handed out, what came of it, and who is there to take it."""
