"""Who can execute what, and how busy they are."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.runs.routing import DEFAULT_POOL, Seat
from gnomon.ports.runs import Payloads
from gnomon.ports.work import Work


class Load(Struct, frozen=True):
    """How busy a machine is, in percent; None for what cannot be told."""

    cpu: int | None = None
    gpu: int | None = None


class WorkerCard(Struct, frozen=True, kw_only=True):
    """A worker as it presents itself."""

    #: A name that no other start of a process has ever had.
    worker: str
    functions: tuple[str, ...]
    slots: int
    pool: str = DEFAULT_POOL
    started_at: int
    #: What tasks may ask for by name, and by what they may be kept to certain workers.
    capabilities: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    #: How many tasks it had in hand when it was last heard of.
    in_hand: int = 0
    load: Load = Load()
    #: It finishes what it has, and takes nothing more.
    draining: bool = False
    #: When it was last heard of, by the store's clock: the store says so, whatever the worker may think.
    seen_at: int = 0


def seats_of(cards: Iterable[WorkerCard]) -> list[Seat]:
    """Those of the workers who may be given something, as far as it matters for that."""
    return [
        Seat(
            worker=card.worker,
            pool=card.pool,
            functions=frozenset(card.functions),
            slots=card.slots,
            cpu=card.load.cpu,
            gpu=card.load.gpu,
            capabilities=frozenset(card.capabilities),
            labels=card.labels,
        )
        for card in cards
        if not card.draining
    ]


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
