"""The parts that every subject of the dashboard is made of: pages, forms, and what pages read of the API."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from gnomon.errors import GnomonError
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
    in_menu: bool = True


class DashboardForm(Struct, frozen=True, kw_only=True):
    """A form that changes something by one request to the API. It returns the address of the next page."""

    path: str
    run: Callable[[PageRequest], Awaitable[str]]


async def page_part(request: PageRequest, path: str, **query: str | int | None) -> Values:
    """An answer of the API, or the reason why this part of the page is not known."""
    try:
        return {"found": await request.get(path, **query), "error": None}
    except GnomonError as error:
        return {"found": None, "error": str(error)}
