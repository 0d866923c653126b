"""Who is asking: what a token says once it has been checked."""

from enum import StrEnum
from typing import Protocol

from msgspec import Struct


class Role(StrEnum):
    """What a caller may do, under the names that tokens have for it."""

    VIEWER = "scheduler-viewer"
    OPERATOR = "scheduler-operator"
    ADMIN = "scheduler-admin"


class Caller(Struct, frozen=True):
    """Whoever asks."""

    subject: str
    roles: frozenset[Role]
    tenant: str = "default"


class Tokens(Protocol):
    """Tells callers from strangers."""

    async def caller(self, token: str) -> Caller:
        """Whose token it is; Unauthenticated if it proves nothing."""
        ...
