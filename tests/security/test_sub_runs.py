"""Workflows that run workflows cannot multiply without end."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from support.api_server import background_scheduler
from support.request_sender import RequestSender, request_sender

#: How many tasks the sub-runs of an execution may have here, and how many steps each workflow has.
MOST, STEPS = 30, 8


def job(name: str, below: str | None) -> dict[str, Any]:
    """A job of several steps, each of which runs the workflow below."""
    given = {"delay": "1ms"} if below is None else {"workflow": below}
    return {"name": name, "dag": [{"step": f"s{n}", **given} for n in range(STEPS)]}


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[RequestSender]:
    with (
        background_scheduler(
            tmp_path / "gnomon.db",
            auth__verify_tokens=False,
            auth__accept_unverified=True,
            execution__max_sub_run_tasks=MOST,
        ) as scheduler,
        request_sender(scheduler.address or "") as sender,
    ):
        yield sender


@pytest.mark.req("H-22")
@pytest.mark.guarantee("S3")
def test_sub_runs_beyond_the_bound_do_not_start_and_why_tells_it(sender: RequestSender) -> None:
    names = ("first", "second", "third", "fourth")
    below = dict(zip(names, (*names[1:], None), strict=True))
    sender.sent_json("POST", "/v1/apply", {"jobs": [job(name, below[name]) for name in reversed(names)]})

    started = sender.sent_json("POST", "/v1/jobs/first/trigger", {})["execution_id"]
    deadline = monotonic() + 120
    while sender.sent_json("GET", f"/v1/executions/{started}")["status"] in ("pending", "running"):
        assert monotonic() < deadline, "the execution does not end"
        sleep(0.02)

    runs = sender.sent_json("GET", "/v1/executions?limit=1000")["items"]
    assert len(runs) == 1 + MOST // STEPS
    told = str(sender.sent_json("GET", "/v1/jobs/first/why?last=1"))
    assert f"the sub-runs of execution {started} may have {MOST} together (execution.max_sub_run_tasks)" in told
