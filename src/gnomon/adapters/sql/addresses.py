"""Addresses of database servers, as people write them and as other programs print them."""

from typing import Any
from urllib.parse import urlencode

import sqlalchemy as sa

from gnomon.errors import UsageError

_SHAPE = "postgresql://USER:PASSWORD@HOST:PORT/NAME"
_LAST_PORT = 65_535
_TLS = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
#: What other clients do with a connection, and ours does in its own way or not at all.
_OF_OTHERS = frozenset(
    {
        "channel_binding",
        "connect_timeout",
        "fallback_application_name",
        "gssencmode",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "tcp_user_timeout",
    }
)


def server_address(url: str) -> tuple[sa.URL, dict[str, Any]]:
    """Where a server is, and what its driver is told besides: all that stands behind the question mark.

    UsageError if it cannot be meant. What was written is not repeated, as there may be a password in it.
    """
    try:
        found = sa.make_url(url).set(drivername="postgresql+asyncpg")
    except (ValueError, sa.exc.ArgumentError):
        raise UsageError(f"the address of the database cannot be read: it looks like {_SHAPE}") from None
    if found.port is not None and not 0 < found.port <= _LAST_PORT:
        raise UsageError(f"the address of the database names a port that there is not: {found.port}")
    said = {name: value if isinstance(value, str) else value[-1] for name, value in found.query.items()}
    _check(said)
    told = {name: value for name, value in said.items() if value and name not in _OF_OTHERS}
    # The driver reads them itself: TLS as everybody spells it, and settings of the server.
    return found.set(query={}), {"dsn": f"postgresql://?{urlencode(told)}"} if told else {}


def _check(said: dict[str, str]) -> None:
    if said.get("sslmode", _TLS[0]) not in _TLS:
        raise UsageError(f"the address of the database: sslmode must be one of {', '.join(_TLS)}")
    if said.get("channel_binding") == "require":
        raise UsageError("the address of the database: channel_binding=require cannot be had; sslmode=verify-full can")
