"""`Dst`: the policy of a cron trigger for wall times that a clock change skips or repeats."""

from dataclasses import dataclass, fields
from typing import Literal, get_args

from gnomon.errors import CronError

Gap = Literal["next", "skip"]
Fold = Literal["first", "both"]
_CHOICES: dict[str, tuple[str, ...]] = {"gap": get_args(Gap), "fold": get_args(Fold)}


@dataclass(frozen=True, slots=True)
class Dst:
    """The policy for expressions that name times of day; others always follow elapsed time."""

    #: For a wall time that is skipped: fire at the `next` minute that exists, or `skip` it.
    gap: Gap = "next"
    #: For a wall time that comes twice: fire the `first` time, or `both` times.
    fold: Fold = "first"

    def __post_init__(self) -> None:
        for field in fields(self):
            value, choices = getattr(self, field.name), _CHOICES[field.name]
            if value not in choices:
                reason = f"must be {' or '.join(choices)}"
                raise CronError(str(value), field=f"dst.{field.name}", reason=reason, suggestion=choices[0])


def check_dst(dst: object) -> None:
    """Raise CronError unless `dst` is a Dst."""
    if not isinstance(dst, Dst):
        raise CronError(str(dst), field="dst", reason='must be a Dst, such as Dst(gap="skip")')
