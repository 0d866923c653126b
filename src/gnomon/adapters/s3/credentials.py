"""The credentials of object storage, read anew whenever they are used, so that a rotated file takes effect."""

from pathlib import Path

from gnomon.adapters.guarded_files import read_file
from gnomon.adapters.s3.signature import S3Credentials
from gnomon.config.sections import S3Settings
from gnomon.errors import ArchiveUnavailable

_FILE = "file:"
_LARGEST_FILE = 16_384


def read_credentials(settings: S3Settings) -> S3Credentials:
    """The credentials that the settings hold, or that the files hold which they name; ArchiveUnavailable without."""
    return S3Credentials(
        key_id=_read("access_key_id", settings.access_key_id, required=True),
        secret_key=_read("secret_access_key", settings.secret_access_key, required=True),
        session_token=_read("session_token", settings.session_token, required=False),
    )


def _read(name: str, value: str, *, required: bool) -> str:
    if value.startswith(_FILE):
        path = Path(value.removeprefix(_FILE))
        try:
            value = read_file(path, largest=_LARGEST_FILE, guarded=True, private=True).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ArchiveUnavailable(f"s3.{name}: {path} cannot be read: {error}") from None
    if required and not value:
        raise ArchiveUnavailable(f"s3.{name} is empty: execution.archive needs it")
    if not value.isprintable() or " " in value:
        raise ArchiveUnavailable(f"s3.{name} holds a space or a line break")
    return value
