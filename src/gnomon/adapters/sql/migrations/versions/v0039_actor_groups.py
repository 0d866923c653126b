"""The groups of the callers who request runs, and approvals of commands that wait for a vote.

Older programs may not go on: they would count an approval of commands that still waits, and start runs without groups.
"""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 39


def upgrade() -> None:
    """Add the column."""
    op.add_column("run", sa.Column("actor_groups", sa.Text))
    op.execute("UPDATE gnomon_meta SET value = '39' WHERE key IN ('schema', 'min_compatible')")
