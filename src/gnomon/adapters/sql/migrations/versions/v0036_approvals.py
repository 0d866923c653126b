"""Approvals of tasks, and votes.

Older programs may not go on: they would ask nobody about tasks whose rule needs an approval.
"""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 36

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_WAITING = sa.text("status = 'waiting'")
_OF_TASK = sa.text("task_id IS NOT NULL")


def upgrade() -> None:
    """Add the columns of tasks, and the table of votes."""
    op.add_column("approval", sa.Column("status", sa.Text, nullable=False, server_default="approved"))
    op.add_column("approval", sa.Column("note", sa.Text))
    op.add_column("approval", sa.Column("task_id", _Name))
    op.add_column("approval", sa.Column("run_id", _Name))
    op.add_column("approval", sa.Column("step", _Name))
    op.add_column("approval", sa.Column("item", sa.Integer))
    op.add_column("approval", sa.Column("rule", _Name))
    op.add_column("approval", sa.Column("version", sa.Integer))
    op.add_column("approval", sa.Column("rule_digest", sa.Text))
    op.add_column("approval", sa.Column("request_digest", sa.LargeBinary))
    op.add_column("approval", sa.Column("constraints", sa.Text))
    op.add_column("approval", sa.Column("terms", sa.Text))
    op.add_column("approval", sa.Column("asked_at", sa.BigInteger))
    op.add_column("approval", sa.Column("expires_at", sa.BigInteger))
    op.add_column("approval", sa.Column("item_digests", sa.LargeBinary))
    op.execute("UPDATE approval SET status = 'revoked' WHERE revoked_at IS NOT NULL")
    op.create_index("approval_listed", "approval", ["tenant", "approval_id"])
    for name, columns, where in (
        ("approval_waiting", ["tenant", "approval_id"], _WAITING),
        ("approval_expiring", ["expires_at", "approval_id"], _WAITING),
        ("approval_by_version", ["version", "approval_id"], _WAITING),
        ("approval_of_task", ["task_id", "approval_id"], _OF_TASK),
    ):
        op.create_index(name, "approval", columns, sqlite_where=where, postgresql_where=where)
    where = sa.text("state = 'APPROVAL_REQUIRED'")
    op.create_index("task_to_approve", "task", ["task_id"], sqlite_where=where, postgresql_where=where)
    op.create_table(
        "approval_vote",
        sa.Column("approval_id", _Name, primary_key=True),
        sa.Column("voter", _Name, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        # Counts from 1 within the approval.
        sa.Column("number", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute("UPDATE gnomon_meta SET value = '36' WHERE key IN ('schema', 'min_compatible')")
