"""JSON Web Key Sets: which published keys are usable for which algorithms, and where the keys come from.

A key source reads the keys from a URL, a file or memory. RemoteKeySource caches them, so that the issuer is asked
rarely and may be unavailable for a while.
"""

import asyncio
import json
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from gnomon.adapters.guarded_files import read_file
from gnomon.adapters.http_client import HttpClient
from gnomon.config.sections import AuthSettings
from gnomon.errors import FileError, IssuerUnavailable, RequestFailed
from gnomon.ports.runtime import Clock, Events

#: The algorithms of a key follow from its type alone, never from a claim of a token.
_OF_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVE = {
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("Ed25519", "EdDSA"),
    ("OKP", "Ed448"): ("Ed448", "EdDSA"),
}
_SHORTEST_RSA_BITS, _LONGEST_RSA_BITS = 2048, 8192
_SMALLEST_EXPONENT, _LARGEST_EXPONENT = 3, 2**32
_MOST_KEYS = 100
_LONGEST_KID = 256
#: Called for each key that is skipped, with its kid and the reason.
OnKeySkipped = Callable[[str, str], None]


class _UnusableKey(Exception):
    """A key cannot be used; the text is the reason."""


class PublicKey(NamedTuple):
    """A key and the algorithms that it may be used with."""

    kid: str | None
    algorithms: frozenset[str]
    #: The key as joserfc represents it.
    key: Any


class KeyRing:
    """The usable keys of one issuer."""

    def __init__(self, keys: Sequence[PublicKey] = ()) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find_key(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """The key with this algorithm (and this kid, if given); None unless exactly one matches."""
        found = [one for one in self._keys if algorithm in one.algorithms and (kid is None or one.kid == kid)]
        return found[0] if len(found) == 1 else None


def verify_signature(key: PublicKey, algorithm: str, signed: bytes, signature: bytes) -> bool:
    """Whether the key has made the signature."""
    from joserfc.errors import JoseError
    from joserfc.jws import JWSRegistry

    # EdDSA, the older name, leaves the curve open; the key determines it.
    name = str(key.key.get("crv")) if algorithm == "EdDSA" else algorithm
    try:
        return bool(JWSRegistry(algorithms=[name]).get_alg(name).verify(signed, signature, key.key))
    except (JoseError, ValueError):
        return False


def parse_key_ring(document: object, algorithms: Collection[str], on_skipped: OnKeySkipped) -> KeyRing:
    """The usable keys of a published set; ValueError if the document is not such a set."""
    entries = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(entries, list) or len(entries) > _MOST_KEYS:
        raise ValueError(f"it is no set of at most {_MOST_KEYS} keys")
    found = list(_usable(entries, algorithms, on_skipped))
    names = [one.kid for one in found]
    for name in sorted({str(name) for name in names if name is not None and names.count(name) > 1}):
        on_skipped(name, "is the name of several keys")
    return KeyRing([one for one in found if one.kid is None or names.count(one.kid) == 1])


def _usable(entries: Sequence[object], algorithms: Collection[str], on_skipped: OnKeySkipped) -> Iterator[PublicKey]:
    for entry in entries:
        try:
            yield _public_key(entry, algorithms)
        except _UnusableKey as error:
            named = entry.get("kid") if isinstance(entry, Mapping) else None
            on_skipped(named[:_LONGEST_KID] if isinstance(named, str) else "", str(error))


def _public_key(entry: object, algorithms: Collection[str]) -> PublicKey:
    """The key; _UnusableKey if it cannot be used."""
    if not isinstance(entry, Mapping):
        raise _UnusableKey("is no key")
    kid = entry.get("kid")
    if kid is not None and (not isinstance(kid, str) or not 0 < len(kid) <= _LONGEST_KID):
        raise _UnusableKey("has a kid that is no name")
    if entry.get("use", "sig") != "sig" or "verify" not in entry.get("key_ops", ["verify"]):
        raise _UnusableKey("is not for checking signatures")
    if "d" in entry or "k" in entry:
        raise _UnusableKey("shows what must be kept secret")
    made_for = _allowed_algorithms(entry)
    usable = made_for & frozenset(algorithms)
    if not usable:
        raise _UnusableKey("is for none of the algorithms that are taken")
    return PublicKey(kid, usable, _imported(entry))


def _allowed_algorithms(entry: Mapping[str, Any]) -> frozenset[str]:
    kind, algorithm = entry.get("kty"), entry.get("alg")
    can = _OF_RSA if kind == "RSA" else _OF_CURVE.get((str(kind), str(entry.get("crv"))), ())
    return frozenset(can) if algorithm is None else frozenset(can) & _also_called(algorithm)


def _also_called(algorithm: object) -> frozenset[str]:
    """The algorithm under all its names, older and newer."""
    edwards = {"Ed25519", "Ed448", "EdDSA"}
    return frozenset(edwards) if algorithm in edwards else frozenset([str(algorithm)])


def _imported(entry: Mapping[str, Any]) -> object:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from joserfc.errors import JoseError, SecurityWarning
    from joserfc.jwk import import_key

    wanted = {name: entry[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in entry}
    if not all(isinstance(value, str) for value in wanted.values()):
        raise _UnusableKey("cannot be read")
    try:
        with warnings.catch_warnings():
            # joserfc warns of short keys; they are refused below.
            warnings.simplefilter("ignore", SecurityWarning)
            key = import_key(wanted)
        public = key.public_key
    except (JoseError, ValueError, TypeError, KeyError):
        raise _UnusableKey("cannot be read") from None
    if isinstance(public, RSAPublicKey):
        _check_rsa(public.key_size, public.public_numbers().e)
    return key


def _check_rsa(bits: int, exponent: int) -> None:
    if not _SHORTEST_RSA_BITS <= bits <= _LONGEST_RSA_BITS:
        raise _UnusableKey(f"has {bits} bits")
    if not _SMALLEST_EXPONENT <= exponent < _LARGEST_EXPONENT:
        raise _UnusableKey("has an unusual exponent")


class KeyFetchState(Struct, frozen=True):
    """When keys were fetched."""

    #: The last successful fetch and the last try.
    fetched_at: int | None = None
    tried_at: int | None = None


def keys_usable(state: KeyFetchState, settings: AuthSettings, *, now: int) -> bool:
    """Whether the cached keys may be used: without a successful fetch they expire after `auth.keys_patience`."""
    return state.fetched_at is not None and now - state.fetched_at < max(
        settings.keys_patience_ms, settings.keys_ttl_ms
    )


def should_fetch_keys(state: KeyFetchState, settings: AuthSettings, *, known: bool, now: int) -> bool:
    """Whether to fetch: the keys are old or a token names an unknown one, and the last try is long enough ago."""
    if state.tried_at is not None and now - state.tried_at < settings.refetch_ms:
        return False
    return not known or state.fetched_at is None or now - state.fetched_at >= settings.keys_ttl_ms


_LARGEST_SET = 2**20
#: How often a file is checked for a change, in seconds.
_CHECK_SECONDS = 1.0


class KeySource(Protocol):
    """Provides the keys of an issuer."""

    async def ring(self, kid: str | None, algorithm: str) -> KeyRing:
        """The keys, fetched anew if none fits and a fetch is due; IssuerUnavailable if there are none."""
        ...

    async def close(self) -> None:
        """Cancel a fetch that is under way."""
        ...


class RemoteKeySource:
    """The keys at a URL.

    They are cached, and fetched again when they are old or a token names an unknown key, but not more often than
    `auth.refetch`, whatever tokens name. While the issuer is unavailable the cached keys stay valid for a while.
    A request whose key is known never waits for a fetch.
    """

    def __init__(self, url: str, settings: AuthSettings, clock: Clock, events: Events, *, client: HttpClient) -> None:
        self._url = url
        self._client = client
        self._settings = settings
        self._clock = clock
        self._events = events
        self._ring = KeyRing()
        self._state = KeyFetchState()
        self._fetching: asyncio.Task[None] | None = None

    async def ring(self, kid: str | None, algorithm: str) -> KeyRing:
        """See KeySource.ring."""
        known = keys_usable(self._state, self._settings, now=self._now()) and self._knows(kid, algorithm)
        if self._fetching is None and should_fetch_keys(self._state, self._settings, known=known, now=self._now()):
            self._state = replace(self._state, tried_at=self._now())
            self._fetching = asyncio.create_task(self._fetch())
            self._fetching.add_done_callback(self._fetched)
        if not known and self._fetching is not None:
            # A cancelled request must not cancel the fetch that other requests wait for.
            await asyncio.shield(self._fetching)
        if not keys_usable(self._state, self._settings, now=self._now()):
            raise IssuerUnavailable("the keys of the tokens' issuer cannot be fetched")
        return self._ring

    async def close(self) -> None:
        """See KeySource.close."""
        if self._fetching is not None:
            self._fetching.cancel()
            with suppress(asyncio.CancelledError):
                await self._fetching

    def _knows(self, kid: str | None, algorithm: str) -> bool:
        return self._ring.find_key(kid, algorithm) is not None

    def _now(self) -> int:
        return int(self._clock.elapsed() * 1000)

    def _fetched(self, _: "asyncio.Task[None]") -> None:
        self._fetching = None

    async def _fetch(self) -> None:
        try:
            body = await self._fetch_body()
            self._ring = parse_key_ring(_parse_json(body), self._settings.algorithms, self._key_skipped)
            self._state = replace(self._state, fetched_at=self._now())
        except (RequestFailed, ValueError) as error:
            self._events.emit("keys_not_fetched", error=_error_text(error))

    async def _fetch_body(self) -> bytes:
        """The published keys; RequestFailed or ValueError if there is no answer that can be trusted."""
        answer = await self._client.get(
            self._url,
            timeout_ms=self._settings.fetch_timeout_ms,
            max_bytes=_LARGEST_SET,
            headers={"Accept": "application/json"},
        )
        if answer.status != 200:
            raise ValueError(f"the issuer answered {answer.status}")
        return answer.body

    def _key_skipped(self, kid: str, reason: str) -> None:
        self._events.emit("key_passed_over", kid=kid, reason=reason)


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _parse_json(body: bytes) -> object:
    """The JSON document; ValueError if the body is not JSON."""
    try:
        return json.loads(body.decode())
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None


class FileKeySource:
    """The keys in a file, read again when the file changes."""

    def __init__(self, path: Path, settings: AuthSettings, clock: Clock, events: Events) -> None:
        self._path = path
        self._settings = settings
        self._clock = clock
        self._events = events
        self._ring, self._stamp = self._read()
        self._checked_at = clock.elapsed()

    async def ring(self, kid: str | None, algorithm: str) -> KeyRing:
        """See KeySource.ring."""
        del kid, algorithm
        if self._clock.elapsed() - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = self._clock.elapsed()
            self._refresh()
        return self._ring

    async def close(self) -> None:
        """See KeySource.close."""

    def _refresh(self) -> None:
        """Read the file if it has changed; keep the keys if it has become unreadable."""
        try:
            if _stamp(self._path) != self._stamp:
                self._ring, self._stamp = self._read()
        except (OSError, FileError) as error:
            self._events.emit("keys_not_fetched", error=_error_text(error))

    def _read(self) -> tuple[KeyRing, tuple[int, ...]]:
        try:
            stamp = _stamp(self._path)
            body = read_file(self._path, largest=_LARGEST_SET, guarded=True)
            return parse_key_ring(_parse_json(body), self._settings.algorithms, self._key_skipped), stamp
        except (OSError, ValueError) as error:
            raise FileError(self._path, f"has no keys to check tokens with: {error}") from None

    def _key_skipped(self, kid: str, reason: str) -> None:
        self._events.emit("key_passed_over", kid=kid, reason=reason)


def _stamp(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, found.st_gid


class StaticKeySource:
    """Keys that do not change while the process runs."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    async def ring(self, kid: str | None, algorithm: str) -> KeyRing:
        """See KeySource.ring."""
        del kid, algorithm
        return self._ring

    async def close(self) -> None:
        """See KeySource.close."""
