"""The policy of tasks: the file in force, its versions and budgets, what another file would change, and the shadow."""

import asyncio
from typing import Any

from gnomon.core.model import DAY_MS
from gnomon.errors import FieldError, FileError
from gnomon.ui.pages.page import (
    PAGE_ROWS,
    DashboardForm,
    DashboardPage,
    FormAnswer,
    Values,
    found_or_none,
    page_part,
)
from gnomon.ui.requests import PageRequest, address

_PAGE = "/ui/policy"
#: How many tasks of the history one comparison looks at, and how many of its rows it shows.
_REPLAYED, _SHOWN = 5_000, 200
_DAYS = (1, 7, 30, 90)


async def _policy(request: PageRequest) -> Values:
    version = request.query.get("version", "")
    policy, budgets, shadow = await asyncio.gather(
        found_or_none(request, "/v1/policy") if not version else request.get("/v1/policy", version=version),
        page_part(request, "/v1/policy/budgets", limit=PAGE_ROWS),
        found_or_none(request, "/v1/policy/shadow", limit=PAGE_ROWS),
    )
    versions = await request.get("/v1/policy/versions", cursor=request.query.get("cursor"), limit=10)
    filters = {"version": version}
    return {
        "policy": policy,
        "budgets": budgets,
        "shadow": shadow,
        "versions": versions,
        "filters": filters,
        "days": _DAYS,
    }


def _body(request: PageRequest) -> str:
    """The text of the policy file: pasted, or that of a file. Browsers send line breaks of two characters."""
    text = request.form.get("file", "") or request.field("body")
    return text.replace("\r\n", "\n")


async def _compare(request: PageRequest) -> FormAnswer:
    """Compare the file with the policy in force: its rules, and its decisions about the history."""
    body, days = _body(request), request.form.get("days", "7")
    if not days.isdecimal() or int(days) not in _DAYS:
        raise FieldError("days", days, f"is none of {', '.join(map(str, _DAYS))}")
    values: dict[str, Any] = {"title": "Compare a policy", "body": body, "days": _DAYS, "chosen": days, "shown": _SHOWN}
    values |= {"difference": None, "replayed": None, "problem_text": "", "after": request.form.get("after", "")}
    try:
        values["difference"] = await request.send("POST", "/v1/policy/diff", {"body": body})
    except (FieldError, FileError) as error:
        # The page keeps the text, so that it can be corrected there.
        return FormAnswer(template="policy_compare.html", values=values | {"problem_text": str(error)}, status=422)
    asked = {"body": body, "since": request.now() - int(days) * DAY_MS, "limit": _REPLAYED}
    asked |= {"after": values["after"]} if values["after"] else {}
    values["replayed"] = await page_part(request, "/v1/policy/replay", body=asked)
    return FormAnswer(template="policy_compare.html", values=values)


async def _apply(request: PageRequest) -> str:
    compared = request.field("compared_with")
    expected = int(compared) if compared.isdecimal() else compared
    await request.send("POST", "/v1/policy", {"body": _body(request), "expected": expected})
    return _PAGE


async def _start_shadow(request: PageRequest) -> str:
    await request.send("POST", "/v1/policy/shadow", {"body": _body(request)})
    return address(_PAGE)


async def _stop_shadow(request: PageRequest) -> str:
    await request.send("POST", "/v1/policy/shadow/stop", {})
    return _PAGE


async def _promote_shadow(request: PageRequest) -> str:
    compared = request.field("compared_with")
    expected = int(compared) if compared.isdecimal() else compared
    await request.send("POST", "/v1/policy/shadow/promote", {"expected": expected})
    return _PAGE


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(
        path=_PAGE, title="Policy", template="policy.html", load=_policy, route="show_policy", for_operator=True
    ),
)
FORMS: tuple[DashboardForm, ...] = (
    DashboardForm(path="/ui/policy/compare", run=_compare, many=True),
    DashboardForm(path="/ui/policy/apply", run=_apply, many=True),
    DashboardForm(path="/ui/policy/shadow", run=_start_shadow, many=True),
    DashboardForm(path="/ui/policy/shadow/stop", run=_stop_shadow),
    DashboardForm(path="/ui/policy/shadow/promote", run=_promote_shadow),
)
