"""Cursors: where a listing goes on. They are made for one caller and one question, and good for nothing else."""

import base64
import binascii
import hashlib
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from gnomon.api.routes import Call
from gnomon.core.responses import Page
from gnomon.errors import FieldError

T = TypeVar("T")


def place(call: Call, kind: Any) -> Any:  # noqa: ANN401 - each listing has a place of its own kind
    """The place that the caller's cursor names; None if there is none."""
    said = call.asked.get("cursor")
    if said is None:
        return None
    refused = FieldError("cursor", said, "is none that was given out for this question")
    try:
        found, seal = msgspec.json.decode(base64.b64decode(said.encode(), altchars=b"-_", validate=True))
        if seal != _seal(call, found):
            raise refused
        return msgspec.convert(found, kind)
    except (binascii.Error, ValueError, TypeError, UnicodeEncodeError):
        raise refused from None


def page(call: Call, items: list[T], after: object) -> Page[T]:
    """The page, with the address of the next one if there is something after it."""
    if after is None:
        return Page(items=items)
    found = msgspec.to_builtins(after)
    cursor = base64.urlsafe_b64encode(msgspec.json.encode((found, _seal(call, found)))).decode()
    return Page(items=items, next=f"{call.url}?{urlencode({**call.asked, 'cursor': cursor})}")


def _seal(call: Call, found: object) -> str:
    """Ties a place to the caller's tenant and to all that was asked for, the size of the page aside."""
    asked = sorted((field, value) for field, value in call.asked.items() if field not in ("cursor", "limit"))
    text = msgspec.json.encode((call.tenant, call.url, asked, found))
    return hashlib.sha256(text).hexdigest()[:16]
