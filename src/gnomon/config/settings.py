"""The settings: one typed model, loaded from flags, the environment and a file, and validated.

A flag takes precedence over the environment, the environment over the file, the file over the default. In the
environment a setting is `GNOMON_SECTION__KEY`, or the name that older schedulers gave it (`TICK_MS`). A setting
`<key>_ms` may also be written as `<key>: 15s`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.config.agents import (
    COST_PER_DAY,
    MOST_SERVER_PROGRAMS,
    REQUEST_TIMEOUT_MS,
    AgentSettings,
    check_agents,
    read_prices,
    read_providers,
    read_servers,
)
from gnomon.config.archive_address import read_archive_address
from gnomon.config.channels import ChannelSettings, read_channels
from gnomon.config.kernel_rules import check_kernel
from gnomon.config.secret_rules import read_secret_rules
from gnomon.config.sections import (
    AUTH_BOUNDS,
    AuditSettings,
    AuthSettings,
    CleanerSettings,
    CronSettings,
    DashboardSettings,
    DatabaseSettings,
    ExecutionSettings,
    LeaderSettings,
    MetricsSettings,
    NatsSettings,
    OutputPolicySettings,
    PayloadSettings,
    ReconcilerSettings,
    RedisSettings,
    RoutingSettings,
    S3Settings,
    SecretsSettings,
    SecuritySettings,
    ServerSettings,
    ShellSettings,
    TaskPolicySettings,
    TickerSettings,
    WatchdogSettings,
    WorkerSettings,
)
from gnomon.config.security_rules import check_security
from gnomon.config.sources import REDACTED, expand_environment, redact_value, unknown_setting_reason
from gnomon.core.commands.policy import ANY_NUMBER
from gnomon.core.durations import duration_ms
from gnomon.core.jobs.routing_fields import check_limits, check_worker
from gnomon.core.jobs.steps import LONGEST_TIMEOUT_MS, MOST_ATTEMPTS, MOST_RETAINED_RUNS
from gnomon.core.model import MINUTE_MS
from gnomon.core.outgoing import AllowedHosts
from gnomon.core.pings import is_http_url
from gnomon.errors import FieldError


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings, by section."""

    #: A jobs file to register at the start; none if empty.
    jobs_file: str = ""
    #: Python modules that register functions and jobs, to import at the start.
    imports: tuple[str, ...] = ()
    #: The channels to which jobs announce, by name.
    channels: dict[str, ChannelSettings] = {}
    server: ServerSettings = ServerSettings()
    ui: DashboardSettings = DashboardSettings()
    database: DatabaseSettings = DatabaseSettings()
    ticker: TickerSettings = TickerSettings()
    leader: LeaderSettings = LeaderSettings()
    execution: ExecutionSettings = ExecutionSettings()
    worker: WorkerSettings = WorkerSettings()
    routing: RoutingSettings = RoutingSettings()
    shell: ShellSettings = ShellSettings()
    cron: CronSettings = CronSettings()
    reconciler: ReconcilerSettings = ReconcilerSettings()
    policy: TaskPolicySettings = TaskPolicySettings()
    output_policy: OutputPolicySettings = OutputPolicySettings()
    cleaner: CleanerSettings = CleanerSettings()
    s3: S3Settings = S3Settings()
    alive: WatchdogSettings = WatchdogSettings()
    secrets: SecretsSettings = SecretsSettings()
    security: SecuritySettings = SecuritySettings()
    payload: PayloadSettings = PayloadSettings()
    nats: NatsSettings = NatsSettings()
    redis: RedisSettings = RedisSettings()
    auth: AuthSettings = AuthSettings()
    audit: AuditSettings = AuditSettings()
    metrics: MetricsSettings = MetricsSettings()
    agents: AgentSettings = AgentSettings()


_DEFAULTS = Settings()
#: The longest name of an installation in the dashboard.
_LONGEST_TITLE = 60
#: The section without a name holds the settings outside of sections.
_SECTIONS: dict[str, Struct] = {"": _DEFAULTS} | {
    name: section for name in Settings.__struct_fields__ if isinstance(section := getattr(_DEFAULTS, name), Struct)
}
#: Environment variables of other schedulers, and the same setting here.
_KEY_ALIASES = {
    "TICK_MS": ("ticker", "tick_ms"),
    "LOOKAHEAD_MS": ("ticker", "lookahead_ms"),
    "MAX_CATCHUP_PER_TICK": ("ticker", "max_catchup_per_tick"),
    "DEFAULT_OVERLAP_POLICY": ("ticker", "default_overlap"),
    "DEFAULT_CATCHUP_POLICY": ("ticker", "default_catchup"),
    "DEFAULT_JITTER_MS": ("ticker", "default_jitter_ms"),
    "DATABASE_URL": ("database", "url"),
    "NATS_URL": ("nats", "url"),
    "REDIS_URL": ("redis", "url"),
    "SCHEDULER_POLL_SECS": ("worker", "poll_secs"),
    "MAX_CONCURRENT": ("worker", "max_concurrent"),
    "SCHEDULER_RETRIES": ("cron", "retries"),
    "PROVIDER_BACKOFF_MS": ("cron", "backoff_ms"),
    "SAFETY_KERNEL_TLS_CA": ("policy", "kernel_tls_ca"),
    "SAFETY_KERNEL_TLS_REQUIRED": ("policy", "kernel_tls_required"),
    "SAFETY_KERNEL_INSECURE": ("policy", "kernel_insecure"),
    "POLICY_CHECK_FAIL_MODE": ("policy", "fail_mode"),
    "OUTPUT_POLICY_ENABLED": ("output_policy", "enabled"),
    "OUTPUT_POLICY_FAIL_MODE": ("output_policy", "fail_mode"),
    # The names that all programs for object storage know.
    "AWS_ENDPOINT_URL_S3": ("s3", "endpoint"),
    "AWS_REGION": ("s3", "region"),
    "AWS_ACCESS_KEY_ID": ("s3", "access_key_id"),
    "AWS_SECRET_ACCESS_KEY": ("s3", "secret_access_key"),
    "AWS_SESSION_TOKEN": ("s3", "session_token"),
}
#: Keys in configuration files of other schedulers, and the same setting here.
_SECTION_ALIASES = {
    ("reliability", "scheduler_poll_secs"): ("worker", "poll_secs"),
    ("reliability", "scheduler_retries"): ("cron", "retries"),
    ("reliability", "provider_backoff_ms"): ("cron", "backoff_ms"),
    ("scheduler", "max_concurrent"): ("worker", "max_concurrent"),
    ("autonomy", "level"): ("security", "autonomy"),
    ("autonomy", "workspace_only"): ("security", "workspace_only"),
    ("autonomy", "allowed_commands"): ("security", "allowed_commands"),
    ("autonomy", "forbidden_paths"): ("security", "forbidden_paths"),
    ("autonomy", "allowed_roots"): ("security", "allowed_roots"),
    ("autonomy", "max_actions_per_hour"): ("security", "max_actions_per_hour"),
    ("autonomy", "require_approval_for_medium_risk"): ("security", "approve_medium_risk"),
    ("autonomy", "block_high_risk_commands"): ("security", "block_high_risk"),
}
#: Words that stand for a value of a setting.
_VALUE_ALIASES: Mapping[tuple[str, str], Mapping[str, object]] = {
    ("ticker", "default_catchup"): {"fire_immediately": "all"},
    ("security", "autonomy"): {"readonly": "read_only"},
    ("security", "max_actions_per_hour"): {"none": ANY_NUMBER},
}
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
    "execution.max_sub_run_tasks": (1, 10_000_000),
    "execution.batch": (1, 10_000),
    "execution.gate_timeout_ms": (1, 10 * MINUTE_MS),
    "worker.slots": (1, 10_000),
    "worker.threads": (1, 1000),
    "worker.max_concurrent": (1, 1000),
    "worker.lease_ms": (300, 10 * MINUTE_MS),
    "worker.poll_secs": (0, 3600),
    "worker.drain_ms": (0, 60 * MINUTE_MS),
    "worker.kill_grace_ms": (0, 10 * MINUTE_MS),
    "worker.max_output_bytes": (256, 64 * 2**20),
    "worker.max_log_lines": (0, 1_000_000),
    "routing.default_tenant_limit": (0, 1_000_000),
    "routing.overload_percent": (1, 100_000),
    "shell.timeout_ms": (1, 30 * 24 * 60 * MINUTE_MS),
    "shell.max_memory_bytes": (0, 2**50),
    "shell.max_cpu_ms": (0, 365 * 24 * 60 * MINUTE_MS),
    "shell.max_file_bytes": (0, 2**60),
    "shell.max_processes": (0, 4_000_000),
    "cron.retries": (0, MOST_ATTEMPTS - 1),
    "cron.backoff_ms": (0, LONGEST_TIMEOUT_MS),
    "cron.max_backoff_ms": (0, LONGEST_TIMEOUT_MS),
    "cron.jitter_ms": (0, LONGEST_TIMEOUT_MS),
    "cron.max_run_history": (1, MOST_RETAINED_RUNS),
    "execution.routing_backoff_ms": (1, 60 * MINUTE_MS),
    "execution.max_routing_backoff_ms": (1, 24 * 60 * MINUTE_MS),
    "worker.renewals": (2, 20),
    "nats.busy_retry_ms": (10, MINUTE_MS),
    "nats.store_retry_ms": (10, MINUTE_MS),
    "nats.letter_retry_ms": (10, MINUTE_MS),
    "nats.publish_retry_ms": (50, MINUTE_MS),
    "reconciler.poll_ms": (10, 60 * MINUTE_MS),
    "reconciler.dispatch_timeout_ms": (10, 24 * 60 * MINUTE_MS),
    "reconciler.running_timeout_ms": (10, 365 * 24 * 60 * MINUTE_MS),
    "reconciler.batch": (1, 10_000),
    "reconciler.max_iterations": (1, 10_000),
    "reconciler.max_retries": (0, 100),
    "reconciler.grace_ms": (0, 60 * MINUTE_MS),
    "reconciler.deadline_poll_ms": (10, 60 * MINUTE_MS),
    "reconciler.pending_ms": (10, 24 * 60 * MINUTE_MS),
    "reconciler.settled_ms": (0, 24 * 60 * MINUTE_MS),
    "policy.refresh_ms": (10, 60 * MINUTE_MS),
    "policy.throttle_ms": (100, 24 * 60 * MINUTE_MS),
    "policy.kernel_timeout_ms": (10, MINUTE_MS),
    "policy.kernel_parallel": (1, 1000),
    "policy.kernel_cache_ms": (0, 24 * 60 * MINUTE_MS),
    "policy.kernel_retry_ms": (100, 60 * MINUTE_MS),
    "policy.kernel_failures": (1, 1000),
    "policy.kernel_open_ms": (10, 24 * 60 * MINUTE_MS),
    "policy.kernel_probes": (1, 1000),
    "policy.kernel_successes": (1, 1000),
    "output_policy.inline_bytes": (0, 1 << 20),
    "output_policy.late_timeout_ms": (100, 10 * MINUTE_MS),
    "output_policy.kernel_timeout_ms": (10, 10 * MINUTE_MS),
    "cleaner.poll_ms": (10, 7 * 24 * 60 * MINUTE_MS),
    "cleaner.batch": (1, 100_000),
    "cleaner.portion": (1, 10_000),
    "cleaner.pause_ms": (0, MINUTE_MS),
    "cleaner.dedupe_ms": (0, 3650 * 24 * 60 * MINUTE_MS),
    "s3.timeout_ms": (100, 10 * MINUTE_MS),
    "alive.poll_ms": (10, 60 * MINUTE_MS),
    "alive.batch": (1, 10_000),
    "alive.late_ms": (10, 24 * 60 * MINUTE_MS),
    "alive.orphan_ms": (0, 24 * 60 * MINUTE_MS),
    "alive.ping_every_ms": (100, 24 * 60 * MINUTE_MS),
    "alive.ping_timeout_ms": (10, 10 * MINUTE_MS),
    "alive.ping_tries": (1, 100),
    "alive.ping_parallel": (1, 1000),
    "server.port": (0, 65_535),
    "server.max_connections": (1, 100_000),
    "server.max_connections_per_address": (1, 100_000),
    "server.max_body": (1024, 64 * 2**20),
    "server.max_jobs_body": (1024, 64 * 2**20),
    "server.max_header": (1024, 2**20),
    "server.patience_ms": (100, 10 * MINUTE_MS),
    "server.rate_limit": (0, 10_000_000),
    "server.rate_burst": (1, 1_000_000),
    "server.drain_ms": (0, 10 * MINUTE_MS),
    "server.max_streams": (0, 10_000),
    "nats.replicas": (1, 5),
    "nats.ack_wait_ms": (0, 60 * MINUTE_MS),
    "nats.in_flight_ms": (0, 60 * MINUTE_MS),
    "nats.timeout_ms": (10, MINUTE_MS),
    "nats.reconnect_ms": (10, MINUTE_MS),
    "redis.timeout_ms": (10, MINUTE_MS),
    "agents.max_cost_per_day": COST_PER_DAY,
    "agents.session_tokens": (1, 1_000_000),
    "agents.request_timeout_ms": REQUEST_TIMEOUT_MS,
    "agents.max_server_programs": MOST_SERVER_PROGRAMS,
    "metrics.port": (0, 65_535),
    "metrics.max_jobs": (0, 10_000),
    "database.max_connections": (1, 1000),
    "database.patience_ms": (100, 10 * MINUTE_MS),
} | AUTH_BOUNDS
#: The settings whose values are mappings with forms of their own, and what reads them.
_READERS: Mapping[tuple[str, str], Callable[[object], object]] = {
    ("", "channels"): read_channels,
    ("agents", "providers"): read_providers,
    ("agents", "prices"): read_prices,
    ("agents", "servers"): read_servers,
}
#: A setting of one source: section, key, value and origin.
_SettingValue = tuple[str, str, object, str]
#: How similar a variable must be to a known one to count as a misspelling of it.
_MISSPELLING_CUTOFF = 0.8
#: Polling more often than this gains nothing; smaller values are raised to it.
_SHORTEST_POLL_SECS = 5
#: A valid beginning of a metric name.
_PREFIX = re.compile("([a-zA-Z_][a-zA-Z0-9_]*)?")
#: A name that needs no quotes and does not belong to PostgreSQL.
_SCHEMA_NAME = re.compile("(?!pg_)[a-z_][a-z0-9_]{0,62}")
_REGION = re.compile("[a-zA-Z0-9-]{1,64}")


def load(
    *,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings from all sources; raise FieldError, which names the first wrong one.

    `flags` are named `section.key`; `file` is the parsed content of a configuration file.
    """
    return load_with_origins(flags=flags, environment=environment, file=file)[0]


def load_with_origins(
    *,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Mapping[str, Any] | None = None,
) -> tuple[Settings, Mapping[str, str]]:
    """The settings, and the origin of each that is not a default: `file`, `environment NAME` or `flag`."""
    environment = environment or {}
    merged: dict[str, dict[str, object]] = {}
    origins: dict[str, str] = {}
    for source in (_in_file(file or {}, environment), _in_environment(environment), _in_flags(flags or {})):
        spelled: dict[tuple[str, str], str] = {}
        for section, key, value, origin in source:
            field, known = _name(section, key), _known_key(section, key)
            if spelled.setdefault((section, known), key) != key:
                raise FieldError(field, redact_value(field, value), f"sets {known} a second time")
            merged.setdefault(section, {})[known] = _value(field, value, section, key, known)
            origins[_name(section, known)] = origin
    return _checked(merged), origins


def _in_file(file: Mapping[str, Any], environment: Mapping[str, str]) -> Iterable[_SettingValue]:
    aliases = {section for section, _ in _SECTION_ALIASES}
    for section, values in file.items():
        if section not in _SECTIONS and section not in aliases:
            yield "", section, expand_environment(values, environment, section), "file"
            continue
        for key, value in _mapping(section, values).items():
            place = _SECTION_ALIASES.get((section, key), (section, key))
            yield *place, expand_environment(value, environment, f"{section}.{key}"), "file"


def _mapping(section: str, values: object) -> Mapping[str, object]:
    """The settings of a section; empty if all of it is commented out."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise FieldError(section, redact_value(section, values), "must be a mapping of settings")
    return values


def _in_environment(environment: Mapping[str, str]) -> Iterable[_SettingValue]:
    names = {f"GNOMON_{key.upper()}": ("", key) for key in _plain_keys()} | _KEY_ALIASES
    for name, place in names.items():
        if name in environment:
            yield *place, environment[name], f"environment {name}"
    for name, value in environment.items():
        if not name.startswith("GNOMON_"):
            continue
        if "__" not in name:
            # Other programs may use similar names, so only a very similar one counts as a misspelling.
            key = name.removeprefix("GNOMON_").lower()
            if key not in _plain_keys() and get_close_matches(key, _plain_keys(), cutoff=_MISSPELLING_CUTOFF):
                yield "", key, value, f"environment {name}"
        else:
            section, _, key = name.removeprefix("GNOMON_").lower().partition("__")
            yield *_SECTION_ALIASES.get((section, key), (section, key)), value, f"environment {name}"


def _in_flags(flags: Mapping[str, object]) -> Iterable[_SettingValue]:
    for name, value in flags.items():
        section, _, key = name.rpartition(".")
        yield section, key, value, "flag"


def _plain_keys() -> list[str]:
    return [key for key in Settings.__struct_fields__ if key not in _SECTIONS]


def _name(section: str, key: str) -> str:
    return f"{section}.{key}" if section else str(key)


def _known_key(section: str, key: str) -> str:
    """The key in the section. The error of an unknown key does not show its value, which may be a secret."""
    if section not in _SECTIONS:
        raise FieldError(str(section), REDACTED, unknown_setting_reason(section, _SECTIONS))
    known = _SECTIONS[section].__struct_fields__ if section else _plain_keys()
    if key in known:
        return key
    if f"{key}_ms" in known:
        return f"{key}_ms"
    spellings = [name.removesuffix("_ms") for name in known] + list(known)
    raise FieldError(
        _name(section, key), REDACTED, unknown_setting_reason(key, spellings if section else (*spellings, *_SECTIONS))
    )


def _value(field: str, value: object, section: str, key: str, known: str) -> object:
    if known != key:
        return duration_ms(field, value)
    if (section, key) in _READERS:
        return _READERS[section, key](value)
    if isinstance(value, str) and (section, key) in _VALUE_ALIASES:
        return _VALUE_ALIASES[section, key].get(value, value)
    if isinstance(value, str) and _is_list(section, key):
        return [part for word in value.split(",") if (part := word.strip())]
    if isinstance(value, str) and isinstance(getattr(_SECTIONS[section], key), dict):
        return dict(_pair(field, word.strip()) for word in value.split(",") if word.strip())
    return value


def _is_list(section: str, key: str) -> bool:
    """Whether the values of a setting are lists; the default of some is None."""
    return "tuple[" in str(type(_SECTIONS[section]).__annotations__[key])


def _pair(field: str, word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name.strip():
        raise FieldError(field, word, "must be NAME=VALUE")
    return name.strip(), value.strip()


def _check_ping_url(url: str) -> None:
    # The value of a secret is checked when the URL is called.
    if url and "${secret:" not in url and not is_http_url(url):
        raise FieldError("alive.ping_url", REDACTED, "must be an http or https URL without credentials")


def _check_schema_name(name: str) -> None:
    if name and not _SCHEMA_NAME.fullmatch(name):
        raise FieldError("database.schema", name, "must be lower-case letters, digits and _, not beginning with pg_")


def _check_dashboard_title(title: str) -> None:
    if not title.strip() or not title.isprintable() or len(title) > _LONGEST_TITLE:
        raise FieldError("ui.title", title, f"must be 1 to {_LONGEST_TITLE} printable characters")


def _check_archive(settings: Settings) -> None:
    execution, endpoint = settings.execution, settings.s3.endpoint
    if not execution.archive:
        return
    read_archive_address(execution.archive)
    if execution.archive_dir:
        raise FieldError("execution.archive_dir", execution.archive_dir, "cannot be combined with execution.archive")
    if endpoint and not is_http_url(endpoint):
        raise FieldError("s3.endpoint", REDACTED, "must be an http or https URL without credentials")
    if not _REGION.fullmatch(settings.s3.region):
        raise FieldError("s3.region", settings.s3.region, "must be letters, digits and -, such as eu-central-1")


def _checked(merged: Mapping[str, Mapping[str, object]]) -> Settings:
    for section, values in merged.items():
        for key, value in values.items():
            if (section, key) in _READERS:
                continue
            try:
                msgspec.convert({key: value}, type(_SECTIONS[section]), strict=False)
            except msgspec.ValidationError as error:
                reason = str(error).partition(" - at ")[0]
                field = _name(section, key)
                raise FieldError(field, redact_value(field, value), f"is refused: {reason}") from None
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
    check_worker(settings.worker.pool, settings.worker.labels, settings.worker.capabilities)
    check_limits(settings.routing.tenant_limits)
    AllowedHosts(settings.security.allowed_hosts, field="security.allowed_hosts")
    check_security(settings.security)
    check_agents(settings.agents)
    check_kernel(settings.policy, settings.execution, settings.output_policy)
    _check_zones(settings.ticker.zones)
    read_secret_rules(settings.secrets.allow)
    _check_ping_url(settings.alive.ping_url)
    _check_archive(settings)
    _check_schema_name(settings.database.schema)
    _check_dashboard_title(settings.ui.title)
    if not _PREFIX.fullmatch(settings.metrics.prefix):
        raise FieldError("metrics.prefix", settings.metrics.prefix, "must be letters, digits and _, no digit first")
    if settings.nats.creds_file and settings.nats.user:
        raise FieldError("nats.user", settings.nats.user, "cannot be combined with nats.creds_file: use one of them")
    poll_secs = max(settings.worker.poll_secs, _SHORTEST_POLL_SECS)
    return replace(settings, worker=replace(settings.worker, poll_secs=poll_secs))


def _check_zones(names: Iterable[str]) -> None:
    from gnomon.core.timezones import zone

    for name in names:
        if zone(name) is None:
            raise FieldError("ticker.zones", name, "is not a known time zone, such as Europe/Berlin")
