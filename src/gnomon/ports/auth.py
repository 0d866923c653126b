"""Who calls, and what they may do."""

from enum import StrEnum
from typing import Protocol

from msgspec import Struct


class Role(StrEnum):
    """What a caller may do: look, run what there is, or change it."""

    VIEWER = "scheduler-viewer"
    OPERATOR = "scheduler-operator"
    ADMIN = "scheduler-admin"


class Caller(Struct, frozen=True):
    """Somebody whose token was found to be good."""

    subject: str
    roles: frozenset[Role]
    tenant: str = "default"


class TokenAuthenticator(Protocol):
    """Knows a good token from a bad one."""

    async def caller(self, token: str) -> Caller:
        """Whose token it is; Unauthenticated if it is nobody's."""
        ...
