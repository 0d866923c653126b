"""The forms of the dashboard: a row each, with its address, the change it makes, and the page that follows."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from gnomon.errors import FieldError
from gnomon.ui.requests import PageRequest, address, segment


class DashboardForm(Struct, frozen=True, kw_only=True):
    """A form that changes something by one request to the API. It returns the address of the next page."""

    path: str
    run: Callable[[PageRequest], Awaitable[str]]


def _job_page(request: PageRequest) -> str:
    return f"/ui/jobs/{segment(request.names['name'])}"


def _job_route(request: PageRequest, verb: str) -> str:
    return f"/v1/jobs/{segment(request.names['name'])}/{verb}"


async def _pause(request: PageRequest) -> str:
    await request.send("POST", _job_route(request, "pause"), {})
    return _job_page(request)


async def _resume(request: PageRequest) -> str:
    await request.send("POST", _job_route(request, "resume"), {"missed": request.field("missed")})
    return _job_page(request)


async def _trigger(request: PageRequest) -> str:
    body = {"input": _json_object("input", request.form.get("input", ""))}
    started = await request.send("POST", _job_route(request, "trigger"), body)
    return f"/ui/executions/{segment(started['execution_id'])}"


async def _skip(request: PageRequest) -> str:
    moved = request.form.get("move_to", "")
    body = {"at": request.field("at")} | ({"move_to": moved} if moved else {})
    await request.send("POST", _job_route(request, "skip"), body)
    return _job_page(request)


async def _unskip(request: PageRequest) -> str:
    await request.send("POST", _job_route(request, "unskip"), {"at": request.field("at")})
    return _job_page(request)


async def _cancel(request: PageRequest) -> str:
    route = f"/v1/executions/{segment(request.names['id'])}"
    await request.send("POST", f"{route}/cancel")
    return f"/ui/executions/{segment(request.names['id'])}"


async def _replay(request: PageRequest) -> str:
    replayed = await request.send("POST", f"/v1/dead-letters/{segment(request.names['id'])}/replay")
    if replayed["execution_id"] is None:
        raise FieldError("dead letter", request.names["id"], replayed["refused"] or "was not replayed")
    return f"/ui/executions/{segment(replayed['execution_id'])}"


async def _resolve(request: PageRequest) -> str:
    await request.send("PATCH", f"/v1/dead-letters/{segment(request.names['id'])}", {"resolved": True})
    return address("/ui/dead-letters", job=request.form.get("job"))


def _vote(verb: str) -> Callable[[PageRequest], Awaitable[str]]:
    async def vote(request: PageRequest) -> str:
        body = {"digest": request.field("digest"), "reason": request.form.get("reason", "")}
        await request.send("POST", f"/v1/approvals/{segment(request.names['id'])}/{verb}", body)
        return f"/ui/approvals/{segment(request.names['id'])}"

    return vote


def _json_object(name: str, text: str) -> Any:  # noqa: ANN401 - JSON
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise FieldError(name, text, f"is no JSON: {error}") from None


FORMS: tuple[DashboardForm, ...] = (
    DashboardForm(path="/ui/jobs/{name}/pause", run=_pause),
    DashboardForm(path="/ui/jobs/{name}/resume", run=_resume),
    DashboardForm(path="/ui/jobs/{name}/trigger", run=_trigger),
    DashboardForm(path="/ui/jobs/{name}/skip", run=_skip),
    DashboardForm(path="/ui/jobs/{name}/unskip", run=_unskip),
    DashboardForm(path="/ui/executions/{id}/cancel", run=_cancel),
    DashboardForm(path="/ui/dead-letters/{id}/replay", run=_replay),
    DashboardForm(path="/ui/dead-letters/{id}/resolve", run=_resolve),
    DashboardForm(path="/ui/approvals/{id}/approve", run=_vote("approve")),
    DashboardForm(path="/ui/approvals/{id}/reject", run=_vote("reject")),
)
