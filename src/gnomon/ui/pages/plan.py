"""The plan: what a jobs file would change, in fields and in fires, and the form that applies exactly that."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from gnomon.errors import FieldError, FileError, JobsFileError, PlanChanged
from gnomon.ui.pages.page import DashboardForm, DashboardPage, FormAnswer, Values
from gnomon.ui.requests import PageRequest

#: How many jobs and changes of fires of each a page shows.
_SHOWN_JOBS, _SHOWN_FIRES = 100, 20
_DAYS = (1, 7, 14, 31)
_KEEP, _ALL, _TAG = "", "all", "tag"


async def _empty(request: PageRequest) -> Values:
    del request
    return _values({})


def _values(form: Mapping[str, str]) -> dict[str, Any]:
    return {
        "title": "Plan",
        "body": _body(form),
        "prune": form.get("prune", _KEEP),
        "prune_tag": form.get("prune_tag", ""),
        "chosen": form.get("days", "14"),
        "days": _DAYS,
        "mistakes": [],
        "refused": "",
        "plan": None,
        "shown_jobs": _SHOWN_JOBS,
    }


def _body(form: Mapping[str, str]) -> str:
    """The text of the jobs file: that of a file that is sent, or what was pasted."""
    return (form.get("file", "") or form.get("body", "")).replace("\r\n", "\n")


async def _request_body(request: PageRequest) -> dict[str, Any]:
    """The jobs of the form, and which others would be deleted; FileError names the line of a mistake."""
    body: dict[str, Any] = {"jobs": list(await request.read_jobs(_body(request.form)))}
    prune = request.form.get("prune", _KEEP)
    if prune not in (_KEEP, _ALL, _TAG):
        raise FieldError("prune", prune, f"is neither empty nor {_ALL} nor {_TAG}")
    if prune == _ALL:
        body["prune"] = True
    elif prune == _TAG:
        body["prune_tag"] = request.field("prune_tag").strip()
    return body


async def _show(request: PageRequest) -> FormAnswer:
    """Show the plan. The page keeps the text, so that a mistake can be corrected there."""
    values = _values(request.form)
    days = values["chosen"]
    if not days.isdecimal() or int(days) not in _DAYS:
        raise FieldError("days", days, f"is none of {', '.join(map(str, _DAYS))}")
    try:
        body = await _request_body(request)
        found = await request.send("POST", "/v1/plan", {**body, "days": int(days), "fires": _SHOWN_FIRES})
    except (FieldError, FileError) as error:
        return FormAnswer(template="plan.html", values=values | {"mistakes": _mistakes(error)}, status=422)
    shown = {"plan": found, "changed": _changed(found)}
    return FormAnswer(template="plan.html", values=values | shown)


def _mistakes(error: FieldError | FileError) -> list[str]:
    """Every mistake of the file, in its order."""
    return [str(error), *(map(str, error.more) if isinstance(error, JobsFileError) else ())]


def _changed(plan: Values) -> Sequence[Values]:
    """The jobs that would change, and those that stay as they are but have something to say."""
    return [one for one in plan["plan"] if one["change"] != "unchanged" or one["stays_paused"] or one["policy"]]


async def _apply(request: PageRequest) -> FormAnswer | str:
    """Apply the plan that was shown. If something has changed since, show the new one instead, and say so."""
    body = await _request_body(request)
    try:
        await request.send("POST", "/v1/apply", {**body, "plan": request.field("plan")})
    except PlanChanged as error:
        again = await _show(request)
        return FormAnswer(
            template=again.template,
            values={**again.values, "refused": str(error)},
            status=HTTPStatus.PRECONDITION_FAILED,
        )
    return "/ui/jobs"


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/plan", title="Plan", template="plan.html", load=_empty, route="plan_jobs"),
)
FORMS: tuple[DashboardForm, ...] = (
    DashboardForm(path="/ui/plan/show", run=_show, many=True),
    DashboardForm(path="/ui/plan/apply", run=_apply, many=True),
)
