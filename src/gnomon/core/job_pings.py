"""What a job says about pings."""

import re
from typing import Any

from gnomon.core.pings import Moment, Ping, hidden, is_address
from gnomon.core.said import Said, printable
from gnomon.errors import FieldError

_SECRET = "${secret:"  # noqa: S105 - how one is named
_ONLY_A_SECRET = re.compile(r"\$\{secret:[^{}]+\}")


def read_ping(said: Said) -> Ping | None:
    """What a job says under `ping`: an address, or a mapping with one and when to call it."""
    if "ping" not in said:
        return None
    if isinstance(said["ping"], str):
        return Ping(url=_address(said.at("ping"), said["ping"]))
    fields = Said(said["ping"], ("url", "on"), path=said.at("ping"))
    return Ping(url=_address(fields.at("url"), fields.required("url")), on=_moments(fields))


def ping_as_data(ping: Ping) -> str | dict[str, Any]:
    """What says the same ping again."""
    if ping == Ping(url=ping.url):
        return ping.url
    return {"url": ping.url, "on": [moment.value for moment in ping.on]}


def address_as_told(url: str) -> str:
    """The address as anybody may read it: without what makes it one's own, unless a secret's name is all there is."""
    return url if _ONLY_A_SECRET.fullmatch(url) else hidden(url)


def _moments(said: Said) -> tuple[Moment, ...]:
    if "on" not in said:
        return Ping(url="").on
    if isinstance(said["on"], str):
        return (said.choice("on", Moment, Moment.SUCCESS),)
    moments = []
    for path, value in said.entries("on"):
        if value not in tuple(Moment):
            raise FieldError(path, value, f"must be one of {', '.join(Moment)}")
        moments.append(Moment(str(value)))
    if not moments or len(set(moments)) < len(moments):
        raise said.refused("on", "must name start, success or failure, each once")
    return tuple(moments)


def _address(field: str, value: object) -> str:
    url = printable(field, value)
    # What a secret holds is known when it is called.
    if not url.startswith(_SECRET) and not is_address(url):
        raise FieldError(field, hidden(url), "must be an address such as https://hc-ping.com/your-uuid")
    return url
