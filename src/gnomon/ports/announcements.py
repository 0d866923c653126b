"""Announcements in a store, and the channels that they are sent to. Every method of a store is one transaction."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.announcements.channels import ChannelTraits
from gnomon.core.announcements.model import Announcement, AnnouncementState
from gnomon.core.model import RunId

#: The position of an announcement in a listing: its creation time and its id.
AnnouncementPosition = tuple[int, str]


class AnnouncementQuery(Struct, frozen=True, kw_only=True):
    """A selection of announcements: all of a tenant, narrowed by the fields that are set."""

    tenant: str = "default"
    job: str | None = None
    state: AnnouncementState | None = None
    #: Only announcements that come after this position in the listing.
    after: AnnouncementPosition | None = None
    limit: int = 100


class Announcements(Protocol):
    """Reading announcements, and trying those again that were given up."""

    async def find(self, tenant: str, announcement_id: str) -> Announcement | None:
        """The announcement with that id, or None."""
        ...

    async def page(self, query: AnnouncementQuery) -> Sequence[Announcement]:
        """Announcements, newest first: by creation time, then by id."""
        ...

    async def find_by_prefix(self, tenant: str, prefix: str, *, limit: int) -> Sequence[Announcement]:
        """The announcements of the tenant whose ids begin with these characters, by id."""
        ...

    async def of_runs(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[Announcement]]:
        """The announcements of these runs, by id, for the runs that have any."""
        ...

    async def retry(self, tenant: str, announcement_id: str, *, actor: str, now: int) -> bool:
        """Make an announcement that was given up pending again, from the part where it stopped.

        False if there is none, or if it was not given up.
        """
        ...


class AnnouncementClaim(Struct, frozen=True, kw_only=True):
    """A request for announcements to send."""

    holder: str
    #: How many at most: in all, and of one channel.
    limit: int
    per_channel: int
    #: How long no other process gets them.
    claim_ms: int
    #: Channels that are not to be used now.
    without: Collection[str] = ()


class AnnouncementUpdate(Struct, frozen=True, kw_only=True):
    """The new state of an announcement, written only if its claim has not passed to another process."""

    announcement: Announcement
    #: For how long the claim goes on; 0 releases it.
    claim_ms: int = 0


class AnnouncementQueue(Protocol):
    """Pending announcements on their way to a channel. Claims are judged by the clock of the store."""

    async def claim(self, claim: AnnouncementClaim) -> Sequence[Announcement]:
        """Claim due announcements that no process has, fairly shared between tenants; their fences grow.

        An announcement waits for earlier ones of its job to the same recipient that are to be tried again.
        """
        ...

    async def update(self, updates: Sequence[AnnouncementUpdate], *, now: int) -> frozenset[str]:
        """Write these, and end the runs that waited for them; return the ids of those that were still claimed so."""
        ...

    async def give_up_stale(self, channel: str, *, since_before: int, note: str, limit: int, now: int) -> Sequence[str]:
        """Give up pending announcements to a channel that no process has and that wait since before an instant."""
        ...

    async def next_at(self) -> int | None:
        """When the next pending announcement is due; None if there is none."""
        ...


class ChannelMessage(Struct, frozen=True, kw_only=True):
    """One part of an announcement, as a channel gets it."""

    announcement: Announcement
    recipient: str
    text: str
    #: The number of the part from 1, and of all parts.
    part: int = 1
    parts: int = 1
    #: The time of this try, in milliseconds since 1970.
    now: int


class Channel(Protocol):
    """A configured channel."""

    @property
    def traits(self) -> ChannelTraits:
        """Its limits."""
        ...

    @property
    def timeout_ms(self) -> int:
        """How long one call of `send` may take."""
        ...

    @property
    def give_up_ms(self) -> int:
        """How long an announcement is tried."""
        ...

    def recipient_for(self, announcement: Announcement) -> str:
        """The recipient of the announcement; ChannelRefused if its tenant may not use the channel."""
        ...

    def readable(self, text: str) -> str:
        """The text as this channel gets it: nothing in it calls everybody."""
        ...

    async def send(self, message: ChannelMessage) -> None:
        """Send one message. ChannelFailed if a later try may help, ChannelRefused if not. No error holds a secret."""
        ...
