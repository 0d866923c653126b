"""Asking about what is older than its retention: it is said that it is not known, and nothing is guessed."""

import re

import pytest

from contracts.store import NOON
from gnomon.adapters.archive import NoArchive
from gnomon.adapters.memory import MemoryStore
from gnomon.config.settings import Settings, load
from gnomon.core.explain.evidence import ExplanationKind, SubjectExplanation
from gnomon.core.model import DAY_MS
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.maintenance.cleaner import Cleaner
from gnomon.services.operations.explain import Explainer
from gnomon.testing.clock import Recorder, VirtualClock
from support.why_scenario import WhyScenario

_RUN = re.compile(r"run_\w+")


class ScenarioAfterRetention(WhyScenario):
    """A story after which days pass and the cleaner comes."""

    def __init__(self, settings: Settings) -> None:
        clock = VirtualClock(NOON)
        store = MemoryStore(clock.now)
        super().__init__(store, clock)
        self.cleaner = Cleaner(
            store.retention,
            store.jobs,
            NoArchive(),
            clock,
            Recorder(),
            settings=settings,
            lease=AlwaysHeldSingleton(),
            store_now=store.now,
        )
        self.explainer = Explainer(store, clock, settings=settings)

    async def days_later(self, days: int) -> None:
        self.clock.advance(days * DAY_MS)
        await self.cleaner.clean()

    async def one(self, at: str) -> SubjectExplanation:
        [one] = (await self.why(at)).explanations
        return one


@pytest.fixture
def timeline() -> ScenarioAfterRetention:
    return ScenarioAfterRetention(load(flags={"execution.history_retention_days": 2}))


@pytest.mark.guarantee("S1")
async def test_of_a_tick_that_was_removed_it_is_said_from_when_on_ticks_are_kept(
    timeline: ScenarioAfterRetention,
) -> None:
    await timeline.job("*/10 * * * *")
    await timeline.run_until("12:30")
    await timeline.run_to_end("12:30:10")
    await timeline.days_later(10)

    one = await timeline.one("2026-03-02 12:10")

    assert (one.kind, one.reason) == (ExplanationKind.UNKNOWN, "removed")
    assert one.sentence == (
        "It was planned, but its outcome is no longer known: history from before Thu 2026-03-05 12:30 UTC is not kept."
    )


async def test_of_a_run_that_was_removed_before_its_tick_it_is_said_that_it_is_not_kept(
    timeline: ScenarioAfterRetention,
) -> None:
    await timeline.job("*/10 * * * *")
    await timeline.run_until("12:10")
    await timeline.run_to_end("12:10:10")
    await timeline.days_later(3)

    one = await timeline.one("2026-03-02 12:10")

    assert one.kind == ExplanationKind.FIRED
    assert _RUN.sub("run_1", one.sentence) == "It fired on time. Its run run_1 is no longer kept."


async def test_that_nobody_triggered_a_job_is_not_claimed_of_a_time_that_is_not_kept(
    timeline: ScenarioAfterRetention,
) -> None:
    await timeline.job(None)
    await timeline.trigger()
    await timeline.run_to_end("12:00:10")
    await timeline.days_later(3)

    one = await timeline.one("2026-03-02 12:00")

    assert (one.kind, one.reason) == (ExplanationKind.UNKNOWN, "removed")
    assert one.sentence == (
        "The runs of that time are no longer known: history from before Tue 2026-03-03 12:00 UTC is not kept."
        " The job runs only when it is triggered."
    )


async def test_between_ticks_a_run_may_have_been_triggered_that_is_not_kept(timeline: ScenarioAfterRetention) -> None:
    await timeline.job("*/10 * * * *")
    await timeline.run_until("12:10")
    await timeline.days_later(3)

    one = await timeline.one("2026-03-02 12:05")

    assert one.kind == ExplanationKind.NO_TICK
    assert one.sentence.endswith(
        " Whether someone triggered it is no longer known: history from before Tue 2026-03-03 12:10 UTC is not kept."
    )


async def test_of_a_time_that_is_kept_it_is_said_that_nothing_happened(timeline: ScenarioAfterRetention) -> None:
    await timeline.job(None)
    await timeline.days_later(1)

    assert (
        await timeline.one("2026-03-02 18:00")
    ).sentence == "Nothing happened: the job runs only when it is triggered."


async def test_before_the_job_was_there_nothing_is_forgotten(timeline: ScenarioAfterRetention) -> None:
    await timeline.job(None)
    await timeline.days_later(30)

    assert (await timeline.one("2026-03-02 11:00")).reason == "not_created"


async def test_the_retention_of_the_job_itself_counts(timeline: ScenarioAfterRetention) -> None:
    await timeline.job(None, retention="20d")
    await timeline.days_later(10)

    assert (await timeline.one("2026-03-02 18:00")).reason == "on_demand"


async def test_of_a_pause_it_is_known_that_nothing_fired_though_the_entry_is_gone(
    timeline: ScenarioAfterRetention,
) -> None:
    await timeline.job("*/10 * * * *")
    await timeline.run_until("12:10")
    await timeline.jobs.pause("report", actor="bob")
    await timeline.run_until("12:35")
    await timeline.jobs.resume("report", actor="eve")
    await timeline.run_until("12:40")
    await timeline.days_later(10)

    one = await timeline.one("2026-03-02 12:20")

    assert one.kind == ExplanationKind.UNKNOWN
    assert one.sentence.endswith(" It did not fire: bob paused the job at 12:10 and eve resumed it at 12:35.")


async def test_the_list_of_last_ticks_says_that_older_ones_were_removed(timeline: ScenarioAfterRetention) -> None:
    await timeline.job(None)
    await timeline.trigger()
    await timeline.run_to_end("12:00:10")
    fresh = (await timeline.why(last=3)).forgotten_before
    await timeline.days_later(3)

    answer = await timeline.why(last=3)

    assert fresh is None
    assert (answer.explanations, answer.forgotten_before) == ((), NOON + DAY_MS)
