"""Telling others of what a transaction made true, once it is committed and not before."""

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql.after_commit import AfterCommit, leave_note
from gnomon.adapters.sql.transactions import Transactions
from gnomon.ports.coordination import Topic

_TOPICS = "gnomon.hints"


def hint(conn: sa.Connection, topic: Topic) -> None:
    """Remember to tell this once the transaction is committed, if anyone listens."""
    leave_note(conn, _TOPICS, topic)


class Hinted(AfterCommit[Topic]):
    """An engine that tells others what its jobs have hinted at, each topic once."""

    place = _TOPICS

    def __init__(self, engine: Transactions, tell: Callable[[Topic], None]) -> None:
        super().__init__(engine)
        self._tell_others = tell

    def _tell(self, notes: Sequence[Topic]) -> None:
        for topic in dict.fromkeys(notes):
            self._tell_others(topic)
