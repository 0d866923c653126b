"""The signing key of an installation and tokens signed with it, in files that only their owner can read."""

import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gnomon.adapters.auth.jwks import KeyRing, PublicKey
from gnomon.core.audit import ChainHead, SignedCheckpoint, checkpoint_text
from gnomon.errors import FileError

#: The issuer in tokens of a local key.
LOCAL_ISSUER = "urn:gnomon:local"
LOCAL_ALGORITHM = "Ed25519"
_LARGEST_FILE = 65_536
_OWNER_ONLY = 0o600


class LocalKey:
    """Signs tokens, and checkpoints of the audit trail; its public half verifies them. Implements CheckpointKey."""

    def __init__(self, jwk: Mapping[str, Any]) -> None:
        from joserfc.jwk import OKPKey

        self._key: Any = OKPKey.import_key(dict(jwk))
        self.kid: str = self._key.thumbprint()

    def ring(self) -> KeyRing:
        """The public half."""
        return KeyRing([PublicKey(self.kid, frozenset([LOCAL_ALGORITHM]), self._key)])

    def sign(self, head: ChainHead, *, at: int) -> SignedCheckpoint:
        """See CheckpointKey.sign."""
        made = self._key.private_key.sign(checkpoint_text(head.seq, head.hash, at))
        return SignedCheckpoint(seq=head.seq, hash=head.hash, at=at, kid=self.kid, signature=made.hex())

    def is_valid(self, checkpoint: SignedCheckpoint) -> bool:
        """See CheckpointKey.is_valid."""
        from cryptography.exceptions import InvalidSignature

        text = checkpoint_text(checkpoint.seq, checkpoint.hash, checkpoint.at)
        try:
            self._key.public_key.verify(bytes.fromhex(checkpoint.signature), text)
        except (InvalidSignature, ValueError):
            return False
        return checkpoint.kid == self.kid

    def signed(self, claims: Mapping[str, Any]) -> str:
        """A signed token with these claims."""
        from joserfc import jwt

        header = {"alg": LOCAL_ALGORITHM, "kid": self.kid, "typ": "JWT"}
        return jwt.encode(header, dict(claims), self._key, algorithms=[LOCAL_ALGORITHM])


def local_key(path: Path) -> LocalKey:
    """The key in the file, created if there is none. Concurrent callers get the same key."""
    return _key_in(path, read_or_create(path, _new_key))


def existing_key(path: Path) -> LocalKey | None:
    """The key in the file, if there is one."""
    text = read_private_file(path)
    return None if text is None else _key_in(path, text)


def read_or_create(path: Path, make: Callable[[], str]) -> str:
    """The text of the file; if there is none, create it with `make`. Of concurrent callers the first one wins."""
    found = read_private_file(path)
    if found is not None:
        return found
    fresh = _write_temporary(path, make())
    try:
        # Unlike a rename, a link never replaces a file that another process has created meanwhile.
        with suppress(FileExistsError):
            os.link(fresh, path)
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror}") from None
    finally:
        fresh.unlink()
    found = read_private_file(path)
    if found is None:
        raise FileError(path, "was removed while it was created")
    return found


def replace_file(path: Path, text: str) -> None:
    """Replace the content of the file atomically."""
    fresh = _write_temporary(path, text)
    try:
        fresh.replace(path)
    except OSError as error:
        fresh.unlink()
        raise FileError(path, f"cannot be written: {error.strerror}") from None


def read_private_file(path: Path) -> str | None:
    """The text of the file, None if there is none; FileError if others could have read or written it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from None
    try:
        _check_owner(path, os.fstat(descriptor))
        body = os.read(descriptor, _LARGEST_FILE)
    finally:
        os.close(descriptor)
    try:
        return body.decode("ascii")
    except UnicodeDecodeError:
        raise FileError(path, "holds no text") from None


def _check_owner(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise FileError(path, "is no regular file")
    if found.st_uid != os.geteuid():
        raise FileError(path, "belongs to another user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise FileError(path, f"can be read by others: chmod 600 {path}, and replace the key if it was read")


def _write_temporary(path: Path, text: str) -> Path:
    """Write the text to a new file in the same folder, synced to disk; return its path."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _OWNER_ONLY)
    except FileNotFoundError:
        raise FileError(path, f"cannot be written: there is no folder {path.parent}") from None
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        fresh.unlink()
        raise FileError(path, f"cannot be written: {error.strerror}") from None
    return fresh


def _new_key() -> str:
    from joserfc.jwk import OKPKey

    return json.dumps(OKPKey.generate_key("Ed25519").as_dict(private=True)) + "\n"


def _key_in(path: Path, text: str) -> LocalKey:
    from joserfc.errors import JoseError

    try:
        jwk = json.loads(text)
        if not isinstance(jwk, dict) or jwk.get("crv") != "Ed25519" or "d" not in jwk:
            raise FileError(path, "holds no signing key")
        return LocalKey(jwk)
    except (ValueError, TypeError, KeyError, RecursionError, JoseError):
        raise FileError(path, "holds no signing key") from None
