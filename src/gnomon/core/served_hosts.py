"""The Host header of requests: its syntax, and which hosts the server answers for.

A page whose name an attacker resolves to the address of this server (DNS rebinding) is refused by its name: a browser
sends that name as the Host, and a page cannot change it. Addresses cannot be rebound: every address is accepted.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address

from gnomon.errors import FieldError

#: A name or an IPv4 address, or an IPv6 address in brackets; then a port.
_HOST = re.compile(rb"(?:(?P<name>[A-Za-z0-9._-]{1,255})|\[(?P<ipv6>[0-9A-Fa-f:.]{2,45})\])(?::[0-9]{1,5})?")
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
#: In `server.hosts`: every name is accepted.
_EVERY_NAME = "*"
#: The number of accepted Host headers that are remembered.
_MAX_REMEMBERED = 1000


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach an address, or a name that always stands for one."""
    return _is_loopback_name(host.lower()) or _is_loopback_address(host)


def _is_loopback_name(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")


def _is_loopback_address(text: str) -> bool:
    try:
        return ip_address(text).is_loopback
    except ValueError:
        return False


def host_of(header: bytes) -> str | None:
    """The host of a Host header in lower case, without its port; None if the header is malformed."""
    found = _HOST.fullmatch(header)
    if found is None:
        return None
    if found["ipv6"] is None:
        return found["name"].decode().lower().removesuffix(".") or None
    try:
        return str(IPv6Address(found["ipv6"].decode()))
    except ValueError:
        return None


class ServedHosts:
    """Which Host headers are accepted: every address, the names of loopback, and the configured names.

    A server that other machines can reach accepts every name unless some are configured: it requires tokens, which a
    page of another site does not have, and it cannot know its names.
    """

    def __init__(self, names: Iterable[str], *, bound_to: str) -> None:
        self._names = frozenset(map(_checked_name, names))
        self._every_name = _EVERY_NAME in self._names or not (self._names or is_loopback(bound_to))
        self._accepted: set[bytes] = set()

    def accepts(self, header: bytes) -> bool:
        """Whether a Host header is well-formed and names a host that the server answers for."""
        if header in self._accepted:
            return True
        host = host_of(header)
        if host is None or not (self._every_name or host in self._names or _is_address(host) or is_loopback(host)):
            return False
        if len(self._accepted) < _MAX_REMEMBERED:
            self._accepted.add(header)
        return True


def _checked_name(name: str) -> str:
    lowered = name.lower().removesuffix(".")
    if lowered != _EVERY_NAME and not _NAME.fullmatch(lowered):
        raise FieldError(
            "server.hosts", name, "is not a host name; write it without scheme and port, or * for every one"
        )
    return lowered


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
