"""Examples of requests and responses for the OpenAPI document."""

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
    "warnings": [],
}
JOB_LINE: dict[str, Any] = {
    "job": "report",
    "state": "active",
    "schedule": "at 09:00 on Monday through Friday",
    "cron": "0 9 * * 1-5",
    "timezone": "America/New_York",
    "next_run_at": "2026-03-02T14:00:00Z",
    "paused": False,
    "under_way": 0,
    "queued": 0,
    "running": 0,
    "version": 1,
    "functions": ["reports.make"],
    "tags": ["numbers"],
    "updated_at": "2026-02-27T09:00:00Z",
    "origin": "file:/etc/gnomon/jobs.yaml",
    "orphaned": False,
    "approved": False,
    "description": "The sales of the day before",
    "ticks": None,
    "newest": None,
}
_TICK_KEY = "b45cffe084dd3d20d928bee85e7b0f2129ffc8c2f1f0a8c5aed6b2ac5f5f1c36"
TICK: dict[str, Any] = {
    "job": "report",
    "planned_at": "2026-02-27T14:00:00Z",
    "last_at": "2026-02-27T14:00:00Z",
    "count": 1,
    "kind": "fired",
    "reason": "on_time",
    "status": "SUCCESS",
    "execution_id": "run_1",
    "key": _TICK_KEY,
    "decided_at": "2026-02-27T14:00:00Z",
    "created_at": "2026-02-27T14:00:00Z",
    "updated_at": "2026-02-27T14:00:01.500Z",
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
    "approval": None,
    "agents": None,
    "swallowed": None,
}
IDENTITY: dict[str, Any] = {
    "subject": "ada@example.com", "tenant": "default", "roles": ["operator"], "groups": ["on-call"],
    "expires_at": "2026-03-02T20:00:00Z",
}  # fmt: skip
OVERVIEW: dict[str, Any] = {
    "since": "2026-03-01T12:00:00Z", "until": "2026-03-02T12:00:00Z", "unknown": {},
    "jobs": {"count": 12, "more": False, "href": "/v1/jobs"},
    "due_next": [
        {
            "job": "report", "planned_at": "2026-03-02T14:00:00Z", "due_at": "2026-03-02T14:00:00Z",
            "local": "2026-03-02T09:00:00-05:00", "timezone": "America/New_York", "late_ms": 0,
            "href": "/v1/jobs/report/why?at=2026-03-02T14%3A00%3A00.000000Z",
        }
    ],
    "overdue": {"count": 0, "more": False, "href": "/v1/jobs?state=overdue", "items": []},
    "late": [],
    "not_run": [
        {
            "kind": "skipped", "reason": "overlap", "count": 3, "more": False, "planned_times": 3,
            "newest_at": "2026-03-02T11:00:00Z",
            "href": "/v1/ticks?kind=skipped&reason=overlap&since=1772366400000&until=1772452800000",
        }
    ],
    "queued": [],
    "failed": {
        "count": 1, "more": False,
        "href": "/v1/executions?status=failed&since=1772366400000&until=1772452800000",
    },
    "running": {"count": 2, "more": False, "href": "/v1/executions?status=running"},
    "pending": {"count": 1, "more": False, "href": "/v1/executions?status=pending"},
    "waiting": [{"reason": "retry", "count": 1, "more": False, "href": "/v1/executions?waiting=retry"}],
    "dead_letters": {"count": 1, "more": False, "href": "/v1/dead-letters"},
    "approvals": {"count": 0, "more": False, "href": "/v1/approvals?status=waiting"},
    "workers": {"count": 2, "draining": 0, "href": "/v1/workers"},
    "health": {"status": "ok", "failing": [], "href": "/v1/health"},
}  # fmt: skip
CALENDAR: dict[str, Any] = {
    "items": [
        {
            "job": "report", "timezone": "America/New_York", "paused": False, "decided_until": "2026-03-28T14:00:00Z",
            "next_run_at": "2026-03-29T13:00:00Z",
            "cells": [{"column": 0, "counts": {"fired": 1}}, {"column": 1, "counts": {"coming": 1}}],
        }
    ],
    "next": None, "now": "2026-03-28T14:30:00Z", "by": "day", "timezone": "Europe/Berlin",
    "columns": [
        {
            "from_at": "2026-03-27T23:00:00Z", "until_at": "2026-03-28T23:00:00Z",
            "local": "2026-03-28T00:00:00+01:00", "hours": 24.0, "clock_change": 0,
        },
        {
            "from_at": "2026-03-28T23:00:00Z", "until_at": "2026-03-29T22:00:00Z",
            "local": "2026-03-29T00:00:00+01:00", "hours": 23.0, "clock_change": 60,
        },
    ],
}  # fmt: skip
REVISION: dict[str, Any] = {
    "revision": 2, "version": 1, "from_at": "2026-03-02T12:00:00Z", "actor": "ada@example.com", "origin": "api",
    "tzdata": "2026a",
    "definition": {"name": "report", "schedule": "0 10 * * *", "timezone": "UTC", "function": "reports.make"},
    "changes": [{"field": "schedule", "before": "0 9 * * *", "after": "0 10 * * *"}],
}  # fmt: skip
SECURITY = {"read_only": False, "actions_per_hour": 20, "actions_spent": 3, "actions_left": 17}
STARTED = {"execution_id": "run_1", "became": "started"}
EXECUTION: dict[str, Any] = {
    "execution_id": "run_1",
    "job": "report",
    "version": 1,
    "trigger": "api",
    "status": "completed",
    "reason": None,
    "count": 1,
    "queued": False,
    "attempt": 1,
    "planned_at": "2026-03-02T14:00:00Z",
    "tick_key": None,
    "created_at": "2026-03-02T14:00:00Z",
    "updated_at": "2026-03-02T14:00:01.500Z",
    "started_at": "2026-03-02T14:00:00Z",
    "completed_at": "2026-03-02T14:00:01.500Z",
    "duration_ms": 1500,
    "user_id": "ada",
    "actor": "ada",
    "error": None,
    "key": "monday-1",
    "replay_of": None,
    "announced": "sent",
    "tokens": None,
    "cost": None,
}
AGENT_USAGE: dict[str, Any] = {
    "days": [
        {
            "day": "2026-03-02",
            "model": "openai:small",
            "attempts": 3,
            "requests": 9,
            "input_tokens": 12_000,
            "output_tokens": 1_500,
            "cost": 0.006,
            "tool_calls": 12,
            "actions": 4,
        }
    ],
    "jobs": [
        {"job": "triage", "attempts": 3, "requests": 9, "input_tokens": 12_000, "output_tokens": 1_500, "cost": 0.006}
    ],
    "cost_today": 0.006,
    "max_cost_per_day": 5.0,
}
SESSION: dict[str, Any] = {"session": "triage", "turns": 3, "tokens": 900, "updated_at": "2026-03-02T02:00:04Z"}
SESSION_TURN: dict[str, Any] = {
    "number": 3,
    "job": "triage",
    "execution_id": "run_1",
    "ended_at": "2026-03-02T02:00:04Z",
    "tokens": 300,
    "messages": [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Sort the errors."}]}],
}
ANNOUNCEMENT: dict[str, Any] = {
    "announcement_id": "ann_1_0",
    "job": "report",
    "execution_id": "run_1",
    "planned_at": "2026-03-02T14:00:00Z",
    "moment": "failure",
    "channel": "ops",
    "to": "C024BE91L",
    "best_effort": True,
    "state": "given_up",
    "parts_sent": 0,
    "tries": 12,
    "next_try_at": None,
    "created_at": "2026-03-02T14:00:01.500Z",
    "ended_at": "2026-03-02T15:00:02Z",
    "note": "answered 503",
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
    "cron": "0 2 * * *", "timezone": "UTC", "start_at": None, "end_at": None,
    "next_run_at": "2026-03-03T02:00:00Z", "paused": False, "jitter_ms": 0,
    "overlap": "skip", "catchup": "none", "revision": 1, "updated_at": _NINE,
    "next_runs": ["2026-03-03T02:00:00Z", "2026-03-04T02:00:00Z"], "last_ticks": [{**TICK, "job": "nightly"}],
}  # fmt: skip
WORKFLOW_LINE: dict[str, Any] = {"workflow_id": "etl", "version": 1, "steps": ["extract", "load"], "tags": ["nightly"]}
EXTERNAL_EVENT: dict[str, Any] = {
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
