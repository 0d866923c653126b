"""An API fixture and a caller with the role admin."""

from collections.abc import AsyncIterator

import pytest

from support.api_fixture import ApiCaller, ApiFixture


@pytest.fixture
def api_setup() -> ApiFixture:
    return ApiFixture()


@pytest.fixture
async def admin(api_setup: ApiFixture) -> AsyncIterator[ApiCaller]:
    async with api_setup.caller("admin") as somebody:
        yield somebody
    assert api_setup.unhandled_errors == []
