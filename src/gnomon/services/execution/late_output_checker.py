"""The checker of stored outputs: those that were too large to be read before, and those that another service judges.

The list of what is to be checked is in the store: it was written with the output itself. A process that dies in the
middle of a check leaves the entry there, and the next one begins that check again. A check that takes too long, or that
nothing can make, is over: the output stays, or is held back if the settings say so.
"""

import asyncio
from collections.abc import Callable

from gnomon.core import component_names
from gnomon.core.output_policy.late import LateCheck, LateResult
from gnomon.core.output_policy.ruling import OutputDecision, OutputRuling
from gnomon.core.runs.admission import ReadyTask, clean_reason
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import StoreUnavailable, Unavailable
from gnomon.ports.output_policy import LateChecks, OutputJudge, StoredOutput
from gnomon.ports.runs import PayloadReader
from gnomon.ports.runtime import Clock, Events
from gnomon.services.coordination import Singleton
from gnomon.services.execution.output_check import StoredOutputPolicy
from gnomon.services.execution.workflow_cache import WorkflowCache, step_of
from gnomon.services.loop import Backoff

#: So many outputs are checked at once; more would be in memory together.
_AT_ONCE = 8
#: How soon to look again if there is nothing to check.
_POLL_SECONDS = 1.0


class LateOutputChecker:
    """Checks the outputs that the store lists, the oldest first."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        checks: LateChecks,
        payloads: PayloadReader,
        workflow_cache: WorkflowCache,
        policy: StoredOutputPolicy,
        judge: OutputJudge,
        clock: Clock,
        events: Events,
        *,
        lease: Singleton,
        timeout_ms: int,
        on_ready: Callable[[], None],
    ) -> None:
        """`judge` rules; `policy` says what happens without a ruling. `on_ready` is called when runs have gone on."""
        self._checks, self._payloads, self._workflow_cache = checks, payloads, workflow_cache
        self._policy, self._judge = policy, judge
        self._clock, self._events = clock, events
        self._lease, self._on_ready = lease, on_ready
        self._timeout_ms = timeout_ms
        self.backoff = Backoff(events, component_names.LATE_OUTPUT_CHECKER)

    async def step(self) -> float:
        """Check the oldest outputs. Returns how many seconds to wait before the next step."""
        return await self.backoff.attempt(self._look)

    async def _look(self) -> float:
        if not await self._lease.ours():
            return self._lease.retry_seconds
        found = await self._checks.oldest(_AT_ONCE)
        if not found:
            return _POLL_SECONDS
        for failure in await asyncio.gather(*map(self._check, found), return_exceptions=True):
            if failure is not None:
                raise failure
        return 0.0

    async def _check(self, check: LateCheck) -> None:
        task = check.task
        since = self._clock.elapsed()
        workflow = await self._workflow_cache.for_run(check.run)
        step = None if workflow is None else step_of(workflow, ReadyTask(task=task, run=check.run))
        output = (await self._payloads.payloads([task.task_id], "output")).get(task.task_id)
        ruling: OutputRuling | None = None
        if workflow is not None and step is not None and output is not None:
            ruling = await self._ruling(check, workflow, step, output)
        held = ruling is not None and ruling.decision is OutputDecision.QUARANTINE
        result = LateResult(
            topic="" if step is None else step.topic,
            ruling=ruling,
            ms=round((self._clock.elapsed() - since) * 1000),
            held=self._policy.sealed(task.task_id, output) if held and output is not None else None,
            workflow=workflow,
        )
        if await self._checks.settle(check, result, now=self._clock.now()) and result.changes_output:
            reason = "" if ruling is None else ruling.reason
            self._events.emit("output_held_late", task=task.task_id, run=check.run.run_id, held=held, reason=reason)
            self._on_ready()

    async def _ruling(self, check: LateCheck, workflow: Workflow, step: Step, output: bytes) -> OutputRuling | None:
        task_id = check.task.task_id
        stored = StoredOutput(task_id=task_id, run=check.run, workflow=workflow, step=step, output=output)
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await self._judge.judge(stored)
        except StoreUnavailable:
            # Nothing was decided: it is checked again.
            raise
        except TimeoutError:
            reason = f"its check took longer than {self._timeout_ms / 1000:g} s"
        except Unavailable as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - whatever a judge does, others must be checked
            reason = f"its check failed: {type(error).__name__}"
        reason = clean_reason(reason)
        self._events.emit("output_unchecked", task=task_id, run=check.run.run_id, reason=reason)
        return self._policy.unchecked_ruling(output, reason)
