"""The worker: takes what has passed the gate, has it run, and reports what came of it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from gnomon.config.settings import Settings
from gnomon.core.leases import TRUST
from gnomon.core.model import Result
from gnomon.core.runs.admission import Waiting
from gnomon.core.runs.outcomes import Assignment, Ending, Outcome, ending
from gnomon.core.runs.prepare import leads_further, sure_successors
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import Unavailable
from gnomon.ports.execution import Finished, Gate, Runner
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.tasks import Held, Workplace
from gnomon.services.execution.admission_cache import Backlog
from gnomon.services.execution.dispatcher import Outputs, limits_of
from gnomon.services.execution.worker_registration import Presence
from gnomon.services.execution.workflow_cache import Shelf, requested
from gnomon.services.loop import Backoff
from gnomon.services.telemetry import announce

#: Writes endings down, and passes the tasks that they surely make on in the same commit.
HandOver = Callable[[Sequence[Waiting], Callable[[], Awaitable[None]], Outputs], Awaitable[None]]
#: What was taken, and when we asked for it.
_Taken = tuple[Waiting, float]
#: Renewals in the time that a lease lasts.
_RENEWALS = 3
#: The longest and the shortest time between two looks at whether our lease still holds.
_WATCH_SECONDS, _LEAST_WATCH_SECONDS = 1.0, 0.05
#: How often a worker that stops looks for what has ended, and how often it tries to report the last of it.
_LOOK_SECONDS = 0.05
_LAST_TRIES = 40
#: How many bodies are begun without a break.
_AT_A_STRETCH = 100


class Worker:
    """One holder of attempts, by a name that no other start of a process has ever had."""

    def __init__(  # noqa: PLR0913 - it stands between many
        self,
        place: Workplace,
        shelf: Shelf,
        runner: Runner,
        gate: Gate,
        clock: Clock,
        events: Events,
        *,
        settings: Settings,
        worker: str,
    ) -> None:
        self._place, self._shelf = place, shelf
        self._runner, self._gate = runner, gate
        self._clock, self._events = clock, events
        self._settings, self._limits = settings.worker, limits_of(settings.execution)
        self.worker = worker
        self.presence = Presence(settings.worker, worker, started_at=clock.now())
        self._held: dict[Held, Assignment] = {}
        #: What a dispatcher in this process has let through: we need not read it again.
        self.backlog = Backlog()
        #: In a process with a dispatcher.
        self.hand_over: HandOver | None = None
        #: Not yet begun.
        self._to_start: list[_Taken] = []
        #: Finished and not yet past the gate; ended, and reported to nobody yet.
        self._finished: list[Finished] = []
        self._unreported: list[Ending] = []
        self._overrunning, self._taking = 0, False
        #: Called when what ended may have made something else ready, now or later.
        self.on_ready: Callable[[], None] = lambda: None
        #: Called when something was taken outside of a step.
        self.on_taken: Callable[[], None] = lambda: None
        self._renewed_at = self._alive_at = float("-inf")
        self._look_for_cancelled, self._draining, self._fenced = False, False, False
        self.backoff = Backoff(events, "worker")

    @property
    def in_hand(self) -> int:
        """How many attempts it has not reported the end of."""
        return len(self._held)

    def look(self) -> None:
        """Something may have been cancelled: ask in the next step."""
        self._look_for_cancelled = True

    async def take_along(self) -> None:
        """Take what someone is admitting at this moment: asked together with that, it shares a commit with it."""
        with suppress(Unavailable):
            if await self._take(along=True):
                self.on_taken()

    async def step(self) -> float:
        """Report what has ended and take what there is. Returns how many seconds to wait before the next."""
        self._finished += self._runner.finished()
        try:
            try:
                await self._release()
            finally:
                # Whatever becomes of the gate, we are alive.
                await self._show_up()
            if self._to_start:
                # What was taken along is begun before anything else is asked for.
                await self._start()
                return 0.0
            took = await self._exchange()
        except Unavailable as error:
            self._fence_ourselves()
            return self.backoff.failed(error)
        self.backoff.worked()
        # There may be more, and some may have ended already.
        return (
            0.0 if took or self._unreported or self._to_start else min(self._settings.poll_secs, self._renewal_due_in())
        )

    async def _exchange(self) -> bool:
        """What has ended is written down, and what can be taken is ours and begun. Whether there may be more."""
        if self.hand_over is not None:
            following, outputs, passed_on = self._following()
            if following:
                try:
                    await self.hand_over(following, partial(self._report, passed_on), outputs)
                finally:
                    await self._start()
                return True
        # Asked for in one breath, so that both may share a commit; but what was taken waits for no report.
        reporting = asyncio.ensure_future(self._report())
        try:
            took = await self._take()
        finally:
            try:
                # Whatever becomes of the reports, what was taken is ours to begin.
                await self._start()
            finally:
                await reporting
        return took

    def _following(self) -> tuple[list[Waiting], Outputs, frozenset[Held]]:
        """The tasks that what has ended surely makes, what they may be given, and on what nothing else follows."""
        following: list[Waiting] = []
        outputs: dict[str, bytes | None] = {}
        passed_on: list[Held] = []
        for one in self._unreported:
            held = self._held.get((one.task_id, one.fence))
            if one.graph is None or held is None:
                continue
            sure = sure_successors(held, one)
            if sure:
                following += sure
                outputs[one.task_id] = one.output
            if not leads_further(held, sure):
                passed_on.append((one.task_id, one.fence))
        return following, outputs, frozenset(passed_on)

    async def _report(self, passed_on: frozenset[Held] = frozenset()) -> None:
        # What comes to these while they are written down is for the next time.
        endings = tuple(self._unreported)
        if not endings:
            return
        try:
            counted = await self._place.report(endings)
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - one that cannot be kept must not hold up the others: each by itself, then
            counted = frozenset().union(*[await self._report_alone(one) for one in endings])
        self._unreported = self._unreported[len(endings) :]
        if any(
            not one.over or (one.graph is not None and (one.task_id, one.fence) not in passed_on) for one in endings
        ):
            self.on_ready()
        for one in endings:
            held = one.task_id, one.fence
            assignment = self._held.pop(held, None)
            if held in counted:
                announce(self._events, one, assignment)
            else:
                self._events.emit("late_result", task=one.task_id, fence=one.fence, result=one.result)

    async def _report_alone(self, one: Ending) -> frozenset[Held]:
        """The ending, or, if the store cannot keep it, that it could not be kept."""
        try:
            return await self._place.report([one])
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the task must not stay as it is
            assignment = self._held.get((one.task_id, one.fence))
            self._events.emit("result_refused", task=one.task_id, run=one.run_id, error=repr(error))
            if assignment is None:
                return frozenset()
            outcome = Outcome(result=Result.GAVE_UP, error=f"what came of it cannot be kept: {type(error).__name__}")
            return await self._place.report([ending(assignment, outcome, now=one.ended_at, limits=self._limits)])

    async def _take(self, *, along: bool = False) -> bool:
        in_use = max(self._runner.occupied, len(self._held) - len(self._unreported))
        free = self._settings.slots - in_use - len(self._to_start)
        self._watch_overrunning()
        moment = self.backlog.moment(along=along)
        if self._draining or self._taking or free <= 0 or self.backlog.exhausted(moment):
            return False
        lease, now = self._settings.lease_ms, self._clock.now()
        asked_at = self._clock.elapsed()
        self._taking = True
        try:
            taken = await self._place.take(
                self.worker, limit=free, lease_ms=lease, now=now, known=self.backlog, reach=self.presence.reach
            )
        finally:
            self._taking = False
        self._to_start += [(waiting, asked_at) for waiting in taken]
        if len(taken) < free:
            self.backlog.none_left(moment, (waiting for waiting, _ in self._to_start))
        return bool(taken)

    def _watch_overrunning(self) -> None:
        """Whoever watches learns of slots that are taken by what was given up on and does not stop."""
        overrunning = self._runner.overrunning
        if overrunning != self._overrunning:
            self._overrunning = overrunning
            self._events.emit("slots_overrun", worker=self.worker, count=overrunning, slots=self._settings.slots)

    async def _start(self) -> None:
        """What was taken is begun, some at a time; if its definition cannot be read now, in a later step."""
        # What is taken along while others have their turn is begun in the next step.
        left = len(self._to_start)
        await self._shelf.fetch(
            waiting.run for waiting, _ in self._to_start if waiting.task.task_id not in self.backlog
        )
        while left:
            lot = self._to_start[: min(left, _AT_A_STRETCH)]
            self._begin(lot, [await self._assignment(waiting) for waiting, _ in lot])
            left -= len(lot)
            if left:
                await asyncio.sleep(0)

    def _begin(self, lot: Sequence[_Taken], found: Sequence[tuple[Assignment, str | None]]) -> None:
        """They are in hand, and begun unless there is a reason not to.

        All at once: nobody who has a turn finds them in hand and not begun, or counts them twice.
        """
        ready: list[Assignment] = []
        for (waiting, asked_at), (assignment, unfit) in zip(lot, found, strict=True):
            reason = unfit
            if not self._may_begin(asked_at):
                reason = f"{self.worker} stood still or stopped before it could start"
            if reason is None:
                ready.append(assignment)
            else:
                outcome = Outcome(result=Result.NEVER_STARTED, error=reason)
                self._unreported.append(ending(assignment, outcome, now=self._clock.now(), limits=self._limits))
            self._held[waiting.task.task_id, waiting.task.fence] = assignment
        del self._to_start[: len(lot)]
        self._runner.start(ready)

    def _may_begin(self, asked_at: float) -> bool:
        """Whether we go on, and what we asked for then is surely still ours: others do not think that we are lost."""
        heard_of_at = asked_at if self.presence.alone else min(asked_at, self._alive_at)
        return not self._draining and self._clock.elapsed() - heard_of_at <= self._settings.lease_ms / 1000 * TRUST

    async def _assignment(self, waiting: Waiting) -> tuple[Assignment, str | None]:
        """What is to be done, and why it cannot be done here, if so."""
        run = waiting.run
        request = self.backlog.taken(waiting.task.task_id, waiting.task.fence) or await requested(self._shelf, waiting)
        if request is None:
            known = placeholder(waiting)
            return known, f"launch_failed: there is no {run.workflow_id!r} of version {run.workflow_version}"
        step = request.step
        assignment = Assignment(
            task=waiting.task, run=run, workflow=request.workflow, step=step, input=request.input, given=waiting.input
        )
        if step.function not in self._runner.functions:
            return assignment, f"no_workers: {self.worker} has no function {step.function!r}"
        return assignment, None

    async def _release(self) -> None:
        """What has finished has passed the gate; what has not waits for the next step."""
        while self._finished:
            self._unreported.append(await self._ended(self._finished[0]))
            del self._finished[0]

    async def _ended(self, finished: Finished) -> Ending:
        outcome = finished.outcome
        if outcome.result is Result.SUCCEEDED:
            released = await self._gate.release(finished.assignment, outcome.output)
            if released.quarantine is not None or released.output is not outcome.output:
                outcome = replace(outcome, output=released.output, quarantine=released.quarantine)
        return ending(finished.assignment, outcome, now=self._clock.now(), limits=self._limits)

    # ---- being alive -------------------------------------------------------------------------

    def _renewal_due_in(self) -> float:
        every = self._settings.lease_ms / _RENEWALS / 1000
        return max(0.0, self._renewed_at + every - self._clock.elapsed())

    async def _show_up(self) -> None:
        """Our leases are extended in time, and we know what has been taken from us or is to be cancelled."""
        if self._look_for_cancelled:
            self._look_for_cancelled = False
            if self._held:
                self._runner.stop(await self._place.asked_to_stop(self.worker), why=Result.CANCELLED)
        if self._renewal_due_in():
            return
        asked_at = self._clock.elapsed()
        card = self.presence.card(self._runner.functions, in_hand=len(self._held), draining=self._draining)
        await self._place.enlist(card, ttl_ms=self._settings.lease_ms)
        if self._held:
            renewal = await self._place.renew(self.worker, list(self._held), lease_ms=self._settings.lease_ms)
            self._runner.stop(renewal.lost, why=Result.LOST)
            self._runner.stop(renewal.to_cancel, why=Result.CANCELLED)
        self._renewed_at = self._alive_at = asked_at
        self._fenced = False
        # Once in a while it is looked whatever is known.
        self.backlog.look_again()

    async def watch_lease(self) -> float:
        """Stop what we can no longer call ours, also while the store keeps us waiting for an answer.

        Returns how many seconds to wait before the next.
        """
        self._fence_ourselves()
        left = self._alive_at + self._settings.lease_ms / 1000 * TRUST - self._clock.elapsed()
        return min(max(left, _LEAST_WATCH_SECONDS), _WATCH_SECONDS)

    def _fence_ourselves(self) -> None:
        """What others may have been given by now, because we could not say that we are alive, is stopped."""
        trusted_until = self._alive_at + self._settings.lease_ms / 1000 * TRUST
        if self._held and not self.presence.alone and not self._fenced and self._clock.elapsed() > trusted_until:
            self._fenced = True
            self._events.emit("lease_given_up", worker=self.worker, count=len(self._held))
            self._runner.stop(list(self._held), why=Result.LOST)

    def enlist_again(self) -> None:
        """What we can run has changed: say so in the next step."""
        self._renewed_at = float("-inf")

    async def drain(self) -> None:
        """Nothing more is taken, what runs has ended one way or another, and all of it is reported."""
        self._draining = True
        self.enlist_again()
        closing = asyncio.ensure_future(
            self._runner.close(drain_ms=self._settings.drain_ms, grace_ms=self._settings.kill_grace_ms)
        )
        while not closing.done():
            await self.step()
            await asyncio.wait([closing], timeout=_LOOK_SECONDS)
        await closing
        for _ in range(_LAST_TRIES):
            await self.step()
            if not self._unreported and not self._finished:
                break
            await self._clock.sleep(_LOOK_SECONDS)
        try:
            await self._place.dismiss(self.worker)
        except Unavailable as error:
            self.backoff.failed(error)


def placeholder(waiting: Waiting) -> Assignment:
    """An assignment of a task whose definition cannot be had: enough to say how it ended."""
    step = Step(name=waiting.task.step, function="")
    run = waiting.run
    workflow = Workflow(workflow_id=run.workflow_id, version=run.workflow_version, steps=(step,))
    return Assignment(task=waiting.task, run=run, workflow=workflow, step=step, input={})
