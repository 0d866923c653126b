"""Callers of the API, and their roles."""

from enum import StrEnum
from typing import Protocol

from msgspec import Struct


class Role(StrEnum):
    """The rights of a caller: read; also run existing jobs; also change them."""

    VIEWER = "scheduler-viewer"
    OPERATOR = "scheduler-operator"
    ADMIN = "scheduler-admin"


class Caller(Struct, frozen=True):
    """An authenticated caller."""

    subject: str
    roles: frozenset[Role]
    tenant: str = "default"


class TokenAuthenticator(Protocol):
    """Verifies tokens."""

    async def caller(self, token: str) -> Caller:
        """The caller that the token belongs to; Unauthenticated if it is not valid."""
        ...
