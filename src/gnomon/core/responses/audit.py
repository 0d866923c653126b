"""Responses about the audit trail."""

from datetime import datetime
from typing import Any

from gnomon.core.responses.base import Response


class AuditRecord(Response, frozen=True, kw_only=True):
    """An entry of the audit trail."""

    #: In the order in which entries of all tenants were written; null for other tenants than the operator's.
    number: int | None
    at: datetime
    actor: str
    tenant: str
    action: str
    #: The kind and name of the changed object.
    kind: str
    name: str
    #: Digests of the object before and after.
    before: str | None
    after: str | None
    details: dict[str, Any]
    #: Its place in the chain of all tenants, once it is sealed. Other tenants than the operator's see the hash alone.
    seq: int | None
    prev_hash: str | None
    hash: str | None
