"""An API fixture and a caller with the role admin."""

from collections.abc import AsyncIterator

import pytest

from support.api_fixture import ApiCaller, ApiFixture


@pytest.fixture
def api_setup() -> ApiFixture:
    return ApiFixture()


@pytest.fixture(scope="module")
def shared_setup() -> ApiFixture:
    """One for all tests of a module whose requests are refused or only read."""
    return ApiFixture()


@pytest.fixture
async def shared_admin(shared_setup: ApiFixture) -> AsyncIterator[ApiCaller]:
    async with shared_setup.caller("admin") as somebody:
        yield somebody
    assert shared_setup.unhandled_errors == []


@pytest.fixture
async def admin(api_setup: ApiFixture) -> AsyncIterator[ApiCaller]:
    async with api_setup.caller("admin") as somebody:
        yield somebody
    assert api_setup.unhandled_errors == []
