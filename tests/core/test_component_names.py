"""The names of services are stored, sent and scraped: they never change."""

from gnomon.core import component_names

PUBLISHED = {
    "TICKER": "ticker",
    "ELECTOR": "elector",
    "DISPATCHER": "dispatcher",
    "WORKER": "worker",
    "HEARTBEAT": "heartbeat",
    "RECONCILER": "reconciler",
    "DEADLINES": "deadlines",
    "LATE_OUTPUT_CHECKER": "late_output_checker",
    "EVENT_BATCHER": "gatherer",
    "POLICY": "policy",
    "POLICY_SHADOW": "policy_shadow",
    "BACKFILLER": "backfiller",
    "TASK_PUBLISHER": "courier",
    "RESULT_CONSUMER": "collector",
    "NATS_DISPATCH": "fleet",
    "PINGER": "pinger",
    "ANNOUNCER": "announcer",
    "APPROVAL_UPDATER": "approvals",
    "CLEANER": "cleaner",
    "RUN_REPAIRER": "mender",
    "INVARIANT_CHECKER": "warden",
    "AUDIT_SEALER": "sealer",
    "LOCK_PUBLISHER": "lock_publisher",
    "TICK_SUMMER": "tick_summer",
    "JOBS_FILE_SYNC": "jobs_file_sync",
    "JOBS_FILE_WRITES": "jobs_keeper",
    "POOLS_FILE_SYNC": "pools_file_sync",
    "DATABASE_FILE_MONITOR": "database_file_monitor",
    "CLOCK_SYNCHRONIZER": "clock",
    "METRICS": "metrics",
    "CHANGE_READER": "change_reader",
    "STORE": "store",
    "LEDGER": "ledger",
    "DISK": "disk",
    "SERVERS": "servers",
    "TASKS": "tasks",
    "SANDBOX": "sandbox",
    "DEDUPLICATOR": "guard",
    "SINGLETON_LEASES": "turns",
    "PUBLISHED_LOCKS": "locks",
}


def test_the_published_names_are_those_of_the_first_version() -> None:
    names = {name: value for name, value in vars(component_names).items() if isinstance(value, str) and name.isupper()}
    assert names == PUBLISHED
