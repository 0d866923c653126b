"""Every form, sent by those who may not: each is refused with a page, and changes nothing."""

import hmac
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest

from gnomon.core.model import MINUTE_MS
from gnomon.ui.pages import FORMS
from support.dashboard import ORIGIN, DashboardFixture, Visitor, text_of
from support.dashboard_pages import HOSTILE, executed, paused, places

#: Every field of every form.
FIELDS: Mapping[str, str] = {
    "key": "k", "at": "2026-03-03T09:00:00Z", "missed": "skip", "over": "10m", "digest": "0" * 64, "reason": "because",
    "job": "report", "from": "2026-02-26T00:00", "to": "2026-02-27T00:00", "max_parallel": "1", "input": "{}",
    "name": "data.ready", "which": "ticked", "names": "report", "id": "x", "plan": "0" * 64, "compared_with": "0",
    "body": "jobs: []", "days": "7", "prune": "", "prune_tag": "", "after": "",
}  # fmt: skip
#: They only compare, with a body of more text than an address holds: whoever may read may send them.
READING = ("/ui/plan/show", "/ui/policy/compare")


def token_of(token: str) -> str:
    """The form token of a session: its pages have none where the role allows no form."""
    return hmac.new(token.encode(), b"gnomon form", sha256).hexdigest()


async def addresses(dashboard: DashboardFixture) -> list[str]:
    """The address of each form, with the ids of objects that are there."""
    found = await places(dashboard)
    letter = await dead_letter(dashboard)
    filled = []
    for form in FORMS:
        known = max((one for one in found if form.path.startswith(f"{one}/")), key=len, default=None)
        path = form.path if known is None else form.path.replace(known, found[known], 1)
        filled.append(path.replace("{id}", letter).replace("{name}", "report"))
    return filled


async def dead_letter(dashboard: DashboardFixture) -> str:
    async with dashboard.caller("admin") as admin:
        letters = (await admin.get("/v1/dead-letters")).json()["items"]
    return str(letters[0]["dead_letter_id"]) if letters else "letter_none"


async def audited(dashboard: DashboardFixture, query: str = "") -> list[Mapping[str, Any]]:
    async with dashboard.caller("admin") as admin:
        return list((await admin.get(f"/v1/audit?limit=200{query}")).json()["items"])


async def send(visitor: Visitor, path: str, token: str) -> Any:  # noqa: ANN401 - a response
    # The body of an event is JSON, that of the other forms a file.
    body = {"body": "{}"} if path.startswith("/ui/events") else {}
    return await visitor.client.post(path, data={**FIELDS, **body, "form_token": token}, headers={"Origin": ORIGIN})


async def test_a_viewer_who_sends_any_form_is_refused_and_audited(dashboard: DashboardFixture) -> None:
    await executed(dashboard)
    forms = await addresses(dashboard)
    before = len(await audited(dashboard, "&action=refuse"))

    async with dashboard.visitor("viewer") as viewer:
        for number, path in enumerate((one for one in forms if one not in READING), 1):
            answer = await send(viewer, path, token_of("viewer"))
            assert answer.status_code == 403, (path, text_of(answer))
            assert "this needs the role" in text_of(answer)
            assert len(await audited(dashboard, "&action=refuse")) == before + number, path
            # The same refusal is recorded once a minute.
            dashboard.clock.advance(MINUTE_MS)
    assert not await paused(dashboard)


async def test_an_admin_of_another_tenant_changes_nothing_of_this_one(dashboard: DashboardFixture) -> None:
    await executed(dashboard)
    forms = await addresses(dashboard)
    before = await audited(dashboard)

    async with dashboard.visitor("admin/other") as other:
        for path in forms:
            answer = await send(other, path, token_of("admin/other"))
            assert answer.status_code in (200, 303, 403, 404, 409, 412, 422), (path, text_of(answer))
    assert await audited(dashboard) == before
    assert not await paused(dashboard)
    assert dashboard.unhandled_errors == []


async def test_a_form_without_an_origin_changes_nothing(dashboard: DashboardFixture) -> None:
    forms = await addresses(dashboard)
    before = await audited(dashboard)

    async with dashboard.visitor("admin") as admin:
        for path in (*forms, "/ui/view", "/ui/logout", "/ui/login"):
            answer = await admin.client.post(path, data={**FIELDS, "form_token": token_of("admin"), "token": "admin"})
            assert answer.status_code == 403, path
            assert "set-cookie" not in answer.headers
    assert await audited(dashboard) == before


@pytest.mark.parametrize(
    "text", [HOSTILE, "\x00", "x" * 50_000, "[" * 5_000, "\ud7ff\uffff", "-1", "NaN", "../..", " "]
)
async def test_no_field_of_a_form_surprises_the_server(dashboard: DashboardFixture, text: str) -> None:
    forms = await addresses(dashboard)

    async with dashboard.visitor("admin") as admin:
        for path in forms:
            fields = {**dict.fromkeys(FIELDS, text), "form_token": token_of("admin")}
            answer = await admin.client.post(path, data=fields, headers={"Origin": ORIGIN})
            assert answer.status_code < 500, (path, text_of(answer))
            assert "Traceback" not in answer.text
            assert not re.search("<script>alert|<img|\u202e|\x1b", answer.text), path
    assert dashboard.unhandled_errors == []
