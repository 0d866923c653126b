"""What has failed for good and waits for someone to deal with it. Every method is one transaction."""

from collections.abc import Collection, Sequence
from typing import Protocol

from gnomon.core.model import DeadLetter


class DeadLetters(Protocol):
    """They are written by those who report endings; a replay is a launch with `replay_of`."""

    async def find_dead_letter(self, tenant: str, dead_letter_id: str) -> DeadLetter | None:
        """The dead letter of that id."""
        ...

    async def list_dead_letters(
        self, tenant: str, *, job: str | None = None, unresolved: bool = False, after: str = "", limit: int = 100
    ) -> Sequence[DeadLetter]:
        """Dead letters by id, which is the order in which they can be paged through."""
        ...

    async def resolve(self, tenant: str, dead_letter_ids: Collection[str], *, by: str, now: int) -> int:
        """Mark those as dealt with that are not; how many there were comes back."""
        ...
