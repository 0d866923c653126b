"""The checks of outputs that are stored already.

Older programs may not go on: they would leave out such checks, and could not read what they decided.
"""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 42

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tasks whose outputs are to be checked, and the steps that have read an output before that."""
    op.add_column("output_ruling", sa.Column("readers", sa.Text))
    op.create_table(
        "output_check",
        sa.Column("task_id", _Name, primary_key=True),
        sa.Column("added_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("output_check_in_order", "output_check", ["added_at", "task_id"])
    op.execute("UPDATE gnomon_meta SET value = '42' WHERE key IN ('schema', 'min_compatible')")
