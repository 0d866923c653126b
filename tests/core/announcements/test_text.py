"""The text of an announcement: what is told, and what is not told to anybody."""

from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import NOON
from gnomon.core.announcements.channels import ChannelKind, without_mentions
from gnomon.core.announcements.decide import share_between_tenants
from gnomon.core.announcements.model import Announcement, AnnouncementFacts, AnnounceMoment
from gnomon.core.announcements.text import (
    LONGEST_TEXT,
    AnnouncedRun,
    announcement_text,
    announcement_title,
    asks_for_silence,
)
from gnomon.core.model import Run, RunId, RunSource, RunStatus, ScheduleUid

RUN = Run(
    run_id=RunId("run_1"),
    tenant="default",
    schedule_uid=ScheduleUid("sch_1"),
    schedule_id="backup",
    workflow_id="backup",
    workflow_version=1,
    user_id="ada",
    source=RunSource.CRON,
    status=RunStatus.COMPLETED,
    queued=False,
    planned_at=NOON,
    fire_at=NOON,
    created_at=NOON,
    started_at=NOON + 500,
)
ONE = Announcement(
    announcement_id="ann_1_0",
    tenant="default",
    job="backup",
    run_id="run_1",
    schedule_uid="sch_1",
    planned_at=NOON,
    moment=AnnounceMoment.SUCCESS,
    channel="ops",
    recipient="C1",
    template=None,
    best_effort=True,
    facts=AnnouncementFacts(),
    next_at=NOON,
    since_at=NOON,
    created_at=NOON + 2000,
)


def reported(output: Any = None, template: str | None = None, **changes: Any) -> str | None:  # noqa: ANN401 - any JSON
    """The text of an announcement with these changes, of a run with this output."""
    steps = changes.pop("steps", {})
    given = changes.pop("input", None)
    one = replace(ONE, template=template, **changes)
    return announcement_text(one, AnnouncedRun(run=RUN, output=output, steps=steps, input=given))


@pytest.mark.req("Z-07")
@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("12 rows", "12 rows"),
        ({"rows": 12}, '{\n  "rows": 12\n}'),
        (12, "12"),
        ({"status": 0, "stdout": " 12 rows\n", "stderr": "warning"}, "12 rows"),
        (None, None),
        ("", None),
        (" \n\t", None),
        ({"status": 0, "stdout": "\n"}, None),
    ],
)
def test_a_success_shows_its_output_unless_it_is_blank(output: object, text: str | None) -> None:
    assert reported(output) == text


@pytest.mark.parametrize(
    "output",
    ["NO_REPLY", " no_reply\n", "NO_REPLY: nothing new", "NO_REPLY[INFO]: a line\nand another", "No_Reply[info]"],
)
def test_a_silent_output_is_not_announced_whatever_the_text(output: str) -> None:
    assert asks_for_silence(output)
    assert reported(output) is None
    assert reported(output, "Report: ${output}") is None
    assert reported({"status": 0, "stdout": output}) is None


@pytest.mark.parametrize(
    "output", ["NO_REPLY[FAIL]: disk full", "NO_REPLYING", "we got NO_REPLY", "NO REPLY", "NO_REPLY [INFO]"]
)
def test_every_other_output_is_announced(output: str) -> None:
    assert reported(output) == output


@pytest.mark.req("Z-07")
def test_a_failure_shows_its_error_and_is_never_silent() -> None:
    failure: dict[str, Any] = {"moment": AnnounceMoment.FAILURE}

    assert reported("NO_REPLY", facts=AnnouncementFacts(error="disk full", failures=1), **failure) == "disk full"
    assert reported(None, **failure) == "backup failed"
    refused = "blocked by security policy: command not allowed: rm"
    assert reported(None, facts=AnnouncementFacts(error=refused), **failure) == refused


def test_a_recovery_says_after_how_many_failures_and_what_came_out() -> None:
    recovery: dict[str, Any] = {"moment": AnnounceMoment.RECOVERY}
    after = AnnouncementFacts(failures=3)

    assert reported("12 rows", facts=after, **recovery) == "backup succeeded again after 3 failures in a row\n\n12 rows"
    assert reported("NO_REPLY", facts=after, **recovery) == "backup succeeded again after 3 failures in a row"
    assert reported(None, facts=AnnouncementFacts(failures=1), **recovery) == "backup succeeded again after 1 failure"


def test_missed_and_skipped_ticks_show_their_times() -> None:
    tick: dict[str, Any] = {"run_id": None}
    one = AnnouncementFacts(reason="overlap", last_at=NOON)
    many = AnnouncementFacts(reason="catchup_none", count=6, last_at=NOON + 300_000)

    assert reported(moment=AnnounceMoment.SKIPPED, facts=one, **tick) == (
        "backup skipped its run at 2026-03-02T12:00:00+00:00: an earlier run was active"
    )
    assert reported(moment=AnnounceMoment.MISSED, facts=many, **tick) == (
        "backup missed 6 runs from 2026-03-02T12:00:00+00:00 to 2026-03-02T12:05:00+00:00"
    )


def test_references_are_filled_in_and_what_is_missing_is_empty() -> None:
    template = "${job.name} ${moment} ${run.id} ${run.duration_ms} ${run.trigger} ${output.rows} ${steps.a.output}"
    text = reported({"rows": 12}, template, steps={"a": [1, None]})

    assert text == "backup success run_1 1500 cron 12 [1,null]"
    assert reported(None, "rows: ${output.rows}; ${error}; ${input.day}", input={"day": "monday"}) == "rows: ; ; monday"
    assert reported("plain", "said: ${output}") == "said: plain"


def test_a_text_without_output_is_announced_if_the_job_has_one() -> None:
    assert reported(None, "done") == "done"
    assert reported(None, "${output}") is None


def test_references_in_resolved_values_are_not_resolved() -> None:
    assert reported("${run.id}", "said: ${output}") == "said: ${run.id}"


def test_characters_that_no_channel_can_carry_are_replaced_and_long_texts_are_cut() -> None:
    assert reported("a\x00b\ud800c") == "a\ufffdb\ufffdc"
    text = reported("x" * (LONGEST_TEXT + 1))
    assert text is not None
    assert len(text) == LONGEST_TEXT
    assert text.endswith("x\n...[truncated]")


def test_the_marker_of_a_file_is_text() -> None:
    """Other programs upload the file that such a text names."""
    assert reported("[DOCUMENT:/home/u/.ssh/id_rsa]") == "[DOCUMENT:/home/u/.ssh/id_rsa]"


def test_a_title_names_the_job_and_the_moment() -> None:
    assert [announcement_title(replace(ONE, moment=moment)) for moment in AnnounceMoment] == [
        "backup succeeded",
        "backup failed",
        "backup succeeded again",
        "backup missed a run",
        "backup skipped a run",
        "backup waits for an approval",
    ]


# ---- mentions ------------------------------------------------------------------------------------

MENTIONS = [
    "@everyone",
    "@here",
    "@channel",
    "@all",
    "@Everyone",
    "x@HERE.",
    "<!channel>",
    "<!here|here>",
    "<!everyone>",
]


@pytest.mark.req("Z-07")
@pytest.mark.parametrize("mention", MENTIONS)
@pytest.mark.parametrize("kind", [kind for kind in ChannelKind if kind not in (ChannelKind.WEBHOOK, ChannelKind.EMAIL)])
def test_nothing_calls_everybody(kind: ChannelKind, mention: str) -> None:
    text = without_mentions(f"look {mention} now", kind)

    for word in ("@everyone", "@here", "@channel", "@all"):
        assert word not in text.lower()
    assert "<!" not in text or kind is not ChannelKind.SLACK


def test_addresses_and_other_words_are_left_as_they_are() -> None:
    text = "ask ada@example.com or @ada, @allison; a < b"

    assert without_mentions(text, ChannelKind.SLACK) == text
    assert without_mentions("@everyone", ChannelKind.WEBHOOK) == "@everyone"


# ---- turns ---------------------------------------------------------------------------------------


def test_tenants_take_turns_and_so_do_the_channels_of_a_tenant() -> None:
    due = {
        ("a", "ops"): [f"a-ops-{number}" for number in range(9)],
        ("a", "mail"): [f"a-mail-{number}" for number in range(9)],
        ("b", "ops"): ["b-ops-0"],
    }

    found = [name for _, name in share_between_tenants(due, limit=5, per_channel=9)]
    few = [name for _, name in share_between_tenants(due, limit=9, per_channel=2)]

    assert sorted(found) == ["a-mail-0", "a-mail-1", "a-ops-0", "a-ops-1", "b-ops-0"]
    assert sorted(few) == ["a-mail-0", "a-mail-1", "a-ops-0", "b-ops-0"]
