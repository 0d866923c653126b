"""Open connections: how many there may be, in all and per address, and which one makes way for a new one."""

from collections import Counter
from collections.abc import Hashable
from enum import Enum
from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

from msgspec import Struct

_Connection = TypeVar("_Connection", bound=Hashable)
#: The bits of an IPv6 address that name the host: a single host usually has all addresses of its network.
_IPV6_HOST_BITS = 64


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """The largest number of connections, in all and from one address."""

    total: int
    per_address: int


class ConnectionLimit(Enum):
    """The limit that a new connection would exceed."""

    TOTAL = "total"
    PER_ADDRESS = "per_address"


class ConnectionTable(Generic[_Connection]):
    """The open connections. Those that wait for their client may be closed to admit a new one, the longest wait first.

    A client sends its request at once, so that a connection that waits for long is idle or holds a slot on purpose.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._groups: dict[_Connection, str | None] = {}
        self._sizes: Counter[str | None] = Counter()
        #: In the order in which they began to wait: all, and those of each address.
        self._waiting: dict[_Connection, None] = {}
        self._waiting_by_group: dict[str | None, dict[_Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def exceeded(self, address: str) -> ConnectionLimit | None:
        """The limit that one more connection from this address exceeds; None if there is a free slot."""
        group = address_group(address)
        if group is not None and self._sizes[group] >= self._limits.per_address:
            return ConnectionLimit.PER_ADDRESS
        return ConnectionLimit.TOTAL if len(self._groups) >= self._limits.total else None

    def longest_waiting(self, address: str | None = None) -> _Connection | None:
        """The connection that has waited for its client longest, of this address if one is given."""
        waiting = self._waiting if address is None else self._waiting_by_group.get(address_group(address), {})
        return next(iter(waiting), None)

    def add(self, connection: _Connection, address: str) -> None:
        """Add a connection; it waits for its client."""
        group = self._groups[connection] = address_group(address)
        self._sizes[group] += 1
        self.set_waiting(connection)

    def set_waiting(self, connection: _Connection) -> None:
        """Note that the connection begins to wait for its client; one that waits already keeps its place."""
        if connection in self._groups and connection not in self._waiting:
            self._waiting[connection] = None
            self._waiting_by_group.setdefault(self._groups[connection], {})[connection] = None

    def set_busy(self, connection: _Connection) -> None:
        """Note that the server works for the connection."""
        if connection in self._waiting:
            del self._waiting[connection]
            self._waiting_by_group[self._groups[connection]].pop(connection)

    def remove(self, connection: _Connection) -> None:
        """Remove a closed connection; nothing happens if that was done before."""
        self.set_busy(connection)
        if connection not in self._groups:
            return
        group = self._groups.pop(connection)
        self._sizes[group] -= 1
        if not self._sizes[group]:
            del self._sizes[group]
            self._waiting_by_group.pop(group, None)


def address_group(address: str) -> str | None:
    """The client that an address stands for: an IPv4 address or an IPv6 network.

    None for loopback: its connections come from many programs of this machine, or from a proxy for many clients.
    """
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_loopback:
        return None
    return f"{int(found) >> _IPV6_HOST_BITS:x}" if isinstance(found, IPv6Address) else str(found)
