"""Requests that no page answers: each gets a page with the reason, and leads on."""

import pytest

from gnomon.api.problems import problem
from gnomon.ui.error_pages import error_page
from support.dashboard import DashboardFixture, text_of


@pytest.mark.parametrize("signed_in", [True, False])
@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/ui/nothing", 404, "there is no such path"),
        ("/ui/jobs/report/nothing/at/all", 404, "there is no such path"),
        ("/ui/jobs/a%2Fb/pause", 404, "there is no such path"),
        ("/ui/jobs/report/pause", 405, "this path does not support this method"),
        ("/ui/jobs/..%2F..%2Fv1%2Fjobs", 400, "the path is ambiguous"),
        ("/ui/jobs/%00", 400, "characters that are not allowed"),
        ("/ui/jobs/%E2%80%AE", 400, "characters that are not allowed"),
        ("/ui//jobs", 400, "the path is ambiguous"),
        ("/ui/executions/%0D%0Aset-cookie:x/log.txt", 400, "characters that are not allowed"),
    ],
)
async def test_an_address_that_no_page_has_gets_a_page_with_the_reason(
    dashboard: DashboardFixture, path: str, status: int, reason: str, *, signed_in: bool
) -> None:
    async with dashboard.visitor("viewer" if signed_in else None) as visitor:
        answer = await visitor.get(path)

        assert answer.status_code == status
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert reason in text_of(answer)
        assert 'href="/ui/"' in answer.text
        assert "style-src 'self'" in answer.headers["content-security-policy"]
        assert len(answer.headers.get_list("content-security-policy")) == 1
        assert "set-cookie" not in answer.headers
        assert ("allow" in answer.headers) == (status == 405)
        head = await visitor.client.head(path)
        assert (head.status_code, head.content) == (status, b"")


async def test_a_name_in_another_encoding_is_refused_by_name(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as visitor:
        answer = await visitor.get("/ui/jobs/%FF%FE")

    assert answer.status_code == 422
    assert "a-z, 0-9" in text_of(answer)


async def test_the_api_goes_on_answering_with_problem_documents(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("viewer") as api:
        answer = await api.get("/v1/nothing")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_text_of_a_problem_stays_text() -> None:
    page = error_page(problem(400, "<script>alert(1)</script>\u202e{0}", code="bad_request")).decode()

    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\u202e" not in page
