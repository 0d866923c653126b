"""Changes that callers of other servers follow, and dead letters by age.

Programs of older schemas write no changes, so that servers of this schema tell only their own and those of processes
of this schema; they list dead letters by id, without the two indexes that go.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0016"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 16

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the tables, and replace the indexes."""
    op.create_table(
        "change_follower",
        sa.Column("server", _Name, primary_key=True),
        sa.Column("until_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "change_log",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("origin", _Name, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("changes", sa.LargeBinary, nullable=False),
    )
    op.create_index("dead_letter_newest", "dead_letter", ["tenant", "created_at", "dead_letter_id"])
    op.create_index("dead_letter_newest_of_job", "dead_letter", ["tenant", "job", "created_at", "dead_letter_id"])
    unresolved = sa.text("resolved_at IS NULL")
    op.create_index(
        "dead_letter_newest_open",
        "dead_letter",
        ["tenant", "created_at", "dead_letter_id"],
        sqlite_where=unresolved,
        postgresql_where=unresolved,
    )
    op.drop_index("dead_letter_of_job", "dead_letter")
    op.drop_index("dead_letter_unresolved", "dead_letter")
    op.execute("UPDATE gnomon_meta SET value = '20' WHERE key = 'schema'")
