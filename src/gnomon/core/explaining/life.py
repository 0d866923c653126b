"""A schedule's whole life: what it said when, when it was paused, and which ticks that made at any time."""

from collections.abc import Iterator

from msgspec import Struct

from gnomon.core.model import Schedule, Spec
from gnomon.core.ticks import Ticks

_FOREVER = 1 << 62


class Version(Struct, frozen=True, kw_only=True):
    """What a schedule said from some moment on."""

    revision: int
    spec: Spec
    from_at: int
    by: str


class Rest(Struct, frozen=True, kw_only=True):
    """A stretch in which it was paused; it goes on while `until_at` is None."""

    from_at: int
    by: str
    until_at: int | None = None
    ended_by: str | None = None


class Stretch(Struct, frozen=True):
    """The ticks of one version: planned after `after` and up to `until`."""

    version: Version
    ticks: Ticks
    after: int
    until: int


class Life(Struct, frozen=True, kw_only=True):
    """A schedule from its creation to now, or to its end."""

    #: As it is, or was at the end.
    schedule: Schedule
    #: Oldest first; there is at least one.
    versions: tuple[Version, ...]
    rests: tuple[Rest, ...] = ()
    deleted_at: int | None = None
    deleted_by: str = ""

    @property
    def paused(self) -> bool:
        """Whether it is paused now."""
        return self.deleted_at is None and self.schedule.paused_at is not None

    def version_at(self, at: int) -> Version:
        """What it said about a tick at that time; before its beginning, what it said first."""
        found = [one.version for one in self._stretches() if one.after < at <= one.until]
        return found[0] if found else self.versions[0 if at <= self.versions[0].from_at else -1]

    def version(self, revision: int) -> Version:
        """That revision, or the newest before it that is known."""
        return max((one for one in self.versions if one.revision <= revision), key=lambda one: one.revision)

    def next_version(self, version: Version) -> Version | None:
        """What it said after that."""
        return next((one for one in self.versions if one.revision > version.revision), None)

    def rest_at(self, at: int) -> Rest | None:
        """The pause that swallows a tick at that time."""
        found = (one for one in self.rests if one.from_at < at <= (_FOREVER if one.until_at is None else one.until_at))
        return next(found, None)

    def planned(self, first: int, last: int, *, most: int) -> list[int]:
        """The ticks planned from `first` up to `last`, oldest first, but no more than so many."""
        found: list[int] = []
        for stretch in self._stretches():
            at = max(first - 1, stretch.after)
            while len(found) < most and (tick := stretch.ticks.after(at)) is not None:
                if tick > min(last, stretch.until):
                    break
                found.append(tick)
                at = tick
        return found

    def before(self, at: int) -> int | None:
        """The last tick planned before that time."""
        for stretch in reversed(list(self._stretches())):
            found = stretch.ticks.up_to(min(at - 1, stretch.until))
            if found is not None and found > stretch.after:
                return found
        return None

    def after(self, at: int) -> int | None:
        """The first tick planned after that time."""
        for stretch in self._stretches():
            if stretch.until > at:
                found = stretch.ticks.after(max(at, stretch.after))
                if found is not None and found <= stretch.until:
                    return found
        return None

    def _stretches(self) -> Iterator[Stretch]:
        ends = [*(one.from_at for one in self.versions[1:]), _FOREVER if self.deleted_at is None else self.deleted_at]
        for version, until in zip(self.versions, ends, strict=True):
            yield Stretch(version, Ticks(self.schedule.schedule_id, version.spec), version.from_at, until)
