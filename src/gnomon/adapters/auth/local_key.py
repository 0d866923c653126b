"""A signing key and tokens of our own, in files that only their owner can read."""

import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gnomon.adapters.auth.jwks import KeyRing, PublicKey
from gnomon.errors import FileError

#: Whom tokens of a local key name as their issuer.
LOCAL_ISSUER = "urn:gnomon:local"
LOCAL_ALGORITHM = "Ed25519"
_LARGEST_FILE = 65_536
_OWNER_ONLY = 0o600


class LocalKey:
    """Signs tokens that are checked with its public half."""

    def __init__(self, jwk: Mapping[str, Any]) -> None:
        from joserfc.jwk import OKPKey

        self._key = OKPKey.import_key(dict(jwk))
        self.kid = self._key.thumbprint()

    def ring(self) -> KeyRing:
        """The public half."""
        return KeyRing([PublicKey(self.kid, frozenset([LOCAL_ALGORITHM]), self._key)])

    def signed(self, claims: Mapping[str, Any]) -> str:
        """A token that says this."""
        from joserfc import jwt

        header = {"alg": LOCAL_ALGORITHM, "kid": self.kid, "typ": "JWT"}
        return jwt.encode(header, dict(claims), self._key, algorithms=[LOCAL_ALGORITHM])


def local_key(path: Path) -> LocalKey:
    """The key in the file, which is made if there is none: the same one for all who ask at once."""
    return _key_in(path, read_or_create(path, _new_key))


def existing_key(path: Path) -> LocalKey | None:
    """The key in the file, if there is one."""
    text = read_private_file(path)
    return None if text is None else _key_in(path, text)


def read_or_create(path: Path, make: Callable[[], str]) -> str:
    """What the file holds; if there is none, what was made for it, by us or by whoever was first."""
    found = read_private_file(path)
    if found is not None:
        return found
    fresh = _write_temporary(path, make())
    try:
        # Unlike a rename, a link never replaces what another has put there meanwhile.
        with suppress(FileExistsError):
            os.link(fresh, path)
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror}") from None
    finally:
        fresh.unlink()
    found = read_private_file(path)
    if found is None:
        raise FileError(path, "was taken away while it was made")
    return found


def replace_file(path: Path, text: str) -> None:
    """The file holds this from now on; whoever reads it has the whole of the old or of the new."""
    fresh = _write_temporary(path, text)
    try:
        fresh.replace(path)
    except OSError as error:
        fresh.unlink()
        raise FileError(path, f"cannot be written: {error.strerror}") from None


def read_private_file(path: Path) -> str | None:
    """What the file holds, None if there is none; FileError if anybody but its owner could have read or made it."""
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
        raise FileError(path, "belongs to somebody else")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise FileError(path, f"can be read by others: chmod 600 {path}, and make new ones if they have")


def _write_temporary(path: Path, text: str) -> Path:
    """A new file in the same folder that holds this, safe on the disk."""
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
        said = json.loads(text)
        if not isinstance(said, dict) or said.get("crv") != "Ed25519" or "d" not in said:
            raise FileError(path, "holds no signing key")
        return LocalKey(said)
    except (ValueError, TypeError, KeyError, RecursionError, JoseError):
        raise FileError(path, "holds no signing key") from None
