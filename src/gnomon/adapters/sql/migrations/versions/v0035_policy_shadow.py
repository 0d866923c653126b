"""The shadow of the policy, and the differences between its rulings and those in force.

It only extends the schema. Older programs may go on: they do not judge by the shadow.
"""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 34

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "policy_shadow",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("author", _Name, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("same", sa.BigInteger, nullable=False),
        sa.Column("different", sa.BigInteger, nullable=False),
        sa.Column("not_judged", sa.BigInteger, nullable=False),
        sa.Column("left_out", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "shadow_difference",
        sa.Column("tenant", _Name, primary_key=True),
        sa.Column("job", _Name, primary_key=True),
        sa.Column("before", _Name, primary_key=True),
        sa.Column("before_rule", _Name, primary_key=True),
        sa.Column("after", _Name, primary_key=True),
        sa.Column("after_rule", _Name, primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("first_at", sa.BigInteger, nullable=False),
        sa.Column("last_at", sa.BigInteger, nullable=False),
        sa.Column("run_id", _Name, nullable=False),
        sa.Column("step", _Name, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute("UPDATE gnomon_meta SET value = '35' WHERE key = 'schema'")
