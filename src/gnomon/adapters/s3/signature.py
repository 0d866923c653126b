"""Signature version 4 of Amazon, which every S3-compatible storage accepts.

The signature covers method, path, query, host, time and the digest of the body. The secret key is not sent.
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import quote

from msgspec import Struct

_ALGORITHM = "AWS4-HMAC-SHA256"
_SERVICE = "s3"
#: The characters, besides letters and digits, that a signed URL holds unescaped.
_UNESCAPED = "-_.~"


class S3Credentials(Struct, frozen=True, kw_only=True):
    """The key of an account; with a session token if it is a temporary one."""

    key_id: str
    secret_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        return "S3Credentials([hidden])"


def encoded_path(path: str) -> str:
    """The path as it is sent and signed."""
    return quote(path, safe="/" + _UNESCAPED)


def encoded_query(query: Mapping[str, str]) -> str:
    """The parameters in the order and form in which they are sent and signed."""
    pairs = sorted((quote(name, safe=_UNESCAPED), quote(value, safe=_UNESCAPED)) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def signed_headers(  # noqa: PLR0913 - everything that the signature covers
    credentials: S3Credentials, *, method: str, host: str, path: str, query: str, body: bytes, region: str, at: datetime
) -> dict[str, str]:
    """The headers that sign a request; path and query are encoded already."""
    time, digest = f"{at:%Y%m%dT%H%M%SZ}", hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": time}
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{digest}"
    scope = f"{at:%Y%m%d}/{region}/{_SERVICE}/aws4_request"
    signed = f"{_ALGORITHM}\n{time}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signature = hmac.digest(_signing_key(credentials, scope), signed.encode(), "sha256").hex()
    authorization = f"{_ALGORITHM} Credential={credentials.key_id}/{scope},SignedHeaders={names},Signature={signature}"
    return {**headers, "authorization": authorization}


def _signing_key(credentials: S3Credentials, scope: str) -> bytes:
    key = b"AWS4" + credentials.secret_key.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
