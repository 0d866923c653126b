"""What programs ask for that keep schedules of workflows and start runs of these."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gnomon.client.asking import Ask, path
from gnomon.core.responses import Launched, ScheduleDetail, ScheduleRegistered


def upsert_schedule(said: Mapping[str, Any]) -> Ask[ScheduleRegistered]:
    """Make a schedule of a workflow say what is said. Saying it again changes nothing."""
    return Ask(method="POST", path=path("schedules", "upsert"), answer=ScheduleRegistered, body=said)


def pause_schedule(schedule_id: str, *, paused: bool = True) -> Ask[ScheduleDetail]:
    """Pause a schedule, or let it go on."""
    body = {"schedule_id": schedule_id, "paused": paused}
    return Ask(method="POST", path=path("schedules", "pause"), answer=ScheduleDetail, body=body)


def schedule(schedule_id: str, *, coming: int = 5, last: int = 10) -> Ask[ScheduleDetail]:
    """A schedule with its next planned times and its last decisions."""
    query = {"coming": coming, "last": last}
    return Ask(method="GET", path=path("schedules", schedule_id), answer=ScheduleDetail, query=query)


def delete_schedule(schedule_id: str) -> Ask[None]:
    """End a schedule. Its history stays."""
    return Ask(method="DELETE", path=path("schedules", schedule_id), answer=None)


def start(
    workflow_id: str, version: int, scheduled_for: datetime, key: str, *, user_id: str | None = None
) -> Ask[Launched]:
    """Start a run of a version of a workflow, once for each key; `started` is false if there is no such workflow."""
    body = {"workflow_id": workflow_id, "version": version, "scheduled_for": scheduled_for.isoformat()}
    said = {**body, "idempotency_key": key} | ({} if user_id is None else {"user_id": user_id})
    headers = {"Idempotency-Key": key}
    return Ask(method="POST", path=path("run-launcher", "start"), answer=Launched, body=said, headers=headers)
