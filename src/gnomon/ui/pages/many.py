"""Changes of many rows: those that are ticked, or all that match the filters of a list, with the outcome of each."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

from msgspec import Struct

from gnomon.errors import FieldError
from gnomon.ui.requests import PageRequest

#: How many pages of the API one form asks for. The page that follows offers to go on.
_MOST_PAGES = 10


class ManyChanged(Struct, frozen=True):
    """The outcome of each row, and the filters with which to go on; empty if everything is done."""

    items: Sequence[Mapping[str, Any]]
    go_on: str = ""


def match_text(filters: Mapping[str, str], keep_empty: Sequence[str] = ()) -> str:
    """The filters as a field of a form."""
    return urlencode({name: value for name, value in filters.items() if value or name in keep_empty})


def chosen(request: PageRequest, field: str) -> list[str] | None:
    """The rows that are ticked; None if all that match are meant. FieldError if none is ticked."""
    if request.form.get("which", "ticked") != "ticked":
        return None
    found = request.fields.values(field)
    if not found:
        raise FieldError(field, "", "names nothing: tick what is meant")
    return found


async def change_all(
    request: PageRequest, path: str, match: str, known: Sequence[str], *, body: Mapping[str, Any] | None = None
) -> ManyChanged:
    """Change everything that the filters select, page by page. FieldError for a filter that the list does not have."""
    filters = dict(parse_qsl(match, keep_blank_values=True))
    for name, value in filters.items():
        if name not in known:
            raise FieldError("which", f"{name}={value}", f"is none of {', '.join(known)}")
    items, key = list[Mapping[str, Any]](), request.form.get("key")
    for _ in range(_MOST_PAGES):
        done = await request.send("POST", f"{path}?{urlencode(filters)}" if filters else path, body, key=key)
        items += done["items"]
        if done["next"] is None:
            return ManyChanged(items)
        filters = dict(parse_qsl(done["next"].partition("?")[2], keep_blank_values=True))
    return ManyChanged(items, urlencode(filters))
