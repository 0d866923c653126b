"""Every test of the scheduler ends with the theory: whatever happened in its worlds is judged."""

from collections.abc import Callable, Iterator

import pytest

from support.declared import World


@pytest.fixture
def new_world() -> Iterator[Callable[..., World]]:
    """Makes worlds, and has the theory judge them when the test is over."""
    made: list[World] = []

    def make(at: str = "2026-03-02T12:00:00", zone: str = "UTC") -> World:
        made.append(World(at, zone))
        return made[-1]

    yield make
    assert [world.violations() for world in made] == [[]] * len(made)


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """Monday noon in UTC."""
    return new_world()
