"""The live workers, their pools, and the functions of jobs that none of them has."""

import asyncio
from collections.abc import Sequence
from typing import Any

from gnomon.ui.pages.page import DashboardPage, Values, page_part
from gnomon.ui.requests import PageRequest

#: Of how many jobs, by name, the page compares the functions with those of the workers.
_COMPARED = 1_000


async def _workers(request: PageRequest) -> Values:
    found, jobs = await asyncio.gather(
        request.get("/v1/workers"),
        page_part(request, "/v1/jobs", limit=_COMPARED) if request.wants("functions") else _no(),
    )
    return {
        "workers": found,
        "pools": _pools(found["items"]),
        "missing": _missing(found["items"], jobs),
        "compared": jobs,
    }


async def _no() -> Values:
    return {"found": {"items": [], "next": None}, "error": None}


def _pools(workers: Sequence[Values]) -> list[dict[str, Any]]:
    """The pools with their slots."""
    found: dict[str, dict[str, Any]] = {}
    for one in workers:
        pool = found.setdefault(one["pool"], {"pool": one["pool"], "workers": 0, "slots": 0, "in_hand": 0})
        pool["workers"] += 1
        pool["slots"] += 0 if one["draining"] else one["slots"]
        pool["in_hand"] += one["in_hand"]
    return [found[name] for name in sorted(found)]


def _missing(workers: Sequence[Values], jobs: Values) -> list[tuple[str, list[str]]]:
    """The functions that no live worker has, each with the jobs that call it."""
    known = {name for one in workers if not one["draining"] for name in one["functions"]}
    found: dict[str, list[str]] = {}
    for job in jobs["found"]["items"] if jobs["found"] else ():
        for name in job["functions"]:
            if name not in known:
                found.setdefault(name, []).append(job["job"])
    return sorted(found.items())


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/workers", title="Workers", template="workers.html", load=_workers, route="list_workers"),
)
