"""The pytest plugin: the fixture `scheduler` on virtual time. It imports Gnomon only when a test uses the fixture."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gnomon.testing.scheduler import VirtualScheduler

_MARK = "gnomon(jobs=None, start=None, timezone=None): jobs files, start and time zone of the scheduler of this test"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings of a project: see docs/testing.md."""
    parser.addini("gnomon_jobs", "jobs files that every scheduler loads", type="paths", default=[])
    parser.addini("gnomon_start", "the instant at which virtual time starts", default="")
    parser.addini("gnomon_timezone", "the time zone of instants without one", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", _MARK)


@pytest.fixture
def scheduler(request: pytest.FixtureRequest) -> "VirtualScheduler":
    """A scheduler on virtual time, with the jobs that the settings and the mark `gnomon` name."""
    from gnomon.errors import UsageError
    from gnomon.testing.assertions import immediately
    from gnomon.testing.scheduler import START, VirtualScheduler

    mark = request.node.get_closest_marker("gnomon")
    options = {"jobs": None, "start": None, "timezone": None} | (mark.kwargs if mark else {})
    config, folder = request.config, request.path.parent
    jobs = options["jobs"] if options["jobs"] is not None else config.getini("gnomon_jobs")
    try:
        made = VirtualScheduler(
            options["start"] or config.getini("gnomon_start") or START,
            timezone=options["timezone"] or config.getini("gnomon_timezone") or "UTC",
            folder=folder,
        )
        for file in [jobs] if isinstance(jobs, str | Path) else jobs:
            immediately(made.load(file))
    except UsageError as error:
        pytest.fail(str(error), pytrace=False)
    return made
