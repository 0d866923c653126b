"""The sections of the settings: one class for each component, with its keys, defaults and meaning."""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from gnomon.config.sources import RedactedSettings
from gnomon.core.commands.policy import Autonomy, SecurityProfile
from gnomon.core.model import DAY_MS, MINUTE_MS, MOST_SUB_RUN_TASKS, SECOND_MS, Catchup, Overlap


class ModelTools(StrEnum):
    """The tools that the API server offers to models."""

    OFF = "off"
    #: Those that read.
    READ = "read"
    #: Also those that change something.
    CHANGES = "changes"


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The API server."""

    host: str = "127.0.0.1"
    port: int = 8062
    #: The names by which clients call the server, in the Host header of their requests.
    hosts: tuple[str, ...] = ()
    #: The largest number of open connections, in all and from one address beyond loopback.
    max_connections: int = 1000
    max_connections_per_address: int = 500
    #: The largest request body in bytes.
    max_body: int = 1_048_576
    #: The largest request body that holds a whole jobs file.
    max_jobs_body: int = 8_388_608
    #: How long open requests may take to finish after a stop.
    drain_ms: int = 5_000
    #: The largest number of open change streams.
    max_streams: int = 100
    #: The largest size of the request line and headers in bytes.
    max_header: int = 32_768
    #: How long a request may take to arrive, and how long a client may stop reading its response.
    patience_ms: int = 30_000
    #: Requests per minute for each caller, and the burst after a pause; 0 is no limit.
    rate_limit: int = 0
    rate_burst: int = 100
    #: The tools for models at `/mcp`.
    mcp: ModelTools = ModelTools.OFF
    #: PEM files. With a certificate and key the server uses TLS; with a client CA it accepts client certificates.
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_client_ca_file: str = ""


class DashboardColour(StrEnum):
    """The colours that mark an installation: white text on each of them can be read."""

    NONE = "none"
    BLUE = "blue"
    GREEN = "green"
    TEAL = "teal"
    PURPLE = "purple"
    PINK = "pink"
    RED = "red"
    ORANGE = "orange"
    GREY = "grey"


class DashboardSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pages of the dashboard: they say to which installation they belong."""

    title: str = "Gnomon"
    colour: DashboardColour = DashboardColour.NONE
    #: Print at the start an address that opens the dashboard signed in, once and within a minute.
    print_link: bool = False


class DatabaseSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The database."""

    url: str = "sqlite:///gnomon.db"
    #: The schema of PostgreSQL with the tables; if empty, where they are found, and `gnomon` for new ones.
    schema: str = ""
    max_connections: int = 10
    #: Off for PostgreSQL behind a pooler in transaction mode.
    statement_cache: bool = True
    #: How long a statement or a lock of PostgreSQL may take: shorter than leases, so that no holder blocks on one.
    patience_ms: int = 8_000


class TickerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ticker, which decides ticks."""

    #: The longest time between two searches for due schedules.
    tick_ms: int = 1000
    lookahead_ms: int = MINUTE_MS
    #: How many missed ticks of one schedule may start within `tick_ms`.
    max_catchup_per_tick: int = 100
    #: The time zones that schedules may name; all known ones if empty.
    zones: tuple[str, ...] = ()
    #: How many schedules are decided in one transaction.
    batch: int = 2000
    default_overlap: Overlap = Overlap.SKIP
    default_catchup: Catchup = Catchup.NONE
    default_jitter_ms: int = 0


class LeaderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The leases by which nodes share the shards."""

    ttl_ms: int = 10_000
    renew_interval_ms: int = 3_000
    #: How often a node that has less than its share looks for released shards.
    claim_interval_ms: int = 500
    #: A node whose clock differs by more reports it; by more than the limit, it holds no shards.
    skew_warning_ms: int = 2_000
    skew_limit_ms: int = 30_000


class ExecutionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attempts of tasks, and the retention of history."""

    #: The timeout of an attempt whose job has none.
    default_timeout_ms: int = 300_000
    history_retention_days: int = 90
    #: The folder for history before it is deleted, or "none" for no archive. If empty, it is beside the database file,
    #: or with a server in the working directory.
    archive_dir: str = ""
    #: Object storage instead of a folder: `s3://BUCKET/PREFIX`.
    archive: str = ""
    #: How many workers may be lost with a task before it fails.
    max_losses: int = 3
    #: How often routing may find no worker for a task before it fails.
    max_routings: int = 50
    #: The delay before such a task is routed again, which doubles up to the longest one.
    routing_backoff_ms: int = 1_000
    max_routing_backoff_ms: int = 30_000
    #: How often the definition of a run may be missing before the run fails.
    max_launches: int = 3
    #: How many tasks the sub-runs of one run may have together, at all depths.
    max_sub_run_tasks: int = MOST_SUB_RUN_TASKS
    #: How many waiting tasks are admitted in one batch.
    batch: int = 500
    #: How long the gate may take to decide about a task, or about its output.
    gate_timeout_ms: int = 5_000


class WorkerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker."""

    #: How many tasks it holds at once.
    slots: int = 500
    #: The number of threads for functions that are not coroutines.
    threads: int = 16
    #: How many shell commands it runs at once.
    max_concurrent: int = 5
    #: Whether it runs commands at all.
    commands: bool = True
    #: How long its lease on an attempt lasts, and how often it renews it in that time: after so many failures in a
    #: row the lease has ended, and the worker stops the attempt.
    lease_ms: int = 30_000
    renewals: int = 3
    #: The longest time between two polls for tasks; at least 5 s. Hints make it poll sooner.
    poll_secs: int = 10
    #: How long tasks may go on after a stop, before they are cancelled.
    drain_ms: int = 10_000
    #: How long cancelled tasks may take to stop, before they are killed.
    kill_grace_ms: int = 5_000
    #: Longer output and logs of a task are cut.
    max_output_bytes: int = 65_536
    max_log_lines: int = 1_000
    #: The pool from which it takes tasks.
    pool: str = "default"
    #: Labels that placement rules of tasks match, and capabilities that tasks may require.
    labels: dict[str, str] = {}
    capabilities: tuple[str, ...] = ()


class RoutingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The routing of tasks to pools and workers."""

    #: The file that maps topics to pools; without one, every worker takes tasks from its own pool.
    pools_file: str = ""
    #: How many tasks of a tenant may be in flight at once, by tenant; then for all other tenants, where 0 is no limit.
    tenant_limits: dict[str, int] = {}
    default_tenant_limit: int = 0
    #: A worker whose slots, CPU or GPU are used to this percentage gets no more tasks.
    overload_percent: int = 90


class ShellSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shell commands."""

    #: The folder in which commands run, and inside which `workdir` must lie; the current folder if empty.
    workspace: str = ""
    #: The timeout of an attempt whose command has none.
    timeout_ms: int = 120_000
    #: The environment variables of the worker that commands inherit; they see no others.
    inherit: tuple[str, ...] = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")
    #: The tenants whose jobs may have commands; `*` for all.
    tenants: tuple[str, ...] = ("default",)
    #: The user as which commands run; that of the worker if empty. Needs a worker that runs as root.
    user: str = ""
    #: Whether commands can gain privileges, and have all capabilities of a worker that runs as root.
    privileges: Literal["drop", "keep"] = "drop"
    #: Whether the kernel confines commands: as far as it can, completely or not at all, or never.
    sandbox: Literal["auto", "required", "off"] = "auto"
    #: Whether the shell of open commands reads the profile of the user (`sh -l`).
    login: bool = True
    #: The limits of each process of a command; 0 is no limit.
    max_memory_bytes: int = 16 * 2**30
    max_cpu_ms: int = DAY_MS
    max_file_bytes: int = 2**40
    #: How many more processes and threads the user may have than at the start of the command; 0 is no limit.
    max_processes: int = 4096


class CronSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The jobs that `gnomon cron` makes."""

    #: How often a failed job is tried again, beyond the first attempt.
    retries: int = 3
    #: The delay after the first attempt, which doubles up to the longest one, and the most that is added to each.
    backoff_ms: int = 200
    max_backoff_ms: int = 30_000
    jitter_ms: int = 250
    #: How many runs of each job are kept.
    max_run_history: int = 50


class ReconcilerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reconciler, which finds stuck tasks and runs."""

    poll_ms: int = 30_000
    dispatch_timeout_ms: int = 60_000
    running_timeout_ms: int = 24 * 60 * MINUTE_MS
    batch: int = 200
    max_iterations: int = 100
    max_retries: int = 3
    #: A worker ends an attempt at its timeout or deadline; the reconciler does after this much more.
    grace_ms: int = 30_000
    #: The longest time between two searches for tasks that have passed their deadlines.
    deadline_poll_ms: int = 1_000
    #: How long a task may be ready before it is offered again.
    pending_ms: int = 2 * MINUTE_MS
    #: How old a run must be before it is checked for being stuck.
    settled_ms: int = MINUTE_MS


class TaskPolicySettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy of tasks."""

    #: How often to look for a version that another process has put in force.
    refresh_ms: int = 1_000
    #: How long a throttled task waits before it is asked about again.
    throttle_ms: int = 5_000
    #: The service that rules on tasks: grpc://, grpcs://, http:// or https://; empty: the policy in the store does.
    kernel: str = ""
    #: How long it may take to answer, and how many questions may be under way at once.
    kernel_timeout_ms: int = 2_000
    kernel_parallel: int = 64
    #: How long its answers are remembered; 0: not at all.
    kernel_cache_ms: int = 0
    #: How long a task waits about which it gave no answer.
    kernel_retry_ms: int = 5_000
    #: The token that it wants, as it is or as `file:PATH`; empty: it wants none.
    kernel_token: str = ""
    #: A file with the certificates that may sign its one; empty: those that the system trusts.
    kernel_tls_ca: str = ""
    #: Refuse a kernel without TLS, wherever it is; or accept one that is not on this machine.
    kernel_tls_required: bool = False
    kernel_insecure: bool = False
    #: So many failures in a row open its breaker, for so long; then so many probes at once, and successes close it.
    kernel_failures: int = 3
    kernel_open_ms: int = 30_000
    kernel_probes: int = 3
    kernel_successes: int = 2
    #: Whether tasks wait (closed) or run (open) while it cannot be asked; empty: as the policy in force says.
    fail_mode: Literal["", "closed", "open"] = ""
    #: The groups whose members may let a task run that waits for an approval, with a reason.
    break_glass: tuple[str, ...] = ()


class OutputPolicySettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy of outputs: what is held back, and what is redacted, before anything can read it."""

    enabled: bool = False
    #: The content of larger outputs is not checked before they are stored.
    inline_bytes: int = 65_536
    #: How long the check of an output may take that is stored already.
    late_timeout_ms: int = 30_000
    #: Whether an output is stored (open) or held back (closed) if nothing could check it in time.
    fail_mode: Literal["open", "closed"] = "open"
    #: The service that judges stored outputs; empty: the own rules alone do. TLS is as for policy.kernel.
    kernel: str = ""
    #: How long it may take to answer.
    kernel_timeout_ms: int = 2_000
    #: The token that it wants, as it is or as `file:PATH`; empty: it wants none.
    kernel_token: str = ""
    #: Keys for outputs that are held back, as in payload.keys; without one, those are used.
    keys: tuple[str, ...] = ()


class CleanerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cleaner, which archives and deletes old history."""

    #: From the end of one pass to the beginning of the next.
    poll_ms: int = 60 * MINUTE_MS
    #: About how many rows are archived together, and deleted in one transaction.
    batch: int = 5000
    portion: int = 250
    #: The pause between two transactions, in which other writers proceed.
    pause_ms: int = 20
    #: The least time for which idempotency keys and ticks are kept.
    dedupe_ms: int = 7 * 24 * 60 * MINUTE_MS


class S3Settings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The S3-compatible object storage of `execution.archive`."""

    #: The URL of the server; that of Amazon in the region if empty.
    endpoint: str = ""
    region: str = "us-east-1"
    #: The credentials, each as it is or as `file:PATH`.
    access_key_id: str = ""
    secret_access_key: str = ""
    #: Only temporary credentials have one.
    session_token: str = ""
    #: How long a request may take.
    timeout_ms: int = 30_000


class WatchdogSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The checks of invariants, and pings to external monitors."""

    #: How often the invariants are checked, and for how many schedules each time.
    poll_ms: int = 30_000
    batch: int = 500
    #: How long a tick may be overdue, and how long an attempt may outlive its lease.
    late_ms: int = 30_000
    orphan_ms: int = 2 * MINUTE_MS
    #: The URL that is called regularly while ticks are decided; none if empty.
    ping_url: str = ""
    ping_every_ms: int = MINUTE_MS
    #: How long a ping may take, how often it is tried, and how many are sent at once.
    ping_timeout_ms: int = 10_000
    ping_tries: int = 5
    ping_parallel: int = 10


class SecretsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The secrets that jobs may use, and where a worker finds them."""

    #: The names that `${secret:NAME}` may use, as `NAME` (tenant `default`), `NAME=TENANT` or `NAME=TENANT/JOB`.
    allow: tuple[str, ...] = ()
    #: A folder with one file for each secret; others are read from the environment.
    folder: str = ""


class SecuritySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of jobs that tenants define.

    A setting that is None has its default for guarded commands, and does not count for open ones. One that is set
    holds for every command.
    """

    profile: SecurityProfile = SecurityProfile.AUTO
    autonomy: Autonomy | None = None
    #: The programs that commands may start: names, or absolute paths, which allow that file alone.
    allowed_commands: tuple[str, ...] | None = None
    #: Folders and files that no word of a command may name.
    forbidden_paths: tuple[str, ...] | None = None
    #: Folders besides the workspace that commands may name.
    allowed_roots: tuple[str, ...] = ()
    #: Whether commands may name only paths in the workspace and the allowed roots.
    workspace_only: bool | None = None
    #: How many guarded commands of a tenant may start within an hour; in files `none` for any number (ANY_NUMBER).
    max_actions_per_hour: int | None = None
    #: Whether commands of medium risk need an approval while `autonomy` is supervised.
    approve_medium_risk: bool | None = None
    #: Whether commands of high risk are refused.
    block_high_risk: bool | None = None
    #: The folders in which programs are found.
    path: tuple[str, ...] = ("/usr/local/bin", "/usr/bin", "/bin")
    #: Host names, addresses and networks that requests of jobs may reach although they are not public.
    allowed_hosts: tuple[str, ...] = ()


class PayloadSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The encryption of inputs, outputs and events in the store and on the bus; off without a key."""

    #: Keys of 32 bytes in Base64, or as `file:PATH`. The first one encrypts, all of them decrypt.
    keys: tuple[str, ...] = ()


class NatsSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The NATS message bus to remote workers; without a URL there is none."""

    url: str = ""
    user: str = ""
    password: str = ""
    #: A `.creds` file of NATS instead of user and password.
    creds_file: str = ""
    #: The number of replicas of each stream, and whether streams are stored on disk or in memory.
    replicas: int = 1
    storage: Literal["file", "memory"] = "file"
    #: How long a reply may take, and the delay before a lost connection is opened again.
    timeout_ms: int = 2_000
    reconnect_ms: int = 100
    #: How long the bus waits for an acknowledgement; 0 follows the lease of workers.
    ack_wait_ms: int = 0
    #: How long a report counts as being processed; 0 follows the time after which it is delivered again.
    in_flight_ms: int = 0
    #: How soon a report is delivered again that another server is processing, that the store could not take, or that
    #: could not be put away as unreadable.
    busy_retry_ms: int = 500
    store_retry_ms: int = 1_000
    letter_retry_ms: int = 5_000
    #: The longest pause after tasks could not be published; the first is 50 ms, and each is twice as long as the last.
    publish_retry_ms: int = 2_000


class RedisSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Redis server for leases and deduplication instead of the store; not used if empty."""

    url: str = ""
    #: The prefix of every key.
    prefix: str = "gnomon:"
    timeout_ms: int = 2_000


class MetricsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server for metrics and health probes."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = 9090
    #: The prefix of every metric name.
    prefix: str = "hanzo_scheduler_"
    #: How many jobs have a label of their own; all others share one.
    max_jobs: int = 200


#: Asymmetric algorithms: a verification key cannot sign. Shared secrets are never accepted.
ASYMMETRIC_ALGORITHMS = frozenset(
    "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 Ed25519 Ed448 EdDSA".split(),
)


class AuthSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The issuer of the callers' tokens, and the required claims."""

    #: The URL of the issuer; its keys are at /.well-known/jwks.json unless `jwks_url` is set.
    iam_url: str = ""
    verify_tokens: bool = True
    #: Required to switch verification off, because any caller can then claim any identity.
    accept_unverified: bool = False
    #: The exact `iss` claim of tokens; `iam_url` if empty.
    issuer: str = ""
    jwks_url: str = ""
    jwks_file: str = ""
    #: Allow keys to be fetched over an unprotected connection.
    allow_http: bool = False
    #: Every token of the external issuer must name one of these audiences. Required with an external issuer.
    audience: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ("RS256", "PS256", "ES256", "ES384", "Ed25519", "EdDSA")
    clock_skew_ms: int = MINUTE_MS
    roles_claim: str = "roles"
    #: The claim with the groups of people that approvals and overrides name; a path is allowed.
    groups_claim: str = "groups"
    tenant_claim: str = "tenant"
    require_tenant: bool = False
    max_token_bytes: int = 8192
    #: The longest time for which any token may be valid.
    max_lifetime_ms: int = 366 * DAY_MS
    #: Services with a client certificate instead of a token, as `NAME=ROLE` or `NAME=ROLE/TENANT`.
    certificates: tuple[str, ...] = ()
    #: The key with which this installation signs its own tokens; beside the database file if empty.
    key_file: str = ""
    #: How long fetched keys are used before they are fetched again.
    keys_ttl_ms: int = 10 * MINUTE_MS
    #: How long they are still used while the issuer is unreachable.
    keys_patience_ms: int = DAY_MS
    #: Keys are not fetched more often than this, even for tokens with unknown keys.
    refetch_ms: int = 30 * SECOND_MS
    fetch_timeout_ms: int = 5 * SECOND_MS


class AuditSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signed checkpoints of the audit trail."""

    #: The key that signs them: `auth.key_file` if empty, or beside the database file. All servers need the same one.
    key_file: str = ""
    #: The file that keeps the newest one outside the store: beside the database file if empty, none on a server.
    checkpoint_file: str = ""


AUTH_BOUNDS = {
    "auth.clock_skew_ms": (0, 10 * MINUTE_MS),
    "auth.max_token_bytes": (256, 65_536),
    "auth.max_lifetime_ms": (MINUTE_MS, 3650 * DAY_MS),
    "auth.keys_ttl_ms": (SECOND_MS, 7 * DAY_MS),
    "auth.keys_patience_ms": (SECOND_MS, 30 * DAY_MS),
    "auth.refetch_ms": (100, 60 * MINUTE_MS),
    "auth.fetch_timeout_ms": (10, MINUTE_MS),
}
