"""The page of an execution: its graph and time line, its log and files, and the forms that act on it."""

import json
import re
from html import unescape
from typing import Any

import pytest

from contracts.store import NOON
from gnomon.core.model import DAY_MS, LogLine, Result, RunId
from gnomon.core.runs.progress import AttemptProgress
from support.dashboard import DashboardFixture, text_of
from support.dashboard_pages import HOSTILE, executed
from support.task_steps import take_task

GRAPH = {
    "name": "graph",
    "dag": [
        {"step": "list", "function": "reports.make"},
        {"step": "left", "function": "reports.make", "depends_on": ["list"]},
        {"step": "right", "function": "reports.make", "depends_on": ["list"]},
        {"step": "load", "function": "reports.make", "depends_on": ["left", "right"]},
    ],
}


async def started(dashboard: DashboardFixture, job: dict[str, Any]) -> str:
    """The id of a new execution of the job."""
    async with dashboard.caller("admin") as admin:
        created = await admin.post("/v1/jobs", job)
        assert created.status_code in (200, 201), created.text
        return str((await admin.post(f"/v1/jobs/{job['name']}/trigger")).json()["execution_id"])


def lines(count: int) -> tuple[LogLine, ...]:
    return tuple(LogLine(NOON + number, "info", f"line {number}.") for number in range(count))


def numbers(page: str) -> list[int]:
    """The numbers of the lines that a page shows."""
    return [int(one) for one in re.findall(r"line (\d+)\.</p>", page)]


# ---- steps ---------------------------------------------------------------------------------------


async def test_every_step_of_the_graph_leads_to_its_row(dashboard: DashboardFixture) -> None:
    execution = await started(dashboard, GRAPH)

    async with dashboard.visitor("viewer") as visitor:
        page = (await visitor.get(f"/ui/executions/{execution}")).text

    graph = page.partition('<svg class="graph"')[2].partition("</svg>")[0]
    nodes = re.findall(r'<a href="#(step-\d)" class="node is-[a-z]+"><title>(\w+): ', graph)
    assert sorted(nodes) == [("step-1", "list"), ("step-2", "left"), ("step-3", "right"), ("step-4", "load")]
    assert graph.count('class="edge"') == 4
    for anchor, step in nodes:
        assert re.search(rf'<tr id="{anchor}"><th scope="row">{step}</th>', page)


async def test_a_graph_with_many_steps_is_a_table(dashboard: DashboardFixture) -> None:
    steps = [{"step": f"s{number}", "function": "reports.make"} for number in range(201)]
    execution = await started(dashboard, {"name": "wide", "dag": steps})

    async with dashboard.visitor("viewer") as visitor:
        page = (await visitor.get(f"/ui/executions/{execution}")).text
        rest = (await visitor.get(f"/ui/executions/{execution}?from=200")).text
        refused = await visitor.get(f"/ui/executions/{execution}?from=x")

    assert '<svg class="graph"' not in page
    assert "201 steps are too many for a drawing" in page
    assert page.count('<tr id="step-') == 200
    assert '?from=200">Later steps' in page
    assert re.findall('<tr id="(step-[0-9]+)"', rest) == ["step-201"]
    assert (refused.status_code, "from" in refused.text) == (422, True)


async def test_the_time_line_tells_waits_and_attempts_apart(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as admin:
        execution = await admin.triggered()
    dashboard.clock.advance(60_000)
    run = await dashboard.store.executions.find_run(RunId(execution))
    assert run is not None
    await take_task(dashboard.store, "worker-1", run, now=dashboard.clock.now())
    dashboard.clock.advance(30_000)

    async with dashboard.visitor("viewer") as visitor:
        page = (await visitor.get(f"/ui/executions/{execution}")).text

    assert re.search(r'<rect class="waits" x="180" [^>]*width="480" height="4"><title>waits, 1 min</title>', page)
    assert re.search(r'<rect class="attempt is-run" x="660" [^>]*width="240" [^>]*><title>attempt 1 running, 30', page)


# ---- log -----------------------------------------------------------------------------------------


async def test_the_last_lines_come_first_and_lead_to_earlier_ones(dashboard: DashboardFixture) -> None:
    execution = await executed(dashboard, logs=lines(700))
    here = f"/ui/executions/{execution}"

    async with dashboard.visitor("viewer") as visitor:
        page = await visitor.get(here)
        earlier = re.search(r'<a rel="next" href="([^"]+)#log">Earlier lines', page.text)
        assert earlier is not None
        before = await visitor.get(earlier[1].replace("&amp;", "&"))
        part = await visitor.get(f"{here}?part=log")

    assert numbers(page.text) == list(range(500, 700))
    assert f'data-topics="log:{execution} execution:{execution}"' in page.text
    assert numbers(before.text) == list(range(300, 500))
    assert 'data-part="log" data-topics=""' in before.text
    assert part.text in page.text
    assert "<h1>" not in part.text


async def test_lines_of_an_attempt_that_goes_on_are_shown(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as admin:
        execution = await admin.triggered()
    run = await dashboard.store.executions.find_run(RunId(execution))
    assert run is not None
    held = await take_task(dashboard.store, "worker-1", run, now=NOON)
    async with dashboard.visitor("viewer") as visitor:
        assert "No line yet." in (await visitor.get(f"/ui/executions/{execution}?part=log")).text
        said = (LogLine(NOON, "warning", "halfway"),)
        progress = AttemptProgress(task_id=held.task.task_id, fence=held.task.fence, lines=said)
        assert await dashboard.store.attempts.keep_progress(progress, worker=None, now=NOON)

        assert "warning halfway" in text_of(await visitor.get(f"/ui/executions/{execution}?part=log"))


async def test_a_text_is_found_in_the_log(dashboard: DashboardFixture) -> None:
    execution = await executed(dashboard, logs=lines(700))
    here = f"/ui/executions/{execution}"

    async with dashboard.visitor("viewer") as visitor:
        found = await visitor.get(f"{here}?find=LINE 42.")
        assert numbers(found.text) == [42]
        assert 'name="find" type="text" value="LINE 42."' in found.text
        assert "No line matches." in (await visitor.get(f"{here}?find=nothing")).text
        assert "No line matches." in (await visitor.get(f"{here}?step=none")).text


async def test_the_whole_log_is_a_file_in_which_no_line_can_be_forged(dashboard: DashboardFixture) -> None:
    hostile = LogLine(NOON + 5_000, "info", f"{HOSTILE}\n2026-03-02T12:00:00Z  info  forged")
    execution = await executed(dashboard, logs=(*lines(2_500), hostile))

    async with dashboard.visitor("viewer") as visitor:
        file = await visitor.get(f"/ui/executions/{execution}/log.txt")

    assert file.status_code == 200
    assert file.headers["content-type"] == "text/plain; charset=utf-8"
    assert file.headers["content-disposition"] == f'attachment; filename="{execution}.log.txt"'
    assert file.headers["x-content-type-options"] == "nosniff"
    written = file.text.split("\n")
    assert [one.endswith(f"line {number}.") for number, one in enumerate(written[:2_500])] == [True] * 2_500
    assert written[2_501].startswith("    2026-03-02")
    assert r"\x1b[2J\u202egnp.exe\u2066" in written[2_500]
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\u2066]", file.text)


@pytest.mark.parametrize("file", ["log.txt", "execution.json"])
async def test_files_are_closed_to_others(dashboard: DashboardFixture, file: str) -> None:
    execution = await executed(dashboard, logs=lines(1))

    async with dashboard.visitor("admin/other") as other, dashboard.visitor() as stranger:
        assert (await other.get(f"/ui/executions/{execution}/{file}")).status_code == 404
        assert (await stranger.get(f"/ui/executions/{execution}/{file}")).status_code == 303


async def test_texts_of_others_stay_texts_and_long_ones_are_in_the_file(dashboard: DashboardFixture) -> None:
    output = json.dumps({"found": HOSTILE, "long": "x" * 60_000}).encode()
    execution = await executed(dashboard, output=output, logs=(LogLine(NOON, HOSTILE[:50], HOSTILE),))

    async with dashboard.visitor("admin") as visitor:
        page = (await visitor.get(f"/ui/executions/{execution}")).text
        assert "<script>alert" not in page
        assert "<img" not in page
        assert not re.search("[\x1b\u202e\u2066]", page)
        assert "x" * 3_000 not in page
        assert f'href="/ui/executions/{execution}/execution.json" download>all of it as a file' in page
        file = await visitor.get(f"/ui/executions/{execution}/execution.json")

    assert file.headers["content-type"] == "application/json"
    assert file.json()["steps"][0]["output"] == json.loads(output)


# ---- forms ---------------------------------------------------------------------------------------


async def test_an_execution_runs_again_with_another_input_and_a_second_click_starts_no_other(
    dashboard: DashboardFixture,
) -> None:
    execution = await executed(dashboard)
    here = f"/ui/executions/{execution}"

    async with dashboard.visitor("operator") as visitor, dashboard.caller("viewer") as api:
        page = (await visitor.get(here)).text
        assert "&#34;n&#34;: 1" in page
        key = re.search(r'name="key" value="(\w+)"', page)
        assert key is not None
        clicks = [await visitor.send(f"{here}/again", input='{"n": 2}', key=key[1], force="yes") for _ in range(2)]
        assert {one.status_code for one in clicks} == {303}
        [address] = {one.headers["location"] for one in clicks}
        assert address != here
        again = (await api.get(address.replace("/ui/", "/v1/"))).json()

    assert (again["job"], again["input"]["n"]) == ("report", 2)


@pytest.mark.parametrize("given", ["{", "[1]"])
async def test_an_input_that_is_none_starts_nothing(dashboard: DashboardFixture, given: str) -> None:
    execution = await executed(dashboard)

    async with dashboard.visitor("operator") as visitor, dashboard.caller("viewer") as api:
        refused = await visitor.send(f"/ui/executions/{execution}/again", input=given)
        assert refused.status_code == 422
        assert "input" in refused.text
        assert len((await api.get("/v1/executions")).json()["items"]) == 1


async def test_a_rollback_that_has_nothing_to_undo_says_so(dashboard: DashboardFixture) -> None:
    execution = await executed(dashboard)

    async with dashboard.visitor("operator") as visitor:
        refused = await visitor.send(f"/ui/executions/{execution}/rollback", reason="wrong day")
        empty = await visitor.send(f"/ui/executions/{execution}/rollback", reason="")

    assert refused.status_code == 409
    assert "has a compensation" in text_of(refused)
    assert empty.status_code == 422


async def test_actions_that_a_role_does_not_allow_are_not_offered(dashboard: DashboardFixture) -> None:
    execution = await started(dashboard, GRAPH)
    here = f"/ui/executions/{execution}"

    async with dashboard.visitor("viewer") as viewer, dashboard.visitor("operator") as operator:
        assert f'action="{here}/again"' not in (await viewer.get(here)).text
        assert f'action="{here}/cancel"' not in (await viewer.get(here)).text
        assert f'action="{here}/cancel"' in (await operator.get(here)).text
        assert f'action="{here}/rollback"' not in (await operator.get(here)).text
        assert (await operator.send(f"{here}/cancel")).status_code == 303
        ended = (await operator.get(here)).text
        assert f'action="{here}/cancel"' not in ended
        assert f'action="{here}/rollback"' in ended
        assert f'action="{here}/rollback"' not in (await viewer.get(here)).text


async def test_the_list_keeps_its_filters_and_says_how_to_fill_it(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as visitor:
        assert "Nothing has run yet." in (await visitor.get("/ui/executions")).text
        filtered = await visitor.get("/ui/executions?status=failed&job=report")

    assert "No execution matches." in filtered.text
    assert "<option selected>failed</option>" in filtered.text
    assert 'name="job" type="text" value="report"' in filtered.text


async def test_the_list_shows_executions_that_match(dashboard: DashboardFixture) -> None:
    failed = await executed(dashboard, Result.FAILED, error="no paper")

    async with dashboard.visitor("viewer") as visitor:
        assert f"/ui/executions/{failed}" in (await visitor.get("/ui/executions?status=failed")).text
        assert f"/ui/executions/{failed}" not in (await visitor.get("/ui/executions?status=completed")).text


async def test_a_tick_without_an_execution_leads_to_its_reason(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as admin:
        await admin.post("/v1/jobs/report/pause")
        dashboard.clock.advance(3 * DAY_MS)
        await admin.post("/v1/jobs/report/resume")
        [skipped, *_] = (await admin.get("/v1/executions?status=skipped")).json()["items"]

    async with dashboard.visitor("viewer") as visitor:
        page = (await visitor.get("/ui/executions?status=skipped")).text
        link = re.search(rf'<a href="(/ui/why[^"]+)">{skipped["reason"]}', page)
        assert link is not None
        assert (await visitor.get(unescape(link[1]))).status_code == 200

    assert skipped["execution_id"] not in page
