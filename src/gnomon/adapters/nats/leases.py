"""Leases in NATS: one message a key, which the server lets go by itself.

To take or renew one is a single publish that says which message must have been the last on the subject. The sequence of
the new one is the token. The client's own functions for keys would lose the time to live, and stumble over markers.
"""

import asyncio
from typing import TYPE_CHECKING

from gnomon.adapters.nats.connection import NatsUnavailable, connect
from gnomon.config.sections import NatsSettings
from gnomon.core.leases import checked_key, checked_ttl
from gnomon.core.model import SECOND_MS
from gnomon.ports.runtime import Events

if TYPE_CHECKING:
    from nats.aio.client import Client

BUCKET = "gnomon_leases"
_STREAM = f"KV_{BUCKET}"
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_OPERATION, _MARKER = "KV-Operation", "Nats-Marker-Reason"
_DELETE, _GONE = "DEL", ("DEL", "PURGE")
#: The sequence before the first message.
_NOTHING = 0
#: Another message was the last one on the subject.
_OTHERS = (10071, 10164)
_NO_STREAM = 10059
#: How long those who watch can see that a lease has ended, in seconds.
_MARKER_SECONDS = 1.0
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


class _NoBucket(Exception):
    """The bucket is not there, or not there any more, and with it all leases."""


class NatsLeases:
    """Implements Leases."""

    #: As long as the bucket is there.
    ordered = True

    def __init__(self, client: "Client", settings: NatsSettings) -> None:
        self._client = client
        self._settings = settings
        self._stream = client.jetstream(timeout=settings.timeout_ms / 1000)
        #: Who holds what we hold, by token, so that those who look at the bucket can read it also after a renewal.
        self._owners: dict[int, bytes] = {}

    async def acquire(self, key: str, owner: str, *, ttl_ms: int) -> int | None:
        """See Leases.acquire."""
        subject, value, span = _subject(key), checked_key("owner", owner).encode(), checked_ttl(ttl_ms)
        try:
            return await self._acquire(subject, value, span)
        except _NoBucket:
            await self._make_bucket()
        try:
            return await self._acquire(subject, value, span)
        except _NoBucket as error:
            raise NatsUnavailable("the bucket of leases is not there although it was made") from error

    async def renew(self, key: str, token: int, *, ttl_ms: int) -> int | None:
        """See Leases.renew."""
        subject, span = _subject(key), checked_ttl(ttl_ms)
        owner = self._owners.get(token, b"")
        try:
            renewed = await self._put(subject, owner, span, token)
        except _NoBucket:
            renewed = None
        # Only now: if nobody answers, it may still be ours.
        self._owners.pop(token, None)
        return self._owned(renewed, owner)

    async def release(self, key: str, token: int) -> bool:
        """See Leases.release."""
        subject = _subject(key)
        self._owners.pop(token, None)
        try:
            return await self._put(subject, b"", SECOND_MS, token, operation=_DELETE) is not None
        except _NoBucket:
            return False

    async def _acquire(self, subject: str, owner: bytes, span: int) -> int | None:
        token = await self._put(subject, owner, span, _NOTHING)
        if token is None:
            # Someone has it, or what is left of the last lease is still there: then that is what was the last.
            left = await self._left(subject)
            token = None if left is None else await self._put(subject, owner, span, left)
        return self._owned(token, owner)

    def _owned(self, token: int | None, owner: bytes) -> int | None:
        if token is not None:
            self._owners[token] = owner
        return token

    async def _put(self, subject: str, value: bytes, span: int, last: int, *, operation: str = "") -> int | None:
        """The sequence of the new message; None if another one than `last` was the last on the subject."""
        from nats.errors import Error
        from nats.js.errors import APIError, NoStreamResponseError

        headers = {_EXPECTED: str(last)} | ({_OPERATION: operation} if operation else {})
        self._refuse_if_away()
        try:
            # Whole seconds: rounded up, because a lease that ends before its holder knows is worse than one too long.
            put = await self._stream.publish(subject, value, msg_ttl=-(-span // SECOND_MS), headers=headers)
        except NoStreamResponseError as error:
            raise _NoBucket from error
        except APIError as error:
            if error.err_code in _OTHERS:
                return None
            raise NatsUnavailable(f"NATS: {error!r}") from error
        except (OSError, Error) as error:
            raise NatsUnavailable(f"NATS: {error!r}") from error
        return put.seq

    async def _left(self, subject: str) -> int | None:
        """What the next lease must come after: the marker of the last one, or nothing; None if someone has it."""
        from nats.errors import Error
        from nats.js.errors import NotFoundError

        self._refuse_if_away()
        try:
            # From the leader of the stream: a follower may not have heard of it yet.
            found = await self._stream.get_msg(_STREAM, subject=subject)
        except NotFoundError as error:
            if error.err_code == _NO_STREAM:
                raise _NoBucket from error
            return _NOTHING
        except (OSError, Error) as error:
            raise NatsUnavailable(f"NATS: {error!r}") from error
        headers = found.headers or {}
        over = _MARKER in headers or headers.get(_OPERATION) in _GONE
        return found.seq if over else None

    async def _make_bucket(self) -> None:
        from nats.errors import Error
        from nats.js.api import StorageType

        self._refuse_if_away()
        try:
            await self._stream.create_key_value(
                bucket=BUCKET,
                history=1,
                limit_marker_ttl=_MARKER_SECONDS,
                replicas=self._settings.replicas,
                storage=StorageType(self._settings.storage),
            )
        except (OSError, Error) as error:
            raise NatsUnavailable(f"NATS: {error!r}") from error

    def _refuse_if_away(self) -> None:
        """Whoever asks while there is no connection would wait for as long as an answer may take."""
        if not self._client.is_connected:
            raise NatsUnavailable("NATS is away")


def _subject(key: str) -> str:
    """Where the lease is kept. Whatever could mean something in a subject is written as its number."""
    plain = "".join(chr(one) if one in _PLAIN else f"={one:02X}" for one in checked_key("key", key).encode())
    return f"$KV.{BUCKET}.{plain}"


class LazyNatsLeases:
    """The same on a connection of its own, which is made when it is first needed."""

    ordered = True

    def __init__(self, settings: NatsSettings, events: Events) -> None:
        self._settings = settings
        self._events = events
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def acquire(self, key: str, owner: str, *, ttl_ms: int) -> int | None:
        """See Leases.acquire."""
        return await (await self._leases()).acquire(key, owner, ttl_ms=ttl_ms)

    async def renew(self, key: str, token: int, *, ttl_ms: int) -> int | None:
        """See Leases.renew."""
        return await (await self._leases()).renew(key, token, ttl_ms=ttl_ms)

    async def release(self, key: str, token: int) -> bool:
        """See Leases.release."""
        return await (await self._leases()).release(key, token)

    async def close(self) -> None:
        """Nobody is connected any more."""
        if self._client is not None:
            await self._client.close()

    async def _leases(self) -> NatsLeases:
        async with self._connecting:
            if self._client is None:
                self._client = await connect(self._settings, self._events, name="gnomon-leases")
                self._kept = NatsLeases(self._client, self._settings)
            return self._kept
