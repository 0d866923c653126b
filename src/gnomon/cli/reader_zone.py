"""The time zone in which the command line shows times, and reads those without an offset."""

import os
from collections.abc import Iterator
from pathlib import Path

from gnomon.cli.flags import chosen_zone


def reader_zone(of_job: str | None = None) -> str:
    """The zone of `--tz`; without it, that of the one job that is shown; otherwise that of this machine."""
    return chosen_zone() or of_job or local_zone()


def local_zone() -> str:
    """The time zone of this machine; UTC if it has no known name."""
    from gnomon.core.timezones import zone

    return next((name for name in _candidates() if name and zone(name) is not None), "UTC")


def _candidates() -> Iterator[str]:
    yield os.environ.get("TZ", "").removeprefix(":")
    yield str(Path("/etc/localtime").resolve()).rpartition("/zoneinfo/")[2]
