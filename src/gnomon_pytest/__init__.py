"""The plug-in for pytest: a `scheduler` on virtual time. Nothing of Gnomon is imported before a test asks for it."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gnomon.testing.scheduler import Scheduler

_MARK = "gnomon(jobs=None, start=None, timezone=None): jobs files, beginning and zone of the scheduler of this test"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The settings of a project: see docs/testing.md."""
    parser.addini("gnomon_jobs", "jobs files that every scheduler begins with", type="paths", default=[])
    parser.addini("gnomon_start", "the instant at which virtual time begins", default="")
    parser.addini("gnomon_timezone", "the zone of instants that name none", default="")


def pytest_configure(config: pytest.Config) -> None:
    """The mark is known."""
    config.addinivalue_line("markers", _MARK)


@pytest.fixture
def scheduler(request: pytest.FixtureRequest) -> "Scheduler":
    """A scheduler on virtual time, with the jobs that the settings and the mark `gnomon` name."""
    from gnomon.errors import UsageError
    from gnomon.testing.assertions import immediately
    from gnomon.testing.scheduler import START, Scheduler

    mark = request.node.get_closest_marker("gnomon")
    said = {"jobs": None, "start": None, "timezone": None} | (mark.kwargs if mark else {})
    config, folder = request.config, request.path.parent
    jobs = said["jobs"] if said["jobs"] is not None else config.getini("gnomon_jobs")
    try:
        made = Scheduler(
            said["start"] or config.getini("gnomon_start") or START,
            timezone=said["timezone"] or config.getini("gnomon_timezone") or "UTC",
            folder=folder,
        )
        for file in [jobs] if isinstance(jobs, str | Path) else jobs:
            immediately(made.load(file))
    except UsageError as error:
        pytest.fail(str(error), pytrace=False)
    return made
