"""Pings: an address is called when a run starts and ends, so that whoever watches it notices when nothing comes."""

from enum import StrEnum
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 1000, 60_000


class PingMoment(StrEnum):
    """When to call."""

    START = "start"
    SUCCESS = "success"
    FAILURE = "failure"


#: What is called for each: what stands behind the address.
PING_SUFFIXES = {PingMoment.START: "/start", PingMoment.SUCCESS: "", PingMoment.FAILURE: "/fail"}


class Ping(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job wants to have called."""

    url: str
    on: tuple[PingMoment, ...] = (PingMoment.SUCCESS, PingMoment.FAILURE)

    def at(self, moment: PingMoment) -> str | None:
        """The address to call then; None if it is not to be."""
        return append_url_suffix(self.url, PING_SUFFIXES[moment]) if moment in self.on else None


def append_url_suffix(url: str, ending: str) -> str:
    """The address with more behind its path, before whatever is asked there."""
    path, mark, query = url.partition("?")
    return f"{path.rstrip('/') if ending else path}{ending}{mark}{query}"


def is_http_url(url: str) -> bool:
    """Whether it can be called: nothing in it could be taken for more than an address."""
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return named and url.isascii() and url.isprintable() and " " not in url


def redacted_url(url: str) -> str:
    """The address without what makes it one's own: who knows a ping address can ping."""
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.hostname or "", "/…", "", "")) if parts.hostname else "…"
    except ValueError:
        return "…"


def ping_retry_delay_ms(failures: int) -> int:
    """How long to wait after so many failures in a row."""
    return min(_FIRST_PAUSE_MS << min(failures - 1, 16), _LONGEST_PAUSE_MS)
