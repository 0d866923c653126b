"""Graphs, `gnomon events` and `gnomon workflows`, on a database that a running scheduler uses."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.app.server import BackgroundScheduler, ServerOptions
from gnomon.config.settings import load
from gnomon.errors import UsageError
from gnomon.runners.registry import Functions
from gnomon.runners.workflow_builder import Workflows, index, item, step
from gnomon.testing.clock import Recorder
from support.cli_prompt import CliPrompt

GRAPH = """
jobs:
  - name: etl
    dag:
      - { step: extract, function: extract }
      - { step: left, function: convert, depends_on: [extract] }
      - { step: right, function: convert, depends_on: [extract], foreach: [1, 2] }
      - { step: load, function: convert, depends_on: [left, right] }
      - { step: alarm, function: tell, depends_on: [load], when: any_failed }
"""
PAUSED = """
jobs:
  - name: paused
    dag:
      - { step: pause, delay_until: "2126-03-02T00:00:00Z" }
      - { step: load, function: tell, depends_on: [pause] }
"""
LISTENING = """
jobs:
  - { name: retrain, function: tell, overlap: allow, on: { event: model.drift, where: { model: zen } } }
  - { name: report, function: tell, overlap: queue, on: { event: model.drift, debounce: 100ms } }
"""
DEPLOYED: dict[str, Any] = {
    "workflow_id": "etl",
    "steps": [
        {"id": "extract", "function": "extract"},
        {"id": "pause", "delay": "5m", "depends_on": ["extract"]},
        {"id": "load", "function": "load", "depends_on": ["extract", "pause"], "when": "all_done"},
    ],
    "triggers": [{"type": "schedule_based", "id": "nightly", "cron_expr": "0 2 * * *"}],
}


def extract(date: str = "today") -> dict[str, Any]:
    return {"date": date, "files": [{"n": 1}, {"n": 2}, {"n": 3}]}


def convert(n: int, number: int) -> int:
    if n == 2:
        raise ValueError("two is bad")
    return n * 10 + number


def tell() -> str:
    return "told"


def refuse() -> None:
    raise gnomon.GiveUp("it is refused")


def announce() -> str:
    return gnomon.emit("model.drift", {"model": "zen"}, actor="ada")


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    return CliPrompt(tmp_path, monkeypatch, capsys)


@pytest.fixture
def working(prompt: CliPrompt) -> Iterator[CliPrompt]:
    """A prompt in a folder whose database a running scheduler uses."""
    functions = Functions()
    for body in (extract, convert, tell, refuse, announce):
        functions.function(body)

    @Workflows(functions).workflow
    def nightly(date: str = "today") -> None:
        found = step(extract, date=date)
        each = step(convert, foreach=found.output["files"], n=item["n"], number=index)
        step(tell, name="sum", after=[each])
        step(tell, name="alarm", after=[each], when="any_failed", condition=f"{found.output['date']} == 'today'")

    settings = load(flags={"database.url": f"sqlite:///{prompt.folder / 'gnomon.db'}"})
    with BackgroundScheduler(ServerOptions(settings=settings, functions=functions, events=Recorder())):
        yield prompt


def applied(prompt: CliPrompt, text: str) -> CliPrompt:
    prompt.write(text)
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")
    return prompt


# ---- graphs --------------------------------------------------------------------------------------


@pytest.mark.req("H-07")
def test_a_graph_is_drawn_with_what_became_of_each_step(working: CliPrompt) -> None:
    ended = working.run("jobs", "trigger", "nightly", "--wait", "-o", "json").data()
    assert (ended["status"], ended["error"]) == ("failed", "step convert: 1 of 3 items did not succeed")

    shown = working.lines("executions", "show", ended["execution_id"])

    start = next(place for place, line in enumerate(shown) if line.startswith("step"))
    assert [
        line.partition("  ")[0] if line[0] != " " else line[3:].partition("  ")[0] for line in shown[start:][1:5]
    ] == [
        "extract",
        "└─ convert",
        "├─ sum",
        "└─ alarm",
    ]
    states = ("SUCCEEDED", "FAILED", "CANCELLED", "SUCCEEDED")
    assert all(state in line for state, line in zip(states, shown[start:][1:5], strict=True))
    assert "each: 2 of 3 done, 1 failed" in shown[start + 2]
    assert any("convert[1]" in line and "ValueError: two is bad" in line for line in shown[start + 5 :])


BOOKING = """
jobs:
  - name: trip
    dag:
      - { step: flight, function: extract, compensate: { function: tell } }
      - { step: hotel, function: tell, depends_on: [flight], compensate: { function: refuse } }
      - { step: night, function: tell, depends_on: [hotel], foreach: [1, 2], compensate: { function: tell } }
      - { step: pay, function: refuse, depends_on: [night] }
"""


@pytest.mark.req("R-09")
def test_a_rollback_is_drawn_in_both_directions_and_explained(working: CliPrompt) -> None:
    run = applied(working, BOOKING).run("jobs", "trigger", "trip", "--wait", "-o", "json").data()

    shown = working.lines("executions", "show", run["execution_id"])
    fields = dict(line.split(maxsplit=1) for line in shown if line.split(maxsplit=1)[1:])
    assert fields["rollback"] == "incomplete, because a step gave up for good"
    assert fields["forward"] == "flight > hotel > night > pay (FAILED)"
    assert fields["backward"] == "night > hotel (FAILED) > flight"

    why = " ".join(" ".join(working.lines("why", "trip")).split())
    assert "is incomplete: 2 of 3 steps that can be undone are undone: night, flight." in why
    assert "Not undone: hotel (it is refused)." in why

    again = working.run("executions", "rollback", run["execution_id"], "--reason", "try again")
    assert again.code == 0


@pytest.mark.req("H-07")
def test_as_data_a_graph_has_everything(working: CliPrompt) -> None:
    run = working.run("jobs", "trigger", "nightly", "--wait", "-o", "json").data()

    steps = {one["step"]: one for one in working.data("executions", "show", run["execution_id"])["steps"]}

    assert list(steps) == ["extract", "convert", "sum", "alarm"]
    assert steps["extract"]["output"] == extract("today")
    assert [(one["item"], one["state"], one["output"]) for one in steps["convert"]["items"]] == [
        (0, "SUCCEEDED", 10),
        (1, "FAILED", None),
        (2, "SUCCEEDED", 32),
    ]
    assert (steps["sum"]["state"], steps["sum"]["upstream_failed"]) == ("CANCELLED", True)
    assert (steps["alarm"]["depends_on"], steps["alarm"]["when"]) == (["convert", "extract"], "any_failed")
    assert [one["result"] for one in steps["alarm"]["attempts"]] == ["succeeded"]


def test_a_step_that_waits_for_its_time_says_when_that_is(working: CliPrompt) -> None:
    execution = applied(working, PAUSED).triggered("paused")
    waits = "PENDING (delay)"

    for _ in range(50):
        found = [line for line in working.lines("executions", "show", execution) if waits in line]
        if found:
            break

    assert found[0].startswith("pause")
    assert " until Sat 2126-03-02 00:00:00 UTC" in found[0]


def test_steps_whose_turn_has_not_come_are_waiting(prompt: CliPrompt) -> None:
    execution = applied(prompt, GRAPH).triggered("etl")

    steps = prompt.data("executions", "show", execution)["steps"]
    shown = prompt.lines("executions", "show", execution)

    assert [(one["step"], one["state"]) for one in steps] == [
        ("extract", "PENDING"),
        ("left", "waiting"),
        ("right", "waiting"),
        ("load", "waiting"),
        ("alarm", "waiting"),
    ]
    assert [line.rstrip() for line in shown[-6:]] == [
        "step            state            took  attempts  remarks",
        "extract         PENDING (ready)",
        "├─ left         waiting",
        "└─ right        waiting",
        "   └─ load      waiting                          after left, right",
        "      └─ alarm  waiting                          when any_failed",
    ]


# ---- events --------------------------------------------------------------------------------------


@pytest.mark.req("H-24")
def test_an_event_says_what_it_started(prompt: CliPrompt) -> None:
    applied(prompt, LISTENING)

    shown = prompt.lines("events", "emit", "model.drift", "--body", '{"model": "other"}')

    assert [line.split()[:3] for line in shown[1:]] == [
        ["job", "became", "why"],
        ["report", "gathered", "waits"],
        ["retrain", "skipped", "where"],
    ]


@pytest.mark.req("H-24")
def test_an_event_with_a_key_is_emitted_once(prompt: CliPrompt) -> None:
    applied(prompt, LISTENING)

    emit = ("events", "emit", "model.drift", "--body", '{"model": "zen"}', "--key", "monday")
    first, second = (prompt.data(*emit) for _ in range(2))

    assert first == second
    assert len(prompt.data("executions", "list", "--job", "retrain")) == 1


def test_events_are_listed_and_shown(prompt: CliPrompt) -> None:
    applied(prompt, LISTENING)
    (prompt.folder / "body.json").write_text('{"model": "zen"}')
    prompt.lines("events", "emit", "other")
    emitted = prompt.data("events", "emit", "model.drift", "--body", "@body.json")

    [only] = prompt.data("events", "list", "--name", "model.drift")
    shown = prompt.lines("events", "show", emitted["event_id"])

    assert only == emitted
    assert emitted["body"] == {"model": "zen"}
    assert [line.split()[:2] for line in prompt.lines("events", "list")[1:]] == [
        [emitted["event_id"], "model.drift"],
        [prompt.data("events", "list", "--name", "other")[0]["event_id"], "other"],
    ]
    assert shown[1].split() == ["name", "model.drift"]
    assert [line.split()[:2] for line in shown[-2:]] == [["report", "gathered"], ["retrain", "fired"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("emit", "Bad Name"), "name"),
        (("emit", "a", "--body", "{"), "is not JSON"),
        (("emit", "a", "--body", "@nowhere"), "cannot be read"),
        (("emit", "a", "--key", ""), "is empty"),
        (("show", "evt_nothing"), "evt_nothing"),
    ],
)
def test_an_invalid_event_is_reported(prompt: CliPrompt, words: tuple[str, ...], said: str) -> None:
    applied(prompt, LISTENING)

    done = prompt.run("events", *words)

    assert (done.code, done.out) == (2, [])
    assert said in done.err[0]


def test_a_definition_that_is_not_there_is_named_as_it_was_given(prompt: CliPrompt) -> None:
    done = prompt.run("workflows", "deploy", "-f", "nowhere.json")

    assert done.code == 2
    assert done.err[0].startswith("error: --file: 'nowhere.json' cannot be read")


def test_where_no_event_was_emitted_none_is_listed(prompt: CliPrompt) -> None:
    applied(prompt, LISTENING)

    assert prompt.lines("events", "list") == ["no events"]
    assert prompt.lines("events", "emit", "other")[1:] == ["no job listens to it"]


@pytest.mark.req("H-24")
async def test_gathered_events_start_a_run_beside_a_scheduler_that_works(working: CliPrompt) -> None:
    def emitted() -> str:
        applied(working, LISTENING)
        return str(working.data("events", "emit", "model.drift", "--body", '{"model": "zen"}')["event_id"])

    def became() -> str:
        return str(working.data("events", "show", event)["entries"][0]["became"])

    event = await asyncio.to_thread(emitted)
    async with asyncio.timeout(20):
        while await asyncio.to_thread(became) == "gathered":  # noqa: ASYNC110 - the scheduler tells nobody here
            await asyncio.sleep(0.05)

    [run] = await asyncio.to_thread(working.data, "executions", "list", "--job", "report")
    assert run["trigger"] == "event"


@pytest.mark.req("H-24")
def test_a_body_emits_into_the_database_of_its_scheduler(working: CliPrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    applied(working, "jobs:\n- {name: announce, function: announce}\n")
    monkeypatch.setenv("GNOMON_DATABASE__URL", "sqlite:////nowhere/at/all.db")

    ended = working.run(
        "jobs", "trigger", "announce", "--wait", "-o", "json", "--database", str(working.folder / "gnomon.db")
    ).data()

    assert ended["status"] == "completed"
    [event] = working.data("events", "list", "--database", str(working.folder / "gnomon.db"))
    assert (event["name"], event["actor"]) == ("model.drift", "ada")


def test_a_program_emits_where_it_says(prompt: CliPrompt) -> None:
    applied(prompt, LISTENING)

    event = gnomon.emit("model.drift", {"model": "zen"}, key="monday", database=str(prompt.folder / "gnomon.db"))

    assert prompt.data("events", "show", event)["key"] == "monday"


async def test_a_coroutine_is_told_how_to_emit() -> None:
    with pytest.raises(UsageError, match="to_thread"):
        gnomon.emit("model.drift")


# ---- workflows -----------------------------------------------------------------------------------


@pytest.mark.req("C-16")
def test_a_definition_is_deployed_and_shown(prompt: CliPrompt) -> None:
    (prompt.folder / "etl.json").write_text(json.dumps(DEPLOYED))

    assert prompt.lines("workflows", "deploy", "-f", "etl.json") == ["etl version 1", "schedule etl.nightly"]
    assert prompt.lines("workflows", "deploy", "-f", "etl.json")[0] == "etl version 1 (unchanged)"
    assert prompt.lines("workflows", "show", "etl")[3:] == [
        "step        does         remarks",
        "extract     extract",
        "└─ pause    waits 5 min",
        "   └─ load  load         after extract, pause, when all_done",
    ]
    shown = prompt.data("workflows", "show", "etl", "--version", "1")
    assert (shown["workflow_id"], shown["version"], len(shown["steps"])) == ("etl", 1, 3)


@pytest.mark.req("C-16")
def test_a_schedule_that_a_later_version_does_not_have_is_deleted(prompt: CliPrompt) -> None:
    both: list[list[Any]] = [DEPLOYED["triggers"], []]
    for triggers in both:
        (prompt.folder / "etl.json").write_text(json.dumps({**DEPLOYED, "triggers": triggers}))
        shown = prompt.lines("workflows", "deploy", "-f", "etl.json")

    assert shown == ["etl version 1 (unchanged)", "schedule etl.nightly is deleted; its history stays"]
    assert prompt.data("jobs", "list") == []


@pytest.mark.parametrize(("text", "said"), [("[]", "no JSON object"), ("{", "is not JSON"), ("{}", "workflow_id")])
def test_a_definition_that_is_none_is_refused(prompt: CliPrompt, text: str, said: str) -> None:
    (prompt.folder / "etl.json").write_text(text)

    done = prompt.run("workflows", "deploy", "-f", "etl.json")

    assert (done.code, done.out) == (2, [])
    assert said in done.err[0]


def test_workflows_are_listed_in_their_newest_versions(prompt: CliPrompt) -> None:
    (prompt.folder / "etl.json").write_text(json.dumps(DEPLOYED))
    (prompt.folder / "newer.json").write_text(json.dumps(DEPLOYED | {"tags": ["night"]}))
    for file in ("etl.json", "newer.json"):
        prompt.run("workflows", "deploy", "-f", file)

    assert prompt.lines("workflows", "list")[1:] == ["etl       2        3      night"]
    assert prompt.data("workflows", "list") == [
        {"workflow_id": "etl", "version": 2, "steps": ["extract", "pause", "load"], "tags": ["night"]}
    ]


def test_a_workflow_that_there_is_not_is_not_found(prompt: CliPrompt) -> None:
    applied(prompt, LISTENING)

    done = prompt.run("workflows", "show", "nothing")

    assert done.code == 2
    assert "nothing" in done.err[0]
