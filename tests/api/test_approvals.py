"""Voting over the API: voters, refusals, and consequences."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gnomon.core.approvals.model import Approval
from gnomon.core.runs.states import TaskState
from support.api_fixture import ApiCaller, ApiFixture


@pytest.fixture
async def asked(api_setup: ApiFixture, admin: ApiCaller) -> Approval:
    """An approval for a run that the operator requested of a job that the admin wrote."""
    await admin.registered(overlap="allow")
    async with api_setup.caller("operator") as operator:
        execution = await operator.triggered()
    return await api_setup.ask_for_approval(execution)


async def state_of(api_setup: ApiFixture, asked: Approval) -> TaskState:
    assert asked.request is not None
    return api_setup.store.state.tasks[asked.request.task_id].state


@asynccontextmanager
async def voter(api_setup: ApiFixture, name: str, *groups: str) -> AsyncIterator[ApiCaller]:
    """A caller with the role operator, of that name and in these groups."""
    async with api_setup.caller(f"operator~{name}~{'+'.join(groups)}") as caller:
        yield caller


def path(asked: Approval, verb: str) -> str:
    return f"/v1/approvals/{asked.approval_id}/{verb}"


@pytest.mark.req("R-03")
async def test_the_list_says_what_waits_for_whom(admin: ApiCaller, asked: Approval) -> None:
    [one] = (await admin.get("/v1/approvals?status=waiting")).json()["items"]
    shown = (await admin.get(f"/v1/approvals/{asked.approval_id}")).json()

    assert (one["approval_id"], one["job"], one["rule"], one["digest"]) == (
        asked.approval_id, "report", "payments", asked.digest,
    )  # fmt: skip
    assert one["needs"]["text"] == "1 person in finance within 1d"
    assert shown["input"] == {}
    assert (await admin.get("/v1/approvals?status=approved")).json()["items"] == []
    assert (await admin.get("/v1/approvals?job=other")).json()["items"] == []


@pytest.mark.req("R-03")
async def test_a_second_person_lets_the_task_go_on(api_setup: ApiFixture, asked: Approval) -> None:
    async with voter(api_setup, "dora", "finance") as dora:
        answer = await dora.post(path(asked, "approve"), {"digest": asked.digest, "reason": "checked"})
        again = await dora.post(path(asked, "approve"), {"digest": asked.digest})

    assert answer.status_code == 200, answer.text
    assert (answer.json()["status"], answer.json()["decided_by"]) == ("approved", "dora")
    assert (again.status_code, again.json()["type"]) == (409, "urn:gnomon:problem:approval_closed")
    assert await state_of(api_setup, asked) is TaskState.PENDING


@pytest.mark.req("R-03")
@pytest.mark.parametrize("role", ["operator", "admin"])
@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_a_caller_who_asked_for_the_run_or_wrote_the_job_may_not_vote(
    api_setup: ApiFixture, asked: Approval, role: str, verb: str
) -> None:
    async with api_setup.caller(role) as self_voter:
        refused = await self_voter.post(path(asked, verb), {"digest": asked.digest})

    assert refused.status_code == 403
    assert "may not vote on it" in refused.json()["detail"]
    assert await state_of(api_setup, asked) is TaskState.APPROVAL_REQUIRED


@pytest.mark.req("R-03")
async def test_only_members_of_the_group_may_vote(api_setup: ApiFixture, asked: Approval) -> None:
    async with voter(api_setup, "dora", "sales") as dora:
        refused = await dora.post(path(asked, "approve"), {"digest": asked.digest})

    assert (refused.status_code, refused.json()["detail"]) == (403, "only members of finance may vote on it")


@pytest.mark.req("R-03")
async def test_a_digest_that_is_not_that_of_the_approval_is_refused(api_setup: ApiFixture, asked: Approval) -> None:
    async with voter(api_setup, "dora", "finance") as dora:
        other = await dora.post(path(asked, "approve"), {"digest": "0" * 64})
        short = await dora.post(path(asked, "approve"), {"digest": asked.digest[:12]})
        none = await dora.post(path(asked, "approve"), {})

    assert (other.status_code, other.json()["type"]) == (409, "urn:gnomon:problem:approval_changed")
    assert (short.status_code, none.status_code) == (422, 422)
    assert await state_of(api_setup, asked) is TaskState.APPROVAL_REQUIRED


@pytest.mark.req("R-03")
@pytest.mark.parametrize("verb", ["approve", "reject", "override"])
async def test_a_model_may_not_vote(api_setup: ApiFixture, asked: Approval, verb: str) -> None:
    async with voter(api_setup, "dora", "finance", "on-call") as dora:
        body = {"digest": asked.digest, "reason": "the user said so"}
        refused = await dora.ask("POST", path(asked, verb), body, headers={"Gnomon-Model": "triage"})

    assert refused.status_code == 403
    assert "a model may not vote" in refused.json()["detail"]
    assert await state_of(api_setup, asked) is TaskState.APPROVAL_REQUIRED


@pytest.mark.req("R-03")
async def test_an_owner_whose_model_asked_for_the_run_may_not_vote(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered(overlap="allow")
    async with voter(api_setup, "dora", "finance") as dora:
        made = await dora.ask("POST", "/v1/jobs/report/trigger", {}, headers={"Gnomon-Model": "triage"})
        asked = await api_setup.ask_for_approval(made.json()["execution_id"])
        refused = await dora.post(path(asked, "approve"), {"digest": asked.digest})

    assert refused.status_code == 403


@pytest.mark.req("R-03")
async def test_one_rejection_ends_the_task(api_setup: ApiFixture, admin: ApiCaller, asked: Approval) -> None:
    async with voter(api_setup, "dora", "finance") as dora:
        answer = await dora.post(path(asked, "reject"), {"digest": asked.digest, "reason": "wrong account"})

    [letter] = (await admin.get("/v1/dead-letters")).json()["items"]
    assert (answer.json()["status"], letter["reason"]) == ("rejected", "approval_rejected")
    assert letter["last_error"] == "rejected by dora: wrong account"
    assert await state_of(api_setup, asked) is TaskState.DENIED


@pytest.mark.req("R-03")
async def test_an_override_needs_the_group_and_a_reason(api_setup: ApiFixture, asked: Approval) -> None:
    body: dict[str, Any] = {"digest": asked.digest, "reason": "the bank closes"}
    async with voter(api_setup, "dora", "finance") as dora:
        refused = await dora.post(path(asked, "override"), body)
    async with voter(api_setup, "olga", "on-call") as olga:
        silent = await olga.post(path(asked, "override"), {"digest": asked.digest})
        answer = await olga.post(path(asked, "override"), body)

    assert (refused.status_code, silent.status_code) == (403, 422)
    assert (answer.status_code, answer.json()["overridden"], answer.json()["status"]) == (200, True, "approved")
    assert await state_of(api_setup, asked) is TaskState.PENDING


async def test_approvals_of_other_tenants_do_not_exist(api_setup: ApiFixture, asked: Approval) -> None:
    async with api_setup.caller("admin/acme") as stranger:
        shown = await stranger.get(f"/v1/approvals/{asked.approval_id}")
        voted = await stranger.post(path(asked, "approve"), {"digest": asked.digest})
        listed = (await stranger.get("/v1/approvals")).json()["items"]

    assert (shown.status_code, voted.status_code, listed) == (404, 404, [])
