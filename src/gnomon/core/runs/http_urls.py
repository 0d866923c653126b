"""URLs of HTTP calls: references and secrets fill the path and the query, and never choose the host.

Every value is percent-encoded, also its slashes, so that it stays one segment of the path or one value of the query.
An empty value in the path, and one with a segment `.` or `..`, would call another resource: both are refused.
Only a secret at the very beginning is taken as it is: it may hold a whole URL, or the beginning of one.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from gnomon.core.pings import is_http_url, redacted_url
from gnomon.core.runs.expressions import DataAllowance, Scope, replace_references, resolve_text
from gnomon.core.runs.secret_text import SecretPlace, TextPart, parts_of
from gnomon.errors import FieldError

#: Stands for a URL whose secrets are filled in.
_HIDDEN = "[hidden]"
#: Stands for a secret with a whole URL, and for any other value.
_SAMPLE_BASE, _SAMPLE = "https://example.com", "x"
_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_AUTHORITY_ENDS = re.compile(r"[/?#]")
#: A secret at the beginning, and what may be behind it.
_BEHIND_BASE = re.compile(r"^\$\{secret:[^{}]+\}(?:[/?]|$)")
_SEPARATOR = re.compile(r"[/\\]")
#: The characters that stay as they are written in a definition.
_WRITTEN = "".join(map(chr, range(0x20, 0x7F)))


def check_url(field: str, url: str) -> None:
    """Raise FieldError unless the URL of a definition is valid, whatever is filled into its places."""
    parts = parts_of(url)
    if not _begins_with_secret(parts):
        _check_host(field, url)
    elif not _BEHIND_BASE.search(url):
        raise FieldError(field, url, "must go on with / or ? behind the secret, which holds a URL: the host ends there")
    _check_filled(field, _sample(replace_references(url, _SAMPLE)), shown=redacted_url(url))


def _check_host(field: str, url: str) -> None:
    """Raise FieldError if a reference or a secret stands in the scheme, the host or the port."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        if url.startswith("${"):
            reason = "would choose the host by data: write the host, or give the whole URL as ${secret:NAME}"
            raise FieldError(field, url, reason)
        raise FieldError(field, redacted_url(url), "must be a URL such as https://api.example.com/orders")
    end = _AUTHORITY_ENDS.search(url, scheme.end())
    host = url[scheme.end() : end.start() if end else len(url)]
    if "@" in host:
        reason = "has credentials: give them as the header Authorization, from a secret"
        raise FieldError(field, redacted_url(url), reason)
    if "${" in host:
        raise FieldError(field, host, "would choose the host by data: a reference may stand behind the host only")


def _sample(url: str) -> str:
    """The URL with a value in each place of a secret."""
    written = ""
    for part in parts_of(url):
        written += ascii_url(part) if isinstance(part, str) else (_SAMPLE if written else _SAMPLE_BASE)
    return written


def fill_url(field: str, url: str, scope: Scope, allowance: DataAllowance) -> str:
    """The URL with its references resolved; places of secrets stay. FieldError if a value does not fit."""

    def parts(data: Any, before: Sequence[TextPart]) -> list[TextPart]:  # noqa: ANN401 - any JSON
        return _encoded(field, data, in_path=not any("?" in one for one in before if isinstance(one, str)))

    filled = resolve_text(url, scope, allowance, parts)
    _check_filled(field, _sample(filled), shown=redacted_url(url))
    return filled


def _encoded(field: str, data: object, *, in_path: bool) -> list[TextPart]:
    if isinstance(data, bool):
        return ["true" if data else "false"]
    if isinstance(data, int | float):
        return [quote(str(data), safe="")]
    if not isinstance(data, str):
        raise FieldError(field, data, "is no text and no number, which a URL could hold")
    if in_path and not data:
        raise FieldError(field, data, "is empty: in the path of a URL it would call another resource")
    return [quote(part, safe="") if isinstance(part, str) else part for part in parts_of(data)]


def final_url(field: str, url: str, read_secret: Callable[[str], str]) -> str:
    """The URL to call; `read_secret` returns the value of a secret. FieldError, without the value, if it is no URL."""
    written = ""
    secret = False
    for part in parts_of(url):
        if isinstance(part, str):
            written += ascii_url(part)
            continue
        secret = True
        value = read_secret(part.name)
        written += quote(value, safe="") if written else _base(field, value)
    _check_filled(field, written, shown=_HIDDEN if secret else redacted_url(written))
    return written


def _base(field: str, value: str) -> str:
    if not is_http_url(ascii_url(value)) or "#" in value:
        raise FieldError(field, _HIDDEN, "is a secret with no http or https URL without credentials")
    return ascii_url(value)


def _begins_with_secret(parts: Sequence[TextPart]) -> bool:
    return next((isinstance(part, SecretPlace) for part in parts if part), False)


def _check_filled(field: str, url: str, *, shown: str) -> None:
    """Raise FieldError unless a URL without any places is valid."""
    if "#" in url:
        raise FieldError(field, shown, "has a fragment, which no server gets")
    if not is_http_url(url):
        raise FieldError(field, shown, "must be a URL such as https://api.example.com/orders, without credentials")
    parts = urlsplit(url)
    if "%" in parts.netloc:
        raise FieldError(field, shown, "has a host that is not ASCII: write it as xn--…, as name servers know it")
    # Some servers decode a slash before they resolve such segments, and read a backslash as one.
    if any(segment in (".", "..") for segment in _SEPARATOR.split(unquote(parts.path))):
        raise FieldError(field, shown, "has a segment . or .., which would call another resource")


def ascii_url(written: str) -> str:
    """A URL as people write it, with characters beyond ASCII percent-encoded."""
    return written if written.isascii() else quote(written, safe=_WRITTEN, errors="replace")
