"""How the processes on one store wake each other."""

from gnomon.adapters.sql.after_commit import Hinted
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.sql.store import SqlStore
from gnomon.ports.coordination import Hints
from gnomon.ports.runtime import Events
from gnomon.settings import Settings


class Unheard:
    """Events that are of no interest: whoever types a command has said all that there is to be heard."""

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""


def hints_on(store: SqlStore, settings: Settings, events: Events) -> Hints | None:
    """How others hear of what is written to the store from here on: by NATS if there is one, else by PostgreSQL.

    None on a file: those who share one notice what the others write.
    """
    if sqlite_path(settings.database.url) is not None:
        return None
    hints = _hints_of(settings, events)
    store.transactions = Hinted(store.transactions, hints.tell)
    return hints


def _hints_of(settings: Settings, events: Events) -> Hints:
    if settings.nats.url:
        from gnomon.adapters.nats.hints import NatsHints

        return NatsHints(settings.nats, events)
    from gnomon.adapters.sql.postgres_notify import PostgresHints

    database = settings.database
    # Whoever is behind a pooler has no statements cached, and hears nothing.
    return PostgresHints(database.url, events, listens=database.statement_cache)
