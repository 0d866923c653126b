"""Schedules in the database that this program cannot read: written by a newer one, or in a zone unknown here.

One of them must not keep a node from the others. So it is passed over, told of once, and no longer asked for
until it has another revision, or until the program is started again and may have learnt to read it.
"""

from collections.abc import Iterable

import sqlalchemy as sa
import structlog

from gnomon.adapters.sql import schema
from gnomon.adapters.sql.rows import SCHEDULE, Row, schedule_of
from gnomon.core.model import Schedule
from gnomon.errors import UsageError

#: As many as a database takes parameters for. Any more are passed over as well, but met again every time.
MAX_REMEMBERED = 4096

_NAMES = [column.name for column in SCHEDULE]
_UID, _REVISION = _NAMES.index("uid"), _NAMES.index("revision")
#: The condition under which a row has not been found unreadable before. Takes `Unreadable.known` as `unreadable`. One
#: text for both: of thousands of pairs PostgreSQL would make as many conditions, and think about them for seconds.
NOT_KNOWN = (
    schema.schedule.c.uid.concat(":")
    .concat(sa.cast(schema.schedule.c.revision, sa.Text))
    .not_in(sa.bindparam("unreadable", expanding=True))
)


class UnreadableSchedules:
    """Which revisions of which schedules could not be read. Threads may share it."""

    def __init__(self) -> None:
        #: Replaced, never changed: whoever reads it beside others sees all of it or what was there before.
        self.pairs: frozenset[tuple[str, int]] = frozenset()

    @property
    def known(self) -> list[str]:
        """All of them, as the condition takes them."""
        return [f"{uid}:{revision}" for uid, revision in sorted(self.pairs)]

    def readable(self, rows: Iterable[Row]) -> list[Schedule]:
        """The schedules in those rows that can be read; the others are remembered, and told of if that is new."""
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
        log = structlog.get_logger("gnomon")
        for pair in new:
            log.warning("schedule_unreadable", uid=pair[0], revision=pair[1], error=str(failed[pair]))
