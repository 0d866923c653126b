"""The address of an archive in object storage: `s3://BUCKET/PREFIX`."""

import re
from typing import NamedTuple

from gnomon.config.sources import redact_value
from gnomon.errors import FieldError

_FIELD = "execution.archive"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
#: Names that no proxy or storage changes on the way, and that hold no user or query.
_PREFIX = re.compile(r"([A-Za-z0-9!_.*'()-]+/)*")
_LONGEST_PREFIX = 512


class ArchiveAddress(NamedTuple):
    """A bucket, and the beginning of the names of its objects: empty, or with a slash at its end."""

    bucket: str
    prefix: str


def read_archive_address(text: str) -> ArchiveAddress:
    """The address as written; raise FieldError for any other form."""
    scheme, mark, rest = text.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    if not mark or scheme != "s3":
        reason = "must be s3://BUCKET or s3://BUCKET/PREFIX; a folder is set in execution.archive_dir"
        raise FieldError(_FIELD, redact_value(_FIELD, text), reason)
    if not _BUCKET.fullmatch(bucket):
        raise FieldError(
            _FIELD, redact_value(_FIELD, text), "must name a bucket of 3 to 63 characters of a-z, 0-9, . and -"
        )
    if not _PREFIX.fullmatch(prefix) or len(prefix) > _LONGEST_PREFIX or {".", ".."} & set(prefix.split("/")):
        reason = f"must have a prefix of letters, digits, !_.*'()- and /, at most {_LONGEST_PREFIX} characters"
        raise FieldError(_FIELD, redact_value(_FIELD, text), reason)
    return ArchiveAddress(bucket, prefix)
