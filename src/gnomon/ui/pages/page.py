"""The parts that every subject of the dashboard is made of: pages, forms, and what pages read of the API."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from gnomon.errors import GnomonError, NotFound
from gnomon.ui.requests import PageRequest

Values = Mapping[str, Any]
#: How many rows an overview shows of each kind, and a list on one page.
FEW_ROWS, PAGE_ROWS = 10, 50


class DashboardPage(Struct, frozen=True, kw_only=True):
    """A page that a caller may read."""

    path: str
    #: The name in the menu, and the heading unless the values have another.
    title: str
    template: str
    load: Callable[[PageRequest], Awaitable[Values]]
    #: The route of the API that only those may call who may read the page.
    route: str = "list_jobs"
    #: It is about all tenants: only callers of the operator's tenant read it.
    for_operator: bool = False
    in_menu: bool = True

    def shown_to(self, request: PageRequest) -> bool:
        """Whether the caller may read the page."""
        return request.allows(self.route) and (request.session.caller.is_operator or not self.for_operator)


class FormAnswer(Struct, frozen=True, kw_only=True):
    """The page that answers a form, where the page has no address of its own."""

    template: str
    #: With the `title` of the page.
    values: Values
    status: int = 200


class DashboardForm(Struct, frozen=True, kw_only=True):
    """A form that changes something by one request to the API, or that asks with more text than an address holds.

    It returns the address of the next page, or the page.
    """

    path: str
    run: Callable[[PageRequest], Awaitable[str | FormAnswer]]
    #: It may send a file: the larger limit of `server.max_jobs_body` applies.
    many: bool = False


class FileAnswer(Struct, frozen=True, kw_only=True):
    """A file for the disk of the reader."""

    name: str
    media_type: str
    #: The content, in pieces.
    pieces: AsyncIterator[bytes]


class DashboardFile(Struct, frozen=True, kw_only=True):
    """A file that a caller may load. A request that is refused is refused before the first piece."""

    path: str
    load: Callable[[PageRequest], Awaitable[FileAnswer]]


async def found_or_none(request: PageRequest, path: str, **query: str | int | None) -> Any:  # noqa: ANN401 - JSON
    """An answer of the API; None if there is no such thing."""
    try:
        return await request.get(path, **query)
    except NotFound:
        return None


async def page_part(
    request: PageRequest, path: str, *, body: Mapping[str, Any] | None = None, **query: str | int | None
) -> Values:
    """An answer of the API, or the reason why this part of the page is not known. A `body` asks by POST."""
    try:
        found = await (request.get(path, **query) if body is None else request.send("POST", path, body))
    except GnomonError as error:
        return {"found": None, "error": str(error)}
    return {"found": found, "error": None}
