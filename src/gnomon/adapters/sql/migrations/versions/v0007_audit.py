"""The audit trail: entries with actor and change, chained by hashes.

It only extends the schema: programs of an older schema continue, but their changes leave no entry.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_tables = sa.MetaData()


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> sa.Index:
    condition = sa.text(where)
    return sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


sa.Table(
    "audit",
    _tables,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("actor", _Name, nullable=False),
    sa.Column("tenant", _Name, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", _Name, nullable=False),
    sa.Column("before", sa.Text),
    sa.Column("after", sa.Text),
    sa.Column("details", sa.Text, nullable=False),
    sa.Column("seq", sa.BigInteger),
    sa.Column("prev_hash", sa.Text),
    sa.Column("hash", sa.Text),
    sa.Index("audit_listed", "tenant", "number"),
    sa.Index("audit_of_subject", "tenant", "kind", "name", "number"),
    _partial("audit_sealed", "seq", where="seq IS NOT NULL", unique=True),
    _partial("audit_unsealed", "number", where="seq IS NULL"),
)


def upgrade() -> None:
    """Create the table."""
    _tables.create_all(op.get_bind(), checkfirst=False)
    op.execute("UPDATE gnomon_meta SET value = '7' WHERE key = 'schema'")
