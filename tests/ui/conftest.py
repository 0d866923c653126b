"""A dashboard with one job."""

from collections.abc import AsyncIterator

import pytest

from support.dashboard import DashboardFixture


@pytest.fixture
async def dashboard() -> AsyncIterator[DashboardFixture]:
    made = DashboardFixture()
    async with made.caller("admin") as admin:
        await admin.registered()
    yield made
    assert made.unhandled_errors == []
