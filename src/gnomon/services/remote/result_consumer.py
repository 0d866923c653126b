"""The collector: hears what workers elsewhere have begun and what came of it, and writes it down.

Everything it is told may come twice, late or out of order; the task's fence says what still counts.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from gnomon.config.settings import Settings
from gnomon.core.messages import Ended, Envelope, Reports, read_reports
from gnomon.core.model import Result
from gnomon.core.runs.admission import Waiting
from gnomon.core.runs.outcomes import Assignment, Ending, Outcome, ending
from gnomon.core.runs.prepare import sure_successors
from gnomon.core.subjects import SCHEDULERS, report_patience_ms
from gnomon.errors import FieldError, Unavailable
from gnomon.ports.coordination import IN_FLIGHT_MS, Guard, Standing
from gnomon.ports.execution import Gate
from gnomon.ports.messaging import Advice, Delivered, Granted, Incoming, Pulse, Wish
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.tasks import Held, Load, WorkerCard, Workplace
from gnomon.services.execution.dispatcher import limits_of
from gnomon.services.execution.worker import HandOver, placeholder
from gnomon.services.execution.workflow_cache import Shelf, requested
from gnomon.services.loop import Backoff, in_lots
from gnomon.services.remote.task_publisher import Sent
from gnomon.services.telemetry import announce

#: How no body ends by itself: of what another has begun it means nothing.
_UNDONE = frozenset((Result.NEVER_STARTED, Result.CANCELLED, Result.INTERRUPTED, Result.LOST))
#: How many messages are dealt with together, and how long to wait for one.
_MESSAGES = 50
_WAIT_MS = 250
#: How many beginnings and endings are written down together: more would hold up all who write.
_TOGETHER = 1000
#: How many endings are dealt with before others have a turn, such as whoever answers requests.
_AT_A_STRETCH = 25
#: How soon reports come again that could not be written down, or put away.
_AGAIN_MS = 1_000
_PUT_AWAY_AGAIN_MS = 5_000
#: Nobody has more slots than this, whatever is said.
_MOST_SLOTS = 100_000

#: How often a message may come that cannot be dealt with, before it is put away.
_MOST_TRIES = 100

_Message = tuple[Delivered, Envelope[Reports]]
_PULSES = msgspec.json.Decoder(Pulse)
_WISHES = msgspec.json.Decoder(Wish)


class Collector:
    """Reads reports, decides what follows from them, writes that down, and only then lets go of them."""

    def __init__(  # noqa: PLR0913 - all that a report passes on its way
        self,
        place: Workplace,
        shelf: Shelf,
        queue: Incoming,
        gate: Gate,
        guard: Guard,
        clock: Clock,
        events: Events,
        *,
        settings: Settings,
    ) -> None:
        self._place = place
        self._shelf = shelf
        self._queue = queue
        self._gate = gate
        #: Which messages somebody has dealt with: what comes again need not be written down again.
        self._guard = guard
        self._clock = clock
        self._events = events
        self._lease_ms = settings.worker.lease_ms
        # Who has died with a report must not keep it from others for longer than the bus does.
        self._in_flight_ms = min(IN_FLIGHT_MS, report_patience_ms(self._lease_ms))
        self._limits = limits_of(settings.execution)
        #: What a courier in this process has sent: we need not read it again.
        self.sent = Sent()
        #: In a process with a dispatcher.
        self.hand_over: HandOver | None = None
        #: Called when what ended may have made something else ready, now or later.
        self.on_ready: Callable[[], None] = lambda: None
        #: Called with what attempts have ended, with what has begun, and when a worker has come or gone.
        self.on_ended: Callable[[Collection[Held]], None] = lambda _: None
        self.on_started: Callable[[Sequence[Assignment]], None] = lambda _: None
        self.on_worker: Callable[[], None] = lambda: None
        #: Called when what keeps reports cannot be reached.
        self.on_trouble: Callable[[], None] = lambda: None
        #: As they last were, but for what changes all the time.
        self._workers: dict[str, WorkerCard] = {}
        self.backoff = Backoff(events, "collector")

    async def step(self) -> float:
        """Deal with what has been reported. Returns how many seconds to wait before the next."""
        try:
            delivered = await self._queue.collect(limit=_MESSAGES, wait_ms=_WAIT_MS)
            readable = await self._readable(delivered)
        except Unavailable as error:
            self.on_trouble()
            return self.backoff.failed(error)
        try:
            for lot in _lots(readable):
                await self._deal_with(await self._unseen(lot))
        except Unavailable as error:
            with suppress(Unavailable):
                await self._queue.put_off([one for one, _ in readable], after_ms=_AGAIN_MS)
            return self.backoff.failed(error)
        self.backoff.worked()
        return 0.0

    async def _readable(self, delivered: Sequence[Delivered]) -> list[_Message]:
        """Those that can be read. The others are put away first, and only then gone."""
        found: list[_Message] = []
        async for one in in_lots(delivered, 2):
            try:
                found.append((one, read_reports(one.body)))
            except FieldError as error:
                await self._put_away(one, str(error))
        return found

    async def _put_away(self, one: Delivered, reason: str) -> None:
        try:
            await self._queue.put_away(one, reason=reason)
        except Unavailable:
            await self._queue.put_off([one], after_ms=_PUT_AWAY_AGAIN_MS)

    async def _unseen(self, messages: Sequence[_Message]) -> list[_Message]:
        """Those that nobody has dealt with, or is dealing with, as far as anybody remembers."""
        names = [said.id for _, said in messages]
        begun = [self._guard.begin(SCHEDULERS, name, ttl_ms=self._in_flight_ms) for name in names]
        standings = await asyncio.gather(*begun)
        known = {
            standing: [one for one, at in zip(messages, standings, strict=True) if at is standing]
            for standing in Standing
        }
        await self._queue.acknowledge([one for one, _ in known[Standing.PROCESSED]])
        await self._queue.put_off([one for one, _ in known[Standing.IN_FLIGHT]], after_ms=_AGAIN_MS)
        return known[Standing.NEW]

    async def _deal_with(self, messages: Sequence[_Message]) -> None:
        """They are written down, and gone. One that cannot be holds up no other."""
        names = [said.id for _, said in messages]
        try:
            await self._write_down([said.data for _, said in messages])
        except Exception as error:
            await asyncio.gather(*(self._guard.give_up(SCHEDULERS, name) for name in names))
            if isinstance(error, Unavailable):
                raise
            if len(messages) == 1:
                await self._cannot(messages[0][0], error)
            else:
                for one in messages:
                    await self._deal_with([one])
            return
        await asyncio.gather(*(self._guard.processed(SCHEDULERS, name) for name in names))
        await self._queue.acknowledge([one for one, _ in messages])

    async def _cannot(self, one: Delivered, error: Exception) -> None:
        """It comes again in a while; and if it has come too often, it is kept for people."""
        self._events.emit("reports_refused", tries=one.tries, error=repr(error))
        if one.tries >= _MOST_TRIES:
            await self._put_away(one, f"{_MOST_TRIES} times: {error!r}")
        else:
            await self._queue.put_off([one], after_ms=_PUT_AWAY_AGAIN_MS)

    # ---- what has begun and ended ------------------------------------------------------------

    async def _write_down(self, reports: Sequence[Reports]) -> None:
        started: dict[str, list[Held]] = defaultdict(list)
        ended: dict[Held, tuple[Ended, str]] = {}
        for one in reports:
            started[one.worker] += [(begun.task_id, begun.fence) for begun in one.started]
            for end in one.ended:
                held = end.task_id, end.fence
                # What somebody has come to with it counts before what others have not done.
                if held not in ended or ended[held][0].result in _UNDONE:
                    ended[held] = end, one.worker
        known = await self._known([*(held for many in started.values() for held in many), *ended])
        endings: list[Ending] = []
        async for held, (end, worker) in in_lots(list(ended.items()), _AT_A_STRETCH):
            if held in known:
                endings.append(await self._ending(known[held], end, worker))
            else:
                self._late(held, end.result)
        now = self._clock.now()
        # In one breath, so that they share a commit, and in this order.
        beginnings = [self._place.begin(held, now=now, worker=name) for name, held in started.items() if held]
        *begun, counted = await asyncio.gather(*beginnings, self._report(endings, known), return_exceptions=True)
        for failure in (*begun, counted):
            if isinstance(failure, BaseException):
                raise failure
        self.on_started([known[held] for many in begun if isinstance(many, frozenset) for held in many & known.keys()])
        self.on_ended(ended.keys())
        for held in ended:
            self.sent.pop(held, None)

    async def _known(self, held: Sequence[Held]) -> dict[Held, Assignment]:
        """What these attempts are of, as far as they still are in somebody's hands."""
        known = {one: self.sent[one] for one in held if one in self.sent}
        unknown = [one for one in held if one not in known]
        if unknown:
            for waiting in await self._place.handed_out(unknown):
                known[waiting.task.task_id, waiting.task.fence] = await self._assignment(waiting)
        return known

    async def _assignment(self, waiting: Waiting) -> Assignment:
        request = await requested(self._shelf, waiting)
        if request is None:
            return placeholder(waiting)
        return Assignment(
            task=waiting.task,
            run=waiting.run,
            workflow=request.workflow,
            step=request.step,
            input=request.input,
            given=waiting.input,
        )

    async def _ending(self, held: Assignment, told: Ended, worker: str) -> Ending:
        outcome = told.outcome()
        if outcome.result in _UNDONE:
            outcome = replace(outcome, told_by=worker)
        if outcome.result is Result.SUCCEEDED:
            released = await self._gate.release(held, outcome.output)
            if released.quarantine is not None or released.output is not outcome.output:
                outcome = replace(outcome, output=released.output, quarantine=released.quarantine)
        return ending(held, outcome, now=self._clock.now(), limits=self._limits)

    async def _report(self, endings: Sequence[Ending], known: Mapping[Held, Assignment]) -> None:
        """What has ended is written down, and the tasks that it surely makes are passed on in the same commit."""
        if not endings:
            return
        following: list[Waiting] = []
        outputs: dict[str, bytes | None] = {}
        for one in endings if self.hand_over is not None else ():
            sure = sure_successors(known[one.task_id, one.fence], one) if one.graph is not None else ()
            if sure:
                following += sure
                outputs[one.task_id] = one.output

        async def write() -> None:
            await self._count(endings, known)

        if self.hand_over is not None and following:
            await self.hand_over(following, write, outputs)
        else:
            await write()
        if any(one.graph is not None or not one.over for one in endings):
            self.on_ready()

    async def _count(self, endings: Sequence[Ending], known: Mapping[Held, Assignment]) -> None:
        try:
            counted = await self._place.report(endings)
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - one that cannot be kept must not hold up the others: each by itself, then
            alone = [await self._alone(one, known[one.task_id, one.fence]) for one in endings]
            counted = frozenset[Held]().union(*alone)
        async for one in in_lots(endings, _AT_A_STRETCH):
            held = one.task_id, one.fence
            if held in counted:
                announce(self._events, one, known[held])
            else:
                self._late(held, one.result)

    async def _alone(self, one: Ending, held: Assignment) -> frozenset[Held]:
        """The ending, or, if the store cannot keep it, that it could not be kept."""
        try:
            return await self._place.report([one])
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the task must not stay as it is
            self._events.emit("result_refused", task=one.task_id, run=one.run_id, error=repr(error))
            outcome = Outcome(result=Result.GAVE_UP, error=f"what came of it cannot be kept: {type(error).__name__}")
            return await self._place.report([ending(held, outcome, now=one.ended_at, limits=self._limits)])

    def _late(self, held: Held, result: Result) -> None:
        self._events.emit("late_result", task=held[0], fence=held[1], result=result)

    # ---- who is alive, and what may start ----------------------------------------------------

    async def answer(self) -> None:
        """From now on workers are answered."""
        await self._queue.answer(heartbeats=self._heard, grants=self._asked)

    async def _heard(self, body: bytes) -> bytes:
        """A worker is alive; it hears what it is to stop."""
        pulse = _PULSES.decode(body)
        worker, card = pulse.card.worker, _within_bounds(pulse.card)
        if pulse.leaves:
            self._workers.pop(worker, None)
            await self._place.dismiss(worker)
            self.on_worker()
            return self._advice()
        if not pulse.renews:
            to_cancel = await self._place.asked_to_stop(worker)
            return self._advice(to_cancel=to_cancel)
        await self._place.enlist(card, ttl_ms=self._lease_ms)
        renewal = await self._place.renew(worker, pulse.held, lease_ms=self._lease_ms)
        lasting = replace(card, in_hand=0, load=Load())
        if self._workers.get(worker) != lasting:
            self._workers[worker] = lasting
            self.on_worker()
        return self._advice(lost=renewal.lost, to_cancel=renewal.to_cancel)

    def _advice(self, *, lost: Iterable[Held] = (), to_cancel: Iterable[Held] = ()) -> bytes:
        now = self._clock.now()
        return msgspec.json.encode(
            Advice(lease_ms=self._lease_ms, lost=tuple(lost), to_cancel=tuple(to_cancel), now=now)
        )

    async def _asked(self, body: bytes) -> bytes:
        """A worker wants to start what must not be started twice, or what somebody else may have started."""
        wish = _WISHES.decode(body)
        if wish.doubtful:
            await self._queue.caught_up()
        begun = await self._place.begin(wish.held, now=self._clock.now(), worker=wish.worker)
        granted = begun - await self._call_off(begun, wish.worker)
        known = await self._known(list(granted))
        self.on_started(list(known.values()))
        return msgspec.json.encode(Granted(held=tuple(granted)))

    async def _call_off(self, begun: frozenset[Held], worker: str) -> frozenset[Held]:
        """Those whose runs are to be cancelled are, instead of being begun; these come back."""
        unwanted = begun & await self._place.asked_to_stop(worker) if begun else begun
        if unwanted:
            known = await self._known(list(unwanted))
            outcome = Outcome(result=Result.CANCELLED, error="cancelled before it began", told_by=worker)
            now = self._clock.now()
            await self._report([ending(one, outcome, now=now, limits=self._limits) for one in known.values()], known)
        return unwanted


def _lots(messages: Iterable[_Message]) -> Iterator[list[_Message]]:
    """The messages in their order, together as long as there is not too much in them to be written down at once."""
    lot, size = list[_Message](), 0
    for one in messages:
        reports = one[1].data
        lot.append(one)
        size += len(reports.started) + len(reports.ended)
        if size >= _TOGETHER:
            yield lot
            lot, size = [], 0
    if lot:
        yield lot


def _within_bounds(card: WorkerCard) -> WorkerCard:
    """The card without what nobody can have."""
    return card if 0 <= card.slots <= _MOST_SLOTS else replace(card, slots=min(max(0, card.slots), _MOST_SLOTS))
