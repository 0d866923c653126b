"""The keys that signatures are checked with: which of a published set can be used, and for what."""

import asyncio
import json
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from gnomon.config.sections import AuthSettings
from gnomon.errors import FileError, IssuerUnavailable
from gnomon.ports.runtime import Clock, Events

#: What a key can be used for follows from what it is, and from nothing that a token says.
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
#: Told of each key that is passed over: its kid, and why.
OnKeySkipped = Callable[[str, str], None]


class _UnusableKey(Exception):
    """A key cannot be used, and why."""


class PublicKey(NamedTuple):
    """One key, and all that it may be used for."""

    kid: str | None
    algorithms: frozenset[str]
    #: As joserfc has it.
    key: Any


class KeyRing:
    """Keys of one issuer."""

    def __init__(self, keys: Sequence[PublicKey] = ()) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find_key(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """The only key that can have signed it: of that name if there is one, and made for that algorithm."""
        found = [one for one in self._keys if algorithm in one.algorithms and (kid is None or one.kid == kid)]
        return found[0] if len(found) == 1 else None


def verify_signature(key: PublicKey, algorithm: str, signed: bytes, signature: bytes) -> bool:
    """Whether the signature is the key's."""
    from joserfc.errors import JoseError
    from joserfc.jws import JWSRegistry

    # The older name for the same algorithm leaves the curve open; the key says which it is.
    name = str(key.key.get("crv")) if algorithm == "EdDSA" else algorithm
    try:
        return bool(JWSRegistry(algorithms=[name]).get_alg(name).verify(signed, signature, key.key))
    except (JoseError, ValueError):
        return False


def parse_key_ring(document: object, algorithms: Collection[str], passed_over: OnKeySkipped) -> KeyRing:
    """The keys of a published set that can be used; ValueError if it is no such set."""
    entries = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(entries, list) or len(entries) > _MOST_KEYS:
        raise ValueError(f"it is no set of at most {_MOST_KEYS} keys")
    found = list(_usable(entries, algorithms, passed_over))
    names = [one.kid for one in found]
    for name in sorted({str(name) for name in names if name is not None and names.count(name) > 1}):
        passed_over(name, "is the name of several keys")
    return KeyRing([one for one in found if one.kid is None or names.count(one.kid) == 1])


def _usable(entries: Sequence[object], algorithms: Collection[str], passed_over: OnKeySkipped) -> Iterator[PublicKey]:
    for entry in entries:
        try:
            yield _public_key(entry, algorithms)
        except _UnusableKey as error:
            named = entry.get("kid") if isinstance(entry, Mapping) else None
            passed_over(named[:_LONGEST_KID] if isinstance(named, str) else "", str(error))


def _public_key(entry: object, algorithms: Collection[str]) -> PublicKey:
    """The key; _Unusable says why it cannot be used."""
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
    kind, said = entry.get("kty"), entry.get("alg")
    can = _OF_RSA if kind == "RSA" else _OF_CURVE.get((str(kind), str(entry.get("crv"))), ())
    return frozenset(can) if said is None else frozenset(can) & _also_called(said)


def _also_called(algorithm: object) -> frozenset[str]:
    """An algorithm and its older or newer name."""
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
            # Of keys that are too short, which are refused below.
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
    """What is known about the keys that were fetched."""

    #: When they were last had, and when that was last tried.
    fetched_at: int | None = None
    tried_at: int | None = None


def keys_usable(state: KeyFetchState, settings: AuthSettings, *, now: int) -> bool:
    """Whether the keys that we have may be used: those of an issuer that is away do not count for ever."""
    return state.fetched_at is not None and now - state.fetched_at < max(
        settings.keys_patience_ms, settings.keys_ttl_ms
    )


def should_fetch_keys(state: KeyFetchState, settings: AuthSettings, *, known: bool, now: int) -> bool:
    """Whether to ask the issuer: our keys are old, or a token names one we lack; but not again and again."""
    if state.tried_at is not None and now - state.tried_at < settings.refetch_ms:
        return False
    return not known or state.fetched_at is None or now - state.fetched_at >= settings.keys_ttl_ms


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


class RemoteKeySource:
    """The keys at an address.

    They are kept, and fetched again when they are old or a token names another; but not more often than
    `auth.refetch`, whatever tokens name. While the issuer is away, those that we have go on counting for a while.
    Nobody whose key is known waits for a fetch.
    """

    def __init__(self, url: str, settings: AuthSettings, clock: Clock, events: Events) -> None:
        self._url = url
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
            # Whoever gives up waiting does not take the others' fetch away.
            await asyncio.shield(self._fetching)
        if not keys_usable(self._state, self._settings, now=self._now()):
            raise IssuerUnavailable("the keys of the tokens' issuer cannot be had")
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
            async with asyncio.timeout(self._settings.fetch_timeout_ms / 1000):
                body = await _fetch_body(self._url)
            self._ring = parse_key_ring(_parse_json(body), self._settings.algorithms, self._key_skipped)
            self._state = replace(self._state, fetched_at=self._now())
        except (OSError, TimeoutError, ValueError) as error:
            self._events.emit("keys_not_fetched", error=_error_text(error))

    def _key_skipped(self, kid: str, reason: str) -> None:
        self._events.emit("key_passed_over", kid=kid, reason=reason)


async def _fetch_body(url: str) -> bytes:
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
        raise OSError(_error_text(error)) from None


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _parse_json(body: bytes) -> object:
    """The document; ValueError if it is none."""
    if len(body) > _LARGEST_SET:
        raise ValueError(f"it has more than {_LARGEST_SET} bytes")
    try:
        return json.loads(body.decode())
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None


class FileKeySource:
    """The keys in a file, read again when it is another."""

    def __init__(self, path: Path, settings: AuthSettings, clock: Clock, events: Events) -> None:
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
            self._events.emit("keys_not_fetched", error=_error_text(error))

    def _read(self) -> tuple[KeyRing, tuple[int, ...]]:
        try:
            stamp = _stamp(self._path)
            with self._path.open("rb") as file:
                body = file.read(_LARGEST_SET + 1)
            return parse_key_ring(_parse_json(body), self._settings.algorithms, self._key_skipped), stamp
        except (OSError, ValueError) as error:
            raise FileError(self._path, f"has no keys to check tokens with: {error}") from None

    def _key_skipped(self, kid: str, reason: str) -> None:
        self._events.emit("key_passed_over", kid=kid, reason=reason)


def _stamp(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


class StaticKeySource:
    """Keys that do not change while we run."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    async def ring(self, kid: str | None, algorithm: str) -> KeyRing:
        """See KeySource.ring."""
        del kid, algorithm
        return self._ring

    async def close(self) -> None:
        """See KeySource.close."""
