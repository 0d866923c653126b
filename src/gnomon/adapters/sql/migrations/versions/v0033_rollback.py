"""The rollback of runs.

It only extends the schema. Older programs may go on, but they do not roll back: a workflow should have compensations
only when all servers are new.
"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 29


def upgrade() -> None:
    """Add how far the rollback of a run is, why it is rolled back, and how often."""
    op.add_column("run", sa.Column("rollback", sa.Text))
    op.add_column("run", sa.Column("rollback_cause", sa.Text))
    op.add_column("run", sa.Column("rollback_number", sa.Integer, nullable=False, server_default="0"))
    op.execute("UPDATE gnomon_meta SET value = '33' WHERE key = 'schema'")
