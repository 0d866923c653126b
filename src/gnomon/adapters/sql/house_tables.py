"""The tables of those who do the work: nodes and workers, what they hold, and the trail of who changed what."""

import sqlalchemy as sa

from gnomon.adapters.sql.tables import Instant, Name, metadata, partial

SEALED = "seq IS NOT NULL"
UNSEALED = "seq IS NULL"

#: All tables there are: whoever asks here has loaded the others, too.
everything = metadata

worker = sa.Table(
    "worker",
    metadata,
    sa.Column("worker", Name, primary_key=True),
    sa.Column("pool", Name, nullable=False),
    sa.Column("functions", sa.Text, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("started_at", Instant, nullable=False),
    sa.Column("seen_until", Instant, nullable=False),
    sa.Column("labels", sa.Text, nullable=False, server_default="{}"),
    sa.Column("capabilities", sa.Text, nullable=False, server_default="[]"),
    sa.Column("in_hand", sa.Integer, nullable=False, server_default="0"),
    # In percent; null if it cannot be told.
    sa.Column("cpu", sa.Integer),
    sa.Column("gpu", sa.Integer),
    sa.Column("draining", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("seen_at", Instant, nullable=False, server_default="0"),
)

shard = sa.Table(
    "shard",
    metadata,
    sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("holder", Name),
    sa.Column("lease_until", Instant, nullable=False),
)

node = sa.Table(
    "node",
    metadata,
    sa.Column("holder", Name, primary_key=True),
    sa.Column("seen_until", Instant, nullable=False),
)

turn = sa.Table(
    "turn",
    metadata,
    sa.Column("name", Name, primary_key=True),
    sa.Column("holder", Name, nullable=False),
    sa.Column("until_at", Instant, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
)

gnomon_meta = sa.Table(
    "gnomon_meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("at", Instant, nullable=False),
    sa.Column("actor", Name, nullable=False),
    sa.Column("tenant", Name, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", Name, nullable=False),
    sa.Column("before", sa.Text),
    sa.Column("after", sa.Text),
    sa.Column("details", sa.Text, nullable=False),
    # ---- the chain; empty until it is sealed
    sa.Column("seq", sa.BigInteger),
    sa.Column("prev_hash", sa.Text),
    sa.Column("hash", sa.Text),
    sa.Index("audit_listed", "tenant", "number"),
    sa.Index("audit_of_subject", "tenant", "kind", "name", "number"),
    partial("audit_sealed", "seq", where=SEALED, unique=True),
    partial("audit_unsealed", "number", where=UNSEALED),
)
