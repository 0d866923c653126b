"""Rulings on outputs, and the outputs that are held back.

Older programs may not go on: they would store outputs that nobody has checked.
"""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 38

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "output_ruling",
        sa.Column("task_id", _Name, primary_key=True),
        # The number of the attempt.
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tenant", _Name, nullable=False),
        sa.Column("run_id", _Name, nullable=False),
        sa.Column("job", _Name, nullable=False),
        sa.Column("step", _Name, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("decision", sa.Text, nullable=False),
        sa.Column("rule", _Name, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        # As JSON: where something was found, never the text itself.
        sa.Column("findings", sa.Text, nullable=False),
        sa.Column("content_digest", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("ruled_at", sa.BigInteger, nullable=False),
        # Null if nothing is held back: the output was redacted, or dropped with a failed attempt.
        sa.Column("status", sa.Text),
        sa.Column("decided_by", _Name),
        sa.Column("decided_at", sa.BigInteger),
        sa.Column("decided_why", sa.Text, nullable=False),
        # The output that is held back, encrypted if there is a key; null once that is decided.
        sa.Column("body", sa.LargeBinary),
    )
    where = sa.text("status IS NOT NULL")
    columns = ["tenant", "ruled_at", "task_id"]
    op.create_index("output_held", "output_ruling", columns, sqlite_where=where, postgresql_where=where)
    op.create_table(
        "output_exemption",
        sa.Column("tenant", _Name, primary_key=True),
        sa.Column("content_digest", sa.Text, primary_key=True),
        sa.Column("task_id", _Name, nullable=False),
        sa.Column("exempted_by", _Name, nullable=False),
        sa.Column("exempted_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute("UPDATE gnomon_meta SET value = '38' WHERE key IN ('schema', 'min_compatible')")
