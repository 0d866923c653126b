"""Encryption of payloads with AES-256-GCM.

Every context has a key of its own, derived from the configured one. A random nonce is therefore safe for any number of
payloads. The first configured key encrypts; every key decrypts, so that keys can be rotated.
"""

import base64
import binascii
import hmac
import os
from collections.abc import Sequence
from pathlib import Path

from gnomon.adapters.guarded_files import read_file
from gnomon.core.payloads import SEALED_PREFIX, is_sealed
from gnomon.errors import FieldError, UsageError
from gnomon.ports.payloads import PayloadCipher

_KEY_BYTES, _NONCE_BYTES = 32, 12
_FILE = "file:"
_LARGEST_KEY_FILE = 4096
_VERSION = b"v1"
_SUFFIX = b'"}'


class AesGcmCipher:
    """Encrypts with the first key, and decrypts with the key that an envelope names."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        # An envelope names its key by a digest, which tells nothing about the key.
        self._keys = {hmac.digest(key, b"gnomon payload key", "sha256")[:4].hex().encode(): key for key in keys}
        self._first = next(iter(self._keys))

    def seal(self, context: str, body: bytes) -> bytes:
        """See PayloadCipher.seal."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        bound, nonce = context.encode(), os.urandom(_NONCE_BYTES)
        sealed = AESGCM(_derived(self._keys[self._first], bound)).encrypt(nonce, body, bound)
        parts = (_VERSION, self._first, base64.b64encode(nonce + sealed))
        return SEALED_PREFIX + b".".join(parts) + _SUFFIX

    def fingerprint(self, body: bytes) -> bytes:
        """See PayloadCipher.fingerprint."""
        return hmac.digest(_derived(self._keys[self._first], b"fingerprint"), body, "sha256")

    def unseal(self, context: str, body: bytes) -> bytes:
        """See PayloadCipher.unseal."""
        if not is_sealed(body):
            return body
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        version, _, rest = body[len(SEALED_PREFIX) : -len(_SUFFIX)].partition(b".")
        name, _, text = rest.partition(b".")
        key, bound = self._keys.get(name), context.encode()
        if version != _VERSION or key is None or not body.endswith(_SUFFIX):
            return body
        try:
            sealed = base64.b64decode(text, validate=True)
            return AESGCM(_derived(key, bound)).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
        except (InvalidTag, ValueError):
            return body


class LockedCipher:
    """The cipher of a process without a key, on a store whose payloads are encrypted: it shows envelopes only."""

    def seal(self, context: str, body: bytes) -> bytes:
        """Refuse to store a payload in plain text."""
        del context, body
        raise _refusal()

    def fingerprint(self, body: bytes) -> bytes:
        """Refuse: there is no key."""
        del body
        raise _refusal()

    def unseal(self, context: str, body: bytes) -> bytes:
        """See PayloadCipher.unseal."""
        del context
        return body


def _refusal() -> UsageError:
    return UsageError("the payloads of this database are encrypted: set payload.keys to write one")


def build_cipher(keys: Sequence[str], *, field: str = "payload.keys") -> PayloadCipher | None:
    """The cipher with these keys, each as Base64 or as `file:PATH`; None without any. FieldError never shows a key."""
    return AesGcmCipher([_key(f"{field}[{index}]", one) for index, one in enumerate(keys)]) if keys else None


def _key(field: str, text: str) -> bytes:
    if text.startswith(_FILE):
        path = Path(text.removeprefix(_FILE))
        try:
            text = read_file(path, largest=_LARGEST_KEY_FILE, guarded=True, private=True).decode("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise FieldError(field, f"{_FILE}{path}", f"cannot be read: {error}") from None
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise FieldError(field, "[hidden]", f"must be {_KEY_BYTES} bytes in Base64, or file:PATH with such a key")
    return key


def _derived(key: bytes, context: bytes) -> bytes:
    return hmac.digest(key, b"gnomon payload " + context, "sha256")
