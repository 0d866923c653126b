"""Leases in NATS: one message per key, which the server removes when its time to live is over.

Acquiring and renewing is a single publish that names the expected last message of the subject (compare-and-set). The
sequence of the new message is the fencing token. The client's own key-value functions would lose the time to live, and
fail on markers of expired messages.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from gnomon.adapters.nats.connection import NatsUnavailable, connect
from gnomon.config.sections import NatsSettings
from gnomon.core.leases import LONGEST_MS, checked_key, checked_ttl
from gnomon.core.model import SECOND_MS
from gnomon.core.runs.job_lock import RunLock, key_token
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
#: Errors: another message was the last one on the subject.
_OTHERS = (10071, 10164)
_NO_STREAM = 10059
#: How long the marker of an expired lease stays for watchers, in seconds.
_MARKER_SECONDS = 1.0


class _NoBucket(Exception):
    """The bucket does not exist, or was deleted together with all leases."""


class NatsLeases:
    """Leases in a key-value bucket of NATS; and the locks of jobs, for other programs to see."""

    #: The sequence of a stream grows as long as the bucket exists.
    ordered = True

    def __init__(self, client: "Client", settings: NatsSettings) -> None:
        self._client = client
        self._settings = settings
        self._stream = client.jetstream(timeout=settings.timeout_ms / 1000)
        #: The owner of each lease held here, by token: a renewal writes it again, for people who inspect the bucket.
        self._owners: dict[int, bytes] = {}
        #: The sequence of each lock of a job that was published here.
        self._locks: dict[RunLock, int] = {}

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
            raise NatsUnavailable("the bucket of leases does not exist although it was created") from error

    async def renew(self, key: str, token: int, *, ttl_ms: int) -> int | None:
        """See Leases.renew."""
        subject, span = _subject(key), checked_ttl(ttl_ms)
        owner = self._owners.get(token, b"")
        try:
            renewed = await self._put(subject, owner, span, token)
        except _NoBucket:
            renewed = None
        # Only now: if the request fails, the lease may still be held.
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

    async def publish(self, lock: RunLock) -> None:
        """See PublishedLocks.publish."""
        subject, body, span = f"$KV.{BUCKET}.{lock.published_key}", lock.body(), min(lock.ttl_ms, LONGEST_MS)
        try:
            written = await self._put(subject, body, span, None)
        except _NoBucket:
            await self._make_bucket()
            written = await self._put(subject, body, span, None)
        if written is not None:
            self._locks[lock] = written

    async def withdraw(self, lock: RunLock) -> None:
        """See PublishedLocks.withdraw."""
        written = self._locks.pop(lock, None)
        if written is not None:
            with suppress(_NoBucket):
                await self._put(f"$KV.{BUCKET}.{lock.published_key}", b"", SECOND_MS, written, operation=_DELETE)

    async def _acquire(self, subject: str, owner: bytes, span: int) -> int | None:
        token = await self._put(subject, owner, span, _NOTHING)
        if token is None:
            # The lease is held, or the marker of the last one is still there; the new message must follow the marker.
            left = await self._marker(subject)
            token = None if left is None else await self._put(subject, owner, span, left)
        return self._owned(token, owner)

    def _owned(self, token: int | None, owner: bytes) -> int | None:
        if token is not None:
            self._owners[token] = owner
        return token

    async def _put(self, subject: str, value: bytes, span: int, last: int | None, *, operation: str = "") -> int | None:
        """The sequence of the new message; None if another one than `last` was the last on the subject.

        Without `last` it replaces any.
        """
        from nats.errors import Error
        from nats.js.errors import APIError, NoStreamResponseError

        headers = ({} if last is None else {_EXPECTED: str(last)}) | ({_OPERATION: operation} if operation else {})
        self._require_connection()
        try:
            # Whole seconds, rounded up: a lease must not end before its holder expects it.
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

    async def _marker(self, subject: str) -> int | None:
        """The sequence that the next lease must follow: the marker of the last one or 0; None if it is held."""
        from nats.errors import Error
        from nats.js.errors import NotFoundError

        self._require_connection()
        try:
            # From the leader of the stream: a follower may lag behind.
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

        self._require_connection()
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

    def _require_connection(self) -> None:
        """Fail at once: without a connection, a request would wait for its whole timeout."""
        if not self._client.is_connected:
            raise NatsUnavailable("not connected to NATS")


def _subject(key: str) -> str:
    """The subject of the lease. The keys of locks have dots, those of leases have none."""
    return f"$KV.{BUCKET}.{key_token(checked_key('key', key))}"


class LazyNatsLeases:
    """NatsLeases on a connection of its own, which is opened on first use."""

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

    async def publish(self, lock: RunLock) -> None:
        """See PublishedLocks.publish."""
        await (await self._leases()).publish(lock)

    async def withdraw(self, lock: RunLock) -> None:
        """See PublishedLocks.withdraw."""
        await (await self._leases()).withdraw(lock)

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.close()

    async def _leases(self) -> NatsLeases:
        async with self._connecting:
            if self._client is None:
                self._client = await connect(self._settings, self._events, name="gnomon-leases")
                self._opened = NatsLeases(self._client, self._settings)
            return self._opened
