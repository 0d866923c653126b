"""Attacks on the bus: messages of somebody who may publish anything. Each asserts what must hold on the fleet."""

import asyncio
import json
import pickle
import time

import nats

from gnomon.core.subjects import DEAD, report_subject, work_subject
from support.hostile_target import HostileTarget
from support.nats_users import PASSWORDS

_PATIENCE = 20.0
_DISTANT = ("1970-01-01T00:00:00.000Z", "2126-01-01T00:00:00.000Z")


def unreadable_reports(target: HostileTarget) -> None:
    """Every unreadable message is kept for operators, and the next report is processed."""
    bodies = (
        b"not JSON", b"[]", b"[" * 50_000, b"\xff\xfe\x00", b'{"schema": "hanzo.mq.v9"}',
        _report("field_mallory") + b"}", b'{"data": {"worker": 7}}',
    )  # fmt: skip
    asyncio.run(_publish(target, report_subject("field_mallory"), *bodies, kept=len(bodies)))

    assert_a_run_completes(target)


def serialised_objects(target: HostileTarget) -> None:
    """A body that an object deserialiser would execute is unreadable like any other."""
    marker = target.folder / "executed"

    class Wicked:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (open, (str(marker), "w"))  # type: ignore[return-value]

    bodies = (pickle.dumps(Wicked()), b'{"py/object": "os.system"}', b"\xc7\x01\x01\x00")
    asyncio.run(_publish(target, report_subject("field_mallory"), *bodies, kept=len(bodies)))

    assert not marker.exists()
    assert_a_run_completes(target)


def reports_out_of_time(target: HostileTarget) -> None:
    """The time of an envelope decides nothing: reports of unknown tasks are dropped, whatever they are dated."""
    bodies = [_report("field_mallory", timestamp=when, message=f"field_mallory:{when}") for when in _DISTANT]
    asyncio.run(_publish(target, report_subject("field_mallory"), *bodies))

    assert_a_run_completes(target)


def unreadable_tasks(target: HostileTarget) -> None:
    """A task that no worker can read is put away, and workers go on."""
    asyncio.run(_publish(target, work_subject("report"), b"not JSON", b"[" * 50_000, b'{"py/object": "os.system"}'))

    assert_a_run_completes(target)


def assert_a_run_completes(target: HostileTarget) -> None:
    """A job that is triggered now is executed."""
    assert target.register("afterwards", overlap="allow").status_code == 201
    execution = target.ask("POST", "/v1/jobs/afterwards/trigger").json()["execution_id"]
    deadline = time.monotonic() + _PATIENCE
    while (status := target.ask("GET", f"/v1/executions/{execution}").json()["status"]) != "completed":
        assert status in ("pending", "running")
        assert time.monotonic() < deadline, target.log("worker")[-2000:]
        time.sleep(0.05)
    target.delete("afterwards")


def _report(worker: str, *, timestamp: str = "2026-01-01T00:00:00.000Z", message: str = "m:1") -> bytes:
    ended = {"task_id": "task_unknown", "fence": 1, "result": "succeeded"}
    return json.dumps(
        {
            "schema": "hanzo.mq.v1", "id": message, "type": "scheduler.report", "source": worker,
            "timestamp": timestamp, "data": {"worker": worker, "ended": [ended]},
        }
    ).encode()  # fmt: skip


async def _publish(target: HostileTarget, subject: str, *bodies: bytes, kept: int = 0) -> None:
    """Publish messages; wait until as many unreadable ones are kept for operators."""
    assert target.nats is not None
    client = await nats.connect(target.nats.url, user="admin", password=PASSWORDS["admin"])
    try:
        stream = client.jetstream()
        before = (await stream.stream_info(DEAD)).state.messages
        for body in bodies:
            await stream.publish(subject, body)
        async with asyncio.timeout(_PATIENCE):
            while (await stream.stream_info(DEAD)).state.messages < before + kept:  # noqa: ASYNC110 - in a server
                await asyncio.sleep(0.05)
    finally:
        await client.close()
