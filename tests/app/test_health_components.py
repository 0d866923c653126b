"""The health components of a running node have the names of its services."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gnomon.adapters.sql.connect import open_sqlite
from gnomon.app.node import Node
from gnomon.app.stores import ConnectedStore
from gnomon.config.settings import load
from gnomon.core.health import HealthCondition
from gnomon.runners.registry import Functions
from gnomon.services.execution.worker import Worker
from gnomon.services.maintenance.audit_sealer import AuditSealer
from gnomon.services.maintenance.invariant_checker import InvariantChecker
from gnomon.services.maintenance.run_repairer import RunRepairer
from gnomon.testing.clock import Recorder
from support.fleet_processes import wait_until


async def broken() -> float:
    raise RuntimeError("a defect")


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[Node]:
    """A node that executes, on a store that other nodes may share, so that its clock follows the store's."""
    path = str(tmp_path / "gnomon.db")
    settings = load(flags={"database.url": f"sqlite:///{path}"})
    store = await open_sqlite(path)
    opened = ConnectedStore(store=store, outbox=store.metrics_outbox)
    node, stop = Node(opened, settings, lock=None, events=Recorder(), functions=Functions()), asyncio.Event()
    work = asyncio.create_task(node.run(stop))
    try:
        yield node
    finally:
        stop.set()
        await work
        await node.close()


async def condition(node: Node, component: str) -> HealthCondition | None:
    components = (await node.observability.health.report()).components
    return next((one.condition for one in components if one.name == component), None)


async def well(node: Node, component: str) -> bool:
    return await condition(node, component) is HealthCondition.OK


async def ill(node: Node, component: str) -> bool:
    return await condition(node, component) is HealthCondition.ERROR


async def test_an_unexpected_error_of_the_worker_makes_the_worker_ill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as node:
        await wait_until(lambda: well(node, "worker"))
        with monkeypatch.context() as defect:
            defect.setattr(Worker, "step", lambda _: broken())
            node.check_soon()
            await wait_until(lambda: ill(node, "worker"))
        report = await node.observability.health.report()

    assert [one.name for one in report.components] == [
        "store",
        "ledger",
        "disk",
        "elector",
        "ticker",
        "tasks",
        "sandbox",
        "dispatcher",
        "worker",
        "reconciler",
        "deadlines",
        "gatherer",
        "announcer",
    ]


async def test_an_unexpected_error_of_the_clock_makes_the_clock_ill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.app.coordination.ClockSynchronizer.step", lambda _: broken())
    async with running(tmp_path) as node:
        await wait_until(lambda: ill(node, "clock"))


@pytest.mark.parametrize(
    ("service", "component"), [(AuditSealer, "sealer"), (RunRepairer, "mender"), (InvariantChecker, "warden")]
)
async def test_maintenance_services_are_ill_under_the_names_of_their_leases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: type[object], component: str
) -> None:
    monkeypatch.setattr(service, "step", lambda _: broken())
    async with running(tmp_path) as node:
        await wait_until(lambda: ill(node, component))
