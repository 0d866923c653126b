"""Connections of clients to a server of this process."""

import asyncio
from collections.abc import Callable
from typing import Protocol


class ConnectionSlot(Protocol):
    """The place of one connection among those that may be open. The protocol of the connection reports its state."""

    def opened(self, transport: asyncio.WriteTransport) -> None:
        """The connection is established; aborting this transport ends it."""
        ...

    def waiting(self) -> None:
        """The server waits for the client, so that the connection may be closed in favour of another."""
        ...

    def busy(self) -> None:
        """The server works for the client."""
        ...

    def closed(self) -> None:
        """The connection is closed."""
        ...


ProtocolFactory = Callable[[ConnectionSlot], asyncio.Protocol]


class Acceptor(Protocol):
    """Accepts the connections of clients on listening sockets."""

    def start(self, protocol_for: ProtocolFactory) -> None:
        """Accept connections from now on; each gets a protocol of its own."""
        ...

    def close(self) -> None:
        """Stop accepting and close the listening sockets; established connections stay open."""
        ...

    async def wait_closed(self) -> None:
        """Wait until no connection is being established any more."""
        ...
