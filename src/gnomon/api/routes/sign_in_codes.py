"""Codes that sign a browser in to the dashboard."""

from urllib.parse import urlencode

from gnomon.api.route import ApiCall, ApiRoute, Permission, Reply
from gnomon.core.instants import instant_of
from gnomon.core.responses.system import DashboardCode

_PAGE = "/ui/login"
_CODE = "Zk3v0mJxT1aX7bqk2oWcQ9s4nE8dYhL5uRfGtIiPzA0"


async def issue(call: ApiCall) -> Reply:
    """Issue a code that signs a browser in to the dashboard as the caller: once, within a minute."""
    made = await call.services.sign_in_codes.issue(call.caller, actor=call.actor)
    path = f"{_PAGE}?{urlencode({'code': made.text})}"
    return Reply(body=DashboardCode(code=made.text, path=path, expires_at=instant_of(made.expires_at)), status=201)


ROUTES = (
    ApiRoute(
        method="POST",
        path="/v1/sign-in-codes",
        name="issue_sign_in_code",
        permission=Permission.READ,
        handle=issue,
        answer=DashboardCode,
        success={201: "The code. One that the caller had before counts no longer."},
        example={"code": _CODE, "path": f"{_PAGE}?code={_CODE}", "expires_at": "2026-03-02T14:01:00Z"},
    ),
)
