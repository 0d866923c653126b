"""A client for one bucket: it writes objects, in parts if they are large, and reads them.

Requests that fail in passing are sent again. All of them are idempotent: an object is replaced as a whole, and the
parts of an unfinished upload are no object.
"""

import asyncio
import html
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import urlsplit

from msgspec import Struct

from gnomon.adapters.http_client import HttpClient
from gnomon.adapters.s3.signature import S3Credentials, encoded_path, encoded_query, signed_headers
from gnomon.errors import ArchiveUnavailable, RequestFailed
from gnomon.ports.http import HttpAnswer, HttpRequest
from gnomon.ports.runtime import Clock

#: Objects larger than this are written in parts of this size. The protocol demands at least 5 MiB.
PART_BYTES = 8 * 2**20
#: How often a request is sent until it succeeds, and the pause after the first failure, which then doubles.
_TRIES, _PAUSE_SECONDS = 4, 0.5
_PASSING = frozenset((408, 429, 500, 502, 503, 504))
#: Codes of the protocol for failures that pass although their status says otherwise.
_PASSING_CODES = frozenset(("RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable"))
_LARGEST_REPLY = 256 * 1024
_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,100})</Code>")
_UPLOAD_ID = re.compile(rb"<UploadId>([^<]{1,2048})</UploadId>")
#: An upload can be completed with status 200 and fail all the same: then the body is an error.
_COMPLETED = b"CompleteMultipartUploadResult"
_ADVICE = {
    "PermanentRedirect": "the bucket is in another region: set s3.region",
    "AuthorizationHeaderMalformed": "the bucket is in another region: set s3.region",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
    "SignatureDoesNotMatch": "s3.secret_access_key is not the secret of s3.access_key_id",
    "InvalidAccessKeyId": "s3.access_key_id is unknown",
    "ExpiredToken": "s3.session_token has expired",
    "NoSuchBucket": "there is no such bucket",
    "AccessDenied": "the credentials need the rights to put, get and abort uploads of objects",
}


class S3Bucket(Struct, frozen=True, kw_only=True):
    """A bucket and the server that has it."""

    endpoint: str
    region: str
    name: str


class S3Client:
    """Writes and reads the objects of one bucket. Every failure is ArchiveUnavailable."""

    def __init__(
        self,
        bucket: S3Bucket,
        credentials: Callable[[], S3Credentials],
        http: HttpClient,
        clock: Clock,
        *,
        timeout_ms: int,
    ) -> None:
        """`credentials` is called for each request, so that rotated ones are used at once."""
        self._bucket = bucket
        self._credentials = credentials
        self._http = http
        self._clock = clock
        self._timeout_ms = timeout_ms

    async def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        if len(content) > PART_BYTES:
            await self._put_in_parts(key, content)
        else:
            await self._call("PUT", key, body=content)

    async def get(self, key: str, *, max_bytes: int) -> bytes:
        """The content of an object."""
        return (await self._call("GET", key, max_bytes=max_bytes)).body

    async def _put_in_parts(self, key: str, content: bytes) -> None:
        begun = await self._call("POST", key, {"uploads": ""})
        found = _UPLOAD_ID.search(begun.body)
        if found is None:
            raise self._failure("POST", "the reply names no upload")
        upload = html.unescape(found[1].decode())
        try:
            await self._upload_parts(key, upload, content)
        except BaseException:
            # The storage keeps the parts of an unfinished upload, and charges for them.
            with suppress(ArchiveUnavailable):
                await self._call("DELETE", key, {"uploadId": upload})
            raise

    async def _upload_parts(self, key: str, upload: str, content: bytes) -> None:
        parts: list[str] = []
        for number, start in enumerate(range(0, len(content), PART_BYTES), 1):
            query = {"partNumber": str(number), "uploadId": upload}
            answer = await self._call("PUT", key, query, body=content[start : start + PART_BYTES])
            tag = html.escape(answer.headers.get("etag", ""))
            parts.append(f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
        whole = f"<CompleteMultipartUpload>{''.join(parts)}</CompleteMultipartUpload>"
        answer = await self._call("POST", key, {"uploadId": upload}, body=whole.encode())
        if _COMPLETED not in answer.body:
            raise self._failure("POST", _code(answer) or "the upload was not completed")

    async def _call(
        self,
        method: str,
        key: str,
        query: Mapping[str, str] | None = None,
        *,
        body: bytes = b"",
        max_bytes: int = _LARGEST_REPLY,
    ) -> HttpAnswer:
        """The reply to a request that succeeded, at the latest in the last try."""
        reason = ""
        for tries in range(_TRIES):
            if tries:
                await self._clock.sleep(_PAUSE_SECONDS * 2 ** (tries - 1))
            # Signed anew for each try, as a signature is valid for some minutes only; in a thread, as a body is large.
            request = await asyncio.to_thread(self._signed, method, key, encoded_query(query or {}), body)
            try:
                answer = await self._http.send(request, timeout_ms=self._timeout_ms, max_bytes=max_bytes)
            except RequestFailed as error:
                reason = str(error)
                continue
            if answer.status in range(200, 300) and _code(answer) not in _PASSING_CODES:
                return answer
            reason = _code(answer) or f"status {answer.status}"
            if answer.status not in _PASSING and reason not in _PASSING_CODES:
                break
        raise self._failure(method, reason)

    def _signed(self, method: str, key: str, query: str, body: bytes) -> HttpRequest:
        base, path = urlsplit(self._bucket.endpoint), encoded_path(f"/{self._bucket.name}/{key}")
        path = base.path.rstrip("/") + path
        headers = signed_headers(
            self._credentials(),
            method=method,
            host=base.netloc,
            path=path,
            query=query,
            body=body,
            region=self._bucket.region,
            at=datetime.fromtimestamp(self._clock.now() / 1000, UTC),
        )
        url = f"{base.scheme}://{base.netloc}{path}{'?' if query else ''}{query}"
        return HttpRequest(method=method, url=url, headers=headers, body=body)

    def _failure(self, method: str, reason: str) -> ArchiveUnavailable:
        advice = f" ({_ADVICE[reason]})" if reason in _ADVICE else ""
        return ArchiveUnavailable(
            f"cannot archive to the bucket {self._bucket.name} at {urlsplit(self._bucket.endpoint).netloc}:"
            f" {method}: {reason}{advice}"
        )


def _code(answer: HttpAnswer) -> str:
    """The error code in a reply; empty if it has none."""
    found = _CODE.search(answer.body) if answer.body.lstrip()[:1] == b"<" else None
    return found[1].decode() if found else ""
