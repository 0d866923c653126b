"""CronJobs of Kubernetes: the same times, the same words, and all that stays behind is named."""

import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import Cron
from gnomon.core.importers.kubernetes import read_cronjobs
from gnomon.core.importers.report import ImportedEntry, merge_reports
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults

CONTAINER: dict[str, Any] = {"name": "main", "image": "busybox", "command": ["date"]}


def manifest(container: dict[str, Any] | None = None, /, *, job: dict[str, Any] | None = None, **spec: Any) -> Any:  # noqa: ANN401 - any YAML
    pod = {"restartPolicy": "Never", "containers": [CONTAINER | (container or {})]}
    template = {"spec": {"backoffLimit": 0, "template": {"spec": pod}, **(job or {})}}
    usual = {"schedule": "0 0 * * *", "timeZone": "UTC", "jobTemplate": template}
    return {"kind": "CronJob", "metadata": {"name": "report"}, "spec": {**usual, **spec}}


def entry(document: object) -> ImportedEntry:
    [found] = merge_reports([read_cronjobs([document], place="jobs.yaml")], now=0).entries
    return found


def job(document: object) -> dict[str, Any]:
    found = entry(document)
    assert found.job is not None, found.notes
    return found.job


def notes(found: ImportedEntry) -> list[str]:
    return [note.text for note in found.notes]


def test_a_cronjob_becomes_a_job() -> None:
    found = entry(manifest())

    assert found.job == {
        "name": "report",
        "schedule": "0 0 * * *",
        "timezone": "UTC",
        "catchup": "latest",
        "command": "date",
        "overlap": "allow",
        "timeout": "1d",
    }
    assert notes(found) == ["image busybox: its programs must be there on the worker"]


@pytest.mark.parametrize(("policy", "overlap"), [("Allow", "allow"), ("Forbid", "skip"), ("Replace", "replace")])
def test_policies_have_other_names(policy: str, overlap: str) -> None:
    assert job(manifest(concurrencyPolicy=policy))["overlap"] == overlap


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"startingDeadlineSeconds": 600}, {"catchup": "none", "misfire_grace": "600s"}),
        ({"suspend": True}, {"enabled": False}),
        ({"timeZone": "Europe/Berlin"}, {"timezone": "Europe/Berlin", "dst": {"gap": "skip", "fold": "both"}}),
        ({"schedule": "@every 1h30m"}, {"every": "1h30m"}),
        ({"schedule": "TZ=Asia/Tokyo 0 9 * * *"}, {"schedule": "0 9 * * *", "timezone": "Asia/Tokyo"}),
        ({"schedule": "0 9 ? * *"}, {"schedule": "0 9 * * *"}),
        ({"schedule": "@daily"}, {"schedule": "@daily"}),
        ({"job": {"activeDeadlineSeconds": 90}}, {"timeout": "90s"}),
        (
            {"job": {"backoffLimit": 2}},
            {"retry": {"max_attempts": 3, "initial_delay": "10s", "multiplier": 2, "max_delay": "6m"}},
        ),
    ],
)
def test_its_policies_come_along(spec: dict[str, Any], said: dict[str, Any]) -> None:
    made = job(manifest(**spec))

    assert {field: made[field] for field in said} == said


def test_without_a_limit_it_is_tried_as_often_as_kubernetes_does() -> None:
    document = manifest()
    del document["spec"]["jobTemplate"]["spec"]["backoffLimit"]

    assert job(document)["retry"]["max_attempts"] == 7


def test_a_namespace_is_a_tag() -> None:
    document = manifest()
    document["metadata"]["namespace"] = "billing"

    assert job(document)["tags"] == ["billing"]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["echo", "two  blanks", "*", "it's"], "two  blanks * it's"),
        (["echo", "$(WHO)", "x$(WHO)`id`", "$$(WHO)", "$(NOBODY)"], "a  b xa  b`id` $(WHO) $(NOBODY)"),
        (["sh", "-c", 'echo "$WHO" | tr a-z A-Z'], "A  B"),
        (["sh", "-c", "echo $(WHO) $HOME"], "a b /nowhere"),
    ],
)
def test_a_shell_does_what_the_container_would(words: list[str], printed: str) -> None:
    made = job(manifest({"command": words[:1], "args": words[1:], "env": [{"name": "WHO", "value": "a  b"}]}))

    done = subprocess.run(
        ["/bin/sh", "-c", made["command"]],
        env={**made["env"], "HOME": "/nowhere", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.rstrip("\n") == printed


def test_variables_come_along_and_secrets_keep_their_names() -> None:
    source = {"secretKeyRef": {"name": "mail", "key": "token"}}
    env = [
        {"name": "PLAIN", "value": "x"},
        {"name": "TOKEN", "valueFrom": source},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "LITERAL", "value": "${HOME}"},
    ]

    found = entry(manifest({"env": env}))

    assert found.job is not None
    assert found.job["env"] == {"PLAIN": "x", "TOKEN": "${secret:TOKEN}"}
    assert found.job["command"] == "export LITERAL='${HOME}'; date"
    assert "env POD: its value comes from another object" in notes(found)
    assert any(note.startswith("env TOKEN is a secret") for note in notes(found))


def test_all_that_stays_behind_is_named() -> None:
    document = manifest({"volumeMounts": [], "resources": {}}, job={"parallelism": 2}, successfulJobsHistoryLimit=3)
    document["spec"]["jobTemplate"]["spec"]["template"]["spec"]["serviceAccountName"] = "reporter"

    assert notes(entry(document))[1:] == [
        "successfulJobsHistoryLimit: history is kept by days (retention)",
        "parallelism, serviceAccountName, volumeMounts, resources: not supported",
    ]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"kind": "CronJob"}, "spec must be a mapping"),
        (manifest(schedule=5), "schedule: 5 must be a text"),
        (manifest(schedule="61 * * * *"), "minute field has 61"),
        (manifest(timeZone="Mars/Olympus"), "is not an IANA time zone"),
        (manifest(timeZone=5), "is not an IANA time zone"),
        (manifest(concurrencyPolicy="Sometimes"), "must be one of Allow, Forbid, Replace"),
        (manifest(startingDeadlineSeconds="soon"), "must be a whole number"),
        (manifest({"command": []}), "command is missing: the default command of an image is not known here"),
        (manifest({"command": "date"}), "must be a list of texts"),
        (manifest({"env": "A=1"}), "must be a list of names and values"),
        (manifest(job={"template": {"spec": {"containers": [CONTAINER, CONTAINER]}}}), "make a dag of them"),
        (manifest(job={"template": {"spec": {"containers": "date"}}}), "must be a list"),
    ],
)
def test_entries_that_are_not_imported_have_a_reason(document: object, reason: str) -> None:
    found = entry(document)

    assert found.job is None
    assert reason in found.notes[0].text


def test_lists_are_looked_into_and_other_kinds_are_named() -> None:
    documents = [{"kind": "List", "items": [manifest(), {"kind": "Secret"}]}, None, manifest(), "text", {"kind": 5}]

    found = merge_reports([read_cronjobs(documents, place="all.yaml")], now=0)

    assert [one.job and one.job["name"] for one in found.entries] == ["report", "report-2"]
    assert found.remarks[-1] == "no CronJobs, so not looked at: Secret, a document without a kind"


# ---- the same fires ------------------------------------------------------------------------------


def starred(field: str) -> bool:
    """Whether Kubernetes takes a field for one that says nothing: a star, but not every second of anything."""
    return any(part.split("/")[0] in "*?" and part.split("/")[1:] in ([], ["1"]) for part in field.split(","))


def values(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = (f"{low}-{high}" if span in "*?" else span).partition("-")
        end = int(last) if last else high if step else int(first)
        found |= set(range(int(first), end + 1, int(step or 1)))
    return found


def kubernetes_fires(expression: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """Every minute whose clock matches: what is skipped never comes, and what comes twice counts twice."""
    minute, hour, day, month, weekday = expression.split()
    minutes, hours, months = values(minute, 0, 59), values(hour, 0, 23), values(month, 1, 12)
    days, weekdays = values(day, 1, 31), values(weekday, 0, 6)
    found = []
    while start < end:
        start += timedelta(minutes=1)
        if start.minute not in minutes:  # the zones differ by whole hours
            continue
        t = start.astimezone(ZoneInfo(zone))
        of_day, of_week = t.day in days, t.isoweekday() % 7 in weekdays
        right = of_day and of_week if starred(day) or starred(weekday) else of_day or of_week
        if right and t.month in months and t.hour in hours:
            found.append(start)
    return found


@pytest.mark.parametrize(
    "expression",
    ["30 1 * * *", "30 2 * * 1-5", "0 0 */2 * 1", "0 0 13 * 5", "15 3 * * */2", "0 6 */1 * 1", "0 6 1,*/10 * 2",
     "30 2 1-7 * ?", "0 12 */5 3 *"],
)  # fmt: skip
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_it_fires_when_kubernetes_would(expression: str, zone: str) -> None:
    trigger = read_job(job(manifest(schedule=expression, timeZone=zone)), Defaults(), now=0).spec.trigger
    assert isinstance(trigger, Cron)
    for start in (datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 10, 15, tzinfo=UTC)):
        end = start + timedelta(days=32)

        instant, fires = start, []
        while (fire := trigger.next_after(instant)) is not None and fire <= end:
            fires.append(fire)
            instant = fire

        assert fires == kubernetes_fires(expression, zone, start, end)


# ---- nonsense ------------------------------------------------------------------------------------

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=3)
_KEYS = st.sampled_from(
    ["kind", "spec", "metadata", "name", "schedule", "jobTemplate", "template", "containers", "command", "env", "items"]
)
_ANYTHING = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4)
)


@given(st.lists(_ANYTHING, max_size=3), st.dictionaries(_KEYS, _ANYTHING), _ANYTHING)
def test_nonsense_never_crashes(documents: list[object], spec: dict[str, object], container: object) -> None:
    odd = manifest()
    odd["spec"] |= spec
    stranger = manifest(job={"template": {"spec": {"containers": [container]}}})

    for one in merge_reports([read_cronjobs([*documents, odd, stranger], place="x")], now=0).entries:
        if one.job is not None:
            read_job(one.job, Defaults(), now=0)
