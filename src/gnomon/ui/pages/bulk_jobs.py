"""Forms that pause, resume and trigger one job, those that are ticked, or all that match the filters of the list."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gnomon.ui.pages.many import ManyChanged, change_all, chosen
from gnomon.ui.pages.page import DashboardForm, FormAnswer
from gnomon.ui.requests import PageRequest

_FILTERS = ("q", "tag", "state", "cursor", "limit")
#: The beginning of the field with the filters of all that match, which may be none.
ALL = "all?"
#: How many outcomes a page shows of each kind.
_SHOWN = 200


async def _change(request: PageRequest, verb: str, body: Mapping[str, Any] | None = None) -> ManyChanged:
    """The outcome of each job that is meant."""
    path, fields, only = f"/v1/bulk/jobs/{verb}", dict(body or {}), request.form.get("only")
    names = [only] if only is not None else chosen(request, "names")
    if names is not None:
        done = await request.send("POST", path, {**fields, "names": names}, key=request.form.get("key"))
        return ManyChanged(done["items"])
    match = request.field("which").removeprefix(ALL)
    # A change of every job there is must be asked for by name.
    everything = {} if match else {"all": True}
    return await change_all(request, path, match, _FILTERS, body={**fields, **everything})


def _changing(verb: str, title: str) -> Callable[[PageRequest], Awaitable[FormAnswer]]:
    async def run(request: PageRequest) -> FormAnswer:
        return _outcomes(title, verb, await _change(request, verb))

    return run


async def _ask(request: PageRequest) -> FormAnswer:
    """Show what the pauses have swallowed, and ask what becomes of it."""
    done = await _change(request, "resume", {"preview": True})
    paused = [one for one in done.items if one["became"] != "unchanged"]
    values = {
        "title": "Resume",
        "items": paused,
        "names": request.fields.values("names"),
        "which": request.form.get("which", ""),
        "only": request.form.get("only"),
        "more": done.go_on,
        "shown": _SHOWN,
        "swallowed": sum((one["swallowed"] or {"count": 0})["count"] for one in paused),
    }
    return FormAnswer(template="bulk_resume.html", values=values)


async def _resume(request: PageRequest) -> FormAnswer:
    missed = request.field("missed")
    body = {"missed": missed} | ({"over": request.field("over")} if missed == "spread" else {})
    return _outcomes("Resumed", "resume", await _change(request, "resume", body))


def _outcomes(title: str, verb: str, done: ManyChanged) -> FormAnswer:
    values = {
        "title": title,
        "verb": verb,
        "refused": [one for one in done.items if one["refused"] is not None],
        "changed": [one for one in done.items if one["refused"] is None],
        "go_on": done.go_on,
        "shown": _SHOWN,
    }
    return FormAnswer(template="bulk_changed.html", values=values)


FORMS: tuple[DashboardForm, ...] = (
    DashboardForm(path="/ui/bulk/jobs/pause", run=_changing("pause", "Paused")),
    DashboardForm(path="/ui/bulk/jobs/trigger", run=_changing("trigger", "Triggered")),
    DashboardForm(path="/ui/bulk/jobs/ask", run=_ask),
    DashboardForm(path="/ui/bulk/jobs/resume", run=_resume),
)
