"""Signing in and out: the cookie, its limits, and what ends it."""

from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from gnomon.adapters.auth.local_key import local_key
from gnomon.app.auth import IssuerSessions, LocalSessions, new_token, open_token_verifier, session_tokens
from gnomon.config.settings import load
from gnomon.core.model import DAY_MS, MINUTE_MS
from gnomon.errors import Refused
from gnomon.ports.auth import Caller, Role, SessionToken
from gnomon.testing.clock import VirtualClock
from support.dashboard import ORIGIN, DashboardFixture, Visitor, text_of

NOW = 1_772_452_800_000


async def test_a_token_opens_a_session_that_only_the_server_can_read(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor() as visitor:
        answer = await visitor.sign_in("viewer", next="/ui/jobs?tag=numbers")
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/jobs?tag=numbers")
        parts = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
        assert {"httponly", "samesite=lax", "path=/ui/", "max-age=43200"} <= parts

        assert "viewer@example.com" in text_of(await visitor.get("/ui/"))


async def test_the_cookie_is_no_token_of_the_api(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as visitor:
        [(name, value)] = visitor.client.cookies.items()
        assert (await visitor.client.get("/v1/jobs", headers={"Cookie": f"{name}={value}"})).status_code == 401


async def test_no_page_contains_the_token(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin~a-name-that-is-a-secret~finance") as visitor:
        for path in ("/ui/", "/ui/jobs/report", "/ui/audit"):
            assert "admin~a-name-that-is-a-secret~finance" not in (await visitor.get(path)).text


@pytest.mark.parametrize("token", ["", "nobody", "nothing", "a" * 9000])
async def test_a_token_that_is_not_valid_opens_nothing_and_is_counted(dashboard: DashboardFixture, token: str) -> None:
    async with dashboard.visitor() as visitor:
        answer = await visitor.sign_in(token)

        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        assert 'role="alert"' in answer.text
        assert (await visitor.get("/ui/jobs")).status_code == 303
    assert len(dashboard.login_failures) == 1


async def test_a_cookie_that_is_no_session_is_counted_like_a_wrong_token(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as visitor:
        [(name, _)] = visitor.client.cookies.items()
        answer = await visitor.client.get("/ui/jobs", headers={"Cookie": f"{name}=nobody"})

        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login")
    assert len(dashboard.login_failures) == 1


async def test_a_token_whose_subject_is_the_actor_of_a_model_opens_nothing(dashboard: DashboardFixture) -> None:
    """Otherwise, the audit trail would name a model, and somebody else as its owner."""
    async with dashboard.visitor() as visitor:
        assert (await visitor.sign_in("admin~model:helper for ada")).status_code == 401


async def test_a_stranger_sends_no_large_form(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor() as visitor:
        assert (await visitor.sign_in("viewer", next="/ui/" + "a" * 65_536)).status_code == 413


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example/ui/",
        "/v1/jobs",
        "javascript:alert(1)",
        "/ui/\\evil",
        "ui/",
        "http:///ui/",
    ],
)
async def test_signing_in_leads_to_pages_of_this_server_only(dashboard: DashboardFixture, target: str) -> None:
    async with dashboard.visitor() as visitor:
        assert (await visitor.sign_in("viewer", next=target)).headers["location"] == "/ui/"


async def test_signing_out_ends_the_session_in_the_browser(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as visitor:
        answer = await visitor.send("/ui/logout", token="")
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login")
        assert (await visitor.get("/ui/")).status_code == 303


# ---- codes that count once ------------------------------------------------------------------------


class OwnSessions:
    """Sessions that this installation signs: the cookie names role and caller, as the tokens of the tests do."""

    def session_token(self, token: str, caller: Caller, *, now: int) -> SessionToken:
        del token
        [role] = caller.roles
        return SessionToken(f"{role.removeprefix('scheduler-')}~{caller.subject}~", now + MINUTE_MS)


async def code_of(dashboard: DashboardFixture, token: str = "operator~eve~") -> str:  # noqa: S107 - a role
    dashboard.session_tokens = OwnSessions()
    dashboard.put(dashboard.services)
    async with dashboard.caller(token) as api:
        answer = await api.post("/v1/sign-in-codes")
    assert answer.status_code == 201
    assert answer.json()["path"] == f"/ui/login?code={answer.json()['code']}"
    return str(answer.json()["code"])


async def redeem(visitor: Visitor, code: str, origin: str = ORIGIN) -> httpx.Response:
    return await visitor.client.post("/ui/login", data={"code": code}, headers={"Origin": origin})


async def test_a_code_signs_in_once_as_the_caller_that_asked_for_it(dashboard: DashboardFixture) -> None:
    code = await code_of(dashboard)

    async with dashboard.visitor() as eve, dashboard.visitor() as late:
        answer = await redeem(eve, code)
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/")
        assert "eve" in text_of(await eve.get("/ui/"))

        again = await redeem(late, code)
        assert again.status_code == 401
        assert "has been used or has expired" in text_of(again)
        assert "set-cookie" not in again.headers
    assert len(dashboard.login_failures) == 1


async def test_opening_the_address_of_a_code_uses_it_up_only_when_the_form_is_sent(dashboard: DashboardFixture) -> None:
    code = await code_of(dashboard)

    async with dashboard.visitor() as visitor:
        for _ in range(3):
            page = await visitor.get(f"/ui/login?code={code}")
            assert (page.status_code, page.headers["cache-control"]) == (200, "no-store")
            assert "set-cookie" not in page.headers
        assert (await redeem(visitor, code)).status_code == 303


async def test_a_code_counts_for_a_minute(dashboard: DashboardFixture) -> None:
    code = await code_of(dashboard)
    dashboard.clock.advance(MINUTE_MS)

    async with dashboard.visitor() as visitor:
        assert (await redeem(visitor, code)).status_code == 401


async def test_a_code_from_another_site_is_refused_and_still_counts(dashboard: DashboardFixture) -> None:
    code = await code_of(dashboard)

    async with dashboard.visitor() as visitor:
        assert (await redeem(visitor, code, "http://evil.example")).status_code == 403
        assert (await redeem(visitor, code)).status_code == 303


async def test_a_code_replaces_no_session(dashboard: DashboardFixture) -> None:
    code = await code_of(dashboard)

    async with dashboard.visitor("viewer") as visitor:
        assert (await visitor.get(f"/ui/login?code={code}")).headers["location"] == "/ui/"


@pytest.mark.parametrize("code", ["x", "x" * 5000, "%00", "<script>"])
async def test_a_text_that_is_no_code_opens_nothing(dashboard: DashboardFixture, code: str) -> None:
    async with dashboard.visitor() as visitor:
        assert "<script>" not in (await visitor.get(f"/ui/login?code={quote(code)}")).text
        assert (await redeem(visitor, code)).status_code == 401


async def test_a_stranger_gets_no_code(dashboard: DashboardFixture) -> None:
    async with dashboard.caller(None) as stranger:
        assert (await stranger.post("/v1/sign-in-codes")).status_code == 401


async def test_a_code_is_of_no_use_where_sessions_are_tokens_of_an_issuer(dashboard: DashboardFixture) -> None:
    code = await code_of(dashboard)
    dashboard.session_tokens = IssuerSessions()
    dashboard.put(dashboard.services)

    async with dashboard.visitor() as visitor:
        assert "auth.key_file" in text_of(await redeem(visitor, code))


async def test_a_session_of_this_installation_lasts_half_a_day_and_ends_with_its_token(tmp_path: Path) -> None:
    settings = load(flags={"database.url": f"sqlite:///{tmp_path}/gnomon.db"})
    clock = VirtualClock(NOW)
    verifier = open_token_verifier(settings, clock=clock)

    async def session(lasts_ms: int) -> tuple[Caller, Caller]:
        made = new_token(
            settings, Role.OPERATOR, subject="eve", tenant="shop", lasts_ms=lasts_ms, groups=["finance"], clock=clock
        )
        caller = await verifier.caller(made.token)
        kept = session_tokens(settings).session_token(made.token, caller, now=clock.now())
        return caller, await verifier.caller(kept.text)

    long, of_long = await session(30 * DAY_MS)
    # One is revoked with the other: they have the same id, and the same time of issue.
    assert of_long == Caller(
        "eve",
        frozenset({Role.OPERATOR}),
        "shop",
        expires_at=NOW + DAY_MS // 2,
        token_id=long.token_id,
        issued_at=long.issued_at,
        groups=frozenset({"finance"}),
    )
    short, of_short = await session(5 * MINUTE_MS)
    assert of_short.expires_at == short.expires_at
    await verifier.close()


def test_a_token_that_no_browser_would_keep_is_refused_by_name() -> None:
    caller = Caller("eve", frozenset({Role.VIEWER}))

    with pytest.raises(Refused, match=r"auth\.key_file"):
        IssuerSessions().session_token("x" * 3501, caller, now=NOW)
    assert IssuerSessions().session_token("x" * 3500, caller, now=NOW).text == "x" * 3500


def test_the_key_of_the_installation_signs_sessions_where_there_is_one(tmp_path: Path) -> None:
    local_key(tmp_path / "gnomon.db.key")
    settings = load(flags={"database.url": f"sqlite:///{tmp_path}/gnomon.db"})

    assert isinstance(session_tokens(settings), LocalSessions)
    issuer = {"auth.iam_url": "https://iam.example", "auth.audience": ["gnomon"]}
    assert isinstance(session_tokens(load(flags={"database.url": "postgresql://db/x", **issuer})), IssuerSessions)
