"""Why: a table of stories, each told by the real services, and the sentences that a person reads about them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.explain.evidence import ExplanationKind
from gnomon.core.model import Result, RunSource, RunStatus, Schedule
from gnomon.core.runs.admission import GateDecision, GateVerdict
from gnomon.core.runs.routing import Pools
from gnomon.errors import FieldError, NotFound
from gnomon.ports.store import Store
from gnomon.ports.tasks import WorkerInfo
from gnomon.services.operations.explain import Explainer
from gnomon.testing.clock import VirtualClock
from support.sqlite_files import open_new_sqlite
from support.why_scenario import WhyScenario, instant

Play = Callable[[WhyScenario], Awaitable[object]]


class Scenario(NamedTuple):
    """Scenarios, the question asked then, and the answer, line by line."""

    play: Play
    at: str | None
    lines: tuple[str, ...]


SCENARIOS: list[Scenario] = []


def asked(at: str | None, *lines: str) -> Callable[[Play], Play]:
    """After the story someone asks about a moment, or about what happened last."""

    def reported(play: Play) -> Play:
        SCENARIOS.append(Scenario(play, at, lines))
        return play

    return reported


@pytest.fixture(params=["memory", "sqlite"])
async def timeline(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[WhyScenario]:
    clock = VirtualClock(NOON)
    if request.param == "memory":
        yield WhyScenario(MemoryStore(clock.now), clock)
        return
    store = await open_new_sqlite(tmp_path / "gnomon.db", now=clock.now)
    yield WhyScenario(store, clock)
    await store.close()


# ---- ticks that were decided ---------------------------------------------------------------------


@asked(
    "12:01",
    "It fired on time. Its run run_12:01 completed at 12:01:02, after 2.0 s.",
)
async def fired_and_completed(timeline: WhyScenario) -> None:
    await timeline.job()
    await timeline.run_until("12:01")
    await timeline.run_to_end("12:01:02")


@asked(
    "12:01",
    "It fired on time. Its run run_12:01 has been running since 12:01, and has only to be announced.",
)
async def fired_and_to_be_announced(timeline: WhyScenario) -> None:
    await timeline.job(announce={"channel": "ops", "best_effort": False})
    await timeline.run_until("12:01")
    await timeline.run_to_end("12:01:02")


@asked(
    "12:01",
    "It fired on time. Its run run_12:01 has been running since 12:01.",
    "It has been with w1 since 12:01, under fence 1.",
)
async def fired_and_still_running(timeline: WhyScenario) -> None:
    await timeline.job()
    await timeline.run_until("12:01")
    await timeline.run_until_idle()
    await timeline.run_until("12:01:30")


@asked(
    "12:01",
    (
        "It fired 45.0 s late, within the grace of 1 min: it was decided at 12:01:45. Its run run_12:01"
        " completed at 12:01:46, after 1.0 s."
    ),
)
async def fired_late(timeline: WhyScenario) -> None:
    await timeline.job()
    await timeline.outage_until("12:01:45")
    await timeline.run_until("12:01:45")
    await timeline.run_to_end("12:01:46")


@asked(
    "2026-03-02T12:05:00Z",
    (
        "It will fire in 4 min 58 s. A clock that was ahead had decided the ticks up to 13:00; it was right again at"
        " 12:00:02, and the decisions on ticks that had not run were withdrawn."
    ),
)
async def coming_again_after_the_clock_was_ahead(timeline: WhyScenario) -> None:
    await timeline.job(catchup="latest", overlap="allow")
    timeline.clock.shift_wall_clock(3_600_000)
    await timeline.run_until("13:00:02")
    timeline.clock.shift_wall_clock(-3_600_000)
    await timeline.ticker.step()


@asked(
    "12:10",
    (
        "It was caught up: it was not decided before 13:00, 50 min late, and catch-up is latest. Its run"
        " run_12:10 completed at 13:00:05, after 5.0 s."
    ),
)
async def made_up_for(timeline: WhyScenario) -> None:
    await timeline.job("10 * * * *", catchup="latest")
    await timeline.outage_until("13:00")
    await timeline.run_until("13:00")
    await timeline.run_to_end("13:00:05")


@asked(
    "12:20",
    (
        "It was caught up: it was not decided before 12:35, 15 min late, and catch-up is spread. It was"
        " spread out to 12:35:20. Its run run_12:20 is to start at 12:35:20, in 20.0 s."
    ),
    "It will start at 12:35:20, in 20.0 s, the time of its run.",
)
async def made_up_for_and_spread_out(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *", catchup="spread", overlap="allow")
    await timeline.outage_until("12:35")
    await timeline.run_until("12:35")


@asked(
    "13:00",
    "It fired on time. Its jitter moved it to 12:55:31.079. Its run run_13:00 has not started.",
    "It has been ready since 12:55:31.079, and no dispatcher has looked at it yet. Is gnomon up running?",
)
async def moved_by_its_jitter(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *", jitter="5m")
    await timeline.run_until("13:05")


@asked(
    "12:02",
    (
        "It was queued: run_12:01 (planned for 12:01) was under way, and overlap is queue. Its run run_12:02"
        " waits in the queue."
    ),
    "It waits in the queue for the end of run_12:01 (planned for 12:01).",
)
async def queued_behind_a_run(timeline: WhyScenario) -> None:
    await timeline.job(overlap="queue")
    await timeline.run_until("12:01")
    await timeline.run_until_idle()
    await timeline.run_until("12:02:30")


@asked(
    "12:02",
    (
        "It was queued: run_12:01 (planned for 12:01) was under way, and overlap is queue. Its run run_12:02"
        " completed at 12:02:40, after 10.0 s."
    ),
)
async def queued_and_completed_since(timeline: WhyScenario) -> None:
    await timeline.job("1,2 * * * *", overlap="queue")
    await timeline.run_until("12:01")
    await timeline.run_until_idle()
    await timeline.run_until("12:02:30")
    await timeline.finish_attempts()
    await timeline.run_to_end("12:02:40")


@asked(
    "12:02",
    (
        "It was to replace run_12:01 (planned for 12:01), which was asked to stop: overlap is replace. Its"
        " run run_12:02 has not started."
    ),
    "It has been ready since 12:02, and no dispatcher has looked at it yet. Is gnomon up running?",
)
async def replaced_a_run(timeline: WhyScenario) -> None:
    await timeline.job(overlap="replace")
    await timeline.run_until("12:01")
    await timeline.run_until_idle()
    await timeline.run_until("12:02:30")


@asked(
    "12:02",
    "It was skipped: run_12:01 (planned for 12:01) was under way, and overlap is skip. That was over at 12:02:20.",
)
async def skipped_behind_a_run_that_is_over(timeline: WhyScenario) -> None:
    await timeline.job()
    await timeline.run_until("12:01")
    await timeline.run_to_end("12:02:20")


@asked(
    "12:02",
    "It was skipped: run_12:01 (planned for 12:01) was under way, and overlap is skip. It still is.",
)
async def skipped_behind_a_run_that_goes_on(timeline: WhyScenario) -> None:
    await timeline.job()
    await timeline.run_until("12:01")
    await timeline.run_until_idle()
    await timeline.run_until("12:02:20")


@asked(
    "12:03",
    "It was skipped: 1 run waited already behind run_12:01 (planned for 12:01), as many as queue_limit allows.",
)
async def skipped_because_the_queue_was_full(timeline: WhyScenario) -> None:
    await timeline.job(overlap="queue", queue_limit=1)
    await timeline.run_until("12:01")
    await timeline.run_until_idle()
    await timeline.run_until("12:03")


@asked(
    "12:30",
    (
        "It was skipped: bob paused the job at 12:15 and eve resumed it at 13:05. The same goes for all 5"
        " ticks from 12:20 to 13:00."
    ),
)
async def skipped_in_a_pause_that_is_over(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *")
    await timeline.run_until("12:15")
    await timeline.jobs.pause("report", actor="bob")
    await timeline.outage_until("13:05")
    await timeline.jobs.resume("report", actor="eve")


@asked(
    "12:30",
    (
        "It was skipped: bob paused the job at 12:15, and it still is paused. The same goes for all 5 ticks"
        " from 12:20 to 13:00."
    ),
)
async def skipped_in_a_pause_that_goes_on(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *")
    await timeline.run_until("12:15")
    await timeline.jobs.pause("report", actor="bob")
    await timeline.outage_until("13:05")


@asked(
    "12:20",
    (
        "It was coalesced into a newer tick: both were due when they were decided, at 12:45, and with catch-up"
        " latest only the newest fires. That was the one at 12:40. The same goes for all 3 ticks from 12:10"
        " to 12:30."
    ),
)
async def left_to_a_newer_tick(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *", catchup="latest")
    await timeline.outage_until("12:45")
    await timeline.run_until("12:45")


@asked(
    "12:10",
    (
        "It was coalesced into a newer tick: both were due when they were decided, at 12:35, and overlap is"
        " replace, so that each would have replaced the one before. That was the one at 12:30. The same goes"
        " for both ticks from 12:10 to 12:20."
    ),
)
async def left_to_a_newer_tick_that_would_have_replaced_it(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *", catchup="all", overlap="replace")
    await timeline.outage_until("12:35")
    await timeline.run_until("12:35")


@asked(
    "12:20",
    (
        "It was missed: it was not decided before 14:05, 1 h 45 min late; the grace is 1 min, and catch-up is"
        " none. The same goes for all 12 ticks from 12:10 to 14:00."
    ),
)
async def missed_while_nobody_was_there(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *")
    await timeline.outage_until("14:05")
    await timeline.run_until("14:05")


@asked(
    "2026-03-03 12:00",
    (
        "It was missed: it was not decided before Fri 2026-03-06 10:00 UTC, 2 d 22 h late; catch-up is all,"
        " but only for the last 1 d. The same goes for both ticks from 12:00 to Wed 2026-03-04 12:00 UTC."
    ),
)
async def missed_outside_the_window(timeline: WhyScenario) -> None:
    await timeline.job("0 12 * * *", catchup="all")
    await timeline.outage_until("2026-03-06T10:00Z")
    await timeline.run_until("2026-03-06T10:00Z")


@asked(
    "12:01",
    "It fired on time. Its run run_12:01 failed at 12:01:10, after 10.0 s: disk full.",
)
async def failed(timeline: WhyScenario) -> None:
    await timeline.job()
    await timeline.run_until("12:01")
    await timeline.run_to_end("12:01:10", Result.FAILED, error="disk full\nTraceback: a lot")


@asked(
    "12:01",
    "It fired on time. Its run run_12:01 completed at 12:01:20, after 20.0 s, on attempt 2.",
)
async def completed_on_the_second_attempt(timeline: WhyScenario) -> None:
    await timeline.job("1 * * * *", retry={"max_attempts": 3, "initial_delay": "10s", "jitter": 0})
    await timeline.run_until("12:01")
    await timeline.run_to_end("12:01:05", Result.FAILED, error="disk full")
    await timeline.run_until("12:01:15")
    await timeline.run_to_end("12:01:20")


@asked(
    "12:01",
    "It fired on time. Its run run_12:01 ended at 12:01: cancelled by bob.",
)
async def cancelled(timeline: WhyScenario) -> None:
    await timeline.job()
    await timeline.run_until("12:01")
    [run] = await timeline.executions.page()
    await timeline.executions.cancel(run.run_id, actor="bob")


@asked(
    "12:01",
    (
        "It fired on time. Its run run_12:01 has been running since 12:01, and was asked to stop at 12:01:"
        " cancelled by bob."
    ),
    "It has been with w1 since 12:01, under fence 1.",
)
async def asked_to_stop(timeline: WhyScenario) -> None:
    await timeline.job()
    await timeline.run_until("12:01")
    await timeline.run_until_idle()
    [run] = await timeline.executions.page()
    await timeline.executions.cancel(run.run_id, actor="bob")


@asked(
    "12:02",
    ("It was skipped: run_12:01 (planned for 12:01) was under way, and overlap is skip. That was over at 12:02:20."),
)
async def skipped_behind_a_run_while_another_is_under_way_now(timeline: WhyScenario) -> None:
    await timeline.job()
    await timeline.run_until("12:01")
    await timeline.run_to_end("12:02:20")
    await timeline.run_until("12:03")
    await timeline.run_until_idle()


@asked(
    "12:01",
    "It was skipped: run_12:04 (planned for 12:04) was under way, and overlap is skip. It still is.",
)
async def skipped_behind_a_run_that_was_triggered_later(timeline: WhyScenario) -> None:
    await timeline.job("1 * * * *", misfire_grace="10m")
    await timeline.outage_until("12:04")
    await timeline.trigger()
    await timeline.run_until_idle()
    await timeline.run_until("12:05")


@asked(
    "13:00",
    (
        "It fired on time. The schedule was every hour then (revision 1). Its run run_13:00 completed at 13:00:02,"
        " after 2.0 s."
    ),
)
async def fired_by_an_earlier_revision(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")
    await timeline.run_until("13:00")
    await timeline.run_to_end("13:00:02")
    await timeline.job("30 * * * *", actor="eve")


# ---- clocks that are put forward and back --------------------------------------------------------


@asked(
    "2026-03-29 02:30",
    (
        "It fired on time. It stands for a time that was skipped; clocks go forward from 02:00 to 03:00:"
        " skipped times fire once, at 03:00. Its run run_01:00 has not started."
    ),
    "It has been ready since 03:00, and no dispatcher has looked at it yet. Is gnomon up running?",
)
async def made_up_for_what_clocks_skipped(timeline: WhyScenario) -> None:
    await timeline.job("30 2 * * *", timezone="Europe/Berlin")
    await timeline.outage_until("2026-03-29T00:59Z")
    await timeline.run_until("2026-03-29T01:05Z")


@asked(
    "2026-03-29 02:30",
    "There was no 02:30 that day; clocks go forward from 02:00 to 03:00: skipped times do not fire.",
)
async def not_made_up_for_what_clocks_skipped(timeline: WhyScenario) -> None:
    await timeline.job("30 2 * * *", timezone="Europe/Berlin", dst={"gap": "skip"})
    await timeline.outage_until("2026-03-29T00:59Z")
    await timeline.run_until("2026-03-29T01:05Z")


@asked(
    "2026-10-25 02:30",
    "It fired on time. Its run run_00:30 has not started.",
    "It has been ready since 02:30, and no dispatcher has looked at it yet. Is gnomon up running?",
    ("It was the second time round; clocks go back from 03:00 to 02:00: repeated times fire the first time only."),
)
async def once_although_the_time_came_twice(timeline: WhyScenario) -> None:
    await timeline.job("30 2 * * *", timezone="Europe/Berlin")
    await timeline.outage_until("2026-10-25T00:29Z")
    await timeline.run_until("2026-10-25T02:05Z")


@asked(
    "2026-10-25 02:30",
    "It fired on time. Its run run_00:30 has not started.",
    "It has been ready since 02:30, and no dispatcher has looked at it yet. Is gnomon up running?",
    "It fired on time. Its run run_01:30 has not started.",
    "It has been ready since 02:30, and no dispatcher has looked at it yet. Is gnomon up running?",
)
async def twice_because_the_time_came_twice(timeline: WhyScenario) -> None:
    await timeline.job("30 2 * * *", timezone="Europe/Berlin", dst={"fold": "both"}, overlap="allow")
    await timeline.outage_until("2026-10-25T00:29Z")
    await timeline.run_until("2026-10-25T02:05Z")


@asked(
    "2026-04-05 03:15",
    (
        "Nothing was planned: the job runs every day at 01:45 and 02:45 in Australia/Lord_Howe. The tick before"
        " was at 02:45. The next was at Mon 2026-04-06 01:45 +1030."
    ),
)
async def after_the_time_that_came_twice(timeline: WhyScenario) -> None:
    await timeline.job("45 1,2 * * *", timezone="Australia/Lord_Howe")
    await timeline.outage_until("2026-04-06T00:00Z")


# ---- moments without a tick ----------------------------------------------------------------------


@asked(
    "12:34",
    "Nothing was planned: the job runs every 10 minutes. The tick before was at 12:30. The next was at 12:40.",
)
async def not_planned(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *")
    await timeline.run_until("13:00")


@asked(
    "yesterday 12:00",
    "The job did not exist yet: ada created it at Mon 2026-03-02 12:00 UTC.",
)
async def not_created_yet(timeline: WhyScenario) -> None:
    await timeline.job("0 12 * * *")


@asked(
    "14:00",
    "The job was gone: eve deleted it at 13:30.",
)
async def deleted(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")
    await timeline.run_until("13:30")
    await timeline.jobs.delete("report", actor="eve")
    await timeline.outage_until("14:30")


@asked(
    "14:00",
    "There was no such job: eve deleted it at 13:30, and ada created it at 14:30 anew.",
)
async def deleted_and_not_yet_created_anew(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")
    await timeline.run_until("13:30")
    await timeline.jobs.delete("report", actor="eve")
    await timeline.outage_until("14:30")
    await timeline.job("30 * * * *")
    await timeline.outage_until("15:00")


@asked(
    "13:00",
    "It fired on time. Its run run_13:00 completed at 13:00:01, after 1.0 s.",
)
async def fired_before_it_was_deleted_and_created_anew(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")
    await timeline.run_until("13:00")
    await timeline.run_to_end("13:00:01")
    await timeline.jobs.delete("report", actor="eve")
    await timeline.outage_until("14:30")
    await timeline.job("30 * * * *")


@asked(
    "12:30",
    "That is before the schedule begins, at 13:00.",
)
async def before_its_window(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *", start_at="2026-03-02T13:00:00Z")
    await timeline.run_until("13:00")


@asked(
    "14:00",
    "That is after the schedule has ended, at 13:00.",
)
async def after_its_window(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *", end_at="2026-03-02T13:00:00Z")
    await timeline.outage_until("15:00")
    await timeline.run_until("15:00")


@asked(
    "12:30",
    "Nothing was planned: the job runs once, at 13:00.",
)
async def once_at_another_time(timeline: WhyScenario) -> None:
    await timeline.job(None, at="2026-03-02T13:00:00Z")
    await timeline.run_until("13:30")


@asked(
    "14:00",
    "The job was gone: it was to run once, and did; that was over at 13:00:07.",
)
async def gone_after_its_only_run(timeline: WhyScenario) -> None:
    await timeline.job(None, at="2026-03-02T13:00:00Z", delete_after_run=True)
    await timeline.run_until("13:00")
    await timeline.run_to_end("13:00:07")
    await timeline.outage_until("15:00")


@asked(
    "12:30",
    "Nothing happened: the job runs only when it is triggered.",
)
async def nobody_asked_for_it(timeline: WhyScenario) -> None:
    await timeline.job(None)
    await timeline.outage_until("13:00")


@asked(
    "12:30",
    "Nothing happened: the job runs when model.drift happens.",
)
async def no_event_happened(timeline: WhyScenario) -> None:
    await timeline.job(None, on={"event": "model.drift"})
    await timeline.outage_until("13:00")


@asked(
    "13:30",
    (
        "Nothing was planned: the job ran every hour, until eve changed it at 14:00 (revision 2) to every"
        " hour at minute 30. The tick before was at 13:00. The next was at 14:00."
    ),
)
async def changed_since(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")
    await timeline.run_until("14:00")
    await timeline.job("30 * * * *", actor="eve")
    await timeline.run_until("14:10")


@asked(
    "15:00",
    (
        "Nothing was planned: the job runs every hour at minute 30, since eve changed it at 14:10 (revision"
        " 2) from every hour. The tick before was at 14:30. The next is at 15:30."
    ),
)
async def changed_before(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")
    await timeline.run_until("14:10")
    await timeline.job("30 * * * *", actor="eve")
    await timeline.run_until("15:10")


@asked(
    "12:25",
    (
        "Nothing was planned: the job runs every 10 minutes. The tick before was at 12:20. The next was at"
        " 12:30. Besides, bob paused the job at 12:15, and it still is paused."
    ),
)
async def not_planned_and_paused_besides(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *")
    await timeline.run_until("12:15")
    await timeline.jobs.pause("report", actor="bob")
    await timeline.outage_until("13:05")


@asked(
    "12:05",
    "Nothing was planned: the job runs every 7 minutes, counted from its start. The next was at 12:07.",
)
async def between_two_points_of_an_interval(timeline: WhyScenario) -> None:
    await timeline.job(None, every="7m")
    await timeline.run_until("12:10")


@asked(
    "12:07",
    "It fired on time. Its run run_12:07 has not started.",
    "It has been ready since 12:07:13.250, and no dispatcher has looked at it yet. Is gnomon up running?",
)
async def a_point_of_an_interval_that_is_no_whole_minute(timeline: WhyScenario) -> None:
    await timeline.outage_until("12:00:13.250")
    await timeline.job(None, every="7m")
    await timeline.run_until("12:07:20")


# ---- ticks to come -------------------------------------------------------------------------------


@asked(
    "today 15:00",
    "It will fire in 3 h.",
)
async def to_come(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")


@asked(
    "today 13:00",
    "It will fire in 55 min 31 s: its jitter moves it to 12:55:31.079.",
)
async def to_come_with_jitter(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *", jitter="5m")


@asked(
    "today 12:02",
    "It will fire in 1 min. If run_12:01 is still under way then, it is skipped.",
)
async def to_come_while_a_run_is_under_way(timeline: WhyScenario) -> None:
    await timeline.job()
    await timeline.run_until("12:01")
    await timeline.run_until_idle()


@asked(
    "today 14:00",
    "It will not fire: eve skipped this tick only.",
)
async def not_to_come_because_it_is_skipped(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")
    await timeline.jobs.skip("report", instant("14:00"), actor="bob")
    await timeline.jobs.undo_skip("report", instant("14:00"), actor="bob")
    await timeline.jobs.skip("report", instant("14:00"), actor="eve")
    await timeline.jobs.skip("report", instant("15:00"), actor="bob")


@asked(
    "today 14:00",
    "It will not fire: eve moved this tick only, to 14:20.",
)
async def not_to_come_because_it_is_moved(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")
    await timeline.jobs.skip("report", instant("14:00"), move_to=instant("14:20"), actor="eve")


@asked(
    "today 14:20",
    "It will fire in 2 h 20 min. eve moved it there from 14:00.",
)
async def to_come_because_it_is_moved_there(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")
    await timeline.jobs.skip("report", instant("14:00"), move_to=instant("14:20"), actor="eve")


@asked(
    "today 13:00",
    "It will not fire: bob paused the job at 12:10, and it still is paused.",
)
async def not_to_come_because_of_a_pause(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")
    await timeline.outage_until("12:10")
    await timeline.jobs.pause("report", actor="bob")


@asked(
    "12:01",
    "Its time came 20.0 s ago, and no scheduler has decided it yet: is gnomon up running? Decided now, it would fire.",
)
async def overdue(timeline: WhyScenario) -> None:
    await timeline.job("1 * * * *")
    await timeline.outage_until("12:01:20")


@asked(
    "12:01",
    (
        "Its time came 30 min ago, and no scheduler has decided it yet: is gnomon up running? Decided now,"
        " it would be missed."
    ),
)
async def overdue_beyond_the_grace(timeline: WhyScenario) -> None:
    await timeline.job("1 * * * *")
    await timeline.outage_until("12:31")


@asked(
    None,
    "It will fire in 2 h.",
)
async def nothing_yet_but_the_next(timeline: WhyScenario) -> None:
    await timeline.job("0 9 * * 1-5", timezone="America/New_York")


@asked(
    "12:03",
    (
        "Its time came 28 min ago, and no scheduler has decided it yet: is gnomon up running? Decided now,"
        " it would be missed. The same goes for all 9 ticks from 12:03 to 12:27."
    ),
)
async def overdue_with_others(timeline: WhyScenario) -> None:
    await timeline.job("*/3 * * * *")
    await timeline.outage_until("12:31")


@asked(
    None,
    "Nothing is planned: the job runs only when it is triggered.",
)
async def nothing_yet_and_nothing_planned(timeline: WhyScenario) -> None:
    await timeline.job(None)


@asked(
    None,
    "The job is gone: eve deleted it at 12:30.",
)
async def nothing_ever_before_it_was_deleted(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")
    await timeline.outage_until("12:30")
    await timeline.jobs.delete("report", actor="eve")


# ---- runs without a tick, and events -------------------------------------------------------------


@asked(
    None,
    "bob triggered it. Its run run_12:00 completed at 12:00:03, after 3.0 s.",
)
async def triggered_by_hand(timeline: WhyScenario) -> None:
    await timeline.job(None)
    await timeline.trigger()
    await timeline.run_to_end("12:00:03")


@asked(
    "12:00",
    "It was started through the API, by shop. Its run run_12:00 completed at 12:00:03, after 3.0 s.",
)
async def started_through_the_api(timeline: WhyScenario) -> None:
    await timeline.job(None)
    await timeline.trigger(source=RunSource.API, actor="shop")
    await timeline.run_to_end("12:00:03")


@asked(
    "12:05",
    "eve replayed the dead letter dl_1. Its run run_12:05 completed at 12:05:01, after 1.0 s.",
)
async def replayed(timeline: WhyScenario) -> None:
    await timeline.job(None, dead_letter=True)
    await timeline.trigger()
    await timeline.run_to_end("12:00:03", Result.FAILED, error="disk full")
    await timeline.run_until("12:05")
    [letter] = await timeline.letters.page()
    await timeline.letters.replay(letter.dead_letter_id, actor="eve")
    await timeline.run_to_end("12:05:01")


@asked(
    "12:10",
    "The event model.drift, emitted by watcher, started it. Its run run_12:10 completed at 12:10:04, after 4.0 s.",
)
async def started_by_an_event(timeline: WhyScenario) -> None:
    await timeline.job(None, on={"event": "model.drift"})
    await timeline.outage_until("12:10")
    await timeline.events.emit("model.drift", actor="watcher")
    await timeline.run_to_end("12:10:04")


@asked(
    "12:10",
    (
        "The event model.drift, emitted by watcher, started nothing: the job accepts only events with"
        ' {"model":"prices"}.'
    ),
)
async def an_event_that_is_not_what_it_waits_for(timeline: WhyScenario) -> None:
    await timeline.job(None, on={"event": "model.drift", "where": {"model": "prices"}})
    await timeline.outage_until("12:10")
    await timeline.events.emit("model.drift", {"model": "names"}, actor="watcher")


@asked(
    "12:10",
    "The event model.drift, emitted by watcher, started nothing: bob paused the job at 12:05, and it still is paused.",
)
async def an_event_in_a_pause(timeline: WhyScenario) -> None:
    await timeline.job(None, on={"event": "model.drift"})
    await timeline.outage_until("12:05")
    await timeline.jobs.pause("report", actor="bob")
    await timeline.outage_until("12:10")
    await timeline.events.emit("model.drift", actor="watcher")


@asked(
    "12:10",
    (
        "The event model.drift, emitted by watcher, waits for others: the job runs when model.drift happens,"
        " once it has been silent for 30 s."
    ),
)
async def an_event_that_waits_for_silence(timeline: WhyScenario) -> None:
    await timeline.job(None, on={"event": "model.drift", "debounce": "30s"})
    await timeline.outage_until("12:10")
    await timeline.events.emit("model.drift", actor="watcher")


@asked(
    "12:11",
    "The event model.drift, emitted by watcher, started nothing: another run was under way, and overlap is skip.",
)
async def an_event_during_a_run(timeline: WhyScenario) -> None:
    await timeline.job(None, on={"event": "model.drift"})
    await timeline.outage_until("12:10")
    await timeline.events.emit("model.drift", actor="watcher")
    await timeline.run_until_idle()
    await timeline.outage_until("12:11")
    await timeline.events.emit("model.drift", actor="watcher")


@asked(
    "12:10",
    (
        "The event model.drift, emitted by watcher, started nothing: the job is active only before Mon"
        " 2026-03-02 12:05 UTC."
    ),
)
async def an_event_after_its_window(timeline: WhyScenario) -> None:
    await timeline.job(None, on={"event": "model.drift"}, end_at="2026-03-02T12:05:00Z")
    await timeline.outage_until("12:10")
    await timeline.events.emit("model.drift", actor="watcher")


# ---- what a run waits for ------------------------------------------------------------------------


@asked(
    "12:01",
    "It fired on time. Its run run_12:01 has not started.",
    "It has been ready since 12:01, and no dispatcher has looked at it yet. Is gnomon up running?",
)
async def no_dispatcher(timeline: WhyScenario) -> None:
    await timeline.job()
    await timeline.run_until("12:01:20")


@asked(
    "12:01",
    "It fired on time. Its run run_12:01 has not started.",
    (
        "It cannot be dispatched: no worker has registered the function 'reports.unknown'. Alive, without"
        " it: w1. It will be tried again at 12:01:01.412, in 1.4 s."
    ),
)
async def nobody_knows_the_function(timeline: WhyScenario) -> None:
    await timeline.job(function="reports.unknown")
    await timeline.run_until("12:01")
    await timeline.run_until_idle()


@asked(
    None,
    "bob triggered it. Its run run_12:00 has not started.",
    (
        "It cannot be dispatched: no worker has registered the function 'reports.make'. No worker is alive."
        " It will be tried again at 12:00:01.171, in 1.2 s."
    ),
)
async def no_worker_is_alive(timeline: WhyScenario) -> None:
    await timeline.job(None)
    await timeline.trigger()
    await timeline.harness.dispatcher.step()


@asked(
    "12:01",
    "It fired on time. Its run run_12:01 has been running since 12:01.",
    "It will be tried again at 12:01:35, in 30.0 s: attempt 1 failed (disk full). It has 2 attempts left.",
)
async def to_be_tried_again(timeline: WhyScenario) -> None:
    await timeline.job("1 * * * *", retry={"max_attempts": 3, "initial_delay": "30s", "jitter": 0})
    await timeline.run_until("12:01")
    await timeline.run_to_end("12:01:05", Result.FAILED, error="disk full")


@asked(
    "12:01",
    "It fired on time. Its run run_12:01 has been running since 12:01.",
    "It will start at 12:02:05, in 1 min: it asked to be called again then.",
)
async def to_be_called_again(timeline: WhyScenario) -> None:
    await timeline.job("1 * * * *")
    await timeline.run_until("12:01")
    await timeline.run_to_end("12:01:05", Result.SNOOZED, snooze_ms=60_000)


@asked(
    "12:01",
    (
        "It fired on time. Its jitter moved it to 12:02:17.728. Its run run_12:01 is to start at"
        " 12:02:17.728, in 1 min 17 s."
    ),
    "It will start at 12:02:17.728, in 1 min 17 s, the time of its run.",
)
async def put_off_by_its_jitter(timeline: WhyScenario) -> None:
    await timeline.job("1 * * * *", jitter="5m")
    await timeline.run_until("12:01:00")
    await timeline.jobs.pause("report", actor="bob")


@asked(
    "12:02",
    (
        "It was queued: run_12:01 (planned for 12:01) was under way, and overlap is queue. Its run run_12:02"
        " waits in the queue."
    ),
    "It waits in the queue for the end of run_12:01 (planned for 12:01).",
)
async def in_the_queue(timeline: WhyScenario) -> None:
    await timeline.job(overlap="queue")
    await timeline.run_until("12:01")
    await timeline.run_until_idle()
    await timeline.run_until("12:02")


@asked(
    "12:02",
    (
        "It was queued: run_12:01 (planned for 12:01) was under way, and overlap is queue. Its run run_12:02 waits"
        " in the queue."
    ),
    "It waits in the queue for the end of run_12:03 (planned for 12:03).",
)
async def in_the_queue_behind_a_run_that_came_later(timeline: WhyScenario) -> None:
    await timeline.job("1,2 * * * *", overlap="queue")
    await timeline.run_until("12:01")
    await timeline.run_until_idle()
    await timeline.run_until("12:02")
    begun = list(timeline.runner.started)
    await timeline.run_until("12:03")
    await timeline.trigger(force=True)
    await timeline.run_until_idle()
    timeline.runner.end(begun[0])
    await timeline.harness.worker.step()


@asked(
    None,
    "bob triggered it. Its run run_12:00 has not started.",
    "It waits at the gate: the budget of today is spent. It will be asked again at 12:01, in 1 min.",
)
async def put_off_by_the_gate(timeline: WhyScenario) -> None:
    timeline.set_gate_decision(GateDecision(GateVerdict.LATER, "the budget of today is spent", after_ms=60_000))
    await timeline.job(None)
    await timeline.trigger()
    await timeline.harness.worker.step()
    await timeline.harness.dispatcher.step()


@asked(
    None,
    "bob triggered it. Its run run_12:00 has not started.",
    "It waits for an approval: it deletes data.",
)
async def waiting_for_an_approval(timeline: WhyScenario) -> None:
    timeline.set_gate_decision(GateDecision(GateVerdict.ASK, "it deletes data"))
    await timeline.job(None)
    await timeline.trigger()
    await timeline.harness.worker.step()
    await timeline.harness.dispatcher.step()


@asked(
    None,
    "bob triggered it. Its run run_12:00 failed at 12:00: blocked by security policy: it deletes data.",
)
async def denied(timeline: WhyScenario) -> None:
    timeline.set_gate_decision(GateDecision(GateVerdict.DENY, "it deletes data"))
    await timeline.job(None)
    await timeline.trigger()
    await timeline.harness.worker.step()
    await timeline.harness.dispatcher.step()


@asked(
    None,
    "bob triggered it. Its run run_12:00 has not started.",
    "It has been ready for a worker since 12:00:01, and none took it: the 1 slot of w1 is in use.",
    "bob triggered it. Its run run_12:00 has been running since 12:00.",
    "It has been with w1 since 12:00, under fence 1.",
)
async def no_slot_is_free(timeline: WhyScenario) -> None:
    timeline.flags(worker_slots=1)
    await timeline.job(None, overlap="allow")
    await timeline.trigger()
    await timeline.run_until_idle()
    timeline.clock.advance(1000)
    await timeline.trigger()
    await timeline.harness.dispatcher.step()


@asked(
    "12:01",
    "It fired on time. Its run run_12:01 has been running since 12:01.",
    "It has been with w1 since 12:01, under fence 1. Its worker has not been heard of: its lease ended at 12:01:30.",
)
async def its_worker_is_not_heard_of(timeline: WhyScenario) -> None:
    await timeline.job("1 * * * *")
    await timeline.run_until("12:01")
    await timeline.run_until_idle()
    await timeline.outage_until("12:03")


@asked(
    None,
    "bob triggered it. Its run run_12:00 has been running since 12:00.",
    "Step extract has been with w1 since 12:00, under fence 1.",
    "Step left waits for extract.",
    "Step right waits for extract.",
    "Step load waits for left and right.",
)
async def steps_before_it_are_not_over(timeline: WhyScenario) -> None:
    await timeline.job(
        None,
        dag=[
            {"step": "extract", "function": "reports.make"},
            {"step": "left", "function": "reports.make", "depends_on": ["extract"]},
            {"step": "right", "function": "reports.make", "depends_on": ["extract"]},
            {"step": "load", "function": "reports.make", "depends_on": ["left", "right"]},
        ],
    )
    await timeline.trigger()
    await timeline.run_until_idle()


@asked(
    None,
    "bob triggered it. Its run run_12:00 has been running since 12:00.",
    "Step a has been with w1 since 12:00:01, under fence 1.",
    "Step b has been with w1 since 12:00:01, under fence 1.",
    "Step c waits for others to end: max_parallel is 2, and a and b are under way.",
)
async def no_more_steps_may_run_at_once(timeline: WhyScenario) -> None:
    await timeline.job(
        None,
        max_parallel=2,
        dag=[
            {"step": "extract", "function": "reports.make"},
            *({"step": name, "function": "reports.make", "depends_on": ["extract"]} for name in ("a", "b", "c")),
        ],
    )
    await timeline.trigger()
    await timeline.run_to_end("12:00:01")
    await timeline.run_until_idle()


@asked(
    None,
    "bob triggered it. Its run run_12:00 has been running since 12:00.",
    "Step each waits for its items: 3 are not over.",
    "Item 0 of step each has been with w1 since 12:00, under fence 1.",
    "Item 1 of step each waits for others to end: max_parallel is 1, and 0 is under way.",
    "Item 2 of step each waits for others to end: max_parallel is 1, and 0 is under way.",
)
async def items_are_not_over(timeline: WhyScenario) -> None:
    await timeline.job(
        None, dag=[{"step": "each", "function": "reports.make", "foreach": [1, 2, 3], "max_parallel": 1}]
    )
    await timeline.trigger()
    await timeline.run_until_idle()


@asked(
    None,
    "bob triggered it. Its run run_12:00 has been running since 12:00.",
    "Step remind will start at 13:00:01, in 1 h: the step has a delay.",
)
async def a_step_that_is_delayed(timeline: WhyScenario) -> None:
    await timeline.job(
        None,
        dag=[
            {"step": "ask", "function": "reports.make"},
            {"step": "remind", "function": "reports.make", "depends_on": ["ask"], "delay": "1h"},
        ],
    )
    await timeline.trigger()
    await timeline.run_to_end("12:00:01")
    await timeline.run_until_idle()


@asked(
    None,
    "bob triggered it. Its run run_12:00 has been running since 12:00.",
    "Step call waits for run_within, which it started at 12:00.",
)
async def a_run_within_a_run_is_not_over(timeline: WhyScenario) -> None:
    await timeline.job(None, name="inner")
    await timeline.job(None, dag=[{"step": "call", "workflow": "inner"}])
    await timeline.trigger()
    await timeline.run_until_idle()


@asked(
    "16:00",
    "It was skipped: the job was paused at 13:00:07, when its only run had not succeeded, and it still is paused.",
)
async def paused_after_its_only_run_had_failed(timeline: WhyScenario) -> None:
    await timeline.job(None, at="2026-03-02T13:00:00Z", delete_after_run=True)
    await timeline.run_until("13:00")
    await timeline.run_to_end("13:00:07", Result.FAILED, error="disk full")
    await timeline.outage_until("15:00")
    await timeline.job("0 * * * *", actor="eve")
    await timeline.outage_until("16:30")


@asked(
    None,
    "bob triggered it. Its run run_12:00 has not started.",
    "It has been ready for a worker since 12:00, and none took it: no worker is alive.",
)
async def nobody_is_left_to_take_it(timeline: WhyScenario) -> None:
    await timeline.job(None)
    await timeline.harness.worker.step()
    await timeline.trigger()
    await timeline.harness.dispatcher.step()
    await timeline.outage_until("12:10")


@asked(
    None,
    "bob triggered it. Its run run_12:00 has not started.",
    "It has been ready for a worker since 12:00, and none took it: w1 could, and will soon.",
)
async def somebody_could_take_it(timeline: WhyScenario) -> None:
    await timeline.job(None)
    await timeline.harness.worker.step()
    await timeline.trigger()
    await timeline.harness.dispatcher.step()


@asked(
    None,
    "bob triggered it. Its run run_12:00 has not started.",
    ("It cannot be dispatched: no worker of pool 'gpu' is alive. It will be tried again at 12:00:01.171, in 1.2 s."),
)
async def nobody_is_in_its_pool(timeline: WhyScenario) -> None:
    await timeline.job(None, pool="gpu")
    await timeline.harness.worker.step()
    await timeline.trigger()
    await timeline.harness.dispatcher.step()


@asked(
    None,
    "bob triggered it. Its run run_12:00 has not started.",
    (
        "It cannot be dispatched: no pool is named for the topic 'video'. It will be tried again at"
        " 12:00:01.171, in 1.2 s."
    ),
)
async def no_pool_for_its_topic(timeline: WhyScenario) -> None:
    await timeline.job(None, topic="video")
    timeline.harness.dispatcher.router.use_pools(Pools(topics={"mail": ("default",)}))
    await timeline.trigger()
    await timeline.run_until_idle()


@asked(
    None,
    "bob triggered it. Its run run_12:00 has not started.",
    ("It has been ready for a worker since 12:00, and none took it: no worker alive knows reports.make in pool gpu."),
)
async def all_of_its_pool_have_gone(timeline: WhyScenario) -> None:
    await timeline.job(None, pool="gpu")
    await timeline.harness.worker.step()
    await timeline.store.workers.register(card("w2", pool="gpu"), ttl_ms=60_000)
    await timeline.trigger()
    await timeline.harness.dispatcher.step()
    await timeline.store.workers.deregister("w2")


@asked(
    None,
    "bob triggered it. Its run run_12:00 has not started.",
    "It has been ready for a worker since 12:00, and none took it: it is for w2 alone, which is not alive.",
)
async def the_only_one_that_may_take_it_has_gone(timeline: WhyScenario) -> None:
    await timeline.job(None, labels={"node.zone": "eu"})
    await timeline.harness.worker.step()
    await timeline.store.workers.register(card("w2", labels={"node.zone": "eu"}), ttl_ms=60_000)
    await timeline.trigger()
    await timeline.harness.dispatcher.step()
    await timeline.store.workers.deregister("w2")


def card(name: str, **said: Any) -> WorkerInfo:  # noqa: ANN401 - any field of a card
    return WorkerInfo(worker=name, functions=("reports.make",), slots=5, started_at=0, **said)


@asked(
    None,
    "bob triggered it. Its run run_12:00 has not started.",
    "It was sent to w2 at 12:00, which has not started it.",
)
async def handed_out_and_not_begun(timeline: WhyScenario) -> None:
    await timeline.job(None)
    await timeline.harness.worker.step()
    await timeline.trigger()
    await timeline.harness.dispatcher.step()
    await timeline.store.attempts.take("w2", limit=1, lease_ms=30_000, now=timeline.clock.now(), begin=False)


@asked(
    "12:00",
    "bob triggered it. Its run run_12:00 has been running since 12:00.",
    (
        "It will be tried again at 12:02:00.484, in 484 ms: attempt 1 was lost with its worker (worker_lost:"
        " w1 has not been heard of)."
    ),
)
async def to_be_tried_again_after_its_worker_was_lost(timeline: WhyScenario) -> None:
    await timeline.job(None)
    await timeline.trigger()
    await timeline.run_until_idle()
    await timeline.outage_until("12:02")
    await timeline.harness.reconciler.step()


@asked(
    None,
    "bob triggered it. Its run run_12:00 has not started.",
    (
        "It cannot be dispatched: no worker has registered the function 'reports.new'. By now one has. It"
        " will be tried again at 12:00:01.171, in 1.2 s."
    ),
)
async def somebody_has_learnt_the_function_since(timeline: WhyScenario) -> None:
    await timeline.job(None, function="reports.new")
    await timeline.trigger()
    await timeline.run_until_idle()
    timeline.set_worker_functions("reports.new")
    await timeline.harness.worker.step()


# ---- the table -----------------------------------------------------------------------------------


@pytest.mark.guarantee("S1")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.play.__name__)
async def test_the_answer_says(timeline: WhyScenario, scenario: Scenario) -> None:
    await scenario.play(timeline)

    assert await timeline.reported(scenario.at) == list(scenario.lines)
    await each_is_told_the_same_among_many(timeline)


async def each_is_told_the_same_among_many(timeline: WhyScenario) -> None:
    """The newest of all jobs in one answer is the first sentence of each explanation of a last tick."""
    standing = await timeline.store.schedules.page("default", after="", limit=100)
    found = await timeline.explainer.newest(standing)
    for one in standing:
        answer = await timeline.explainer.last(one.schedule_id, 1)
        told = [found[one.uid]] if one.uid in found else []
        assert [(of.at, of.kind, of.reason, of.sentence) for of in told] == [
            (of.at, of.kind, of.reason, of.sentence) for of in answer.explanations[:1]
        ]


# ---- what the sentences rest on ------------------------------------------------------------------


async def test_an_explanation_carries_the_decision_the_run_and_every_attempt(timeline: WhyScenario) -> None:
    await timeline.job("1 * * * *", retry={"max_attempts": 2, "initial_delay": "10s", "jitter": 0})
    await timeline.run_until("12:01")
    await timeline.run_to_end("12:01:05", Result.FAILED, error="disk full")
    await timeline.run_until("12:01:15")
    await timeline.run_to_end("12:01:20")

    [one] = (await timeline.why("12:01")).explanations

    assert (one.kind, one.reason, one.at, one.decided_at) == (
        ExplanationKind.FIRED,
        "on_time",
        instant("12:01"),
        instant("12:01"),
    )
    assert one.decision is not None
    assert one.decision.fire_at == instant("12:01")
    assert one.run is not None
    assert one.run.status is RunStatus.COMPLETED
    assert [(try_.worker, try_.number, try_.result, try_.error) for try_ in one.attempts] == [
        ("w1", 1, Result.FAILED, "disk full"),
        ("w1", 2, Result.SUCCEEDED, None),
    ]


async def test_a_moment_without_a_tick_names_its_neighbours_and_what_the_schedule_said(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")
    await timeline.run_until("14:10")
    await timeline.job("30 * * * *", actor="eve")
    await timeline.run_until("15:10")

    [one] = (await timeline.why("13:45")).explanations

    assert (one.kind, one.reason, one.revision) == (ExplanationKind.NO_TICK, "not_planned", 1)
    assert (one.previous_at, one.next_at) == (instant("13:00"), instant("14:00"))
    assert one.schedule == "every hour"


@pytest.mark.guarantee("S1")
@pytest.mark.parametrize("minute", [10, 20, 30, 40, 50])
async def test_every_tick_of_a_range_is_explained(timeline: WhyScenario, minute: int) -> None:
    await timeline.job("*/10 * * * *")
    await timeline.outage_until("12:55")
    await timeline.run_until("12:55")

    [one] = (await timeline.why(f"12:{minute}")).explanations

    assert (one.kind, one.reason, one.at) == (ExplanationKind.MISSED, "catchup_none", instant(f"12:{minute}"))
    assert one.decision is not None
    assert one.decision.count == 5


async def test_a_moment_within_a_range_that_was_no_tick_is_none(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *")
    await timeline.outage_until("12:55")
    await timeline.run_until("12:55")

    [one] = (await timeline.why("12:25")).explanations

    assert one.kind is ExplanationKind.NO_TICK


async def test_of_many_ticks_in_a_minute_the_first_are_explained_and_the_others_counted(timeline: WhyScenario) -> None:
    await timeline.job(None, every="500ms", overlap="allow", start_at="2026-03-02T12:01:00Z")
    await timeline.run_until("12:02")

    answer = await timeline.why("12:01")

    assert [(one.kind, one.at) for one in answer.explanations] == [
        (ExplanationKind.FIRED, instant("12:01") + 500 * number) for number in range(10)
    ]
    assert all(one.run is not None for one in answer.explanations)
    assert answer.more == 110


async def test_a_second_can_be_asked_about(timeline: WhyScenario) -> None:
    await timeline.job("*/2 * * * * *", overlap="allow")
    await timeline.run_until("12:02")

    [one] = (await timeline.why("12:01:04")).explanations

    assert (one.kind, one.at) == (ExplanationKind.FIRED, instant("12:01:04"))


async def test_a_time_that_comes_twice_has_two_answers(timeline: WhyScenario) -> None:
    await timeline.job("30 2 * * *", timezone="Europe/Berlin")
    await timeline.outage_until("2026-10-25T00:29Z")
    await timeline.run_until("2026-10-25T02:05Z")

    first, second = (await timeline.why("2026-10-25 02:30")).explanations

    assert (first.kind, first.at) == (ExplanationKind.FIRED, instant("2026-10-25T00:30Z"))
    assert (second.kind, second.reason, second.at) == (ExplanationKind.NO_TICK, "fold", instant("2026-10-25T01:30Z"))


async def test_a_time_that_comes_twice_has_two_answers_whatever_happened_in_between(timeline: WhyScenario) -> None:
    await timeline.outage_until("2026-10-25T00:29:59Z")
    await timeline.job("*/2 * * * * *", timezone="Europe/Berlin", overlap="allow", catchup="all")
    await timeline.run_until("2026-10-25T00:30:04Z")
    await timeline.jobs.pause("report", actor="bob")
    await timeline.outage_until("2026-10-25T01:30:01Z")
    await timeline.jobs.resume("report", actor="bob")
    await timeline.run_until("2026-10-25T01:30:04Z")

    first, second = (await timeline.why("2026-10-25 02:30:02")).explanations

    assert [(one.kind, one.at) for one in (first, second)] == [
        (ExplanationKind.FIRED, instant("2026-10-25T00:30:02Z")),
        (ExplanationKind.FIRED, instant("2026-10-25T01:30:02Z")),
    ]


@pytest.mark.parametrize("year", ["0001-01-01", "9999-12-31"])
async def test_the_ends_of_the_calendar_can_be_asked_about(timeline: WhyScenario, year: str) -> None:
    await timeline.job("30 2 * * *", timezone="Europe/Berlin")

    assert (await timeline.why(f"{year} 12:00")).explanations


async def test_the_last_ticks_are_listed_newest_first_with_active_runs_and_the_next_tick(timeline: WhyScenario) -> None:
    await timeline.job()
    await timeline.run_until("12:01")
    await timeline.run_until_idle()
    await timeline.run_until("12:05")

    answer = await timeline.why(last=2)

    assert [(one.kind, one.at) for one in answer.explanations] == [
        (ExplanationKind.SKIPPED, instant("12:05")),
        (ExplanationKind.SKIPPED, instant("12:04")),
        (ExplanationKind.FIRED, instant("12:01")),
    ]
    assert answer.coming is not None
    assert (answer.coming.kind, answer.coming.at) == (ExplanationKind.COMING, instant("12:06"))


async def test_an_active_run_is_shown_however_many_ticks_it_has_skipped(timeline: WhyScenario) -> None:
    await timeline.job("*/2 * * * * *")
    await timeline.run_until("12:00:02")
    await timeline.run_until_idle()
    await timeline.run_until("12:03:30")

    answer = await timeline.why(last=1)

    assert [(one.kind, one.reason, one.at) for one in answer.explanations] == [
        (ExplanationKind.SKIPPED, "overlap", instant("12:03:30")),
        (ExplanationKind.STARTED, "cron", instant("12:00:02")),
    ]


async def test_a_deleted_job_is_explained_by_its_last_revision(timeline: WhyScenario) -> None:
    await timeline.job("0 * * * *")
    await timeline.run_until("13:30")
    await timeline.jobs.delete("report", actor="eve")
    await timeline.outage_until("14:30")

    [one] = (await timeline.why("14:00")).explanations

    assert (one.kind, one.reason, one.revision, one.schedule) == (ExplanationKind.NO_TICK, "deleted", 1, "every hour")


async def test_ticks_that_a_pause_swallows_are_explained_before_they_are_decided(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *")
    await timeline.run_until("12:15")
    await timeline.jobs.pause("report", actor="bob")
    await timeline.outage_until("12:45")

    answer = await timeline.why(last=1)

    one = answer.explanations[0]
    assert (one.kind, one.reason, one.at, one.decided_at) == (ExplanationKind.SKIPPED, "paused", instant("12:40"), None)
    assert answer.coming is not None
    assert (answer.coming.kind, answer.coming.at) == (ExplanationKind.HELD, instant("12:50"))


async def test_a_tick_that_its_jitter_puts_off_is_still_to_come(timeline: WhyScenario) -> None:
    await timeline.job("1 * * * *", jitter="5m")
    await timeline.outage_until("12:01:30")

    coming = (await timeline.why()).coming

    assert coming is not None
    assert (coming.kind, coming.at) == (ExplanationKind.COMING, instant("12:01"))
    assert coming.sentence == "It will fire in 47.7 s: its jitter moves it to 12:02:17.728."


async def test_runs_by_hand_stand_among_the_ticks(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *", overlap="allow")
    await timeline.run_until("12:10")
    await timeline.outage_until("12:15")
    await timeline.trigger()
    await timeline.run_until("12:20")

    answer = await timeline.why(last=3)

    assert [one.kind for one in answer.explanations] == [
        ExplanationKind.FIRED,
        ExplanationKind.STARTED,
        ExplanationKind.FIRED,
    ]


async def test_events_stand_among_what_happened_last(timeline: WhyScenario) -> None:
    await timeline.job(None, on={"event": "model.drift", "where": {"model": "prices"}})
    for model in ("prices", "names"):
        await timeline.events.emit("model.drift", {"model": model}, actor="watcher")
        timeline.clock.advance(1000)

    answer = await timeline.why(last=5)

    assert [(one.kind, one.reason) for one in answer.explanations] == [
        (ExplanationKind.SKIPPED, "where"),
        (ExplanationKind.FIRED, "matched"),
    ]


# ---- asking --------------------------------------------------------------------------------------


async def test_a_job_that_never_was_is_not_found(timeline: WhyScenario) -> None:
    with pytest.raises(NotFound, match="there is no job 'report'"):
        await timeline.why("12:00")


async def test_a_job_of_another_tenant_is_not_found(timeline: WhyScenario) -> None:
    await timeline.job()

    with pytest.raises(NotFound):
        await timeline.explainer.last("report", tenant="acme")


@pytest.mark.parametrize("limit", [0, 1001])
async def test_so_many_cannot_be_asked_for(timeline: WhyScenario, limit: int) -> None:
    await timeline.job()

    with pytest.raises(FieldError, match="last"):
        await timeline.why(last=limit)


async def test_it_takes_no_more_questions_to_explain_more(timeline: WhyScenario) -> None:
    await timeline.job(overlap="allow")
    await timeline.run_until("12:50")
    asked_for = CountingStore(timeline.store)
    store: Any = asked_for
    timeline.explainer = Explainer(store, timeline.clock)

    await timeline.why(last=1)
    few, asked_for.questions = asked_for.questions, 0
    await timeline.why(last=50)

    assert few == asked_for.questions


@pytest.mark.req("H-26")
async def test_among_many_a_tick_is_told_with_a_blocking_run_that_is_older_than_the_newest(
    timeline: WhyScenario,
) -> None:
    await timeline.job("*/5 * * * *", overlap="skip")
    await timeline.run_until("12:05")
    await timeline.run_until_idle()
    [blocking] = await timeline.store.history.runs((await _standing(timeline)).uid, before=1 << 62, limit=9)
    for minute in range(4):
        await timeline.run_until(f"12:0{minute + 6}")
        await timeline.executions.cancel(await timeline.trigger(force=True), actor="ada")
    await timeline.run_until("12:10")

    found = await timeline.explainer.newest([await _standing(timeline)])

    [told] = found.values()
    assert (told.kind, told.reason) == (ExplanationKind.SKIPPED, "overlap")
    assert blocking.run_id in told.sentence
    await each_is_told_the_same_among_many(timeline)


async def _standing(timeline: WhyScenario) -> Schedule:
    [found] = await timeline.store.schedules.page("default", after="", limit=9)
    return found


@pytest.mark.req("H-26")
async def test_it_takes_no_more_questions_to_tell_the_newest_of_more_jobs(timeline: WhyScenario) -> None:
    for number in range(20):
        await timeline.job(name=f"job-{number:02}", overlap="allow")
    await timeline.run_until("12:05")
    await timeline.run_until_idle()
    await timeline.finish_attempts()
    asked_for = CountingStore(timeline.store)
    store: Any = asked_for
    explainer = Explainer(store, timeline.clock)
    standing = await timeline.store.schedules.page("default", after="", limit=100)

    one = await explainer.newest(standing[:1])
    few, asked_for.questions = asked_for.questions, 0
    many = await explainer.newest(standing)

    assert (len(one), len(many)) == (1, 20)
    assert few == asked_for.questions


class CountingStore:
    """A store whose questions are counted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.questions = 0

    def __getattr__(self, name: str) -> object:
        self.questions += 1
        return getattr(self._store, name)
