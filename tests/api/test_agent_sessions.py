"""The sessions of agents over the API: listed, shown and cleared, each tenant its own."""

from support.api_fixture import ApiCaller, ApiFixture


async def test_a_session_is_listed_shown_and_cleared(api_setup: ApiFixture, admin: ApiCaller) -> None:
    api_setup.keep_turn("triage")
    api_setup.keep_turn("other", tenant="acme")

    [listed] = (await admin.get("/v1/sessions")).json()["items"]
    [turn] = (await admin.get("/v1/sessions/triage")).json()["items"]
    cleared = (await admin.post("/v1/sessions/triage/clear")).json()

    assert (listed["session"], listed["turns"], listed["tokens"]) == ("triage", 1, 7)
    assert (turn["number"], turn["job"], turn["messages"]) == (1, "triage", [{"kind": "x"}])
    assert cleared == {"session": "triage", "turns": 1}
    assert (await admin.get("/v1/sessions")).json()["items"] == []
    assert (await admin.get("/v1/sessions/triage")).status_code == 404
    assert (await admin.post("/v1/sessions/other/clear")).status_code == 404
