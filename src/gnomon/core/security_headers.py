"""The security headers of every HTTP response."""

from collections.abc import Mapping

#: The servers send data, never pages: nothing may store, reinterpret, frame or refer to it.
SECURITY_HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
