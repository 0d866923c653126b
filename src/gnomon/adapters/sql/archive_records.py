"""Rows as archive records: JSON values, without loss."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import bulk
from gnomon.adapters.sql.rows import column_list
from gnomon.ports.maintenance import ArchiveRecord

#: Columns of bytes that are digests.
_DIGESTS = ("key", "digest", "request_digest", "item_digests")


def records(
    conn: sa.Connection, table: sa.Table, key: str, names: Sequence[str], at: Mapping[str, int]
) -> list[ArchiveRecord]:
    """The rows of the table with one of these keys as archive records, dated by `at`."""
    query = bulk.statement(f"SELECT {column_list(table.c)} FROM {table.name} WHERE {key} IN KEYS")  # noqa: S608
    found = bulk.fetch_rows(conn, query, list(names)) if names else ()
    rows = (row_to_json(table, row) for row in found)
    return [ArchiveRecord(str(table.name), row, at[row[key]]) for row in rows]


def row_to_json(table: sa.Table, row: Sequence[Any]) -> Mapping[str, Any]:
    """The row as JSON values. Bytes contain JSON text already, except keys, which are digests."""
    return {str(column.name): _json_value(column, value) for column, value in zip(table.columns, row, strict=True)}


def _json_value(column: sa.Column[Any], value: Any) -> Any:  # noqa: ANN401 - as the columns are
    if isinstance(value, bytes):
        return value.hex() if column.name in _DIGESTS else value.decode()
    # SQLite stores booleans as numbers.
    return bool(value) if isinstance(column.type, sa.Boolean) and value is not None else value
