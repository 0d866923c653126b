"""Dispatchers admit and workers take the tasks of tenants in turns: indexes of waiting tasks have the tenant.

Programs of an older schema go on working: they sort the tasks that wait for a worker.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_SCHEDULED = "state = 'SCHEDULED'"
_WAITS = "state = 'PENDING' AND wait_reason NOT IN ('deps', 'queue')"


def upgrade() -> None:
    """Create one index anew, with the tenant, and add one."""
    op.drop_index("task_scheduled")
    _index("task_scheduled", "pool", "tenant", "rank", "available_at", "task_id", where=_SCHEDULED)
    _index("task_waiting_of_tenant", "tenant", "available_at", "task_id", where=_WAITS)
    op.execute("UPDATE gnomon_meta SET value = '13' WHERE key = 'schema'")


def _index(name: str, *columns: str, where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "task", list(columns), sqlite_where=condition, postgresql_where=condition)
