"""Settings: read from files, environment and flags; and those of the schedulers that run in this process."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gnomon.adapters.files import read_mapping
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.config.settings import Settings, load, load_with_origins
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.ledger.plan import CatchupLimit

#: The settings of the schedulers that run in this process.
_SERVED: list[Settings] = []


def load_settings(
    config: str | Path | None = None,
    *,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a configuration file, environment variables and flags; later sources win.

    `flags` are named `section.key`. The process environment is not read: pass `os.environ` as `environment` to use it.
    FieldError names the setting that is wrong, FileError the file that cannot be read.
    """
    file = None if config is None else read_mapping(Path(config))
    return load(flags=flags, environment=environment, file=file)


def read_settings_with_origins(
    config: Path | None, *, flags: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[Settings, Mapping[str, str]]:
    """The settings, and the source of each that is not a default."""
    file = None if config is None else read_mapping(config)
    return load_with_origins(flags=flags, environment=environment, file=file)


def database_url(place: str) -> str:
    """The URL of a database that is named by its URL or by the path of a file."""
    return place if "://" in place else f"sqlite:///{place}"


def database_name(url: str) -> tuple[str, bool]:
    """The path of a database file, or the URL of another database without its password; and whether it would be new."""
    path = sqlite_path(url)
    return (redact_password(url), False) if path is None else (path, not Path(path).exists())


def redact_password(url: str) -> str:
    """The URL of a database without its password."""
    before, at, after = url.rpartition("@")
    scheme, mark, user = before.partition("://")
    return f"{scheme}{mark}{user.partition(':')[0]}{at}{after}" if at else url


def catchup_limit(settings: Settings) -> CatchupLimit:
    """How many overdue ticks of one schedule may start within one interval of the ticker."""
    return CatchupLimit(settings.ticker.max_catchup_per_tick, settings.ticker.tick_ms)


def schedule_defaults(settings: Settings) -> Defaults:
    """The defaults for fields that a job does not define."""
    ticker = settings.ticker
    return Defaults(
        overlap=ticker.default_overlap,
        catchup=ticker.default_catchup,
        jitter_ms=ticker.default_jitter_ms,
        lookahead_ms=ticker.lookahead_ms,
        catchup_cap=ticker.max_catchup_per_tick,
        zones=ticker.zones,
    )


@contextmanager
def serving(settings: Settings) -> Iterator[None]:
    """Mark these settings as those of a scheduler that runs in this process."""
    _SERVED.append(settings)
    try:
        yield
    finally:
        _SERVED.remove(settings)


def served_settings() -> Settings | None:
    """The settings of the scheduler that was started last in this process; None if none runs."""
    return _SERVED[-1] if _SERVED else None
