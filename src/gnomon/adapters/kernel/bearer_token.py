"""The token that a policy kernel wants from its callers."""

import hmac
import time
from contextlib import suppress
from pathlib import Path

from gnomon.adapters.guarded_files import read_file
from gnomon.errors import FieldError

#: The words before the file that holds a token.
_FILE = "file:"
_LARGEST_FILE = 16_384
#: A file is read again after this time, so that a rotated token takes effect.
_REFRESH_SECONDS = 5.0


class BearerToken:
    """A token as it is, or in a file, which may be replaced while the process runs."""

    def __init__(self, field: str, said: str) -> None:
        """`said` is the token, or `file:PATH`. FieldError, naming `field`, if there is no token that can be sent."""
        self._field, self._said = field, said
        self._read_at = time.monotonic()
        self._token = self._read()

    @property
    def header(self) -> str:
        """The value of the header `Authorization`. A file that cannot be read any more leaves the last token."""
        now = time.monotonic()
        if self._said.startswith(_FILE) and now - self._read_at > _REFRESH_SECONDS:
            self._read_at = now
            # While its owner replaces it: the kernel refuses the old token if that counts no more.
            with suppress(FieldError):
                self._token = self._read()
        return f"Bearer {self._token}"

    def admits(self, header: str) -> bool:
        """Whether a caller with this header `Authorization` may ask."""
        return hmac.compare_digest(header.encode("utf-8", "surrogateescape"), self.header.encode())

    def _read(self) -> str:
        token = self._said
        shown = "[hidden]"
        if token.startswith(_FILE):
            shown = token
            try:
                path = Path(token.removeprefix(_FILE))
                token = read_file(path, largest=_LARGEST_FILE, guarded=True, private=True).decode("ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise FieldError(self._field, shown, f"cannot be read: {error}") from None
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise FieldError(self._field, shown, "must be printable ASCII characters without spaces")
        return token
