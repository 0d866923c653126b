"""Telling someone who counts what a transaction made true, once it is committed and not before."""

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql.after_commit import AfterCommit, leave_note
from gnomon.adapters.sql.transactions import Transactions
from gnomon.ports.commit_observer import Tally

#: What is to be told.
Note = Callable[[Tally], None]
_NOTES = "gnomon.notes"


def note(conn: sa.Connection, told: Note) -> None:
    """Remember to tell this once the transaction is committed, if anyone listens."""
    leave_note(conn, _NOTES, told)


class Tallied(AfterCommit[Note]):
    """An engine that tells whoever counts what its jobs have noted."""

    place = _NOTES

    def __init__(self, engine: Transactions, tally: Tally) -> None:
        super().__init__(engine)
        self._tally = tally

    def _tell(self, notes: Sequence[Note]) -> None:
        for told in notes:
            told(self._tally)
