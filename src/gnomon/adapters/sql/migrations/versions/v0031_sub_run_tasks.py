"""The number of tasks of sub-runs.

It only extends the schema. Older programs may go on: the sub-runs that they start are counted apart, from zero.
"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 29

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column and create the table."""
    op.add_column("run", sa.Column("root_run_id", _Name))
    op.create_table(
        "sub_run_tasks",
        sa.Column("root_run_id", _Name, primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute("UPDATE gnomon_meta SET value = '31' WHERE key = 'schema'")
