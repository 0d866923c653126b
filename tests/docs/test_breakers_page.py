"""The page about circuit breakers: its jobs are valid, its table complete, and its commands do as it says."""

import re
from pathlib import Path

import pytest
import yaml

import gnomon
from gnomon.core.breakers import StepBreaker
from gnomon.core.jobs.breaker_fields import BREAKER_FIELDS, breaker_as_data
from gnomon.core.named_breakers import BreakerKey, BreakerUse, RequestOutcome
from gnomon.ports.store import Store
from support.cli_prompt import CliPrompt

PAGE = (Path(__file__).parents[2] / "docs" / "breakers.md").read_text()
[JOBS] = (yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def test_the_jobs_of_the_page_are_valid_and_share_one_breaker() -> None:
    read = gnomon.read_jobs(JOBS["jobs"], now=0)

    assert len({one.workflow.steps[0].breaker for one in read}) == 1


def test_the_table_has_every_field_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `([a-z]+)` \|.*\| *`?([^|`]*)`? *\|$", PAGE, re.MULTILINE))

    assert list(rows) == list(BREAKER_FIELDS)
    usual = breaker_as_data(StepBreaker(name=""))
    assert {field: str(value).strip() for field, value in rows.items()} == {
        field: str(value) for field, value in usual.items()
    }


def test_the_commands_list_and_reset_a_breaker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = CliPrompt(tmp_path, monkeypatch, capsys)
    prompt.make_database()
    breaker = gnomon.read_jobs(JOBS["jobs"], now=0)[0].workflow.steps[0].breaker
    assert breaker is not None

    async def fail(store: Store) -> None:
        now = await store.now()
        for number in range(5):
            key = BreakerKey("default", breaker.name)
            use = BreakerUse(key=key, limits=breaker.limits, user="pay", request=f"task_{number}/1")
            await store.breakers.record(use, RequestOutcome.FAILED, now=now)

    assert prompt.run("breakers", "list").out == ["no breakers"]
    prompt.with_store(fail)

    columns, [row] = (listed := prompt.run("breakers", "list").out)[0], listed[1:]
    assert columns.split() == re.findall(r"^breaker  state.*$", PAGE, re.MULTILINE)[0].split()
    assert row.startswith("stripe   open   5")
    assert row.endswith("task_4     pay (5 failures, 10m, 1 probes, 1 successes)")
    assert prompt.run("breakers", "reset", "stripe").out == ["stripe is closed"]
    assert prompt.run("breakers", "list", "-o", "json").data()[0]["state"] == "closed"
    assert prompt.run("breakers", "reset", "none").code == 2
