"""The sections of the settings: what each part of the house can be told."""

from typing import Literal

from msgspec import Struct

from gnomon.config.sources import RedactedSettings
from gnomon.core.model import DAY_MS, MINUTE_MS, SECOND_MS, Catchup, Overlap


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the API listens."""

    host: str = "127.0.0.1"
    port: int = 8062
    #: The body of a request may have so many bytes.
    max_body: int = 1_048_576
    #: The same for a whole file of jobs.
    max_jobs_body: int = 8_388_608
    #: How long requests may take to finish after a stop was asked for.
    drain_ms: int = 5_000
    #: How many may follow the stream of changes at once.
    max_streams: int = 100
    #: The address and the headers of a request may have so many bytes.
    max_header: int = 32_768
    #: How long a request may take to arrive, and how long nothing of an answer may be taken in.
    patience_ms: int = 30_000
    #: How many requests a minute each caller may send, and how many at once after a pause; 0 is no limit.
    rate_limit: int = 0
    rate_burst: int = 100
    #: Files in PEM. With a certificate of its own it speaks TLS; with the other, callers may show theirs.
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_client_ca_file: str = ""


class DatabaseSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where everything is kept."""

    url: str = "sqlite:///gnomon.db"
    max_connections: int = 10
    #: Off for PostgreSQL behind a pooler that hands connections out by the transaction.
    statement_cache: bool = True
    #: How long PostgreSQL may take over a statement or a lock: less than leases last, so that nobody sits on them.
    patience_ms: int = 8_000


class TickerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class LeaderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How nodes share the shards."""

    ttl_ms: int = 10_000
    renew_interval_ms: int = 3_000
    #: How often a node that has less than its share looks for shards that others gave up.
    claim_interval_ms: int = 500
    #: A node whose clock is off by more says so; by more than the second, it does not lead.
    skew_warning_ms: int = 2_000
    skew_limit_ms: int = 30_000


class ExecutionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    batch: int = 500
    #: How long the gate may take to decide about a task, or about its output.
    gate_timeout_ms: int = 5_000


class WorkerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a worker executes."""

    #: How many tasks it has in hand at once.
    slots: int = 500
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
    #: The pool that it takes tasks from.
    pool: str = "default"
    #: By what tasks may be kept to certain workers, and what they may ask for.
    labels: dict[str, str] = {}
    capabilities: tuple[str, ...] = ()


class RoutingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who gets which tasks."""

    #: A file that says which topics go to which pools; without one, every worker takes from its own pool.
    pools_file: str = ""
    #: How many tasks of a tenant may be on their way at once, by tenant; for all others, where 0 is any number.
    tenant_limits: dict[str, int] = {}
    default_tenant_limit: int = 0
    #: From so many percent of its slots, cores or graphics card on, a worker is given nothing more.
    overload_percent: int = 90


class ShellSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How commands run."""

    #: The folder that they run in, and stay in; where the process was started, if empty.
    workspace: str = ""
    #: For a command that does not say how long an attempt may take.
    timeout_ms: int = 120_000
    #: Which of the worker's own variables they see. All others are none of theirs.
    inherit: tuple[str, ...] = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")


class ReconcilerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class CleanerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class WatchdogSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class SecretsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which secrets jobs may name, and where a worker finds them."""

    #: The names that `${secret:NAME}` may use.
    allow: tuple[str, ...] = ()
    #: A folder with one file for each; what it lacks is looked for in the environment.
    folder: str = ""


class NatsSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bus to workers elsewhere; without an address there is none."""

    url: str = ""
    user: str = ""
    password: str = ""
    #: How many servers of a cluster keep each stream, and whether on disk or in memory.
    replicas: int = 1
    storage: Literal["file", "memory"] = "file"
    #: How long an answer may take, and how long to wait before a lost server is tried again.
    timeout_ms: int = 2_000
    reconnect_ms: int = 100


class RedisSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where leases, counters and what was seen before are kept if the store is not to be asked; nowhere if empty."""

    url: str = ""
    #: What every key begins with.
    prefix: str = "gnomon:"
    timeout_ms: int = 2_000


class MetricsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where numbers are shown to those who collect them, and whether we are well to those who ask."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = 9090
    #: What every name begins with.
    prefix: str = "hanzo_scheduler_"
    #: How many jobs are shown by name; all others are counted together.
    max_jobs: int = 200


#: Whoever can check one of these cannot sign with it. Keys that are secret on both sides are never taken.
ASYMMETRIC_ALGORITHMS = frozenset(
    "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 Ed25519 Ed448 EdDSA".split(),
)


class AuthSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who issues the tokens that callers show, and what they must say."""

    #: Who issues the tokens; its keys are at /.well-known/jwks.json unless `jwks_url` says otherwise.
    iam_url: str = ""
    verify_tokens: bool = True
    #: Without verification anybody is whoever they say; that takes a second word.
    accept_unverified: bool = False
    #: What tokens name as their issuer, to the letter; `iam_url` if not said.
    issuer: str = ""
    jwks_url: str = ""
    jwks_file: str = ""
    #: Let keys be fetched over a connection that anybody on the way can change.
    allow_http: bool = False
    #: One of these must be named by every token; any is taken if none is said.
    audience: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ("RS256", "PS256", "ES256", "ES384", "Ed25519", "EdDSA")
    clock_skew_ms: int = MINUTE_MS
    roles_claim: str = "roles"
    tenant_claim: str = "tenant"
    require_tenant: bool = False
    max_token_bytes: int = 8192
    #: Services that show a certificate instead of a token, as `NAME=ROLE` or `NAME=ROLE/TENANT`.
    certificates: tuple[str, ...] = ()
    #: The key with which this installation signs its own tokens; beside the database file if not said.
    key_file: str = ""
    #: How long fetched keys count before they are fetched again.
    keys_ttl_ms: int = 10 * MINUTE_MS
    #: How long they go on counting while the issuer is away.
    keys_patience_ms: int = DAY_MS
    #: Keys are not fetched more often than this, whatever tokens name.
    refetch_ms: int = 30 * SECOND_MS
    fetch_timeout_ms: int = 5 * SECOND_MS


AUTH_BOUNDS = {
    "auth.clock_skew_ms": (0, 10 * MINUTE_MS),
    "auth.max_token_bytes": (256, 65_536),
    "auth.keys_ttl_ms": (SECOND_MS, 7 * DAY_MS),
    "auth.keys_patience_ms": (SECOND_MS, 30 * DAY_MS),
    "auth.refetch_ms": (100, 60 * MINUTE_MS),
    "auth.fetch_timeout_ms": (10, MINUTE_MS),
}
