"""What requests and answers look like, for the OpenAPI document."""

from typing import Any

DEFINITION: dict[str, Any] = {
    "name": "report",
    "schedule": "every weekday at 9am",
    "timezone": "America/New_York",
    "function": "reports.make",
    "input": {"day": "yesterday"},
    "timeout": "10m",
    "retry": {"max_attempts": 3, "initial_delay": "30s"},
    "overlap": "skip",
    "tags": ["numbers"],
}
APPLIED = {
    "job": "report",
    "change": "created",
    "revision": 1,
    "version": 1,
    "next_run_at": "2026-03-02T14:00:00Z",
    "schedule": "every weekday at 09:00 in America/New_York",
    "cron": "0 9 * * 1-5",
}
JOB_LINE: dict[str, Any] = {
    "job": "report",
    "state": "active",
    "schedule": "at 09:00 on Monday through Friday",
    "timezone": "America/New_York",
    "next_run_at": "2026-03-02T14:00:00Z",
    "paused": False,
    "under_way": 0,
    "queued": 0,
    "version": 1,
    "functions": ["reports.make"],
    "tags": ["numbers"],
}
TICK: dict[str, Any] = {
    "job": "report",
    "planned_at": "2026-02-27T14:00:00Z",
    "last_at": "2026-02-27T14:00:00Z",
    "count": 1,
    "kind": "fired",
    "reason": "on_time",
    "status": "SUCCESS",
    "execution_id": "run_1",
}
JOB = {
    **JOB_LINE,
    "revision": 1,
    "etag": "sch_1.1",
    "next_runs": ["2026-03-02T14:00:00Z"],
    "definition": DEFINITION,
    "last_ticks": [TICK],
    "executions": [],
    "exceptions": [],
    "lock": None,
}
STARTED = {"execution_id": "run_1", "became": "started"}
EXECUTION: dict[str, Any] = {
    "execution_id": "run_1",
    "job": "report",
    "version": 1,
    "trigger": "api",
    "status": "completed",
    "queued": False,
    "planned_at": "2026-03-02T14:00:00Z",
    "started_at": "2026-03-02T14:00:00Z",
    "completed_at": "2026-03-02T14:00:01.500Z",
    "duration_ms": 1500,
    "user_id": "ada",
    "error": None,
    "key": "monday-1",
    "replay_of": None,
}
TASK = {"function": "reports.make", "input": {"day": "yesterday"}, "timeout": "10m"}
DEAD_LETTER: dict[str, Any] = {
    "dead_letter_id": "dl_1",
    "job": "report",
    "execution_id": "run_1",
    "step": "main",
    "reason": "attempts_exhausted",
    "attempts": 3,
    "last_error": "disk full",
    "input": {"day": "yesterday"},
    "first_attempt_at": "2026-03-02T14:00:00Z",
    "last_attempt_at": "2026-03-02T14:03:00Z",
    "created_at": "2026-03-02T14:03:01Z",
    "resolved": False,
    "resolved_at": None,
    "resolved_by": None,
    "replayed_by": None,
}
SCHEDULE_REQUEST = {
    "schedule_id": "nightly",
    "workflow_id": "etl",
    "version": 1,
    "user_id": "ada",
    "cron_expr": "0 2 * * *",
    "timezone": "UTC",
    "jitter_ms": 0,
    "overlap_policy": "queue",
    "catchup_policy": "none",
}
WORKFLOW = {
    "workflow_id": "etl",
    "steps": [
        {"step": "extract", "function": "etl.extract"},
        {"step": "load", "function": "etl.load", "depends_on": ["extract"]},
    ],
    "triggers": [{"type": "schedule_based", "id": "nightly", "cron_expr": "0 2 * * *"}],
}
EVENT = {"name": "model.drift", "body": {"model": "zen", "score": 0.7}}
