"""Reading the field `http` of a job or a step: the request, and the answers that count as success."""

import re
from collections.abc import Mapping
from typing import Any

from gnomon.core.jobs.fields import FieldReader, key_text
from gnomon.core.jobs.inputs import read_json
from gnomon.core.pings import redacted_url
from gnomon.core.runs.http_calls import METHODS, MOST_REDIRECTS, WITHOUT_BODY, read_expect
from gnomon.core.runs.http_urls import check_url
from gnomon.errors import FieldError

HTTP_FIELDS = ("url", "method", "headers", "json", "body", "expect", "follow", "timeout")
LONGEST_URL = 4096
MOST_HEADERS, LONGEST_HEADER = 100, 8192
MOST_EXPECTED = 50
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
#: Headers that follow from the URL, the body and the connection.
_RESERVED = frozenset(
    (
        "connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding",
        "upgrade",
    )
)  # fmt: skip


def read_http(fields: FieldReader) -> dict[str, Any]:
    """The request of a step, in the form in which the step stores it; without the timeout.

    Places of references and secrets stay. FieldError names the first wrong field by its path.
    """
    call: dict[str, Any] = {"url": _url(fields)}
    method = _method(fields)
    if method:
        call["method"] = method
    if "headers" in fields:
        call["headers"] = _headers(fields)
    call |= _body(fields, method)
    if "expect" in fields:
        call["expect"] = _expect(fields)
    if "follow" in fields:
        call["follow"] = fields.whole("follow", 0, low=0, high=MOST_REDIRECTS)
    return call


def _url(fields: FieldReader) -> str:
    value = fields.required("url")
    field = fields.at("url")
    if not isinstance(value, str):
        raise FieldError(field, value, "must be a text")
    if len(value) > LONGEST_URL:
        raise FieldError(field, redacted_url(value), f"has {len(value)} characters; at most {LONGEST_URL} are allowed")
    if not value.isprintable():
        raise FieldError(field, redacted_url(value), "has a character that cannot be printed")
    read_json(field, value)
    check_url(field, value)
    return value


def _method(fields: FieldReader) -> str:
    if "method" not in fields:
        return ""
    value = fields["method"]
    if not isinstance(value, str) or value.upper() not in METHODS:
        raise fields.refused("method", f"must be one of {', '.join(METHODS)}")
    return value.upper()


def _headers(fields: FieldReader) -> dict[str, str]:
    value = fields["headers"]
    if not isinstance(value, Mapping):
        raise fields.refused("headers", "must be a mapping of headers")
    if len(value) > MOST_HEADERS:
        raise fields.refused("headers", f"has {len(value)} headers; at most {MOST_HEADERS} are allowed")
    headers: dict[str, str] = {}
    named: set[str] = set()
    for name, text in value.items():
        field = f"{fields.at('headers')}.{key_text(name)}"
        _check_header_name(field, name)
        if name.lower() in named:
            raise FieldError(field, name, "is named a second time")
        named.add(name.lower())
        headers[name] = _header(field, text)
    read_json(fields.at("headers"), headers)
    return headers


def _check_header_name(field: str, name: object) -> None:
    if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
        raise FieldError(field, name, "is no name of a header")
    if name.lower() in _RESERVED or name.lower().startswith("proxy-"):
        raise FieldError(field, name, "is set by the connection, and cannot be given")


def _header(field: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise FieldError(field, value, "must be a text")
    text = str(value)
    if len(text) > LONGEST_HEADER:
        raise FieldError(field, text, f"has {len(text)} characters; at most {LONGEST_HEADER} are allowed")
    if not text.isprintable():
        raise FieldError(field, text, "has a character that no header can have")
    return text


def _body(fields: FieldReader, method: str) -> dict[str, Any]:
    named = [field for field in ("json", "body") if field in fields]
    if not named:
        return {}
    if len(named) > 1:
        raise fields.refused("body", "cannot be beside json: say one of them")
    [field] = named
    if method in WITHOUT_BODY:
        raise fields.refused(field, f"is a body, which {method} does not have")
    value = read_json(fields.at(field), fields[field])
    if field == "body" and not isinstance(value, str):
        raise fields.refused("body", "must be a text; give data as json")
    return {field: value}


def _expect(fields: FieldReader) -> Any:  # noqa: ANN401 - a status, a range, or a list of them
    value = fields["expect"]
    listed = isinstance(value, list | tuple)
    if listed and not 1 <= len(value) <= MOST_EXPECTED:
        raise fields.refused("expect", f"must have 1 to {MOST_EXPECTED} entries")
    for entry in value if listed else [value]:
        if not isinstance(entry, int | str) or isinstance(entry, bool):
            raise fields.refused("expect", _NO_STATUSES)
    try:
        read_expect(value)
    except ValueError as error:
        raise fields.refused("expect", f"{_NO_STATUSES}, and not {error}") from None
    return list(value) if listed else value


_NO_STATUSES = "must be a status such as 201, a range such as 200-299, or a list of them"
