"""Pings: a URL is called when a run starts and ends, so that an external monitor notices when runs stop."""

from enum import StrEnum
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

_FIRST_DELAY_MS, _LONGEST_DELAY_MS = 1000, 60_000


class PingMoment(StrEnum):
    """The moment of a run at which a URL is called."""

    START = "start"
    SUCCESS = "success"
    FAILURE = "failure"


#: The suffix that each moment appends to the path of the URL.
PING_SUFFIXES = {PingMoment.START: "/start", PingMoment.SUCCESS: "", PingMoment.FAILURE: "/fail"}


class Ping(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The URL that a job pings, and when."""

    url: str
    on: tuple[PingMoment, ...] = (PingMoment.SUCCESS, PingMoment.FAILURE)

    def at(self, moment: PingMoment) -> str | None:
        """The URL to call at that moment; None if there is no call."""
        return append_url_suffix(self.url, PING_SUFFIXES[moment]) if moment in self.on else None


def append_url_suffix(url: str, suffix: str) -> str:
    """The URL with a suffix after its path, before the query."""
    path, mark, query = url.partition("?")
    return f"{path.rstrip('/') if suffix else path}{suffix}{mark}{query}"


def is_http_url(url: str) -> bool:
    """Whether it is a plain HTTP URL, without credentials, fragment or characters that could be misread as more."""
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return named and "@" not in parts.netloc and url.isascii() and url.isprintable() and not set(url) & set(" \\#")


#: Stands for the path and the query of a URL.
REDACTED_PATH = "/…"


def redacted_url(url: str) -> str:
    """The URL with its host only: anyone who knows a ping URL can ping."""
    try:
        parts = urlsplit(url)
        shown = urlunsplit((parts.scheme, parts.hostname or "", REDACTED_PATH, "", "")) if parts.hostname else "…"
    except ValueError:
        return "…"
    return shown if shown.isprintable() else "…"


def ping_retry_delay_ms(failures: int) -> int:
    """The delay before the next try after so many failures in a row."""
    return min(_FIRST_DELAY_MS << min(failures - 1, 16), _LONGEST_DELAY_MS)
