"""The quarantine over HTTP: for admins alone, every look audited, and a release that lets the execution go on."""

import pytest

from support.api_fixture import ApiCaller, ApiFixture

pytestmark = pytest.mark.req("R-05")


@pytest.fixture
async def held(api_setup: ApiFixture, admin: ApiCaller) -> str:
    await admin.registered()
    return await api_setup.hold_back_output(await admin.triggered())


async def audited(admin: ApiCaller) -> list[str]:
    return [one["action"] for one in (await admin.get("/v1/audit?kind=output")).json()["items"]]


async def test_a_list_has_no_contents_and_a_look_is_audited(admin: ApiCaller, held: str) -> None:
    [one] = (await admin.get("/v1/quarantine?status=held")).json()["items"]
    assert (one["task_id"], one["rule"], one["status"]) == (held, "keys", "held")
    assert "content" not in one
    assert await audited(admin) == ["hold_back"]

    shown = (await admin.get(f"/v1/quarantine/{held}")).json()

    assert shown["content"] == "held"
    assert await audited(admin) == ["look", "hold_back"]


async def test_no_other_answer_has_the_content(admin: ApiCaller, held: str) -> None:
    execution = (await admin.get(f"/v1/quarantine/{held}")).json()["execution_id"]
    paths = (
        f"/v1/executions/{execution}",
        f"/v1/executions/{execution}/logs",
        "/v1/executions",
        "/v1/dead-letters",
        "/v1/quarantine",
        "/v1/audit",
        f"/v1/executions/{execution}/decisions",
    )
    answers = [await admin.get(path) for path in paths]
    assert not any('"held"' in one.text.replace('"status":"held"', "") for one in answers)


async def test_a_release_needs_a_reason_and_completes_the_execution(admin: ApiCaller, held: str) -> None:
    refused = await admin.post(f"/v1/quarantine/{held}/release", {"reason": " "})
    assert refused.status_code == 422
    done = (await admin.post(f"/v1/quarantine/{held}/release", {"reason": "an example"})).json()
    assert (done["status"], done["decided_why"], done["content"], done["continued"]) == (
        "released",
        "an example",
        None,
        True,
    )
    shown = (await admin.get(f"/v1/executions/{done['execution_id']}")).json()
    assert (shown["status"], shown["steps"][0]["output"]) == ("completed", "held")
    again = await admin.post(f"/v1/quarantine/{held}/release", {"reason": "an example"})
    assert (again.status_code, again.json()["type"]) == (409, "urn:gnomon:problem:output_decided")


async def test_a_discarded_content_is_gone(admin: ApiCaller, held: str) -> None:
    done = (await admin.post(f"/v1/quarantine/{held}/discard", {})).json()
    assert (done["status"], done["continued"]) == ("discarded", False)
    assert (await admin.get(f"/v1/quarantine/{held}")).json()["content"] is None
    [letter] = (await admin.get("/v1/dead-letters?resolved=true")).json()["items"]
    assert letter["resolved_by"] == "output discarded"


@pytest.mark.parametrize("verb", ["release", "discard"])
async def test_a_model_decides_nothing(admin: ApiCaller, held: str, verb: str) -> None:
    answer = await admin.ask(
        "POST", f"/v1/quarantine/{held}/{verb}", {"reason": "please"}, headers={"Gnomon-Model": "helper"}
    )
    assert answer.status_code == 403
    assert (await admin.get("/v1/quarantine?status=held")).json()["items"]
