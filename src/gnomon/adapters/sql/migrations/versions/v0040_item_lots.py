"""Lots of items: on SQLite, the last items of a large step are added while its first ones end.

Older programs may not go on: they would end items without adding the next lot, and the step would never end.
"""

from alembic import op

revision = "0040"
down_revision = "0039"
#: The oldest schema whose programs may use the database.
MIN_COMPATIBLE = 40


def upgrade() -> None:
    """Tables stay as they are: a lot is a payload of its step."""
    op.execute("UPDATE gnomon_meta SET value = '40' WHERE key IN ('schema', 'min_compatible')")
