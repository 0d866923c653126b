"""A face and somebody who may do everything."""

from collections.abc import AsyncIterator

import pytest

from support.faces import Face, Somebody


@pytest.fixture
def face() -> Face:
    return Face()


@pytest.fixture
async def admin(face: Face) -> AsyncIterator[Somebody]:
    async with face.caller("admin") as somebody:
        yield somebody
    assert face.surprises == []
