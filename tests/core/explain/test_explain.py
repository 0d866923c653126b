"""The parts of explanations: the tables are complete, and a timeline knows its ticks."""

import pytest

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.core.cron import Cron
from gnomon.core.explain import explain, ticks, waits
from gnomon.core.explain.evidence import (
    ExplainedSubject,
    ExplanationKind,
    JobEvidence,
    PauseInterval,
    ScheduleTimeline,
    SpecVersion,
)
from gnomon.core.explain.explain import explain_subject
from gnomon.core.explain.phrases import TimeFormatter, instant_phrase, join_names, one_line
from gnomon.core.model import Reason, RunId, RunSource, Spec
from gnomon.core.runs.external_events import effect_of_launch
from gnomon.core.runs.launch import LaunchOutcome, new_requested_run
from gnomon.core.runs.states import TERMINAL, TaskState, WaitReason


def test_every_reason_of_the_ledger_has_a_sentence() -> None:
    assert {reason for _, reason in ticks.TICK_SENTENCES} == set(Reason)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (RunSource.API, "It was started through the API, by bob."),
        (RunSource.MANUAL, "bob triggered it."),
        (RunSource.BACKFILL, "It is a backfill of a past planned time, requested by bob."),
        (RunSource.CRON, "bob started it with the run launcher, on behalf of alice."),
    ],
)
def test_a_start_names_the_caller_and_not_the_user_that_the_caller_chose(source: RunSource, sentence: str) -> None:
    run = new_requested_run(RunId("run_1"), minutely(), source=source, now=NOON, actor="bob", user_id="alice")

    assert explain.explain_start(run) == (source.value, sentence)


def test_everything_that_can_become_of_an_event_has_a_sentence() -> None:
    assert {effect_of_launch(one) for one in LaunchOutcome} <= set(explain.EVENT_SENTENCES)


def test_every_trigger_of_a_run_has_a_sentence() -> None:
    assert set(explain.START_SENTENCES) == set(RunSource)


def test_every_reason_to_wait_has_a_sentence() -> None:
    assert set(waits.WAIT_SENTENCES) == set(WaitReason) | (set(TaskState) - TERMINAL - {TaskState.PENDING})


def spec(expression: str) -> Spec:
    return Spec(trigger=Cron(expression), workflow_id="report")


def version(revision: int, expression: str, from_at: int) -> SpecVersion:
    return SpecVersion(revision=revision, spec=spec(expression), from_at=from_at, by="ada")


#: Hourly from noon, then at half past from two o'clock on, and gone at four.
LIFE = ScheduleTimeline(
    schedule=minutely(trigger=Cron("30 * * * *"), mark=NOON + 4 * HOUR),
    versions=(version(1, "0 * * * *", NOON), version(2, "30 * * * *", NOON + 2 * HOUR)),
    pause_intervals=(PauseInterval(from_at=NOON + HOUR, by="bob", until_at=NOON + 2 * HOUR, ended_by="eve"),),
    deleted_at=NOON + 4 * HOUR,
    deleted_by="eve",
)


def test_a_life_has_the_ticks_of_what_it_said_at_the_time() -> None:
    found = LIFE.planned(NOON - HOUR, NOON + 9 * HOUR, most=100)

    assert [(at - NOON) // MINUTE for at in found] == [60, 120, 150, 210]


@pytest.mark.parametrize(
    ("minute", "before", "after"), [(0, None, 60), (60, None, 120), (120, 60, 150), (151, 150, 210), (211, 210, None)]
)
def test_a_life_knows_the_ticks_around_a_moment(minute: int, before: int | None, after: int | None) -> None:
    at = NOON + minute * MINUTE

    around = [None if one is None else (one - NOON) // MINUTE for one in (LIFE.before(at), LIFE.after(at))]

    assert around == [before, after]


@pytest.mark.parametrize(("minute", "revision"), [(-5, 1), (0, 1), (120, 1), (121, 2), (500, 2)])
def test_a_change_counts_for_what_comes_after_it(minute: int, revision: int) -> None:
    assert LIFE.version_at(NOON + minute * MINUTE).revision == revision


@pytest.mark.parametrize(("minute", "paused"), [(60, False), (61, True), (120, True), (121, False)])
def test_a_pause_swallows_what_is_planned_after_it_began_and_until_it_ended(minute: int, *, paused: bool) -> None:
    assert (LIFE.pause_at(NOON + minute * MINUTE) is not None) is paused


@pytest.mark.guarantee("S1")
def test_a_tick_whose_entry_is_gone_is_said_to_be() -> None:
    one = explain_subject(
        JobEvidence(timeline=LIFE), ExplainedSubject(at=NOON + 150 * MINUTE, planned=True), now=NOON + 9 * HOUR
    )

    assert (one.kind, one.reason) == (ExplanationKind.UNKNOWN, "no_entry")
    assert one.sentence == "It was planned, but its entry is no longer in the ledger."


# ---- words ---------------------------------------------------------------------------------------


def test_an_instant_is_written_as_exactly_as_it_is() -> None:
    reported = [instant_phrase(NOON + more, "Asia/Kolkata") for more in (0, 5000, 5250)]

    assert reported == [f"Mon 2026-03-02 {time} IST" for time in ("17:30", "17:30:05", "17:30:05.250")]


def test_beside_another_instant_of_the_day_the_day_is_left_out() -> None:
    clocks = TimeFormatter("UTC", NOON)

    assert [clocks(NOON + HOUR), clocks(NOON + 12 * HOUR)] == ["13:00", "Tue 2026-03-03 00:00 UTC"]


def test_beside_another_offset_the_clocks_are_named() -> None:
    changed = 1_774_746_000_000  # 2026-03-29T01:00:00Z

    assert TimeFormatter("Europe/Berlin", changed)(changed - HOUR) == "Sun 2026-03-29 01:00 CET"


@pytest.mark.parametrize(
    ("names", "reported"), [(1, "w0"), (2, "w0 and w1"), (3, "w0, w1 and w2"), (5, "w0, w1, w2 and 2 more")]
)
def test_of_many_names_the_first_are_listed(names: int, reported: str) -> None:
    assert join_names([f"w{number}" for number in range(names)]) == reported


@pytest.mark.parametrize(("lead", "end"), [("", ""), ("", "\nTraceback"), ("\n  ", "\nTraceback")])
def test_of_an_error_its_first_line_is_shown(lead: str, end: str) -> None:
    assert one_line(f"{lead}disk full{end}") == "disk full"
