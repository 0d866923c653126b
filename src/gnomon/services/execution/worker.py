"""The worker: takes admitted tasks, has the runner execute them, and reports how they ended."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.commands.rules import CommandRules
from gnomon.core.leases import LEASE_TRUST_FRACTION
from gnomon.core.model import Result
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.fair_share import TenantShares
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome, TaskCompletion, complete_attempt
from gnomon.core.runs.prepare import has_other_successors, immediate_successors
from gnomon.core.runs.rollback import is_compensation
from gnomon.core.runs.routing import hold_back_ms
from gnomon.errors import Unavailable
from gnomon.ports.execution import Finished, Gate, Runner
from gnomon.ports.output_policy import OutputPolicy
from gnomon.ports.payloads import PayloadCipher
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import ExecutionStore
from gnomon.ports.tasks import AttemptRef, HostLoad, WorkerInfo, worker_candidate, worker_candidates
from gnomon.services.execution.admission_cache import AdmissionCache
from gnomon.services.execution.agent_context import AgentContext
from gnomon.services.execution.command_approvals import CommandApprovals
from gnomon.services.execution.compensation_inputs import CompensationInputs
from gnomon.services.execution.completions import (
    CompletionWriter,
    drain_runner,
    load_assignment,
    placeholder_assignment,
)
from gnomon.services.execution.dispatcher import give_up_limits
from gnomon.services.execution.gate_client import OutputGate, attempt_ref
from gnomon.services.execution.local_dispatch import LocalDispatch, Outputs
from gnomon.services.execution.worker_registration import WorkerRegistration
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import Backoff

#: A task that was taken, and when the worker asked for it.
_TakenAt = tuple[ReadyTask, float]
#: The longest and the shortest time between two checks of whether the lease still holds.
_WATCH_SECONDS, _LEAST_WATCH_SECONDS = 1.0, 0.05
#: How often a worker compares its load with that of the others, and from which change of its score it tells them.
_COMPARE_SECONDS, _SCORE_CHANGE = 2.0, 0.25
#: After how many starts other coroutines run.
_YIELD_EVERY = 100


class Worker:
    """Holds attempts under a name that is unique for every start of a process."""

    def __init__(  # noqa: PLR0913 - the collaborators of every attempt
        self,
        store: ExecutionStore,
        workflow_cache: WorkflowCache,
        runner: Runner,
        gate: Gate,
        clock: Clock,
        events: Events,
        *,
        settings: Settings,
        worker: str,
        wake: Callable[[], None],
        measure_load: Callable[[], HostLoad],
        dispatch: LocalDispatch,
        output_policy: OutputPolicy | None = None,
        held_cipher: PayloadCipher | None = None,
        alone: bool = False,
    ) -> None:
        """`wake` asks for a step soon. `dispatch` is the dispatcher in this process.

        `output_policy` checks outputs before they are stored; None: they are not checked. `held_cipher` decrypts those
        that are held back. With `alone`, no other process executes tasks or admits any.
        """
        self._store, self._workflow_cache = store, workflow_cache
        self._runner = runner
        self._clock, self._events = clock, events
        self._settings, self._limits = settings.worker, give_up_limits(settings.execution)
        self._overload_percent = settings.routing.overload_percent
        self.worker = worker
        self.registration = WorkerRegistration(
            settings.worker, worker, started_at=clock.now(), measure_load=measure_load, alone=alone
        )
        self._completions = CompletionWriter(store.attempts, events, self._limits)
        self._held: dict[AttemptRef, Assignment] = {}
        self._wake = wake
        self._approvals = CommandApprovals(CommandRules(settings.security), store.approvals)
        self._agent_context = AgentContext(store.agent_sessions, store.agent_usages, clock, settings.agents)
        self._compensation_inputs = CompensationInputs(store.executions, store.held_outputs, clock, cipher=held_cipher)
        self._wake_dispatcher, self._write_and_admit = dispatch.wake, dispatch.write_and_admit
        #: The tasks that the dispatcher in this process has admitted: they need not be read again.
        self.admission_cache = AdmissionCache(sole_dispatcher=alone, on_low=dispatch.wake)
        #: The attempts that it holds of each tenant, so that tenants take turns.
        self._shares = TenantShares()
        #: Taken and not yet started.
        self._to_start: list[_TakenAt] = []
        #: An answer of the gate about an output wakes the worker.
        gate_timeout_ms = settings.execution.gate_timeout_ms
        self._outputs = OutputGate(
            gate, clock, events, timeout_ms=gate_timeout_ms, on_answer=wake, policy=output_policy
        )
        #: Finished attempts that the gate was not asked about yet; and completions that are not reported yet.
        self._finished: list[Finished] = []
        self._unreported: list[TaskCompletion] = []
        self._overrunning, self._taking = 0, False
        self._renewed_at = self._alive_at = float("-inf")
        #: How long a task must have waited before this worker takes it, since others are less busy; when that was
        #: decided; the load that the others know; and whether to look again for tasks that were too new.
        self._hold_back_ms, self._compared_at, self._known_score = 0, float("-inf"), 0.0
        self._look_again = False
        self._look_for_cancelled, self._draining, self._fenced = False, False, False
        self.backoff = Backoff(events, component_names.WORKER)

    @property
    def in_hand(self) -> int:
        """How many attempts it holds, that is, has not reported the end of."""
        return len(self._held)

    def check_soon(self) -> None:
        """Ask for cancellations in the next step."""
        self._look_for_cancelled = True

    async def take_with_admission(self) -> None:
        """See TaskTaker.take_with_admission."""
        with suppress(Unavailable):
            if await self._take(along=True):
                self._wake()

    def tasks_admitted(self) -> None:
        """See TaskTaker.tasks_admitted."""
        self._wake()

    def expect_directed_tasks(self) -> None:
        """Expect nothing: this worker looks for directed tasks whenever it takes."""

    async def step(self) -> float:
        """Report ended attempts, take and start tasks. Returns how many seconds to wait before the next step."""
        self._finished += self._runner.finished()
        try:
            try:
                await self._release()
            finally:
                # An error in one completion must not cost the leases of all other attempts.
                await self._renew_leases()
            await self._compare_loads()
            if self._to_start:
                # Tasks that were taken with their admission are started before anything else is asked for.
                await self._start()
                return 0.0
            took = await self._report_and_take()
        except Unavailable as error:
            self._stop_if_lease_lost()
            return self.backoff.failed(error)
        self.backoff.worked()
        # There may be more tasks, and some attempts may have ended already.
        if took or self._unreported or self._to_start:
            return 0.0
        waits = self._renewal_due_in(), self._outputs.calls.next_answer_in(), self._left_to_others_for()
        return min(self._settings.poll_secs, *waits)

    async def _report_and_take(self) -> bool:
        """Report ended attempts, take tasks and start them. Return whether there may be more tasks."""
        if self._write_and_admit is not None:
            following, outputs, passed_on = self._following()
            if following:
                try:
                    await self._write_and_admit(following, partial(self._report, passed_on), outputs)
                finally:
                    await self._start()
                return True
        # Started together, so that both may share a commit; but starting the tasks does not wait for the reports.
        reporting = asyncio.ensure_future(self._report())
        try:
            took = await self._take()
        finally:
            try:
                # The taken tasks are started even if the reports fail.
                await self._start()
            finally:
                await reporting
        return took

    def _following(self) -> tuple[list[ReadyTask], Outputs, frozenset[AttemptRef]]:
        """The tasks that unreported completions surely make, outputs for them, and attempts without others."""
        following: list[ReadyTask] = []
        outputs: dict[str, bytes | None] = {}
        passed_on: list[AttemptRef] = []
        for one in self._unreported:
            held = self._held.get((one.task_id, one.fence))
            if one.graph is None or held is None:
                continue
            sure = immediate_successors(held, one)
            if sure:
                following += sure
                outputs[one.task_id] = one.output
            if not has_other_successors(held, sure):
                passed_on.append((one.task_id, one.fence))
        return following, outputs, frozenset(passed_on)

    async def _report(self, passed_on: frozenset[AttemptRef] = frozenset()) -> None:
        # Completions that are added during the write are reported the next time.
        endings = tuple(self._unreported)
        if not endings:
            return
        counted = await self._completions.write(endings, self._held)
        self._unreported = self._unreported[len(endings) :]
        if any(
            not one.over or (one.graph is not None and (one.task_id, one.fence) not in passed_on) for one in endings
        ):
            self._wake_dispatcher()
        ended = {ref: self._held.pop(ref) for one in endings if (ref := (one.task_id, one.fence)) in self._held}
        for assignment in ended.values():
            self._shares.ended(assignment.run.tenant)
        await self._completions.announce(endings, counted, ended)

    async def _take(self, *, along: bool = False) -> bool:
        free = self._settings.slots - self._in_use() - len(self._to_start)
        self._watch_overrunning()
        admission_number = self.admission_cache.admission_number(along=along)
        if self._draining or self._taking or free <= 0 or self.admission_cache.known_empty(admission_number):
            return False
        lease, now = self._settings.lease_ms, self._clock.now()
        asked_at = self._clock.elapsed()
        reach = self.registration.reach
        if self._hold_back_ms:
            reach = replace(reach, available_by=now - self._hold_back_ms)
        self._taking = True
        try:
            taken = await self._store.attempts.take(
                self.worker,
                limit=free,
                lease_ms=lease,
                now=now,
                known=self.admission_cache,
                reach=reach,
                shares=self._shares,
            )
        finally:
            self._taking = False
        for waiting in taken:
            self._shares.started(waiting.run.tenant)
        self._to_start += [(waiting, asked_at) for waiting in taken]
        # Once after each look, not for ever: a worker that holds back must not poll more often than others.
        self._look_again = bool(self._hold_back_ms) and len(taken) < free and not self._look_again
        if len(taken) < free:
            self.admission_cache.mark_empty(admission_number, (waiting for waiting, _ in self._to_start))
        return bool(taken)

    def _in_use(self) -> int:
        """How many slots are in use. Attempts whose output is with the gate need none, up to the number of slots."""
        ended = len(self._unreported) + min(len(self._outputs), self._settings.slots)
        return max(self._runner.occupied, len(self._held) - ended)

    def _watch_overrunning(self) -> None:
        """Announce when the number of slots changes that are taken by attempts that were given up and do not stop."""
        overrunning = self._runner.overrunning
        if overrunning != self._overrunning:
            self._overrunning = overrunning
            self._events.emit("slots_overrun", worker=self.worker, count=overrunning, slots=self._settings.slots)

    async def _start(self) -> None:
        """Start the taken tasks, some at a time; those whose definition cannot be read now, in a later step."""
        # Tasks that are taken while other coroutines run are started in the next step.
        left = len(self._to_start)
        await self._workflow_cache.preload(
            waiting.run for waiting, _ in self._to_start if waiting.task.task_id not in self.admission_cache
        )
        while left:
            batch = self._to_start[: min(left, _YIELD_EVERY)]
            self._begin(batch, [await self._assignment(waiting) for waiting, _ in batch])
            left -= len(batch)
            if left:
                await asyncio.sleep(0)

    def _begin(self, batch: Sequence[_TakenAt], found: Sequence[tuple[Assignment, AttemptOutcome | None]]) -> None:
        """Hold the tasks, and start those that nothing forbids.

        Without an await in between: no other coroutine finds them held and not started, or counts them twice.
        """
        ready: list[Assignment] = []
        for (waiting, asked_at), (assignment, unfit) in zip(batch, found, strict=True):
            outcome = unfit
            if not self._may_begin(asked_at):
                outcome = _not_started(f"{self.worker} stood still or stopped before it could start")
            if outcome is None:
                ready.append(assignment)
            else:
                self._unreported.append(
                    complete_attempt(assignment, outcome, now=self._clock.now(), limits=self._limits)
                )
            self._held[waiting.task.task_id, waiting.task.fence] = assignment
        del self._to_start[: len(batch)]
        self._runner.start(ready)

    def _may_begin(self, asked_at: float) -> bool:
        """Whether tasks that were asked for then may start: it does not drain, and no node can think it lost."""
        heard_of_at = asked_at if self.registration.alone else min(asked_at, self._alive_at)
        return (
            not self._draining
            and self._clock.elapsed() - heard_of_at <= self._settings.lease_ms / 1000 * LEASE_TRUST_FRACTION
        )

    async def _assignment(self, waiting: ReadyTask) -> tuple[Assignment, AttemptOutcome | None]:
        """The assignment of the task; and the outcome of the attempt, if it cannot start here."""
        run = waiting.run
        assignment = await load_assignment(self._workflow_cache, waiting, self.admission_cache)
        if assignment is None:
            missing = f"launch_failed: there is no {run.workflow_id!r} of version {run.workflow_version}"
            return placeholder_assignment(waiting), _not_started(missing)
        function = assignment.step.function
        if function not in self._runner.functions:
            return assignment, _not_started(f"no_workers: {self.worker} has no function {function!r}")
        if is_compensation(assignment.step.name):
            completed = await self._compensation_inputs.completed(waiting, assignment)
            if isinstance(completed, AttemptOutcome):
                return assignment, completed
            assignment = completed
        if assignment.step.is_command:
            assignment = await self._approvals.marked(assignment)
        elif assignment.step.agent is not None:
            assignment = await self._agent_context.completed(assignment)
        return assignment, None

    async def _release(self) -> None:
        """Complete finished attempts, or ask the gate about their outputs first."""
        while self._finished:
            one = self._finished[0]
            released = self._outputs.release_now(one)
            if released is None:
                self._outputs.ask(one)
            else:
                self._end(one, released)
            del self._finished[0]
        for one, outcome in await self._outputs.collect():
            self._end(one, outcome)
            self._outputs.settle([attempt_ref(one)])

    def _end(self, finished: Finished, outcome: AttemptOutcome) -> None:
        self._unreported.append(
            complete_attempt(finished.assignment, outcome, now=self._clock.now(), limits=self._limits)
        )

    # ---- being alive -------------------------------------------------------------------------

    def _renewal_due_in(self) -> float:
        every = self._settings.lease_ms / self._settings.renewals / 1000
        return max(0.0, self._renewed_at + every - self._clock.elapsed())

    async def _renew_leases(self) -> None:
        """Renew the leases if it is time, and stop attempts that were lost or are to be cancelled."""
        if self._look_for_cancelled:
            self._look_for_cancelled = False
            if self._held:
                self._runner.stop(await self._store.attempts.cancel_requests(self.worker), why=Result.CANCELLED)
        if self._renewal_due_in():
            return
        asked_at = self._clock.elapsed()
        await self._register(self._card())
        if self._held:
            renewal = await self._store.attempts.renew(self.worker, list(self._held), lease_ms=self._settings.lease_ms)
            self._runner.stop(renewal.lost, why=Result.LOST)
            self._runner.stop(renewal.to_cancel, why=Result.CANCELLED)
        self._renewed_at = self._alive_at = asked_at
        self._fenced = False
        # Look for tasks once in a while even if none are known.
        self.admission_cache.invalidate()

    # ---- load --------------------------------------------------------------------------------

    def _card(self) -> WorkerInfo:
        return self.registration.card(self._runner.functions, in_hand=len(self._held), draining=self._draining)

    async def _register(self, card: WorkerInfo) -> None:
        await self._store.workers.register(card, ttl_ms=self._settings.lease_ms)
        self._known_score = worker_candidate(card).score

    async def _compare_loads(self) -> None:
        """Decide how long to leave tasks to less busy workers, and tell them if the own load has changed."""
        elapsed = self._clock.elapsed()
        if self.registration.alone or self._draining or elapsed - self._compared_at < _COMPARE_SECONDS:
            return
        self._compared_at = elapsed
        card = self._card()
        own = worker_candidate(card)
        if abs(own.score - self._known_score) >= _SCORE_CHANGE:
            await self._register(card)
        others = worker_candidates(await self._store.workers.alive())
        self._hold_back_ms = hold_back_ms(own, others, self._overload_percent)

    def _left_to_others_for(self) -> float:
        """Seconds until a task may be taken that was too new for the last take."""
        return self._hold_back_ms / 1000 if self._look_again else float("inf")

    async def watch_lease(self) -> float:
        """Stop attempts whose lease may have ended, also while a step waits for the store.

        Returns how many seconds to wait before the next check.
        """
        self._stop_if_lease_lost()
        left = self._alive_at + self._settings.lease_ms / 1000 * LEASE_TRUST_FRACTION - self._clock.elapsed()
        return min(max(left, _LEAST_WATCH_SECONDS), _WATCH_SECONDS)

    def _stop_if_lease_lost(self) -> None:
        """Stop all attempts once their leases could not be renewed for so long that other workers may have them."""
        trusted_until = self._alive_at + self._settings.lease_ms / 1000 * LEASE_TRUST_FRACTION
        if self._held and not self.registration.alone and not self._fenced and self._clock.elapsed() > trusted_until:
            self._fenced = True
            self._events.emit("lease_given_up", worker=self.worker, count=len(self._held))
            self._runner.stop(list(self._held), why=Result.LOST)

    def register_again(self) -> None:
        """Register again in the next step: the functions of the runner have changed."""
        self._renewed_at = float("-inf")

    async def drain(self) -> None:
        """Take nothing more, wait for running attempts or stop them, report all of them, and deregister."""
        self._draining = True
        self.register_again()
        self._outputs.finish_after((self._settings.drain_ms + self._settings.kill_grace_ms) / 1000)
        # Waiting for the gate costs no tries: it has its usual time to answer.
        await drain_runner(
            self._runner,
            self._settings,
            self._clock,
            self.step,
            reported=lambda: not self._unreported and not self._outputs,
            waiting=lambda: bool(self._outputs),
        )
        self._outputs.close()
        try:
            await self._store.workers.deregister(self.worker)
        except Unavailable as error:
            self.backoff.failed(error)


def _not_started(reason: str) -> AttemptOutcome:
    return AttemptOutcome(result=Result.NEVER_STARTED, error=reason)
