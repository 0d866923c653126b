"""How often somebody may ask: a bucket that fills up as time goes by, and from which every request takes a drop."""

from msgspec import Struct


class Bucket(Struct, frozen=True):
    """How much is left, and when that was so."""

    drops: float
    #: In seconds of a clock that never goes back.
    elapsed: float


class Rate(Struct, frozen=True, kw_only=True):
    """How many requests a minute, and how many at once after a pause."""

    per_minute: int
    burst: int

    def taken(self, bucket: Bucket | None, *, elapsed: float) -> tuple[Bucket, float]:
        """The bucket after one more request, and for how many seconds it should have waited: 0 if it may pass."""
        per_second = self.per_minute / 60
        before = bucket or Bucket(float(self.burst), elapsed)
        drops = min(float(self.burst), before.drops + (elapsed - before.elapsed) * per_second)
        if drops >= 1:
            return Bucket(drops - 1, elapsed), 0.0
        return Bucket(drops, elapsed), (1 - drops) / per_second
