"""`gnomon` with one planted defect: `python defective_process.py DEFECT up ...`.

The checker of storms has to find each of them. A defect replaces one function of the product by a wrong one.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gnomon.cli import main
from gnomon.core.ledger.plan import CatchupLimit, plan
from gnomon.core.model import Overlap, Schedule, TickVerdict
from gnomon.core.runs import admission, advance, dag, outcomes
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest, first_tasks
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Workflow
from gnomon.services.execution import dispatcher, workflow_cache
from gnomon.services.operations.launcher import Launcher
from gnomon.services.scheduling import ticker


def replaced(owner: Any, name: str, by: Callable[..., Any]) -> None:  # noqa: ANN401 - a module or a class
    """Replace a function that exists."""
    assert callable(getattr(owner, name))
    setattr(owner, name, by)


def loses_ticks() -> None:
    """Some ticks are passed over without a decision, where no run waits for another."""

    def defective(schedule: Schedule, *, now: int, limit: CatchupLimit) -> TickVerdict:
        verdict = plan(schedule, now=now, limit=limit)
        if schedule.spec.overlap in (Overlap.QUEUE, Overlap.REPLACE):
            return verdict
        kept = tuple(one for one in verdict.decisions if one.planned_at // 1000 % 10 != 4)
        lost = sum(one.starts_run for one in verdict.decisions if one not in kept)
        return replace(verdict, decisions=kept, active_runs=max(0, verdict.active_runs - lost))

    replaced(ticker, "plan", defective)


def ignores_overlap() -> None:
    """Ticks fire while runs are under way, whatever the policy."""

    def defective(schedule: Schedule, *, now: int, limit: CatchupLimit) -> TickVerdict:
        allowing = replace(schedule, spec=replace(schedule.spec, overlap=Overlap.ALLOW))
        return replace(plan(allowing, now=now, limit=limit), schedule=schedule)

    replaced(ticker, "plan", defective)


def ignores_exceptions() -> None:
    """Ticks that an operator has skipped or moved fire all the same."""

    def defective(schedule: Schedule, *, now: int, limit: CatchupLimit) -> TickVerdict:
        plain = replace(schedule, spec=replace(schedule.spec, exceptions=()))
        return replace(plan(plain, now=now, limit=limit), schedule=schedule)

    replaced(ticker, "plan", defective)


def has_no_grace() -> None:
    """Ticks that are hardly late are missed."""

    def defective(schedule: Schedule, *, now: int, limit: CatchupLimit) -> TickVerdict:
        strict = replace(schedule, spec=replace(schedule.spec, misfire_grace_ms=0))
        return replace(plan(strict, now=now, limit=limit), schedule=schedule)

    replaced(ticker, "plan", defective)


def decides_late() -> None:
    """The ticker sleeps for long between its steps."""
    step = ticker.Ticker.step

    async def defective(self: ticker.Ticker) -> float:
        await asyncio.sleep(20)
        return await step(self)

    replaced(ticker.Ticker, "step", defective)


def repeats_what_runs_once() -> None:
    """A lost attempt is repeated, although its job says at most once."""
    replaced(outcomes, "_may_start_again", lambda _: True)


def retries_too_often() -> None:
    """A failed attempt is repeated, whatever the retry policy."""
    failed = outcomes._failed  # noqa: SLF001 - the function to replace

    def defective(held: Any, outcome: Any) -> Any:  # noqa: ANN401 - as the function to replace
        after = failed(held, outcome)
        if after.state is TaskState.FAILED and held.attempt < 5:
            return type(after)(TaskState.PENDING, WaitReason.RETRY, 100)
        return after

    replaced(outcomes, "_failed", defective)


def retries_at_once() -> None:
    """A failed attempt is repeated without the delay of the retry policy."""
    replaced(outcomes, "_delay", lambda *_: 0)


def decides_early() -> None:
    """The ticker decides by a clock that is some seconds ahead."""

    def defective(schedule: Schedule, *, now: int, limit: CatchupLimit) -> TickVerdict:
        return plan(schedule, now=now + 3_000, limit=limit)

    replaced(ticker, "plan", defective)


def leaves_no_dead_letters() -> None:
    """Tasks fail for good without a dead letter."""
    replaced(outcomes, "_dead_letter_reason", lambda *_: None)


def runs_what_was_refused() -> None:
    """A request with a key that another request has used hands its own input to the dispatcher."""

    async def defective(self: Any, launch: LaunchRequest, _: Schedule | None, now: int) -> LaunchOutcome:  # noqa: ANN401
        async def write() -> LaunchOutcome:
            [became] = await self._runs.launch([launch], now=now)
            return became  # type: ignore[no-any-return]

        tasks = first_tasks(launch.run, launch.first_steps, now=now)
        made = [ReadyTask(task=task, run=launch.run, input=launch.input) for task in tasks]
        return await self._write_and_admit(made, write)  # type: ignore[no-any-return]

    replaced(Launcher, "_launched", defective)


def forgets_inputs() -> None:
    """Bodies are called without the input of their step."""
    merged = admission.merged_input

    def defective(workflow: Workflow, step: Any, waiting: ReadyTask) -> dict[str, Any]:  # noqa: ANN401
        return {name: value for name, value in merged(workflow, step, waiting).items() if name != "policy"}

    for module in (workflow_cache, dispatcher):
        replaced(module, "merged_input", defective)


def starts_steps_early() -> None:
    """The last step of a graph does not wait for all that it depends on."""
    progress = dag.graph_progress

    def defective(workflow: Workflow, states: Mapping[str, dag.StepState], **more: Any) -> dag.GraphProgress:  # noqa: ANN401
        steps = [replace(one, depends_on=tuple(one.depends_on[-1:])) for one in workflow.steps]
        return progress(replace(workflow, steps=type(workflow.steps)(steps)), states, **more)

    replaced(advance, "graph_progress", defective)


DEFECTS: Sequence[Callable[[], None]] = (
    loses_ticks,
    ignores_overlap,
    ignores_exceptions,
    has_no_grace,
    decides_late,
    repeats_what_runs_once,
    retries_too_often,
    retries_at_once,
    decides_early,
    leaves_no_dead_letters,
    runs_what_was_refused,
    forgets_inputs,
    starts_steps_early,
)

if __name__ == "__main__":
    wanted = sys.argv.pop(1)
    next(one for one in DEFECTS if one.__name__ == wanted)()
    main()
