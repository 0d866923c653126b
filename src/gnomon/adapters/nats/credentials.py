"""Credentials for NATS: keys, signed claims, and the `.creds` files that hold both.

NATS names an Ed25519 key by a letter for its role, the key and a checksum, in base 32 (an NKey). A server trusts an
*operator* key; the operator signs an *account*, and the account signs its *users*, each with its permissions. A user
proves that it has its key by signing a random value of the server. The few lines here need no other library than the
one that signs our tokens.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from gnomon.adapters.guarded_files import read_file
from gnomon.core.nats_permissions import NatsPermissions, NatsService
from gnomon.errors import FieldError, FileError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class KeyRole(Enum):
    """The role of a key, as the first byte of its name says it."""

    OPERATOR = 14 << 3
    ACCOUNT = 0
    USER = 20 << 3


_SEED = 18 << 3
_KEY_BYTES = 32
_LARGEST_FILE = 65_536
_REPLY_NANOSECONDS = 10_000_000_000
_UNLIMITED = -1
_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_PARTS = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s+(\S+)\s+-{3,}END \1-{3,}")
_JWT_PART, _SEED_PART = "NATS USER JWT", "USER NKEY SEED"


class KeyPair:
    """A private key and its role."""

    def __init__(self, role: KeyRole, private: "Ed25519PrivateKey") -> None:
        self.role = role
        self._private = private

    @classmethod
    def new(cls, role: KeyRole) -> "KeyPair":
        """A new random key."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(role, Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, text: str) -> "KeyPair":
        """The key of a seed; FieldError, which does not show it, if it is none."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        try:
            raw = base64.b32decode(text + "=" * (-len(text) % 8))
            body, checksum = raw[:-2], raw[-2:]
            role = KeyRole((body[0] & 7) << 5 | body[1] >> 3)
        except (ValueError, IndexError):
            raise FieldError("seed", "…", "is not a seed of NATS") from None
        if body[0] & 0xF8 != _SEED or len(body) != 2 + _KEY_BYTES or _checksum(body) != checksum:
            raise FieldError("seed", "…", "is not a seed of NATS")
        return cls(role, Ed25519PrivateKey.from_private_bytes(body[2:]))

    @property
    def public(self) -> str:
        """The name of the key, which is its public half."""
        return _encoded(bytes([self.role.value]) + self._private.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        """The private half. Keep it secret."""
        role = self.role.value
        return _encoded(bytes([_SEED | role >> 5, (role & 31) << 3]) + self._private.private_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """The signature of the data."""
        return self._private.sign(data)


def _encoded(body: bytes) -> str:
    return base64.b32encode(body + _checksum(body)).decode().rstrip("=")


def _checksum(body: bytes) -> bytes:
    """CRC-16/XMODEM, low byte first."""
    crc = 0
    for byte in body:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc.to_bytes(2, "little")


# ---- claims --------------------------------------------------------------------------------------


def operator_claims(operator: KeyPair, *, name: str, now: int) -> str:
    """The signed claims of an operator about itself."""
    return _signed(operator, operator.public, name, {"type": "operator"}, now=now)


class AccountServices(Struct, frozen=True):
    """The services that an account offers, and those that it uses of the account with the key `provider`."""

    offered: Sequence[NatsService] = ()
    used: Sequence[NatsService] = ()
    provider: str = ""

    def claims(self) -> dict[str, Any]:
        """The part of the claims of the account."""
        exports = [{**_service(one), "response_type": "Stream" if one.streams else "Singleton"} for one in self.offered]
        return {"exports": exports, "imports": [{**_service(one), "account": self.provider} for one in self.used]}


def _service(one: NatsService) -> dict[str, str]:
    return {"name": one.subject, "subject": one.subject, "type": "service"}


def account_claims(  # the parts of an account
    operator: KeyPair,
    account: str,
    *,
    name: str,
    now: int,
    jetstream: bool = False,
    services: AccountServices | None = None,
    revoked: Mapping[str, int] | None = None,
) -> str:
    """The signed claims of an account. `revoked` maps the keys of users to when they were revoked, in ms."""
    names = ["subs", "data", "payload", "imports", "exports", "conn", "leaf"]
    if jetstream:
        names += ["mem_storage", "disk_storage", "streams", "consumer"]
    limits = {**dict.fromkeys(names, _UNLIMITED), "wildcards": True}
    claims: dict[str, Any] = {"type": "account", "limits": limits, **(services or AccountServices()).claims()}
    if revoked:
        claims["revocations"] = {key: at // 1000 for key, at in sorted(revoked.items())}
    return _signed(operator, account, name, claims, now=now)


def user_claims(
    account: KeyPair, user: str, *, name: str, permissions: NatsPermissions, now: int, expires_at: int | None = None
) -> str:
    """The signed claims of a user: its name and its permissions."""
    claims: dict[str, Any] = {
        "type": "user",
        "pub": {"allow": list(permissions.publish)},
        "sub": {"allow": list(permissions.subscribe)},
        **dict.fromkeys(("subs", "data", "payload"), _UNLIMITED),
    }
    if permissions.replies:
        claims["resp"] = {"max": 1, "ttl": _REPLY_NANOSECONDS}
    return _signed(account, user, name, claims, now=now, expires_at=expires_at)


def _signed(  # the parts of a token
    issuer: KeyPair, subject: str, name: str, claims: Mapping[str, Any], *, now: int, expires_at: int | None = None
) -> str:
    body: dict[str, Any] = {"iss": issuer.public, "sub": subject, "name": name, "iat": now // 1000}
    if expires_at is not None:
        body["exp"] = expires_at // 1000
    body["nats"] = {**claims, "version": 2}
    digest = hashlib.sha256(json.dumps(body).encode()).digest()
    body["jti"] = base64.b32encode(digest).decode().rstrip("=")
    text = f"{_base64(json.dumps(_HEADER).encode())}.{_base64(json.dumps(body).encode())}"
    return f"{text}.{_base64(issuer.sign(text.encode()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


# ---- users ---------------------------------------------------------------------------------------


class _UserLimits(Struct, frozen=True):
    allow: tuple[str, ...] = ()


class _UserPart(Struct, frozen=True):
    sub: _UserLimits = _UserLimits()


class _UserClaims(Struct, frozen=True):
    name: str = ""
    nats: _UserPart = _UserPart()


class UserCredentials(Struct, frozen=True):
    """The claims of a user, and the key with which it proves that they are its own."""

    claims: str
    key: KeyPair
    #: The name in the claims, and the inbox that they permit.
    name: str
    inbox: str

    def signature(self, nonce: str) -> bytes:
        """The proof for a server that sent this random value."""
        return base64.b64encode(self.key.sign(nonce.encode()))

    def text(self) -> str:
        """The content of a `.creds` file."""
        return "".join(
            f"-----BEGIN {part}-----\n{value}\n------END {part}------\n\n"
            for part, value in ((_JWT_PART, self.claims), (_SEED_PART, self.key.seed))
        )


def user_credentials(claims: str, key: KeyPair) -> UserCredentials:
    """The credentials of these claims and this key; FieldError if the claims cannot be read."""
    try:
        body = claims.split(".")[1]
        found = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=_UserClaims)
    except (ValueError, IndexError, msgspec.DecodeError):
        raise FieldError("claims", "…", "are not claims of a NATS user") from None
    inboxes = [
        one.removesuffix(".>") for one in found.nats.sub.allow if one.startswith("_INBOX") and one.endswith(".>")
    ]
    return UserCredentials(claims, key, found.name, inboxes[0] if inboxes else "_INBOX")


def read_credentials(path: Path) -> UserCredentials:
    """The credentials in a `.creds` file; FileError if it has none, or if everybody may read it."""
    try:
        text = read_file(path, largest=_LARGEST_FILE, guarded=True, private=True).decode("ascii", "replace")
    except OSError as error:
        raise FileError(path, f"cannot be used: {error.strerror or error}") from None
    parts = dict(_PARTS.findall(text))
    try:
        return user_credentials(parts[_JWT_PART], KeyPair.from_seed(parts[_SEED_PART]))
    except (KeyError, FieldError):
        raise FileError(path, "contains no credentials of NATS") from None
