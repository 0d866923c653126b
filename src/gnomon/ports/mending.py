"""Finding runs that wait in vain, and letting them go on. Every method is one transaction."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.invariants import Ailment
from gnomon.core.model import RunId

#: Where a walk through the runs that are not over goes on: a schedule, none first, and a planned time.
OpenPlace = tuple[str, int]
FIRST_OPEN: OpenPlace = ("", -(1 << 62))


class Ailing(Struct, frozen=True):
    """Runs that wait in vain, among some that are not over; and where to look for more, if there are any."""

    runs: Mapping[RunId, Ailment]
    after: OpenPlace | None


class Mending(Protocol):
    """What the mender needs."""

    async def ailing(self, *, before_at: int, after: OpenPlace, limit: int) -> Ailing:
        """Look at about so many runs that are not over and were made before an instant."""
        ...

    async def mend(self, run_ids: Collection[RunId], *, now: int) -> Sequence[RunId]:
        """Let every one of them go on that still waits in vain; these come back."""
        ...
