"""Dead letters by job, step and error, and the forms that replay and resolve one, those ticked, or all that match."""

import asyncio
from typing import Any
from urllib.parse import parse_qsl, urlencode

from gnomon.core.instants import instant_of
from gnomon.errors import FieldError
from gnomon.ui.pages.many import ManyChanged, change_all, chosen, match_text
from gnomon.ui.pages.page import PAGE_ROWS, DashboardForm, DashboardPage, FormAnswer, Values
from gnomon.ui.requests import PageRequest, address, segment, utc_moment

_PAGE = "/ui/dead-letters"
_FILTERS = ("job", "step", "reason", "error", "error_line", "since", "until")
#: An empty line of an error selects those without an error.
_MAY_BE_EMPTY = ("error_line",)
#: How many outcomes a page shows of each kind.
_SHOWN = 100


async def _dead_letters(request: PageRequest) -> Values:
    filters = {name: request.query.get(name, "").strip() for name in _FILTERS if name in request.query}
    filters |= {name: utc_moment(filters[name]) for name in ("since", "until") if name in filters}
    match = match_text(filters, _MAY_BE_EMPTY)
    resolved = "true" if request.query.get("resolved") == "true" else ""
    cursor, following = request.query.get("cursor", ""), request.query.get("groups", "")
    rows = dict(parse_qsl(match, keep_blank_values=True)) | {"resolved": resolved, "cursor": cursor}
    # Letters that come after the reader has seen the list are left alone.
    seen = {"until": filters.get("until") or instant_of(request.now() + 1).isoformat()}
    letters, groups = await asyncio.gather(
        _list(request, "/v1/dead-letters", {**rows, "limit": str(PAGE_ROWS)}),
        _list(request, "/v1/dead-letters/groups", {**rows, "resolved": "", "cursor": following}),
    )
    return {
        "letters": letters,
        "groups": [_with_address(one, filters, seen) for one in groups["items"]],
        "more_groups": groups["next"],
        "filters": {name: filters.get(name, "") for name in _FILTERS} | {"resolved": resolved},
        "kept": match_text({**filters, "resolved": resolved}, _MAY_BE_EMPTY),
        "all_that_match": match_text({**filters, **seen}, _MAY_BE_EMPTY),
        "may_change": request.allows("replay_dead_letters"),
    }


async def _list(request: PageRequest, path: str, fields: dict[str, str]) -> Any:  # noqa: ANN401 - JSON
    given = {name: value for name, value in fields.items() if value or name in _MAY_BE_EMPTY}
    return await request.get(f"{path}?{urlencode(given)}" if given else path)


def _with_address(group: Values, filters: Values, seen: Values) -> Values:
    """The group with the filters that select it, for a list and for a change."""
    those = {**filters, **{name: group[name] for name in ("job", "step", "error_line")}}
    return {
        **group,
        "match": match_text(those, _MAY_BE_EMPTY),
        "all_that_match": match_text({**those, **seen}, _MAY_BE_EMPTY),
    }


# ---- forms ---------------------------------------------------------------------------------------


async def _replay(request: PageRequest) -> str:
    path = f"/v1/dead-letters/{segment(request.names['id'])}/replay"
    replayed = await request.send("POST", path, key=request.form.get("key"))
    if replayed["execution_id"] is None:
        raise FieldError("dead letter", request.names["id"], "was not replayed")
    return f"/ui/executions/{segment(replayed['execution_id'])}"


async def _resolve(request: PageRequest) -> str:
    await request.send("PATCH", f"/v1/dead-letters/{segment(request.names['id'])}", {"resolved": True})
    return address(_PAGE, job=request.form.get("job"))


async def _change_many(request: PageRequest, verb: str) -> ManyChanged:
    path, ids = f"/v1/dead-letters/{verb}-all", chosen(request, "id")
    if ids is not None:
        done = await request.send("POST", path, {"ids": ids}, key=request.form.get("key"))
        return ManyChanged(done["items"])
    return await change_all(request, path, request.field("which"), (*_FILTERS, "cursor", "limit"))


async def _replay_many(request: PageRequest) -> FormAnswer:
    done = await _change_many(request, "replay")
    refused = [one for one in done.items if one["refused"] is not None]
    return _outcomes("Replayed", "replay", done, refused, [one for one in done.items if one["refused"] is None])


async def _resolve_many(request: PageRequest) -> FormAnswer:
    done = await _change_many(request, "resolve")
    return _outcomes("Resolved", "resolve", done, (), done.items)


def _outcomes(title: str, verb: str, done: ManyChanged, refused: Any, changed: Any) -> FormAnswer:  # noqa: ANN401 - JSON
    values = {
        "title": title,
        "verb": verb,
        "refused": refused,
        "changed": changed,
        "go_on": done.go_on,
        "shown": _SHOWN,
    }
    return FormAnswer(template="dead_letters_changed.html", values=values)


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path=_PAGE, title="Dead letters", template="dead_letters.html", load=_dead_letters),
)
FORMS: tuple[DashboardForm, ...] = (
    DashboardForm(path="/ui/dead-letters/replay", run=_replay_many),
    DashboardForm(path="/ui/dead-letters/resolve", run=_resolve_many),
    DashboardForm(path="/ui/dead-letters/{id}/replay", run=_replay),
    DashboardForm(path="/ui/dead-letters/{id}/resolve", run=_resolve),
)
