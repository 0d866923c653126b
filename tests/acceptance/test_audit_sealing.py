"""A node that schedules seals what operators have changed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gnomon.app.auth import checkpoint_file, existing_checkpoint_key
from gnomon.app.node import Node
from gnomon.config.sections import DatabaseSettings
from gnomon.config.settings import Settings
from gnomon.services.operations.audit import AuditService
from gnomon.testing.clock import Recorder


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what a service does by itself: there is nothing to await."""
    while not await condition():  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.01)


@pytest.mark.req("H-23")
async def test_a_node_seals_what_others_have_changed(tmp_path: Path) -> None:
    settings = Settings(database=DatabaseSettings(url=f"sqlite:///{tmp_path / 'gnomon.db'}"))
    node = await Node.open(settings, events=Recorder())
    await node.schedules.upsert({"schedule_id": "report", "schedule": "@daily", "workflow_id": "report"}, actor="ada")
    stop = asyncio.Event()
    running = asyncio.create_task(node.run(stop))

    async def all_sealed() -> bool:
        head, unsealed = await node.store.audit.head()
        return head.seq == 1 and not unsealed

    await until(all_sealed)
    audit = AuditService(node.store.audit, key=existing_checkpoint_key(settings), anchor=checkpoint_file(settings))
    assert (await audit.verify()).intact

    stop.set()
    await running
    await node.close()
