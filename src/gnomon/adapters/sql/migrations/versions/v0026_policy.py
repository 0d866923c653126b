"""Versions of the policy, and the rulings about tasks.

It only extends the schema. Programs of older schemas must not go on: they run tasks that the policy refuses, and write
no rulings.
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0024"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 26

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_CONSTRAINED = "constraints IS NOT NULL AND state IN ('SCHEDULED', 'DISPATCHED', 'RUNNING')"


def upgrade() -> None:
    """Create the tables, and add the columns."""
    op.create_table(
        "policy_version",
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("author", _Name, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "ruling",
        sa.Column("task_id", _Name, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("run_id", _Name, nullable=False),
        sa.Column("decision", sa.Text, nullable=False),
        sa.Column("rule", _Name, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("constraints", sa.Text),
        sa.Column("ruled_by", _Name, nullable=False),
        sa.Column("rule_digest", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("last_at", sa.BigInteger, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.add_column("task", sa.Column("policy_rule", _Name))
    op.add_column("task", sa.Column("request_digest", sa.LargeBinary))
    op.add_column("task", sa.Column("constraints", sa.Text))
    where = sa.text(_CONSTRAINED)
    op.create_index("task_constrained", "task", ["policy_rule"], sqlite_where=where, postgresql_where=where)
    op.execute("UPDATE gnomon_meta SET value = '26' WHERE key IN ('schema', 'min_compatible')")
