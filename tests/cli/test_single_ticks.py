"""What operators type about single ticks of a job, on a real file."""

from pathlib import Path

import pytest

from support.prompt import Prompt


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Prompt:
    prompt = Prompt(tmp_path, monkeypatch, capsys)
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")
    return prompt


def planned(prompt: Prompt) -> list[str]:
    found: list[str] = prompt.data("jobs", "next", "report", "-n", "3")["next_runs"]
    return found


# ---- skip ----------------------------------------------------------------------------------------


def test_a_coming_run_is_skipped_and_shown_as_such(prompt: Prompt) -> None:
    first, second, third = planned(prompt)

    [said] = prompt.lines("jobs", "skip", "report", "--at", second)

    assert said.startswith("report: ")
    assert said.endswith(" is skipped")
    assert planned(prompt)[:2] == [first, third]
    assert prompt.data("jobs", "show", "report")["exceptions"] == [{"planned_at": second, "moved_to": None}]
    assert any(line.startswith("exceptions") for line in prompt.lines("jobs", "show", "report"))


def test_a_run_is_moved_on_the_clocks_of_the_job_and_applying_the_file_keeps_that(prompt: Prompt) -> None:
    first = planned(prompt)[0]
    day = first[:10]

    prompt.lines("jobs", "skip", "report", "--at", f"{day}T09:00", "--move-to", f"{day}T10:30")

    assert prompt.lines("jobs", "apply", "-f", "jobs.yaml") == ["2 unchanged"]
    [moved] = prompt.data("jobs", "show", "report")["exceptions"]
    assert moved["planned_at"] == first
    assert planned(prompt)[0] == moved["moved_to"]


def test_a_skip_is_undone(prompt: Prompt) -> None:
    before = planned(prompt)
    prompt.lines("jobs", "skip", "report", "--at", before[0])

    [said] = prompt.lines("jobs", "skip", "report", "--at", before[0], "--undo")

    assert said.endswith("after all")
    assert planned(prompt) == before


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (("--at", "2099-01-01T00:00:01Z"), "is no planned time: the one before is at"),
        (("--at", "tomorrow"), '--at: "tomorrow" is not an instant'),
        (("--at", "2099-01-01T00:00Z", "--undo", "--move-to", "2099-01-01T00:00Z"), "two different things"),
    ],
)
def test_what_cannot_be_skipped_is_said(prompt: Prompt, told: tuple[str, ...], reason: str) -> None:
    done = prompt.run("jobs", "skip", "report", *told)

    assert done.code == 2
    assert reason in "\n".join(done.err)
