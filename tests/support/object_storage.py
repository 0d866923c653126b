"""An object storage that speaks the protocol of S3, on a port of its own, and is as strict as the real ones.

It computes the signature of every request by itself, from what arrived, and refuses everything that does not fit.
"""

import hashlib
import hmac
import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit

KEY_ID, SECRET, REGION, BUCKET = "AKIDTEST", "s3cr3t/with+signs", "eu-test-1", "history"
_SMALLEST_PART = 5 * 2**20
#: Status, body and headers.
Answer = tuple[int, bytes, dict[str, str]]


class ObjectStorage:
    """One bucket, and the faults that it has."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        #: The parts of unfinished uploads.
        self.uploads: dict[str, dict[int, bytes]] = {}
        #: Method, path and query of each request that arrived.
        self.calls: list[str] = []
        #: The fault of the next requests: a status, a code of the protocol in a reply of 200, "hang" or "cut".
        self.faults: list[int | str | None] = []
        #: The status and the code of every answer to requests whose method and URL contain a text.
        self.answers: dict[str, tuple[int, str]] = {}
        #: The code with which every request is refused; none if empty.
        self.refuses = ""
        #: The token that requests must carry; none if empty.
        self.session_token = ""
        #: Alters what is read.
        self.alters = False
        self.released = threading.Event()
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self, request: "_Request") -> Answer:
        """The answer to a request that arrived whole."""
        planned = [answer for text, answer in self.answers.items() if text in self.calls[-1]]
        if wrong := self.refuses or self._wrong(request):
            planned.append((403, wrong))
        if planned:
            return _error(*planned[0])
        bucket, _, key = unquote(request.path).lstrip("/").partition("/")
        if bucket != BUCKET:
            return _error(404, "NoSuchBucket")
        query = dict(parse_qsl(request.query, keep_blank_values=True))
        if query:
            return self._serve_upload(request, key, query)
        if request.method == "PUT":
            self.objects[key] = request.body
            return 200, b"", {"ETag": _tag(request.body)}
        if key not in self.objects:
            return _error(404, "NoSuchKey")
        content = self.objects[key]
        return 200, content[:-1] + b"?" if self.alters else content, {}

    def _serve_upload(self, request: "_Request", key: str, query: dict[str, str]) -> Answer:
        if "uploads" in query:
            upload = f"upload/{len(self.uploads) + 1}+=&"
            self.uploads[upload] = {}
            shown = upload.replace("&", "&amp;")
            return 200, f"<InitiateMultipartUploadResult><UploadId>{shown}</UploadId></X>".encode(), {}
        if request.method == "DELETE":
            self.uploads.pop(query["uploadId"], None)
            return 204, b"", {}
        if request.method == "PUT":
            return self._put_part(query, request.body)
        return self._complete(key, query["uploadId"], request.body)

    def _put_part(self, query: dict[str, str], body: bytes) -> Answer:
        if query["uploadId"] not in self.uploads:
            return _error(404, "NoSuchUpload")
        self.uploads[query["uploadId"]][int(query["partNumber"])] = body
        return 200, b"", {"ETag": _tag(body)}

    def _complete(self, key: str, upload: str, body: bytes) -> Answer:
        parts = self.uploads.get(upload)
        if parts is None:
            return _error(404, "NoSuchUpload")
        named = [
            (int(one.findtext("PartNumber", "")), one.findtext("ETag", ""))
            for one in ET.fromstring(body)  # noqa: S314 - our own text
        ]
        if named != [(number, _tag(part)) for number, part in sorted(parts.items())]:
            return _error(400, "InvalidPart")
        if any(len(parts[number]) < _SMALLEST_PART for number, _ in named[:-1]):
            return _error(400, "EntityTooSmall")
        self.objects[key] = b"".join(parts[number] for number, _ in named)
        del self.uploads[upload]
        return 200, b"<CompleteMultipartUploadResult/>", {}

    def _wrong(self, request: "_Request") -> str:
        """The code of what is wrong with the signature; empty if nothing is."""
        pattern = (
            r"AWS4-HMAC-SHA256 Credential=(.+?)/(\d{8})/(.+?)/s3/aws4_request,\s*SignedHeaders=(.+?),\s*Signature=(\w+)"
        )
        found = re.fullmatch(pattern, request.headers.get("authorization", ""))
        if found is None or found[1] != KEY_ID:
            return "InvalidAccessKeyId"
        _, day, region, names, signature = found.groups()
        if region != REGION:
            return "AuthorizationHeaderMalformed"
        needed = {"host", "x-amz-date", "x-amz-content-sha256", *(["x-amz-security-token"] * bool(self.session_token))}
        if not needed <= set(names.split(";")):
            return "AccessDenied"
        if request.headers.get("x-amz-security-token", "") != self.session_token:
            return "ExpiredToken"
        if hashlib.sha256(request.body).hexdigest() != request.headers["x-amz-content-sha256"]:
            return "XAmzContentSHA256Mismatch"
        pairs = sorted(parse_qsl(request.query, keep_blank_values=True))
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
        lines = [f"{name}:{request.headers[name].strip()}" for name in names.split(";")]
        whole = [request.method, quote(unquote(request.path)), query, *lines, "", names]
        canonical = "\n".join([*whole, request.headers["x-amz-content-sha256"]])
        scope = f"{day}/{region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{request.headers['x-amz-date']}\n{scope}\n{_sha(canonical)}"
        key = f"AWS4{SECRET}".encode()
        for part in (day, region, "s3", "aws4_request", text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return "" if hmac.compare_digest(key.hex(), signature) else "SignatureDoesNotMatch"


class _Request:
    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self.method, self.headers, self.body = method, headers, body
        parts = urlsplit(target)
        self.path, self.query = parts.path, parts.query


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _tag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _error(status: int, code: str) -> Answer:
    return status, f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode(), {}


@contextmanager
def object_storage() -> Iterator[ObjectStorage]:
    """A storage with an empty bucket."""
    storage = ObjectStorage()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            storage.calls.append(f"{self.command} {self.path}")
            fault = storage.faults.pop(0) if storage.faults else None
            if fault == "hang":
                storage.released.wait(30)
            if fault in ("hang", "cut"):
                self.close_connection = True
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            if isinstance(fault, int):
                status, content, more = _error(fault, "SlowDown" if fault == 503 else "Whatever")
            elif isinstance(fault, str):
                status, content, more = 200, _error(200, fault)[1], {}
            else:
                status, content, more = storage.serve(_Request(self.command, self.path, headers, body))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 - the names that the library calls

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    storage.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield storage
    finally:
        storage.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
