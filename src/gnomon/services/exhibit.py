"""All numbers of a node at a moment: what was counted, what the store holds, and how the components are."""

import asyncio
from collections.abc import Mapping

from gnomon.core.health import Condition, Report
from gnomon.core.metrics import MEASURES, OTHER, Distribution, Family, Kind
from gnomon.errors import Unavailable
from gnomon.ports.maintenance import Survey, Surveyor
from gnomon.ports.runtime import Clock
from gnomon.services.meter import Meter
from gnomon.services.vitals import Vitals

#: How soon the steps of runs that are over are counted, and of how many at once.
_STEPS_SECONDS, _STEPS_AT_ONCE = 1.0, 5_000
_Gauges = dict[str, Mapping[tuple[str, ...], float]]


class Exhibit:
    """Shows the numbers to whoever collects them."""

    def __init__(self, meter: Meter, vitals: Vitals, surveyor: Surveyor, clock: Clock) -> None:
        self._meter = meter
        self._vitals = vitals
        self._surveyor = surveyor
        self._clock = clock

    async def step(self) -> float:
        """Count the steps of runs that are over. Returns how many seconds to wait before the next time."""
        try:
            await self._count_steps()
        except Unavailable:
            # They wait until the store answers again, which others say.
            return _STEPS_SECONDS
        return 0.0 if self._meter.graphs else _STEPS_SECONDS

    async def _count_steps(self) -> None:
        graphs = self._meter.graphs
        runs = list(graphs)[:_STEPS_AT_ONCE]
        if not runs:
            return
        found = await self._surveyor.steps(runs)
        for run in runs:
            # Another may have counted them while we read.
            job = graphs.pop(run, None)
            if job is not None and run in found:
                self._meter.count_steps(job, found[run])

    async def families(self) -> list[Family]:
        """Every measure there is, with its numbers."""
        report, survey = await self._vitals.report(), self._vitals.survey
        if survey is not None:
            self._meter.introduce(card.job for card in survey.cards)
            await self.step()
        gauges = self._of_node(report) | ({} if survey is None else self._of_store(survey))
        return [Family(measure, self._samples(name, gauges)) for name, measure in MEASURES.items()]

    def _samples(self, name: str, gauges: _Gauges) -> Mapping[tuple[str, ...], float | Distribution]:
        match MEASURES[name].kind:
            case Kind.COUNTER:
                return dict(self._meter.counters[name])
            case Kind.HISTOGRAM:
                spreads = self._meter.spreads[name]
                return {labels: Distribution(tuple(one.counts), one.sum) for labels, one in spreads.items()}
            case Kind.GAUGE:
                return gauges.get(name, {})

    def _of_node(self, report: Report) -> _Gauges:
        shards = self._vitals.leads
        well: dict[tuple[str, ...], float] = {
            (one.name,): float(one.condition is not Condition.ERROR) for one in report.components
        }
        gauges: _Gauges = {
            "shards_held": {(): shards},
            "active_coroutines": {(): len(asyncio.all_tasks())},
            "store_up": {(): float(self._vitals.survey is not None)},
            "component_healthy": well,
        }
        return gauges | ({"leader_active": {(): 1}} if shards else {})

    def _of_store(self, survey: Survey) -> _Gauges:
        now = self._clock.now()
        cards = [card for card in survey.cards if card.job in self._meter.jobs and card.job != OTHER]
        return {
            "jobs_registered": {(): survey.jobs},
            "next_fire_seconds": {
                (card.job,): (card.next_fire_at - now) / 1000 for card in cards if card.next_fire_at is not None
            },
            "lock_held": {(card.job,): float(card.locked) for card in cards},
            "schedules_due": {(): survey.due},
            "oldest_due_seconds": {(): _ago(survey.oldest_due_at, now)},
            "tasks_ready_seconds": {(): _ago(survey.ready_since_at, now)},
            "workers_alive": {(): survey.workers},
            "dead_letters_unresolved": {(): survey.unresolved},
        }


def _ago(at: int | None, now: int) -> float:
    return 0.0 if at is None else max(0, now - at) / 1000
