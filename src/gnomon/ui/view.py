"""How the reader of pages wants to see them: the time zone of moments, and the theme. A cookie keeps it."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Literal, Self, cast, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from gnomon.errors import FieldError

Theme = Literal["auto", "light", "dark"]
ZoneChoice = Literal["utc", "job", "mine"]
_UTC = "UTC"
#: A cookie has no slashes, and its parts are between points.
_SLASH, _POINT = "~", "."


class ReaderView(Struct, frozen=True, kw_only=True):
    """The time zone and the theme that a reader has chosen."""

    theme: Theme = "auto"
    #: UTC, the zone of each job, or `own_zone`.
    zone_choice: ZoneChoice = "utc"
    own_zone: str = ""

    @classmethod
    def from_cookie(cls, text: str) -> Self:
        """The view that a cookie keeps; the default one if it keeps none."""
        with suppress(FieldError, ValueError):
            theme, choice, own = text.split(_POINT, 2)
            return cls.from_form({"theme": theme, "zone": choice, "own_zone": own.replace(_SLASH, "/")})
        return cls()

    @classmethod
    def from_form(cls, form: Mapping[str, str]) -> Self:
        """The view that a form asks for; FieldError if it names something unknown."""
        theme, choice, own = form.get("theme", "auto"), form.get("zone", _UTC).lower(), form.get("own_zone", "").strip()
        if theme not in get_args(Theme):
            raise FieldError("theme", theme, f"is none of {', '.join(get_args(Theme))}")
        if choice not in get_args(ZoneChoice):
            raise FieldError("zone", choice, f"is none of {', '.join(get_args(ZoneChoice))}")
        if choice == "mine" or own:
            _check_zone(own)
        return cls(theme=cast("Theme", theme), zone_choice=cast("ZoneChoice", choice), own_zone=own)

    def as_cookie(self) -> str:
        """The text that keeps this view."""
        return _POINT.join((self.theme, self.zone_choice, self.own_zone.replace("/", _SLASH)))

    @property
    def zone(self) -> str:
        """The zone of moments that belong to no job."""
        return self.own_zone if self.zone_choice == "mine" else _UTC

    @property
    def zone_name(self) -> str:
        """The choice as the page shows it."""
        return "Zone of the job" if self.zone_choice == "job" else self.zone

    def zone_for(self, of_job: str) -> str:
        """The zone of moments of a job with that zone."""
        return of_job if self.zone_choice == "job" else self.zone


def _check_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise FieldError("own_zone", name, "is no time zone, such as Europe/Berlin") from None
