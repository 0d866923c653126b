"""The menu of the dashboard: the pages in groups, in the order in which they are needed."""

from collections.abc import Sequence

from gnomon.ui.pages.page import DashboardPage
from gnomon.ui.requests import PageRequest

#: The paths of each group. The first group has no name.
GROUPS: Sequence[tuple[str, Sequence[str]]] = (
    ("", ("/ui/", "/ui/calendar", "/ui/schedule", "/ui/jobs", "/ui/ticks", "/ui/executions", "/ui/why", "/ui/plan")),
    ("Waits for you", ("/ui/dead-letters", "/ui/approvals", "/ui/quarantine")),
    ("Flow", ("/ui/backfills", "/ui/events", "/ui/announcements", "/ui/breakers")),
    ("Rules", ("/ui/policy", "/ui/audit")),
    ("Fleet", ("/ui/workers", "/ui/agents", "/ui/health")),
)


def menu_for(request: PageRequest, pages: Sequence[DashboardPage]) -> list[tuple[str, list[DashboardPage]]]:
    """The groups of pages that the caller may read, without empty ones."""
    shown = {page.path: page for page in pages if page.in_menu and page.shown_to(request)}
    groups = [(name, [shown[path] for path in paths if path in shown]) for name, paths in GROUPS]
    return [(name, found) for name, found in groups if found]


def menu_path(path: str) -> str:
    """The path in the menu to which a page belongs."""
    paths = [one for _, group in GROUPS for one in group if path == one or path.startswith(f"{one.rstrip('/')}/")]
    return max(paths, key=len, default="")
