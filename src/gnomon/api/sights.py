"""Examples of what is looked at besides jobs and executions, for the OpenAPI document."""

from typing import Any

from gnomon.api.examples import TICK

_NINE, _A_MINUTE_LATER = "2026-03-02T14:00:00Z", "2026-03-02T14:01:00Z"
FIRE: dict[str, Any] = {
    "job": "report", "utc": _NINE, "local": "2026-03-02T09:00:00-05:00", "timezone": "America/New_York",
    "schedule": "every weekday at 09:00 in America/New_York",
}  # fmt: skip
LINE: dict[str, Any] = {
    "at": _NINE, "level": "info", "step": "main", "item": None, "line": 1, "text": "12 rows",
}  # fmt: skip
ITEM: dict[str, Any] = {
    "item": 0, "state": "succeeded", "started_at": _NINE, "ended_at": _A_MINUTE_LATER, "output": {"rows": 12},
    "attempts": [],
}  # fmt: skip
SCHEDULE: dict[str, Any] = {
    "schedule_id": "nightly", "workflow_id": "etl", "version": 1, "user_id": "ada", "schedule": "every day at 02:00",
    "timezone": "UTC", "start_at": None, "end_at": None, "next_run_at": "2026-03-03T02:00:00Z", "paused": False,
    "jitter_ms": 0, "overlap": "skip", "catchup": "none", "revision": 1, "updated_at": _NINE,
    "next_runs": ["2026-03-03T02:00:00Z", "2026-03-04T02:00:00Z"], "last_ticks": [{**TICK, "job": "nightly"}],
}  # fmt: skip
WORKFLOW_LINE: dict[str, Any] = {"workflow_id": "etl", "version": 1, "steps": ["extract", "load"], "tags": ["nightly"]}
HAPPENED: dict[str, Any] = {
    "event_id": "evt_1", "name": "model.drift", "key": "zen-72b", "emitted_at": _NINE, "actor": "ada",
    "body": {"score": 0.07},
    "entries": [
        {"job": "retrain", "became": "fired", "reason": "matched", "execution_id": "run_1", "decided_at": _NINE}
    ],
}  # fmt: skip
WORKER: dict[str, Any] = {
    "worker": "worker_1", "pool": "default", "slots": 8, "in_hand": 1, "started_at": _NINE, "seen_at": _A_MINUTE_LATER,
    "draining": False, "cpu": 40, "gpu": None, "labels": {}, "capabilities": [], "functions": ["reports.make"],
}  # fmt: skip
HEALTH: dict[str, Any] = {
    "status": "ok", "version": "0.1.0", "ready": True, "alive": True, "checked_at": _NINE,
    "components": [{"component": "store", "status": "ok", "message": "", "since_at": _NINE}],
}  # fmt: skip
_COMING: dict[str, Any] = {
    "at": _NINE, "local": "2026-03-02T09:00:00-05:00", "kind": "coming", "reason": "planned",
    "sentence": "It will fire in 2 h.", "waits": [], "schedule": "every weekday at 09:00 in America/New_York",
    "timezone": "America/New_York", "revision": 1, "decision": None, "previous_at": None, "next_at": None,
    "execution": None, "attempts": [],
}  # fmt: skip
WHY: dict[str, Any] = {
    "job": "report", "schedule": "every weekday at 09:00 in America/New_York", "timezone": "America/New_York",
    "explanations": [], "more": 0, "forgotten_before": None, "coming": _COMING,
}  # fmt: skip
