"""The page of the ledger: the decisions on ticks of all jobs in one order of time."""

import re

import pytest

from gnomon.core.model import MINUTE_MS
from support.dashboard import DashboardFixture

_ROW = re.compile(r'(?s)<tr><td><a href="/ui/why\?job=([a-z]+)&amp;at=([^"]+)"')


@pytest.mark.req("H-25")
async def test_the_ledger_shows_the_ticks_of_all_jobs_in_one_order_of_time(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as admin:
        for name, minutes in (("five", 5), ("ten", 10)):
            await admin.registered(name=name, schedule=f"*/{minutes} * * * *", overlap="skip")
        for _ in range(4):
            dashboard.clock.advance(5 * MINUTE_MS)
            await dashboard.decide()
        listed = (await admin.get("/v1/ticks")).json()["items"]
    async with dashboard.visitor("viewer") as viewer:
        rows = _ROW.findall((await viewer.get("/ui/ticks")).text)

    assert [name for name, _ in rows] == [one["job"] for one in listed]
    assert [one["planned_at"] for one in listed] == sorted((one["planned_at"] for one in listed), reverse=True)
    assert sorted(name for name, _ in rows) == ["five"] * 4 + ["ten"] * 2
    assert {name for name, _ in rows[:2]} == {name for name, _ in rows[3:5]} == {"five", "ten"}
