"""Every constant that someone may want to change, in one typed model.

What counts, from strongest to weakest: a flag, the environment, the file, the default. In the environment a setting is
`GNOMON_SECTION__KEY`, or the name that older schedulers gave it (`TICK_MS`). A setting `<key>_ms` may also be said as
`<key>: 15s`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.durations import duration_ms
from gnomon.core.model import MINUTE_MS, Catchup, Overlap
from gnomon.core.server import SERVER_BOUNDS, Server
from gnomon.core.sources import HIDDEN, Guarded, shown, unknown, with_environment
from gnomon.errors import FieldError


class Database(Guarded, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where everything is kept."""

    url: str = "sqlite:///gnomon.db"
    max_connections: int = 10
    #: Off for PostgreSQL behind a pooler that hands connections out by the transaction.
    statement_cache: bool = True
    #: How long PostgreSQL may take over a statement or a lock: less than leases last, so that nobody sits on them.
    patience_ms: int = 8_000


class Ticking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How ticks are decided."""

    #: The longest time between two looks at what is due.
    tick_ms: int = 1000
    lookahead_ms: int = MINUTE_MS
    max_catchup_per_tick: int = 100
    #: How many schedules are decided in one transaction.
    batch: int = 2000
    default_overlap: Overlap = Overlap.SKIP
    default_catchup: Catchup = Catchup.NONE
    default_jitter_ms: int = 0


class Leading(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How nodes share the shards."""

    ttl_ms: int = 10_000
    renew_interval_ms: int = 3_000
    #: How often a node that has less than its share looks for shards that others gave up.
    claim_interval_ms: int = 500
    #: A node whose clock is off by more says so; by more than the second, it does not lead.
    skew_warning_ms: int = 2_000
    skew_limit_ms: int = 30_000


class Executing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How tasks are tried."""

    #: For a job that does not say how long an attempt may take.
    default_timeout_ms: int = 300_000
    history_retention_days: int = 90
    #: Where history is kept before it is removed: beside the database file if not said, nowhere if "none".
    archive_dir: str = ""
    #: How many workers a task may take down with it before it is given up.
    max_losses: int = 3
    #: How often nobody could take a task before it is given up.
    max_routings: int = 50
    #: How often a run's definition is looked for before the run has failed.
    max_launches: int = 3
    #: How many waiting tasks pass the gate together.
    batch: int = 1000


class Working(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a worker executes."""

    #: How many tasks it has in hand at once.
    slots: int = 250
    #: On how many threads functions run that are not coroutines.
    threads: int = 16
    #: How many shell and agent jobs it runs at once.
    max_concurrent: int = 5
    #: How long its word counts without being renewed; it renews three times as often.
    lease_ms: int = 30_000
    #: The longest time without a look at what there is to do; never under 5 s. Hints make it sooner.
    poll_secs: int = 10
    #: How long tasks may go on after a stop was asked for, before they are cancelled.
    drain_ms: int = 10_000
    #: How long they may take to stop after that, before they are killed.
    kill_grace_ms: int = 5_000
    #: Where child processes and threads leave more than this, it is cut.
    max_output_bytes: int = 65_536
    max_log_lines: int = 1_000


class Shell(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How commands run."""

    #: The folder that they run in, and stay in; where the process was started, if empty.
    workspace: str = ""
    #: For a command that does not say how long an attempt may take.
    timeout_ms: int = 120_000
    #: Which of the worker's own variables they see. All others are none of theirs.
    inherit: tuple[str, ...] = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")


class Reconciling(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How what got stuck is found."""

    poll_ms: int = 30_000
    dispatch_timeout_ms: int = 60_000
    running_timeout_ms: int = 24 * 60 * MINUTE_MS
    batch: int = 200
    max_iterations: int = 100
    max_retries: int = 3
    #: How long a task may be ready before it is offered again.
    pending_ms: int = 2 * MINUTE_MS
    #: How old a run must be before it is looked at whether it waits in vain.
    settled_ms: int = MINUTE_MS


class Cleaning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How old history is let go."""

    #: From the end of one pass through all of it to the beginning of the next.
    poll_ms: int = 60 * MINUTE_MS
    #: About how many rows are archived together, and removed in one transaction.
    batch: int = 5000
    portion: int = 250
    #: The pause between two transactions, in which others have their turn.
    pause_ms: int = 20
    #: For how long at least what was asked for under a key, and every tick, is known.
    dedupe_ms: int = 7 * 24 * 60 * MINUTE_MS


class Alive(Guarded, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How it is seen to that everything goes on, and told to others."""

    #: How often the vitals are looked at, and at how many schedules each time.
    poll_ms: int = 30_000
    batch: int = 500
    #: For how long a tick may have been due, and an attempt without anyone to end it.
    late_ms: int = 30_000
    orphan_ms: int = 2 * MINUTE_MS
    #: What is called again and again while ticks are decided; nothing if empty.
    ping_url: str = ""
    ping_every_ms: int = MINUTE_MS
    #: How long a ping may take, how often it is tried, and how many are under way at once.
    ping_timeout_ms: int = 10_000
    ping_tries: int = 5
    ping_parallel: int = 10


class Secrets(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which secrets jobs may name, and where a worker finds them."""

    #: The names that `${secret:NAME}` may use.
    allow: tuple[str, ...] = ()
    #: A folder with one file for each; what it lacks is looked for in the environment.
    folder: str = ""


class Nats(Guarded, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bus to workers elsewhere; without an address there is none."""

    url: str = ""
    user: str = ""
    password: str = ""


class Auth(Guarded, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who issues the tokens that callers show."""

    iam_url: str = ""
    verify_tokens: bool = True


class Metrics(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where numbers are shown to those who collect them."""

    enabled: bool = True
    port: int = 9090


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of them."""

    #: A file of jobs to register at the start; none if empty.
    jobs_file: str = ""
    server: Server = Server()
    database: Database = Database()
    ticker: Ticking = Ticking()
    leader: Leading = Leading()
    execution: Executing = Executing()
    worker: Working = Working()
    shell: Shell = Shell()
    reconciler: Reconciling = Reconciling()
    cleaner: Cleaning = Cleaning()
    alive: Alive = Alive()
    secrets: Secrets = Secrets()
    nats: Nats = Nats()
    auth: Auth = Auth()
    metrics: Metrics = Metrics()


_USUAL = Settings()
#: The section without a name holds what stands beside the others.
_SECTIONS: dict[str, Struct] = {"": _USUAL} | {
    name: section for name in Settings.__struct_fields__ if isinstance(section := getattr(_USUAL, name), Struct)
}
#: Names of other schedulers' settings for ours.
_OTHER_NAMES = {
    "TICK_MS": ("ticker", "tick_ms"),
    "LOOKAHEAD_MS": ("ticker", "lookahead_ms"),
    "MAX_CATCHUP_PER_TICK": ("ticker", "max_catchup_per_tick"),
    "DEFAULT_OVERLAP_POLICY": ("ticker", "default_overlap"),
    "DEFAULT_CATCHUP_POLICY": ("ticker", "default_catchup"),
    "DEFAULT_JITTER_MS": ("ticker", "default_jitter_ms"),
    "DATABASE_URL": ("database", "url"),
    "NATS_URL": ("nats", "url"),
    "SCHEDULER_POLL_SECS": ("worker", "poll_secs"),
    "MAX_CONCURRENT": ("worker", "max_concurrent"),
}
#: The same for what stands in files.
_OTHER_PLACES = {
    ("reliability", "scheduler_poll_secs"): ("worker", "poll_secs"),
    ("scheduler", "max_concurrent"): ("worker", "max_concurrent"),
}
_CATCHUP_ALIASES = {"fire_immediately": "all"}
_BOUNDS = {
    "ticker.tick_ms": (10, MINUTE_MS),
    "ticker.lookahead_ms": (1000, 60 * MINUTE_MS),
    "ticker.max_catchup_per_tick": (1, 10_000),
    "ticker.batch": (1, 10_000),
    "ticker.default_jitter_ms": (0, 60 * MINUTE_MS),
    "leader.ttl_ms": (100, 10 * MINUTE_MS),
    "leader.renew_interval_ms": (10, 5 * MINUTE_MS),
    "leader.claim_interval_ms": (10, MINUTE_MS),
    "leader.skew_warning_ms": (1, 60 * MINUTE_MS),
    "leader.skew_limit_ms": (1, 60 * MINUTE_MS),
    "execution.default_timeout_ms": (1, 30 * 24 * 60 * MINUTE_MS),
    "execution.history_retention_days": (1, 36_500),
    "execution.max_losses": (1, 1000),
    "execution.max_routings": (1, 100_000),
    "execution.max_launches": (1, 1000),
    "execution.batch": (1, 10_000),
    "worker.slots": (1, 10_000),
    "worker.threads": (1, 1000),
    "worker.max_concurrent": (1, 1000),
    "worker.lease_ms": (300, 10 * MINUTE_MS),
    "worker.poll_secs": (0, 3600),
    "worker.drain_ms": (0, 60 * MINUTE_MS),
    "worker.kill_grace_ms": (0, 10 * MINUTE_MS),
    "worker.max_output_bytes": (256, 64 * 2**20),
    "worker.max_log_lines": (0, 1_000_000),
    "shell.timeout_ms": (1, 30 * 24 * 60 * MINUTE_MS),
    "reconciler.poll_ms": (10, 60 * MINUTE_MS),
    "reconciler.dispatch_timeout_ms": (10, 24 * 60 * MINUTE_MS),
    "reconciler.running_timeout_ms": (10, 365 * 24 * 60 * MINUTE_MS),
    "reconciler.batch": (1, 10_000),
    "reconciler.max_iterations": (1, 10_000),
    "reconciler.max_retries": (0, 100),
    "reconciler.pending_ms": (10, 24 * 60 * MINUTE_MS),
    "reconciler.settled_ms": (0, 24 * 60 * MINUTE_MS),
    "cleaner.poll_ms": (10, 7 * 24 * 60 * MINUTE_MS),
    "cleaner.batch": (1, 100_000),
    "cleaner.portion": (1, 10_000),
    "cleaner.pause_ms": (0, MINUTE_MS),
    "cleaner.dedupe_ms": (0, 3650 * 24 * 60 * MINUTE_MS),
    "alive.poll_ms": (10, 60 * MINUTE_MS),
    "alive.batch": (1, 10_000),
    "alive.late_ms": (10, 24 * 60 * MINUTE_MS),
    "alive.orphan_ms": (0, 24 * 60 * MINUTE_MS),
    "alive.ping_every_ms": (100, 24 * 60 * MINUTE_MS),
    "alive.ping_timeout_ms": (10, 10 * MINUTE_MS),
    "alive.ping_tries": (1, 100),
    "alive.ping_parallel": (1, 1000),
    "metrics.port": (0, 65_535),
    "database.max_connections": (1, 1000),
    "database.patience_ms": (100, 10 * MINUTE_MS),
} | SERVER_BOUNDS
#: Looking more often than this gains nothing and is not done, whatever is said.
_SHORTEST_POLL_SECS = 5


def load(
    *,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings that all sources together make; FieldError names the one that is wrong.

    `flags` are named `section.key`; `file` is what a configuration file holds, already read.
    """
    environment = environment or {}
    merged: dict[str, dict[str, object]] = {}
    for source in (_in_file(file or {}, environment), _in_environment(environment), _in_flags(flags or {})):
        said: dict[tuple[str, str], str] = {}
        for section, key, value in source:
            field, known = _name(section, key), _known_key(section, key)
            if said.setdefault((section, known), key) != key:
                raise FieldError(field, shown(field, value), f"says {known} a second time")
            merged.setdefault(section, {})[known] = _value(field, value, section, key, known)
    return _checked(merged)


def _in_file(file: Mapping[str, Any], environment: Mapping[str, str]) -> Iterable[tuple[str, str, object]]:
    elsewhere = {section for section, _ in _OTHER_PLACES}
    for section, values in file.items():
        if section not in _SECTIONS and section not in elsewhere:
            yield "", section, with_environment(values, environment, section)
            continue
        for key, value in _mapping(section, values).items():
            place = _OTHER_PLACES.get((section, key), (section, key))
            yield *place, with_environment(value, environment, f"{section}.{key}")


def _mapping(section: str, values: object) -> Mapping[str, object]:
    """What a section says; nothing, if all of it is commented out."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise FieldError(section, shown(section, values), "must be a mapping of settings")
    return values


def _in_environment(environment: Mapping[str, str]) -> Iterable[tuple[str, str, object]]:
    names = {f"GNOMON_{key.upper()}": ("", key) for key in _plain_keys()} | _OTHER_NAMES
    for name, place in names.items():
        if name in environment:
            yield *place, environment[name]
    for name, value in environment.items():
        if name.startswith("GNOMON_") and "__" in name:
            section, _, key = name.removeprefix("GNOMON_").lower().partition("__")
            yield section, key, value


def _in_flags(flags: Mapping[str, object]) -> Iterable[tuple[str, str, object]]:
    for name, value in flags.items():
        section, _, key = name.rpartition(".")
        yield section, key, value


def _plain_keys() -> list[str]:
    return [key for key in Settings.__struct_fields__ if key not in _SECTIONS]


def _name(section: str, key: str) -> str:
    return f"{section}.{key}" if section else str(key)


def _known_key(section: str, key: str) -> str:
    """The key as the section has it; what is unknown is refused without being shown, as it may be anything."""
    if section not in _SECTIONS:
        raise FieldError(str(section), HIDDEN, unknown(section, _SECTIONS))
    known = _SECTIONS[section].__struct_fields__ if section else _plain_keys()
    if key in known:
        return key
    if f"{key}_ms" in known:
        return f"{key}_ms"
    raise FieldError(_name(section, key), HIDDEN, unknown(key, known if section else (*known, *_SECTIONS)))


def _value(field: str, value: object, section: str, key: str, known: str) -> object:
    if known != key:
        return duration_ms(field, value)
    if key == "default_catchup" and isinstance(value, str):
        return _CATCHUP_ALIASES.get(value, value)
    if isinstance(value, str) and isinstance(getattr(_SECTIONS[section], key), tuple):
        return [part for word in value.split(",") if (part := word.strip())]
    return value


def _checked(merged: Mapping[str, Mapping[str, object]]) -> Settings:
    for section, values in merged.items():
        for key, value in values.items():
            try:
                msgspec.convert({key: value}, type(_SECTIONS[section]), strict=False)
            except msgspec.ValidationError as error:
                reason = str(error).partition(" - at ")[0]
                field = _name(section, key)
                raise FieldError(field, shown(field, value), f"is refused: {reason}") from None
    settings: Settings = msgspec.convert(
        {**merged.get("", {}), **{name: values for name, values in merged.items() if name}}, Settings, strict=False
    )
    for name, (low, high) in _BOUNDS.items():
        section, _, key = name.partition(".")
        value = getattr(getattr(settings, section), key)
        if not low <= value <= high:
            raise FieldError(name, value, f"must be from {low} to {high}")
    if settings.leader.renew_interval_ms * 2 > settings.leader.ttl_ms:
        raise FieldError(
            "leader.renew_interval_ms", settings.leader.renew_interval_ms, "must be at most half of ttl_ms"
        )
    polite = max(settings.worker.poll_secs, _SHORTEST_POLL_SECS)
    return replace(settings, worker=replace(settings.worker, poll_secs=polite))
