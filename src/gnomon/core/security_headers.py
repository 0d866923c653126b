"""The security headers of every HTTP response."""

from collections.abc import Mapping

#: Of data: nothing may store, reinterpret, frame or refer to it.
SECURITY_HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

#: Of pages: they load and send only from and to their own server, and nothing in them is a program but its module.
#: With the policy `no-referrer` a browser would send forms with the origin `null`, like those of any other page.
PAGE_SECURITY_HEADERS: Mapping[str, str] = {
    **SECURITY_HEADERS,
    "referrer-policy": "same-origin",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
}


def encoded_security_headers() -> list[tuple[bytes, bytes]]:
    """The security headers of data as they are sent."""
    return [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
