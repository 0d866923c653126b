"""The field `announce`: what a person may write, and how it is refused."""

from typing import Any

import pytest

from gnomon.core.announcements.channels import ChannelKind, ChannelRule, check_announcements
from gnomon.core.announcements.model import AnnounceMoment, AnnounceRule
from gnomon.core.jobs.announce_fields import read_delivery
from gnomon.core.jobs.definition import read_definition
from gnomon.core.jobs.export import job_as_data, workflow_as_data
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.json_schema import job_schema
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.errors import FieldError

NOW = 1_772_000_000_000
DAG = [{"step": "load", "function": "f"}, {"step": "send", "function": "f", "depends_on": ["load"]}]


def job(announce: object, **fields: Any) -> Job:  # noqa: ANN401 - whatever a job may say
    work = {"function": "f"} if "dag" not in fields else {}
    return read_job({"name": "backup", "announce": announce, **work, **fields}, Defaults(), now=NOW)


def rules(announce: object, **fields: Any) -> tuple[AnnounceRule, ...]:  # noqa: ANN401 - whatever a job may say
    return job(announce, **fields).workflow.announce


@pytest.mark.req("Z-07")
def test_a_job_names_channels_recipients_moments_and_texts() -> None:
    assert rules("OPS") == (AnnounceRule(channel="ops"),)
    assert rules({"channel": "ops", "to": -100123, "on": "failure", "after": 3}) == (
        AnnounceRule(channel="ops", to="-100123", on=(AnnounceMoment.FAILURE,), after=3),
    )
    assert rules(
        ["a", {"channel": "b", "on": ["missed", "skipped"], "best_effort": False, "text": "no ${job.name}"}]
    ) == (
        AnnounceRule(channel="a"),
        AnnounceRule(
            channel="b",
            on=(AnnounceMoment.MISSED, AnnounceMoment.SKIPPED),
            best_effort=False,
            text="no ${job.name}",
        ),
    )


def test_success_and_failure_are_announced_by_default_with_best_effort() -> None:
    [rule] = rules("ops")

    assert rule.on == (AnnounceMoment.SUCCESS, AnnounceMoment.FAILURE)
    assert (rule.after, rule.best_effort, rule.text) == (1, True, None)


@pytest.mark.req("Z-14")
@pytest.mark.parametrize(
    ("announce", "field", "reason"),
    [
        ([], "announce", "names no channel"),
        (7, "announce", "must be a channel"),
        ("", "announce", "names no channel"),
        ({"to": "C1"}, "announce.channel", "is missing"),
        ({"channel": "ops", "recipient": "C1"}, "announce.recipient", "is called to here"),
        ({"channel": "ops", "to": ""}, "announce.to", "names no recipient"),
        ({"channel": "ops", "to": True}, "announce.to", "must be a text"),
        (
            {"channel": "ops", "on": "start"},
            "announce.on",
            "must be one of success, failure, recovery, missed, skipped, approval",
        ),
        ({"channel": "ops", "on": ["failure", "sucess"]}, "announce.on[1]", "did you mean success?"),
        ({"channel": "ops", "on": []}, "announce.on", "must name some of"),
        ({"channel": "ops", "on": ["failure", "failure"]}, "announce.on", "each once"),
        ({"channel": "ops", "after": 0}, "announce.after", "must be a whole number"),
        ({"channel": "ops", "best_effort": "no"}, "announce.best_effort", "must be true or false"),
        ({"channel": "ops", "text": " "}, "announce.text", "must be a text"),
        ({"channel": "ops", "text": "x" * 4001}, "announce.text", "at most 4000"),
        ({"channel": "ops", "text": "${secret:KEY}"}, "announce.text", "names a secret"),
        ({"channel": "ops", "text": "${runs.id}"}, "announce.text", "must begin with job, run, tick"),
        ({"channel": "ops", "text": "${run.name}"}, "announce.text", "run has id, job, planned_at"),
        ({"channel": "ops", "text": "${run}"}, "announce.text", "must name one of id"),
        ({"channel": "ops", "text": "${error.text}"}, "announce.text", "error has no fields"),
        ({"channel": "ops", "text": "${steps.extract.output}"}, "announce.text", "must be steps.STEP.output"),
        (["ops", {"channel": 3}], "announce[1].channel", "must be a text"),
        (["ops"] * 21, "announce", "at most 20"),
        (["ops", "mail", {"channel": "OPS", "after": 1}], "announce[2]", "is named a second time"),
    ],
)
def test_bad_values_are_refused_with_field_and_reason(announce: object, field: str, reason: str) -> None:
    with pytest.raises(FieldError) as refused:
        job(announce)

    assert refused.value.field == field
    assert reason in refused.value.reason


def test_a_text_may_name_the_steps_of_its_job() -> None:
    text = "${steps.load.output.rows} of ${steps.send.output}"

    assert rules({"channel": "ops", "text": text}, dag=DAG)[0].text == text
    with pytest.raises(FieldError, match=r"steps\.STEP\.output"):
        rules({"channel": "ops", "text": "${steps.other.output}"}, dag=DAG)


@pytest.mark.parametrize(
    "announce",
    [
        "ops",
        {"channel": "ops", "to": "C1", "on": ["recovery"], "after": 2, "best_effort": False, "text": "back"},
        ["ops", {"channel": "mail", "to": "a@b.c"}],
    ],
)
def test_an_exported_job_announces_the_same(announce: object) -> None:
    made = job(announce)

    assert job_as_data(made)["announce"] == announce
    assert read_job(job_as_data(made), Defaults(), now=NOW).workflow == made.workflow
    deployed = read_definition({**workflow_as_data(made.workflow)}, Defaults(), now=NOW)
    assert deployed.workflow.announce == made.workflow.announce


def test_the_schema_for_editors_knows_the_field() -> None:
    import jsonschema_rs

    validator = jsonschema_rs.validator_for({**job_schema(), "$schema": "https://json-schema.org/draft/2020-12/schema"})

    for good in ("ops", {"channel": "ops", "on": ["missed"]}, ["ops", {"channel": "b", "to": 7}]):
        assert validator.is_valid({"name": "backup", "function": "f", "announce": good})
    wrong: list[object] = [{"to": "C1"}, [], {"channel": "ops", "on": ["begin"]}]
    for bad in wrong:
        assert not validator.is_valid({"name": "backup", "function": "f", "announce": bad})


# ---- the channels of the settings ----------------------------------------------------------------

CHANNELS = {
    "ops": ChannelRule(kind=ChannelKind.SLACK, to="C1"),
    "chat": ChannelRule(kind=ChannelKind.TELEGRAM),
    "hook": ChannelRule(kind=ChannelKind.WEBHOOK),
    "mail": ChannelRule(kind=ChannelKind.EMAIL, tenants=("first", "second")),
}


@pytest.mark.req("Z-14")
@pytest.mark.parametrize(
    ("announce", "tenant", "field", "reason"),
    [
        ("opps", "default", "announce.channel", "is no channel of the settings; did you mean ops?"),
        ({"channel": "chat"}, "default", "announce.to", "a channel of kind telegram needs a recipient"),
        ({"channel": "chat", "to": "no chat"}, "default", "announce.to", "must be a chat such as"),
        ({"channel": "hook", "to": "C1"}, "default", "announce.to", "means nothing to a channel of kind webhook"),
        (["ops", {"channel": "mail", "to": "a@b.c"}], "default", "announce[1].channel", "is no channel"),
        ("ops", "second", "announce.channel", "is no channel of the settings"),
        ({"channel": "mail", "to": "a@b.c, nobody"}, "first", "announce.to", "must be an e-mail address"),
    ],
)
def test_a_channel_that_the_settings_lack_or_that_needs_more_is_refused(
    announce: object, tenant: str, field: str, reason: str
) -> None:
    with pytest.raises(FieldError) as refused:
        check_announcements(rules(announce), CHANNELS, tenant)

    assert refused.value.field == field
    assert reason in refused.value.reason


@pytest.mark.parametrize(
    ("announce", "tenant"),
    [
        ("ops", "default"),
        ({"channel": "ops", "to": "C2"}, "default"),
        ({"channel": "chat", "to": "-1001:7"}, "default"),
        ({"channel": "chat", "to": "@news"}, "default"),
        ("hook", "default"),
        ({"channel": "mail", "to": "a@b.c, d@e.f"}, "second"),
    ],
)
def test_a_channel_that_fits_is_accepted(announce: object, tenant: str) -> None:
    check_announcements(rules(announce), CHANNELS, tenant)


def test_nothing_is_checked_where_the_settings_are_not_known() -> None:
    check_announcements(rules("anything"), None, "default")


# ---- the delivery of `gnomon cron` ---------------------------------------------------------------


@pytest.mark.req("Z-07")
@pytest.mark.parametrize(
    ("delivery", "rule"),
    [
        ({"mode": "announce", "channel": "Slack", "to": "C1"}, AnnounceRule(channel="slack", to="C1")),
        (
            {"mode": "ANNOUNCE", "channel": "slack", "to": "C1", "best_effort": False},
            AnnounceRule(channel="slack", to="C1", best_effort=False),
        ),
        ({"mode": ""}, None),
        ({"mode": "none", "channel": "slack"}, None),
        ({}, None),
    ],
)
def test_a_delivery_is_read_as_an_announcement(delivery: dict[str, Any], rule: AnnounceRule | None) -> None:
    assert read_delivery("delivery", delivery) == rule


@pytest.mark.req("Z-14")
@pytest.mark.parametrize(
    ("delivery", "field", "reason"),
    [
        ({"mode": "announce", "to": "C1"}, "delivery.channel", "delivery.channel is required for announce mode"),
        ({"mode": "announce", "channel": "slack"}, "delivery.to", "delivery.to is required for announce mode"),
        ({"mode": "announce", "channel": "slack", "to": " "}, "delivery.to", "delivery.to is required"),
        ({"mode": "mail"}, "delivery.mode", "must be announce or none"),
        ({"mode": "announce", "chanel": "slack"}, "delivery.chanel", "did you mean channel?"),
        ("announce", "delivery", "must be a mapping"),
    ],
)
def test_a_bad_delivery_is_refused(delivery: object, field: str, reason: str) -> None:
    with pytest.raises(FieldError) as refused:
        read_delivery("delivery", delivery)

    assert refused.value.field == field
    assert reason in refused.value.reason


def test_the_delivery_of_a_job_keeps_its_meaning() -> None:
    assert job("ops", delivery="at_most_once").workflow.delivery.value == "at_most_once"
    with pytest.raises(FieldError, match="delivery"):
        job("ops", delivery={"mode": "announce", "channel": "ops", "to": "C1"})
