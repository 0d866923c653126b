"""Where the keys of an issuer come from: an address, a file."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from gnomon.adapters.token_keys import KeyRing, key_ring
from gnomon.core.access import Auth
from gnomon.core.key_cache import Fetching, counts, worth_a_fetch
from gnomon.errors import FileError, IssuerUnavailable
from gnomon.ports.runtime import Clock, Events

_LARGEST_SET = 2**20
_CHUNK = 65_536
#: How often a file is looked at, in seconds.
_LOOK_SECONDS = 1.0


class KeySource(Protocol):
    """The keys of an issuer, as far as they are known."""

    async def ring(self, kid: str | None, algorithm: str) -> KeyRing:
        """The keys, which may have been fetched anew if none fits; IssuerUnavailable if there are none to be had."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...


class FetchedKeys:
    """The keys at an address.

    They are kept, and fetched again when they are old or a token names another; but not more often than
    `auth.refetch`, whatever tokens name. While the issuer is away, those that we have go on counting for a while.
    Nobody whose key is known waits for a fetch.
    """

    def __init__(self, url: str, settings: Auth, clock: Clock, events: Events) -> None:
        self._url = url
        self._settings = settings
        self._clock = clock
        self._events = events
        self._ring = KeyRing()
        self._state = Fetching()
        self._fetching: asyncio.Task[None] | None = None

    async def ring(self, kid: str | None, algorithm: str) -> KeyRing:
        """See KeySource.ring."""
        known = counts(self._state, self._settings, now=self._now()) and self._knows(kid, algorithm)
        if self._fetching is None and worth_a_fetch(self._state, self._settings, known=known, now=self._now()):
            self._state = replace(self._state, tried_at=self._now())
            self._fetching = asyncio.create_task(self._fetch())
            self._fetching.add_done_callback(self._fetched)
        if not known and self._fetching is not None:
            # Whoever gives up waiting does not take the others' fetch away.
            await asyncio.shield(self._fetching)
        if not counts(self._state, self._settings, now=self._now()):
            raise IssuerUnavailable("the keys of the tokens' issuer cannot be had")
        return self._ring

    async def close(self) -> None:
        """See KeySource.close."""
        if self._fetching is not None:
            self._fetching.cancel()
            with suppress(asyncio.CancelledError):
                await self._fetching

    def _knows(self, kid: str | None, algorithm: str) -> bool:
        return self._ring.fitting(kid, algorithm) is not None

    def _now(self) -> int:
        return int(self._clock.elapsed() * 1000)

    def _fetched(self, _: "asyncio.Task[None]") -> None:
        self._fetching = None

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(self._settings.fetch_timeout_ms / 1000):
                body = await _body_at(self._url)
            self._ring = key_ring(_read(body), self._settings.algorithms, self._passed_over)
            self._state = replace(self._state, had_at=self._now())
        except (OSError, TimeoutError, ValueError) as error:
            self._events.emit("keys_not_fetched", error=_told(error))

    def _passed_over(self, kid: str, reason: str) -> None:
        self._events.emit("key_passed_over", kid=kid, reason=reason)


async def _body_at(url: str) -> bytes:
    """What the address answers; OSError or ValueError if that is nothing to trust. It is not led elsewhere."""
    import aiohttp

    try:
        async with (
            aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.get(url, allow_redirects=False, headers={"Accept": "application/json"}) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"the issuer answered {answer.status}")
            body = bytearray()
            async for chunk in answer.content.iter_chunked(_CHUNK):
                body += chunk
                if len(body) > _LARGEST_SET:
                    raise ValueError(f"the issuer's answer has more than {_LARGEST_SET} bytes")
            return bytes(body)
    except aiohttp.ClientError as error:
        raise OSError(_told(error)) from None


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _read(body: bytes) -> object:
    """The document; ValueError if it is none."""
    if len(body) > _LARGEST_SET:
        raise ValueError(f"it has more than {_LARGEST_SET} bytes")
    try:
        return json.loads(body.decode())
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None


class FileKeys:
    """The keys in a file, read again when it is another."""

    def __init__(self, path: Path, settings: Auth, clock: Clock, events: Events) -> None:
        self._path = path
        self._settings = settings
        self._clock = clock
        self._events = events
        self._ring, self._stamp = self._read()
        self._looked_at = clock.elapsed()

    async def ring(self, kid: str | None, algorithm: str) -> KeyRing:
        """See KeySource.ring."""
        del kid, algorithm
        if self._clock.elapsed() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = self._clock.elapsed()
            self._look()
        return self._ring

    async def close(self) -> None:
        """See KeySource.close."""

    def _look(self) -> None:
        """A file that has become unreadable leaves the keys as they were."""
        try:
            if _stamp(self._path) != self._stamp:
                self._ring, self._stamp = self._read()
        except (OSError, FileError) as error:
            self._events.emit("keys_not_fetched", error=_told(error))

    def _read(self) -> tuple[KeyRing, tuple[int, ...]]:
        try:
            stamp = _stamp(self._path)
            with self._path.open("rb") as file:
                body = file.read(_LARGEST_SET + 1)
            return key_ring(_read(body), self._settings.algorithms, self._passed_over), stamp
        except (OSError, ValueError) as error:
            raise FileError(self._path, f"has no keys to check tokens with: {error}") from None

    def _passed_over(self, kid: str, reason: str) -> None:
        self._events.emit("key_passed_over", kid=kid, reason=reason)


def _stamp(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


class KnownKeys:
    """Keys that do not change while we run."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    async def ring(self, kid: str | None, algorithm: str) -> KeyRing:
        """See KeySource.ring."""
        del kid, algorithm
        return self._ring

    async def close(self) -> None:
        """See KeySource.close."""
