"""The store in SQL: SQLite for one machine, PostgreSQL for several."""

from gnomon.adapters.sql.connect import migrate, open_postgres, open_sqlite, open_store
from gnomon.adapters.sql.store import SqlStore

__all__ = ["SqlStore", "migrate", "open_postgres", "open_sqlite", "open_store"]
