"""A job and everybody around it, for telling what happened and asking why."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from contracts.store import NOON
from gnomon.config.sections import Leading, Ticking
from gnomon.core.explain.evidence import Answer, Explanation
from gnomon.core.ids import SHARDS
from gnomon.core.instants import instant_of
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import Result, RunId
from gnomon.core.runs.admission import Released, Request, Ruled
from gnomon.core.runs.outcomes import Assignment
from gnomon.services.operations.dead_letters import DeadLetterOffice
from gnomon.services.operations.events import Announcer, Gatherer
from gnomon.services.operations.executions import ExecutionBook
from gnomon.services.operations.explain import Explainer
from gnomon.services.operations.jobs import JobBook
from gnomon.services.operations.launcher import Launcher
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker
from gnomon.testing.clock import CountedIds, Recorder, VirtualClock
from support.crew import Crewed, ToldRunner
from support.labour import Store

_RUN = re.compile(r"run_[0-9a-f]{10,}")
_LETTER = re.compile(r"dl_\w+")
_NAME = "report"
_EVERYTHING = frozenset(range(SHARDS))


class ToldGate:
    """Rules as a test says."""

    def __init__(self, ruled: Ruled) -> None:
        self._ruled = ruled

    async def admit(self, requests: Sequence[Request]) -> Sequence[Ruled]:
        return [self._ruled for _ in requests]

    async def release(self, finished: Assignment, output: bytes | None) -> Released:
        del finished
        return Released(output=output)


class Story:
    """It begins on Monday, 2026-03-02, at noon UTC. Times of that day may be written without it."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        ids, events = CountedIds(), Recorder()
        self.clock, self.store = clock, store
        self.jobs = JobBook(store, store, store, clock, ids)
        self.launcher = Launcher(store, store, store, store, clock, ids)
        self.executions = ExecutionBook(store, store, store, store, clock)
        self.letters = DeadLetterOffice(store, store, self.launcher, clock)
        self.events = Announcer(store, clock, ids)
        self.gatherer = Gatherer(store, clock, events)
        elector = Elector(store, clock, events, Leading(), holder="node", alone=True)
        self.ticker = Ticker(store, elector, clock, events, Ticking())
        self.crew = Crewed(store=store, clock=clock)
        self.runner = self.crew.runner
        self.explainer = Explainer(store, store, store, store, store, store, clock)

    # ---- what happens ------------------------------------------------------------------------

    async def job(self, schedule: str | None = "* * * * *", **said: Any) -> None:  # noqa: ANN401 - as in a jobs file
        """Ada writes the job like this."""
        told: dict[str, Any] = {"name": _NAME, "actor": "ada", **said}
        actor = told.pop("actor")
        if "steps" not in told and "dag" not in told:
            told.setdefault("function", "reports.make")
        if schedule is not None:
            told["schedule"] = schedule
        await self.jobs.apply([read_job(told, Defaults(), now=self.clock.now())], actor=actor)

    async def until(self, time: str) -> None:
        """The scheduler decides what is due, and whoever works lives on, up to that time."""
        at = instant(time)
        while True:
            await self.crew.worker.step()
            due = await self.store.next_due_at(shards=_EVERYTHING)
            while due is not None and due <= self.clock.now():
                await self.ticker.step()
                due = await self.store.next_due_at(shards=_EVERYTHING)
            left = at - self.clock.now()
            if left <= 0:
                return
            soon = left if due is None else min(left, due - self.clock.now())
            # Whoever has something in hand must be heard of before the lease is over.
            self.clock.advance(min(soon, 10_000) if self.runner.started else soon)

    async def dark(self, time: str) -> None:
        """Nobody decides anything up to that time."""
        self.clock.advance(instant(time) - self.clock.now())

    async def go(self) -> None:
        """Everything that is ready is begun."""
        await self.crew.go()

    async def ends(self, result: Result = Result.SUCCEEDED, **told: Any) -> None:  # noqa: ANN401
        """Everything that was begun ends like this."""
        self.runner.end_all(result, **told)
        await self.crew.worker.step()

    async def done(self, time: str, result: Result = Result.SUCCEEDED, **told: Any) -> None:  # noqa: ANN401
        """What is ready is begun now and ends like this at that time."""
        await self.go()
        await self.until(time)
        await self.ends(result, **told)

    async def trigger(self, **said: Any) -> RunId:  # noqa: ANN401
        return (await self.launcher.trigger(_NAME, actor=said.pop("actor", "bob"), **said)).run_id

    def rules(self, ruled: Ruled) -> None:
        """From now on the gate rules like this."""
        self.crew = Crewed(store=self.store, clock=self.clock, gate=ToldGate(ruled))
        self.runner = self.crew.runner

    def flags(self, **flags: object) -> None:
        """A crew with other settings."""
        named = {name.replace("_", ".", 1): value for name, value in flags.items()}
        self.crew = Crewed(store=self.store, clock=self.clock, flags=named)
        self.runner = self.crew.runner

    def knows(self, *functions: str) -> None:
        """All that the worker can run."""
        self.runner = ToldRunner(*functions)
        self.crew.worker = self.crew.another_worker("w1", self.runner)

    # ---- asking ------------------------------------------------------------------------------

    async def why(self, at: str | None = None, last: int = 1) -> Answer:
        return await (self.explainer.last(_NAME, last) if at is None else self.explainer.at(_NAME, at))

    async def told(self, at: str | None = None) -> list[str]:
        """Every sentence of the answer, runs named by their planned times."""
        answer = await self.why(at)
        coming = () if answer.coming is None else (answer.coming,)
        about = coming if at is None and not answer.explanations else answer.explanations
        lines = [line for one in about for line in sentences(one)]
        names = {
            run.run_id: f"run_{instant_of(run.planned_at):%H:%M}"
            for uid in {one.uid for one in await self._everyone()}
            for run in await self.store.runs(uid, before=1 << 62, limit=1000)
        }
        lines = [_RUN.sub(lambda found: names.get(RunId(found[0]), "run_within"), line) for line in lines]
        return [_LETTER.sub("dl_1", line) for line in lines]

    async def _everyone(self) -> list[Any]:
        standing = await self.store.find("default", _NAME)
        gone = await self.store.gone("default", _NAME, limit=10)
        return [*([] if standing is None else [standing]), *(one.schedule for one in gone)]


def sentences(one: Explanation) -> list[str]:
    """What an explanation says, line by line."""
    return [one.sentence, *one.waits]


def instant(time: str) -> int:
    """A time on the first day, or any ISO instant."""
    if "-" not in time:
        time = f"{instant_of(NOON):%Y-%m-%d}T{time}+00:00"
    return int(datetime.fromisoformat(time).astimezone(UTC).timestamp() * 1000)
