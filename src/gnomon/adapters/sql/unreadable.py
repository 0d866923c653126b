"""Schedules in the database that this program cannot read: written by a newer program, or in an unknown time zone.

One of them must not keep a node from deciding the others. So it is skipped, logged once, and excluded from queries
until it has another revision or the program is restarted, perhaps as a newer version.
"""

from collections.abc import Iterable

import sqlalchemy as sa

from gnomon.adapters.sql import schema
from gnomon.adapters.sql.rows import SCHEDULE, Row, schedule_of
from gnomon.core.model import Schedule
from gnomon.errors import UsageError

#: Limited by the number of parameters of a statement. Any more are skipped as well, but read again every time.
MAX_REMEMBERED = 4096

_NAMES = [column.name for column in SCHEDULE]
_UID, _REVISION = _NAMES.index("uid"), _NAMES.index("revision")
#: The condition that excludes known unreadable revisions; its parameter `unreadable` is `UnreadableSchedules.known`.
#: Uid and revision are one text: for thousands of pairs PostgreSQL would plan as many conditions, which takes seconds.
NOT_KNOWN = (
    schema.schedule.c.uid.concat(":")
    .concat(sa.cast(schema.schedule.c.revision, sa.Text))
    .not_in(sa.bindparam("unreadable", expanding=True))
)


class UnreadableSchedules:
    """The revisions of schedules that could not be read. Threads may share it."""

    def __init__(self) -> None:
        #: Replaced, never changed, so that another thread always reads a complete set.
        self.pairs: frozenset[tuple[str, int]] = frozenset()

    @property
    def known(self) -> list[str]:
        """The value for the parameter of NOT_KNOWN."""
        return [f"{uid}:{revision}" for uid, revision in sorted(self.pairs)]

    def readable(self, rows: Iterable[Row]) -> list[Schedule]:
        """The schedules of the rows that can be read; the others are remembered, and logged if they are new."""
        found, failed = [], {}
        for row in rows:
            try:
                found.append(schedule_of(row))
            except UsageError as error:
                failed[row[_UID], row[_REVISION]] = error
        if failed:
            self._remember(failed)
        return found

    def _remember(self, failed: dict[tuple[str, int], UsageError]) -> None:
        new = [pair for pair in failed if pair not in self.pairs][: MAX_REMEMBERED - len(self.pairs)]
        self.pairs |= set(new)
        # Imports Rich and Pygments, for what hardly ever happens.
        import structlog

        log = structlog.get_logger("gnomon")
        for pair in new:
            log.warning("schedule_unreadable", uid=pair[0], revision=pair[1], error=str(failed[pair]))
