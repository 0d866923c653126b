"""The published names of the services of a process.

A name is a lease in the store, a component in health reports and in `step_failed`, and the `service` of
`store_unavailable` and `bus_unavailable`. It is stored, sent and scraped, and nodes of different versions run side by
side, so it never changes. Some names are older than the class that they stand for.
"""

# Scheduling and execution.
TICKER = "ticker"
ELECTOR = "elector"
DISPATCHER = "dispatcher"
WORKER = "worker"
HEARTBEAT = "heartbeat"
RECONCILER = "reconciler"
DEADLINES = "deadlines"
LATE_OUTPUT_CHECKER = "late_output_checker"
EVENT_BATCHER = "gatherer"
POLICY = "policy"
POLICY_SHADOW = "policy_shadow"
BACKFILLER = "backfiller"
TASK_PUBLISHER = "courier"
RESULT_CONSUMER = "collector"
NATS_DISPATCH = "fleet"

# Maintenance.
PINGER = "pinger"
ANNOUNCER = "announcer"
APPROVAL_UPDATER = "approvals"
CLEANER = "cleaner"
RUN_REPAIRER = "mender"
INVARIANT_CHECKER = "warden"
AUDIT_SEALER = "sealer"
LOCK_PUBLISHER = "lock_publisher"
TICK_SUMMER = "tick_summer"
JOBS_FILE_SYNC = "jobs_file_sync"
#: The same service, in `store_unavailable`.
JOBS_FILE_WRITES = "jobs_keeper"
POOLS_FILE_SYNC = "pools_file_sync"
DATABASE_FILE_MONITOR = "database_file_monitor"

# Observation.
CLOCK_SYNCHRONIZER = "clock"
METRICS = "metrics"
CHANGE_READER = "change_reader"

# Parts of health reports that are no service.
STORE = "store"
LEDGER = "ledger"
DISK = "disk"
SERVERS = "servers"
TASKS = "tasks"
SANDBOX = "sandbox"

#: Parts that are the same for all nodes. If one fails, another node would serve requests no better.
SHARED = frozenset({TASKS, ANNOUNCER})

# Shared services that a process can do without, in `degraded`.
DEDUPLICATOR = "guard"
SINGLETON_LEASES = "turns"
PUBLISHED_LOCKS = "locks"
