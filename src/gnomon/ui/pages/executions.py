"""Executions: the list, one execution with its steps and log, its files, and the forms that act on it."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from zoneinfo import ZoneInfo

import msgspec

from gnomon.core.model import ExecutionStatus, RunSource
from gnomon.core.runs.states import WaitReason
from gnomon.errors import FieldError, GnomonError
from gnomon.ui.pages.page import (
    PAGE_ROWS,
    DashboardFile,
    DashboardForm,
    DashboardPage,
    FileAnswer,
    Values,
    page_part,
)
from gnomon.ui.rendering import MOST_TEXT, pretty_text
from gnomon.ui.requests import PageRequest, read_json_field, segment
from gnomon.ui.step_views import GraphView, TimeLineView, graph_view, time_line_view

#: How many lines of a log a page shows, and how many a file reads at once.
_LOG_LINES, _FILE_LINES = 200, 1_000
#: How many steps a page lists, and how many attempts of each.
_STEP_ROWS, _ATTEMPT_ROWS = 200, 5
#: A longer input is not offered for the next execution: it is in the file.
_LONGEST_INPUT = 20_000
#: With more steps than these, the drawing is made in a thread.
_MOST_AT_ONCE = 30
_FILTERS = ("job", "status", "trigger", "waiting", "tag", "since", "until")
#: Everything but these is left out of the names of files.
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")


async def _executions(request: PageRequest) -> Values:
    filters = {name: request.query.get(name, "") for name in _FILTERS}
    found = await request.get("/v1/executions", **filters, cursor=request.query.get("cursor"), limit=PAGE_ROWS)
    choices = {"status": ExecutionStatus, "trigger": RunSource, "waiting": WaitReason}
    return {
        "executions": found,
        "filters": filters,
        "choices": {name: [one.value for one in words] for name, words in choices.items()},
    }


# ---- one execution -------------------------------------------------------------------------------


async def _execution(request: PageRequest) -> Values:
    route = _route(request)
    execution, log = await asyncio.gather(request.get(route), _log(request))
    why, decisions = await asyncio.gather(_why(request, execution), _decisions(request))
    graph, time_line = await _drawings(request, execution)
    first = _first_step(request)
    given = pretty_text(execution["input"])
    return {
        "title": execution["execution_id"],
        "here": f"/ui/executions/{segment(request.names['id'])}",
        "execution": execution,
        "first": first,
        "rows": execution["steps"][first : first + _STEP_ROWS],
        "step_rows": _STEP_ROWS,
        "attempt_rows": _ATTEMPT_ROWS,
        "why": why,
        "decisions": decisions,
        "graph": graph,
        "time_line": time_line,
        "outputs": [
            (one["step"], pretty_text(one["output"])) for one in execution["steps"] if one["output"] is not None
        ],
        "input": given,
        "next_input": given if len(given) <= _LONGEST_INPUT else "",
        "most_text": MOST_TEXT,
        "log": log,
        "log_filters": {name: request.query.get(name, "") for name in ("find", "step")},
        "earlier": _earlier(log["found"]),
        "log_is_last": not request.query.get("cursor"),
        "lines": [] if log["found"] is None else _shown_lines(log["found"]["items"], request.view.zone),
    }


def _first_step(request: PageRequest) -> int:
    """The place of the first step that the table lists."""
    given = request.query.get("from", "0")
    if not given.isdecimal() or len(given) > len("100000"):
        raise FieldError("from", given, "is no place of a step, from 0")
    return int(given)


async def _why(request: PageRequest, execution: Mapping[str, Any]) -> Values | None:
    if execution["tick_key"] is None or not request.wants("head"):
        return None
    return await page_part(request, f"/v1/jobs/{segment(execution['job'])}/why", at=execution["planned_at"])


async def _decisions(request: PageRequest) -> Values | None:
    if not request.allows("list_decisions") or not request.wants("steps"):
        return None
    return await page_part(request, f"{_route(request)}/decisions", limit=PAGE_ROWS)


async def _log(request: PageRequest) -> Values:
    """The last lines that match, or those before them."""
    if not request.wants("log"):
        return {"found": None, "error": None}
    query = request.query
    return await page_part(
        request,
        f"{_route(request)}/logs",
        order="desc",
        find=query.get("find"),
        step=query.get("step"),
        cursor=query.get("cursor"),
        limit=_LOG_LINES,
    )


async def _drawings(request: PageRequest, execution: Mapping[str, Any]) -> tuple[GraphView | None, TimeLineView | None]:
    if not request.wants("steps"):
        return None, None
    now, steps = request.now(), execution["steps"]
    if len(steps) <= _MOST_AT_ONCE:
        return graph_view(steps), time_line_view(execution, now)
    compute = request.runner.services.compute
    return await compute.run_in_thread(lambda: (graph_view(steps), time_line_view(execution, now)))


def _earlier(found: Mapping[str, Any] | None) -> dict[str, str] | None:
    """The query of the page with the lines before these; None if there are none."""
    if found is None or found["next"] is None:
        return None
    query = dict(parse_qsl(urlsplit(found["next"]).query))
    return {name: query[name] for name in ("find", "step", "cursor") if name in query}


def _shown_lines(lines: Sequence[Mapping[str, Any]], zone: str) -> list[dict[str, Any]]:
    """The lines, oldest first, with the time of the day in the zone of the reader."""
    at = UTC if zone == "UTC" else ZoneInfo(zone)
    return [
        {
            **line,
            "clock": f"{datetime.fromisoformat(line['at']).astimezone(at):%H:%M:%S.%f}"[:-3],
            "source": line["step"] if line["item"] is None else f"{line['step']}[{line['item']}]",
        }
        for line in reversed(lines)
    ]


# ---- files ---------------------------------------------------------------------------------------


async def _log_file(request: PageRequest) -> FileAnswer:
    first = await request.get(f"{_route(request)}/logs", limit=_FILE_LINES)
    return FileAnswer(
        name=f"{_file_name(request)}.log.txt",
        media_type="text/plain",
        pieces=_log_pieces(request, first),
    )


async def _log_pieces(request: PageRequest, page: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """All lines of the log, page by page."""
    compute = request.runner.services.compute
    while True:
        yield await compute.run_in_thread(partial(_file_text, page["items"]))
        if page["next"] is None:
            return
        try:
            page = await request.get(page["next"])
        except GnomonError as error:
            yield f"[the rest of the log is not known: {error}]\n".encode()
            return


def _file_text(lines: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(map(_file_line, lines)).encode()


def _file_line(line: Mapping[str, Any]) -> str:
    """A line of the file. Further lines of its text are indented, so that they look like no other line."""
    source = line["step"] if line["item"] is None else f"{line['step']}[{line['item']}]"
    text = "\n    ".join(map(_printable, line["text"].split("\n")))
    return f"{line['at']}  {_printable(line['level']):<7}  {_printable(source)}  {text}\n"


def _printable(text: str) -> str:
    """The text with characters that control a terminal, or turn the direction of the text, as escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\t" else ascii(one)[1:-1] for one in text)


async def _details_file(request: PageRequest) -> FileAnswer:
    execution = await request.get(_route(request))

    async def pieces() -> AsyncIterator[bytes]:
        yield msgspec.json.format(msgspec.json.encode(execution), indent=2)

    return FileAnswer(name=f"{_file_name(request)}.json", media_type="application/json", pieces=pieces())


def _file_name(request: PageRequest) -> str:
    return _NO_NAME.sub("", request.names["id"])[:100] or "execution"


# ---- forms ---------------------------------------------------------------------------------------


async def _cancel(request: PageRequest) -> str:
    await request.send("POST", f"{_route(request)}/cancel")
    return f"/ui/executions/{segment(request.names['id'])}"


async def _roll_back(request: PageRequest) -> str:
    reason = request.field("reason").strip()
    if not reason:
        raise FieldError("reason", "", "is missing: it is kept with the rollback")
    await request.send("POST", f"{_route(request)}/rollback", {"reason": reason})
    return f"/ui/executions/{segment(request.names['id'])}"


async def _run_again(request: PageRequest) -> str:
    """Start another execution of the same job, with the input of the form."""
    execution = await request.get(_route(request))
    body: dict[str, Any] = {"input": read_json_field(request, "input")}
    if request.form.get("force") == "yes":
        body["force"] = True
    job = f"/v1/jobs/{segment(execution['job'])}"
    started = await request.send("POST", f"{job}/trigger", body, key=request.form.get("key"))
    if started["execution_id"] is None:
        raise FieldError("job", execution["job"], f"was not started: {started['became']}")
    return f"/ui/executions/{segment(started['execution_id'])}"


def _route(request: PageRequest) -> str:
    return f"/v1/executions/{segment(request.names['id'])}"


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/executions", title="Executions", template="executions.html", load=_executions),
    DashboardPage(
        path="/ui/executions/{id}", title="Execution", template="execution.html", load=_execution, in_menu=False
    ),
)
FILES: tuple[DashboardFile, ...] = (
    DashboardFile(path="/ui/executions/{id}/log.txt", load=_log_file),
    DashboardFile(path="/ui/executions/{id}/execution.json", load=_details_file),
)
FORMS: tuple[DashboardForm, ...] = (
    DashboardForm(path="/ui/executions/{id}/cancel", run=_cancel),
    DashboardForm(path="/ui/executions/{id}/rollback", run=_roll_back),
    DashboardForm(path="/ui/executions/{id}/again", run=_run_again),
)
