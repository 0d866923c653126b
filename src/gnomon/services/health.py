"""How a node is, as an answer for those who ask."""

from gnomon.core.health import Report
from gnomon.core.instants import instant_of
from gnomon.core.responses import Component, HealthReport
from gnomon.version import __version__


def health_report(report: Report, *, messages: bool) -> HealthReport:
    """How a node is. Messages may say what is not for everybody."""
    return HealthReport(
        status=report.condition.value,
        version=__version__,
        ready=report.ready,
        alive=report.alive,
        checked_at=instant_of(report.at),
        components=[
            Component(
                component=one.name,
                status=one.condition.value,
                message=one.message if messages else "",
                since_at=instant_of(one.since_at),
            )
            for one in report.components
        ],
    )
