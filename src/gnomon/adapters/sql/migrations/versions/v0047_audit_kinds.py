"""An index on the entries of the audit trail about one kind of object: every explanation reads those about databases.

It only extends the schema. Older programs may go on: they do not use the index.
"""

from alembic import op

revision = "0047"
down_revision = "0046"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 45


def upgrade() -> None:
    """Add the index."""
    op.create_index("audit_of_kind", "audit", ["tenant", "kind", "number"])
    op.execute("UPDATE gnomon_meta SET value = '47' WHERE key = 'schema'")
