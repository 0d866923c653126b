"""Lists and shows announcements, and tries those again that were given up."""

from collections.abc import Sequence

from gnomon.core.announcements.model import Announcement, AnnouncementState
from gnomon.core.jobs.fields import page_limit, printable, schedule_name
from gnomon.errors import NotFound, Refused
from gnomon.ports.announcements import AnnouncementPosition, AnnouncementQuery, Announcements
from gnomon.ports.runtime import Clock


class AnnouncementService:
    """Lists, shows and retries announcements."""

    def __init__(self, announcements: Announcements, clock: Clock) -> None:
        self._announcements = announcements
        self._clock = clock

    async def page(
        self,
        *,
        job: str | None = None,
        state: AnnouncementState | None = None,
        after: AnnouncementPosition | None = None,
        limit: int = 100,
        tenant: str = "default",
    ) -> Sequence[Announcement]:
        """Announcements, newest first."""
        page_limit(limit)
        tenant = schedule_name("tenant", tenant)
        query = AnnouncementQuery(tenant=tenant, job=job, state=state, after=after, limit=limit)
        return await self._announcements.page(query)

    async def by_prefix(self, prefix: str, *, limit: int, tenant: str = "default") -> Sequence[Announcement]:
        """The announcements whose ids begin with these characters, by id."""
        return await self._announcements.find_by_prefix(tenant, printable("prefix", prefix), limit=page_limit(limit))

    async def get(self, announcement_id: str, *, tenant: str = "default") -> Announcement:
        """The announcement; NotFound if there is none."""
        schedule_name("tenant", tenant)
        found = await self._announcements.find(tenant, printable("announcement", announcement_id))
        if found is None:
            raise NotFound("announcement", announcement_id)
        return found

    async def retry(self, announcement_id: str, *, actor: str, tenant: str = "default") -> Announcement:
        """Try an announcement again that was given up, from the part where it stopped; Refused if it was not."""
        printable("actor", actor)
        found = await self.get(announcement_id, tenant=tenant)
        if not await self._announcements.retry(tenant, announcement_id, actor=actor, now=self._clock.now()):
            state = found.state.value.replace("_", " ")
            raise Refused(f"announcement {announcement_id} is {state}: only one that was given up is tried again")
        return await self.get(announcement_id, tenant=tenant)
