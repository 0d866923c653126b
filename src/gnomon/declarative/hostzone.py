"""The zone of the machine we run on, by the rules it has itself."""

import time
from datetime import UTC

from gnomon.core.cron import known_zone
from gnomon.core.instants import DAY_SECONDS, FIRST_SECOND, LAST_SECOND
from gnomon.core.timezones import Zone


class HostZone(Zone):
    """Local time as the operating system tells it: whatever TZ or /etc/localtime say, with or without a name."""

    def __init__(self) -> None:
        super().__init__("host", UTC)

    def _offset(self, second: int) -> int:
        # Two days short of the calendar's ends, as in every other zone.
        within = min(max(second, FIRST_SECOND + 2 * DAY_SECONDS), LAST_SECOND - 2 * DAY_SECONDS)
        return time.localtime(within).tm_gmtoff


def zone_named(name: str | None) -> Zone:
    """The IANA zone of that name, or CronError; without a name, the host's as it is now."""
    return HostZone() if name is None else known_zone(name)
