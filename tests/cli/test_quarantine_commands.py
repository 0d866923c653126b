"""`gnomon quarantine`: an admin sees what is held back, looks at it, releases it or deletes it."""

from pathlib import Path

import pytest

from contracts.output_rulings import HELD, hold_back
from gnomon.adapters.sql.store import SqlStore
from support.cli_prompt import CliPrompt

pytestmark = pytest.mark.req("R-05")


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    prompt = CliPrompt(tmp_path, monkeypatch, capsys)
    prompt.make_database()
    return prompt


def held_task(prompt: CliPrompt, name: str = "ruled") -> str:
    async def work(store: SqlStore) -> str:
        return (await hold_back(store, name))[1].task.task_id

    return prompt.with_store(work)


def test_an_output_is_listed_shown_and_released(prompt: CliPrompt) -> None:
    assert prompt.run("quarantine", "list").out == ["no output is held back"]
    task = held_task(prompt)

    [row] = prompt.run("quarantine", "list").out[1:]
    assert row.split()[:6] == [task, "ruled", "main", "keys", "held", "31"]
    assert HELD.decode() not in row
    shown = prompt.run("quarantine", "show", task).out
    assert any(line.startswith("content") and HELD.decode() in line for line in shown)
    assert prompt.run("quarantine", "release", task).code == 2
    assert prompt.run("quarantine", "release", task, "--reason", "an example").out == [
        f"the output of {task} is released; execution run_ruled goes on"
    ]
    assert prompt.run("quarantine", "list").out == ["no output is held back"]
    assert prompt.run("quarantine", "list", "--status", "all", "-o", "json").data()[0]["status"] == "released"
    actions = [one["action"] for one in prompt.run("audit", "list", "--kind", "output", "-o", "json").data()]
    assert actions == ["release", "look", "hold_back"]


def test_a_discarded_output_is_deleted(prompt: CliPrompt) -> None:
    task = held_task(prompt)
    assert prompt.run("quarantine", "discard", task).out == [f"the output of {task} is discarded"]
    assert prompt.run("quarantine", "show", task, "-o", "json").data()["content"] is None
    assert prompt.run("quarantine", "release", task, "--reason", "too late").code != 0
    assert prompt.run("quarantine", "show", "task_none").code != 0
