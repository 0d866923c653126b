"""Every test of the scheduler ends with the theory: whatever happened in its worlds is judged."""

from collections.abc import Callable, Iterator

import pytest

from support.declarative_world import DeclarativeWorld


@pytest.fixture
def new_world() -> Iterator[Callable[..., DeclarativeWorld]]:
    """Makes worlds, and has the theory judge them when the test is over."""
    made: list[DeclarativeWorld] = []

    def make(at: str = "2026-03-02T12:00:00", zone: str = "UTC") -> DeclarativeWorld:
        made.append(DeclarativeWorld(at, zone))
        return made[-1]

    yield make
    assert [world.violations() for world in made] == [[]] * len(made)


@pytest.fixture
def world(new_world: Callable[..., DeclarativeWorld]) -> DeclarativeWorld:
    """Monday noon in UTC."""
    return new_world()
