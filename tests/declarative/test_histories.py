"""Long random histories end with the theory, and the theory catches schedulers that are wrong."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from gnomon.core.cron import known_zone
from gnomon.core.timezones import Zone
from gnomon.declarative import polling, scheduler
from gnomon.declarative.cron import Occurrences
from gnomon.declarative.decide import Overrides, StartDecision, due_at, resolve_overrides
from gnomon.declarative.polling import PollingLoop
from gnomon.declarative.records import TaskRecord, failed, started
from gnomon.declarative.writer import ScheduledTask, StateWriter
from support.declarative_histories import RandomHistory
from support.declarative_world import DeclarativeWorld
from support.effort import EFFORT

pytestmark = pytest.mark.req("D-18")

Patch = pytest.MonkeyPatch
#: How many histories a mutation may survive.
TRIES = 30


@pytest.mark.req("D-03", "D-04", "D-13", "D-16")
@pytest.mark.parametrize("seed", range(20 * EFFORT))
async def test_random_histories_satisfy_the_theory(seed: int) -> None:
    years = RandomHistory(seed)

    world = await years.run(steps=70)

    assert world.violations() == []
    assert years.forgotten == []


@pytest.mark.req("D-16")
async def test_the_same_dice_give_the_same_history() -> None:
    ran = []
    for _ in range(2):
        world = await RandomHistory(7).run(steps=40)
        ran.append((world.ran, [(event.name, event.task, event.at) for event in world.events]))

    assert ran[0] == ran[1]


# ---- schedulers that are wrong -------------------------------------------------------------------


def skip_a_due(patch: Patch) -> None:
    """Every fourth time something else is looked at."""
    right, count = due_at, iter(range(10**9))

    def wrong(record: TaskRecord, occurrences: Occurrences) -> int | None:
        at = right(record, occurrences)
        return at if at is None or next(count) % 4 else occurrences.first_after(max(at, 0))

    patch.setattr(polling, "due_at", wrong)


def start_twice(patch: Patch) -> None:
    right = PollingLoop._run  # noqa: SLF001 - that is what is broken here

    async def wrong(self: PollingLoop, slot: ScheduledTask, start: StartDecision) -> None:
        await right(self, slot, start)
        with suppress(ValueError):
            await slot.callback()

    patch.setattr(PollingLoop, "_run", wrong)


def start_after_stop(patch: Patch) -> None:
    """The loop hears of a stop when it is too late."""
    request, stopped = PollingLoop.request_stop, PollingLoop.stopped

    async def wrong(self: PollingLoop) -> None:
        await self._clock.sleep(55)
        request(self)
        await stopped(self)

    patch.setattr(PollingLoop, "request_stop", lambda _: None)
    patch.setattr(PollingLoop, "stopped", wrong)


def lose_orphans(patch: Patch) -> None:
    """A task that was running in a dead process is taken for idle."""
    right = resolve_overrides

    def wrong(*given: Any, **named: Any) -> Overrides:  # noqa: ANN401 - as the right one
        overrides = right(*given, **named)
        kept = {name: replace(record, scheduler_identifier=None) for name, record in overrides.records.items()}
        return replace(overrides, records=kept)

    patch.setattr(scheduler, "resolve_overrides", wrong)


def make_up_for_everything(patch: Patch) -> None:
    """A start answers the oldest occurrence alone."""
    right = started

    def wrong(record: TaskRecord, *, at: int, identifier: str) -> TaskRecord:
        made = right(record, at=at, identifier=identifier)
        before = record.settled_at
        return replace(made, last_attempt_at=min(at, before + 60_000)) if record.last_attempt_at else made

    patch.setattr(polling, "started", wrong)


def retry_at_once(patch: Patch) -> None:
    right = failed

    def wrong(record: TaskRecord, *, at: int) -> TaskRecord:
        return replace(right(record, at=at), pending_retry_until=at)

    patch.setattr(polling, "failed", wrong)


def forget_retries(patch: Patch) -> None:
    right = failed

    def wrong(record: TaskRecord, *, at: int) -> TaskRecord:
        return replace(right(record, at=at), pending_retry_until=None)

    patch.setattr(polling, "failed", wrong)


def keep_stale_retries(patch: Patch) -> None:
    """A start of a task does not cancel the retry that it waited for."""
    right = started

    def wrong(record: TaskRecord, *, at: int, identifier: str) -> TaskRecord:
        return replace(right(record, at=at, identifier=identifier), pending_retry_until=record.pending_retry_until)

    def done(record: TaskRecord, *, at: int) -> TaskRecord:
        return replace(record, last_success_at=at, scheduler_identifier=None)

    patch.setattr(polling, "started", wrong)
    patch.setattr(polling, "succeeded", done)


def record_attempts_at_the_end(patch: Patch) -> None:
    """A time that passed during a failed run is lost."""
    right = failed

    def wrong(record: TaskRecord, *, at: int) -> TaskRecord:
        return replace(right(record, at=at), last_attempt_at=at)

    patch.setattr(polling, "failed", wrong)


def sleep_through(patch: Patch) -> None:
    """Nothing that happens in between cuts a nap short, and naps are long."""
    right = PollingLoop._sleep_for  # noqa: SLF001 - that is what is broken here

    async def wrong(self: PollingLoop, seconds: float, *, until: int = 0) -> None:  # noqa: ARG001 - nobody is let in
        await right(self, seconds + 180)

    patch.setattr(PollingLoop, "_sleep_for", wrong)


def count_from_the_beginning_of_time(patch: Patch) -> None:
    """Times before the registration count as missed."""
    right = resolve_overrides

    def wrong(*given: Any, **named: Any) -> Overrides:  # noqa: ANN401 - as the right one
        overrides = right(*given, **named)
        records = {name: replace(record, registered_at=0) for name, record in overrides.records.items()}
        return replace(overrides, records=records)

    patch.setattr(scheduler, "resolve_overrides", wrong)


def forget_history(patch: Patch) -> None:
    """An override makes a new task."""
    right = resolve_overrides

    def wrong(registered: Any, persisted: Any, occurrences: Any, *, now: int) -> Overrides:  # noqa: ANN401
        changed = {n for n, r in registered.items() if n in persisted and r[1] != persisted[n].cron_expression}
        return right(registered, {n: r for n, r in persisted.items() if n not in changed}, occurrences, now=now)

    patch.setattr(scheduler, "resolve_overrides", wrong)


def live_in_another_zone(patch: Patch) -> None:
    right = Occurrences.__init__

    def wrong(self: Occurrences, expression: str, zone: Zone) -> None:
        right(self, expression, known_zone("Asia/Kolkata" if zone.name != "Asia/Kolkata" else "UTC"))

    patch.setattr(Occurrences, "__init__", wrong)


def stop_without_waiting(patch: Patch) -> None:
    async def wrong(self: PollingLoop) -> None:
        self._runs.clear()

    patch.setattr(PollingLoop, "stopped", wrong)


def start_without_a_mark(patch: Patch) -> None:
    """A run that is interrupted leaves no trace."""
    right = StateWriter.write_now

    async def wrong(self: StateWriter, marks: dict[int, TaskRecord]) -> None:  # noqa: ARG001 - they are lost
        await right(self, {})

    patch.setattr(StateWriter, "write_now", wrong)


def never_write_outcomes(patch: Patch) -> None:
    patch.setattr(StateWriter, "enqueue", lambda *_: None)


def never_start_what_is_new(patch: Patch) -> None:
    right = resolve_overrides

    def wrong(*given: Any, **named: Any) -> Overrides:  # noqa: ANN401 - as the right one
        overrides = right(*given, **named)
        records = {name: replace(record, due_at_registration=False) for name, record in overrides.records.items()}
        return replace(overrides, records=records)

    patch.setattr(scheduler, "resolve_overrides", wrong)


MUTATIONS = [
    skip_a_due,
    start_twice,
    start_after_stop,
    lose_orphans,
    make_up_for_everything,
    retry_at_once,
    forget_retries,
    keep_stale_retries,
    record_attempts_at_the_end,
    sleep_through,
    count_from_the_beginning_of_time,
    forget_history,
    live_in_another_zone,
    stop_without_waiting,
    start_without_a_mark,
    never_write_outcomes,
    never_start_what_is_new,
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
async def test_a_scheduler_that_is_wrong_is_caught(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutation(monkeypatch)

    for seed in range(TRIES):
        years = RandomHistory(seed)
        world: DeclarativeWorld = await years.run(steps=50)
        if world.violations() or years.forgotten:
            return

    pytest.fail("the theory did not notice")
