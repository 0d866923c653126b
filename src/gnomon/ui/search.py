"""The search of the dashboard: pages, jobs and executions by what one types."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from gnomon.errors import GnomonError
from gnomon.ui.pages.page import FEW_ROWS, DashboardPage, Values
from gnomon.ui.requests import PageRequest, segment

#: Ids of executions begin so; anything else is no id, and need not be looked for.
_EXECUTION = "run_"


class SearchHit(Struct, frozen=True):
    """An address that was found."""

    kind: str
    name: str
    address: str


def search_page(pages: Sequence[DashboardPage]) -> DashboardPage:
    """The page with the answers to a search, among these pages too."""

    async def search(request: PageRequest) -> Values:
        text = request.query.get("q", "").strip()
        hits = [*_pages(request, pages, text), *await _execution(request, text), *await _jobs(request, text)]
        return {"q": text, "hits": hits}

    return DashboardPage(path="/ui/search", title="Search", template="search.html", load=search, in_menu=False)


def _pages(request: PageRequest, pages: Sequence[DashboardPage], text: str) -> list[SearchHit]:
    shown = [page for page in pages if page.in_menu and page.shown_to(request)]
    return [SearchHit("page", page.title, page.path) for page in shown if text.lower() in page.title.lower()]


async def _execution(request: PageRequest, text: str) -> list[SearchHit]:
    if not text.startswith(_EXECUTION):
        return []
    found = await _answer(request, f"/v1/executions/{segment(text)}")
    address = f"/ui/executions/{segment(text)}"
    return [] if found is None else [SearchHit("execution", f"{text} of {found['job']}", address)]


async def _jobs(request: PageRequest, text: str) -> list[SearchHit]:
    found = await _answer(request, "/v1/jobs", q=text, limit=FEW_ROWS) if text else None
    return [
        SearchHit("job", one["job"], f"/ui/jobs/{segment(one['job'])}") for one in (found or {"items": []})["items"]
    ]


async def _answer(request: PageRequest, path: str, **query: str | int) -> Any:  # noqa: ANN401 - JSON
    """The answer of the API; None if it has none to such a text."""
    try:
        return await request.get(path, **query)
    except GnomonError:
        return None
