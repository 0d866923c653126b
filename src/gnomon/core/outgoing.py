"""Outgoing requests: which addresses are public, and which others a configuration allows.

A job of any tenant can name a URL that the server calls. The server stands inside a network that the tenant may not
reach, so only public addresses are called unless the administrator lists others.

`ipaddress` calls several addresses global that lead inside (NAT64, 6to4, IPv4-compatible ones), and its answers
change with the version of Python. The networks are therefore listed here.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from gnomon.errors import AddressRefused, FieldError

Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network

_METADATA, _LINK_LOCAL = "metadata", "link-local"
_V4_NETWORKS: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        # Alibaba Cloud, and Azure, where the address looks public.
        ("100.100.100.200/32", _METADATA),
        ("168.63.129.16/32", _METADATA),
        ("100.64.0.0/10", "shared"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.169.254/32", _METADATA),
        ("169.254.0.0/16", _LINK_LOCAL),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_V6_NETWORKS: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(network), kind)
    for network, kind in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "private"),
        ("fd00:ec2::254/128", _METADATA),
        ("fc00::/7", "private"),
        ("fe80::/10", _LINK_LOCAL),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
        # Teredo, benchmarks and other protocols; no server is there.
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
    )
)
#: All other IPv6 addresses outside of this network are not assigned.
_GLOBAL_V6 = IPv6Network("2000::/3")
#: Networks whose addresses hold an IPv4 address, and how many bits are behind it.
_EMBEDDING: tuple[tuple[IPv6Network, int], ...] = (
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("::/96"), 0),
    (IPv6Network("2002::/16"), 80),
)
#: Ports of protocols that a crafted HTTP request could be mistaken for.
_OTHER_PROTOCOLS = frozenset((21, 22, 23, 25, 53, 110, 111, 143, 389, 445, 465, 587, 993, 995)) | frozenset(
    (2049, 2379, 3306, 4222, 5432, 5672, 6379, 9042, 11211, 27017)
)
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.(?!-)[A-Za-z0-9_-]{1,63})*\.?")
_NUMERIC = re.compile(r"[0-9.]+")


def embedded_address(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for; otherwise the address itself."""
    if isinstance(address, IPv6Address) and address not in (IPv6Address("::"), IPv6Address("::1")):
        for network, bits in _EMBEDDING:
            if address in network:
                return IPv4Address((int(address) >> bits) & 0xFFFFFFFF)
    return address


def internal_kind(address: Address) -> str | None:
    """The kind of an address that is not public, such as `loopback`; None for a public one."""
    found = embedded_address(address)
    if isinstance(found, IPv4Address):
        return next((kind for network, kind in _V4_NETWORKS if found in network), None)
    listed = next((kind for network, kind in _V6_NETWORKS if found in network), None)
    return listed or (None if found in _GLOBAL_V6 else "reserved")


class AllowedHosts:
    """The host names, addresses and networks that outgoing requests may reach although they are not public."""

    def __init__(self, entries: Sequence[str], *, field: str) -> None:
        """FieldError names the first entry that is none of these; `field` is the setting that holds them."""
        self._field = field
        self._names: set[str] = set()
        self._networks: list[_Network] = []
        for entry in entries:
            network = _as_network(entry)
            if network is not None:
                self._networks.append(network)
            elif _HOST_NAME.fullmatch(entry) and not _NUMERIC.fullmatch(entry):
                self._names.add(_normalized(entry))
            else:
                raise FieldError(field, entry, "must be a host name, an address or a network such as 10.0.0.0/8")

    def check(self, host: str, address: Address, port: int) -> None:
        """AddressRefused unless the address, which the host name or literal leads to, is public or allowed.

        The error names neither host nor address: a secret may have been filled into the URL.
        """
        if self._allows(host, address):
            return
        kind = internal_kind(address)
        if kind is not None:
            article = "an" if kind[0] in "aeiou" else "a"
            raise AddressRefused(f"it leads to {article} {kind} address, which {self._field} does not list")
        if port in _OTHER_PROTOCOLS:
            raise AddressRefused(f"port {port} is not one of HTTP, and {self._field} does not list the host")

    def _allows(self, host: str, address: Address) -> bool:
        found = embedded_address(address)
        if any(one in network for network in self._networks for one in (address, found)):
            return True
        # The name server decides where a name leads. These addresses give out the credentials of the machine.
        return _normalized(host) in self._names and internal_kind(address) not in (_METADATA, _LINK_LOCAL)


class AnyHost:
    """Allows every address: for URLs that the administrator has written into the configuration."""

    def check(self, host: str, address: Address, port: int) -> None:
        """See AllowedHosts.check."""


def _as_network(entry: str) -> _Network | None:
    try:
        return ip_network(entry.strip("[]"))
    except ValueError:
        return None


def _normalized(host: str) -> str:
    return host.lower().rstrip(".")


def parse_address(text: str) -> Address:
    """The address in numeric form, without a zone; AddressRefused if it is none."""
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        raise AddressRefused("it leads to no IP address") from None
