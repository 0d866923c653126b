"""Definitions of workflows, as they were registered. A version never changes, so it is read once."""

from functools import lru_cache

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import bulk
from gnomon.core.runs.workflow import Workflow

_VERSION = bulk.statement("SELECT definition FROM workflow WHERE tenant = ? AND workflow_id = ? AND version = ?")
_DECODER = msgspec.json.Decoder(Workflow)


def definition(conn: sa.Connection, tenant: str, workflow_id: str, version: int) -> Workflow | None:
    """That version of the workflow."""
    found = bulk.rows(conn, _VERSION, tenant, workflow_id, version)
    return decoded(found[0][0]) if found else None


# By its text and not by its name: a definition that another transaction took back was never there.
@lru_cache(maxsize=512)
def decoded(text: str) -> Workflow:
    """The workflow that a text defines."""
    return _DECODER.decode(text)
