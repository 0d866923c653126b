"""The keys that signatures are checked with: which of a published set can be used, and for what."""

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
PassedOver = Callable[[str, str], None]


class _Unusable(Exception):
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

    def fitting(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """The only key that can have signed it: of that name if there is one, and made for that algorithm."""
        found = [one for one in self._keys if algorithm in one.algorithms and (kid is None or one.kid == kid)]
        return found[0] if len(found) == 1 else None


def signed_with(key: PublicKey, algorithm: str, signed: bytes, signature: bytes) -> bool:
    """Whether the signature is the key's."""
    from joserfc.errors import JoseError
    from joserfc.jws import JWSRegistry

    # The older name for the same algorithm leaves the curve open; the key says which it is.
    name = str(key.key.get("crv")) if algorithm == "EdDSA" else algorithm
    try:
        return bool(JWSRegistry(algorithms=[name]).get_alg(name).verify(signed, signature, key.key))
    except (JoseError, ValueError):
        return False


def key_ring(document: object, algorithms: Collection[str], passed_over: PassedOver) -> KeyRing:
    """The keys of a published set that can be used; ValueError if it is no such set."""
    entries = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(entries, list) or len(entries) > _MOST_KEYS:
        raise ValueError(f"it is no set of at most {_MOST_KEYS} keys")
    found = list(_usable(entries, algorithms, passed_over))
    names = [one.kid for one in found]
    for name in sorted({str(name) for name in names if name is not None and names.count(name) > 1}):
        passed_over(name, "is the name of several keys")
    return KeyRing([one for one in found if one.kid is None or names.count(one.kid) == 1])


def _usable(entries: Sequence[object], algorithms: Collection[str], passed_over: PassedOver) -> Iterator[PublicKey]:
    for entry in entries:
        try:
            yield _public_key(entry, algorithms)
        except _Unusable as error:
            named = entry.get("kid") if isinstance(entry, Mapping) else None
            passed_over(named[:_LONGEST_KID] if isinstance(named, str) else "", str(error))


def _public_key(entry: object, algorithms: Collection[str]) -> PublicKey:
    """The key; _Unusable says why it cannot be used."""
    if not isinstance(entry, Mapping):
        raise _Unusable("is no key")
    kid = entry.get("kid")
    if kid is not None and (not isinstance(kid, str) or not 0 < len(kid) <= _LONGEST_KID):
        raise _Unusable("has a kid that is no name")
    if entry.get("use", "sig") != "sig" or "verify" not in entry.get("key_ops", ["verify"]):
        raise _Unusable("is not for checking signatures")
    if "d" in entry or "k" in entry:
        raise _Unusable("shows what must be kept secret")
    made_for = _made_for(entry)
    usable = made_for & frozenset(algorithms)
    if not usable:
        raise _Unusable("is for none of the algorithms that are taken")
    return PublicKey(kid, usable, _imported(entry))


def _made_for(entry: Mapping[str, Any]) -> frozenset[str]:
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
        raise _Unusable("cannot be read")
    try:
        with warnings.catch_warnings():
            # Of keys that are too short, which are refused below.
            warnings.simplefilter("ignore", SecurityWarning)
            key = import_key(wanted)
        public = key.public_key
    except (JoseError, ValueError, TypeError, KeyError):
        raise _Unusable("cannot be read") from None
    if isinstance(public, RSAPublicKey):
        _check_rsa(public.key_size, public.public_numbers().e)
    return key


def _check_rsa(bits: int, exponent: int) -> None:
    if not _SHORTEST_RSA_BITS <= bits <= _LONGEST_RSA_BITS:
        raise _Unusable(f"has {bits} bits")
    if not _SMALLEST_EXPONENT <= exponent < _LARGEST_EXPONENT:
        raise _Unusable("has an unusual exponent")
