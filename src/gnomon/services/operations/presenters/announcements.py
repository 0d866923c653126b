"""Presents announcements."""

from collections.abc import Sequence

from gnomon.core.announcements.model import Announcement, AnnouncementState
from gnomon.core.instants import instant_of
from gnomon.core.responses.announcements import AnnouncementSummary
from gnomon.services.operations.presenters.common import optional_instant

#: The worst first: an execution shows the worst state of its announcements.
_WORST_FIRST = (
    AnnouncementState.GIVEN_UP,
    AnnouncementState.PENDING,
    AnnouncementState.SENT,
    AnnouncementState.SILENT,
)


def announced_state(announcements: Sequence[Announcement]) -> str | None:
    """Whether all of these were announced, or what the worst of them is; None if there are none."""
    states = {one.state for one in announcements}
    return next((state.value for state in _WORST_FIRST if state in states), None)


def announcement_summary(one: Announcement) -> AnnouncementSummary:
    """An announcement."""
    return AnnouncementSummary(
        announcement_id=one.announcement_id,
        job=one.job,
        execution_id=one.run_id,
        planned_at=instant_of(one.planned_at),
        moment=one.moment.value,
        channel=one.channel,
        to=one.recipient,
        best_effort=one.best_effort,
        state=one.state.value,
        parts_sent=one.parts_sent,
        tries=one.tries,
        next_try_at=None if one.over else instant_of(one.next_at),
        created_at=instant_of(one.created_at),
        ended_at=optional_instant(one.ended_at),
        note=one.note,
    )
