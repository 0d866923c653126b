"""The announcer: sends announcements to their channels, from one node at a time.

Every announcement is a row that the transaction of its moment has written. The announcer claims rows, sends the parts
of their texts, and writes after each part how far it has come. Three rules keep a part from being sent twice:

- One node announces, by a lease. Even so, two may overlap while the lease passes from one to the other.
- A claim has a number that grows, and an end. A part is sent only while the claim lasts longer than the request may
  take, and what was sent is written only under the number of the claim. A sender that has lost its claim stops.
- A part that was sent and not written down, because its process died in between, is sent again. Nothing can prevent
  that: the announcement then arrives at least once.

Nothing waits for the announcer but runs whose jobs want that (`best_effort: false`). Requests have a limit, and so has
each channel, so that one that never answers delays no other. Tenants take turns. The texts for one recipient of a chat
are sent one after the other, and so are the announcements of one job to a recipient: a later one also waits while an
earlier one is to be tried again. A channel that asks for a pause gets it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from gnomon.core import component_names
from gnomon.core.announcements.channels import retry_delay_ms
from gnomon.core.announcements.model import Announcement, AnnouncementState
from gnomon.core.announcements.split import split_text
from gnomon.core.announcements.text import AnnouncedRun, announcement_text
from gnomon.core.health import ComponentStatus, HealthCondition
from gnomon.core.metrics import OTHER_LABEL
from gnomon.core.model import RunId, RunStatus
from gnomon.core.payloads import is_sealed
from gnomon.core.runs.dag import run_outcome
from gnomon.errors import ChannelFailed, ChannelRefused, Unavailable
from gnomon.ports.announcements import AnnouncementClaim, AnnouncementQueue, AnnouncementUpdate, Channel, ChannelMessage
from gnomon.ports.runs import Executions, RunTasks
from gnomon.ports.runtime import Clock, Events
from gnomon.services.coordination import Singleton
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import Backoff

#: How many announcements are claimed at once: in all, and of one channel.
_PARALLEL, _PER_CHANNEL = 128, 32
#: The longest time between two searches, and the pause while announcements are due that cannot be sent yet.
_POLL_SECONDS, _BUSY_SECONDS = 5.0, 1.0
#: While more than so many of a channel are in hand, no others are claimed: not one after the other.
_ENOUGH_IN_HAND = _PER_CHANNEL // 2
#: How long a channel that failed makes the component ill, unless it works before.
_FAILING_SECONDS = 900.0
#: How much longer than one request a claim lasts, and how long it must last at least when a request begins.
_CLAIM_MARGIN_MS, _SAFETY_MS = 5_000, 1_000
_LONGEST_TIMEOUT_MS = 10_000
#: How many stale announcements are given up in one transaction.
_STALE_BATCH = 500
#: How long an announcement to a channel that the settings lack is tried: another node may know it.
_UNKNOWN_GIVE_UP_MS = 3_600_000
_TOO_LATE = "not tried in time: "
_UNKNOWN = "no channel of this name is configured"
_LONGEST_DRAIN_SECONDS = 5.0


class AnnouncementSignal:
    """Implements AnnouncementObserver: wakes the announcer when this process has written something to announce."""

    def __init__(self) -> None:
        #: Set when there may be something to announce.
        self.wake = asyncio.Event()

    def announcements_written(self) -> None:
        """See AnnouncementObserver.announcements_written."""
        self.wake.set()


class ClaimedAnnouncement:
    """An announcement in hand, and until when its claim lasts by the clock of this process."""

    __slots__ = ("announcement", "claimed_until")

    def __init__(self, announcement: Announcement, claimed_until: float) -> None:
        self.announcement = announcement
        self.claimed_until = claimed_until


class FailingChannels:
    """The channels that fail, since when and why: only the component of channels reports them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: When a channel failed last, and why.
        self._failing: dict[str, tuple[float, str]] = {}

    def failed(self, channel: str, reason: str) -> None:
        """Remember that the channel failed."""
        self._failing[channel] = self._clock.elapsed(), reason

    def worked(self, channel: str) -> None:
        """Forget the failures of the channel."""
        self._failing.pop(channel, None)

    def reason(self, channel: str) -> str | None:
        """Why the channel failed last; None if it has worked since."""
        found = self._failing.get(channel)
        return None if found is None else found[1]

    def status(self) -> ComponentStatus:
        """The status of the component."""
        oldest = self._clock.elapsed() - _FAILING_SECONDS
        reasons = [f"channel {name}: {why}" for name, (at, why) in sorted(self._failing.items()) if at > oldest]
        return ComponentStatus(HealthCondition.ERROR if reasons else HealthCondition.OK, "; ".join(reasons))


class MessageComposer:
    """Composes the texts of announcements from what is stored about their runs."""

    def __init__(self, executions: Executions, tasks: RunTasks, workflow_cache: WorkflowCache) -> None:
        self._executions = executions
        self._tasks = tasks
        self._workflow_cache = workflow_cache

    async def text(self, one: Announcement) -> str | None:
        """The text of the announcement; None if there is nothing to say."""
        if one.run_id is None:
            return announcement_text(one, None)
        needs_input = "${input" in (one.template or "")
        return announcement_text(one, await self._result(RunId(one.run_id), needs_input=needs_input))

    async def _result(self, run_id: RunId, *, needs_input: bool) -> AnnouncedRun | None:
        run = await self._executions.find_run(run_id)
        if run is None:
            return None
        tasks = await self._tasks.steps([run_id])
        found = await self._executions.payloads([task.task_id for task in tasks], "output")
        outputs = {task.step: found.get(str(task.task_id)) for task in tasks}
        workflow = await self._workflow_cache.for_run(run)
        given = await self._executions.payload(run_id, "input") if needs_input else None
        # A run that waits for its announcement is not completed yet.
        whole = run_outcome(replace(run, status=RunStatus.COMPLETED), workflow, outputs).output
        return AnnouncedRun(
            run=run,
            input=_decoded(given) if given is not None else (workflow.input if workflow is not None else {}),
            output=_decoded(whole),
            steps={name: _decoded(body) for name, body in outputs.items()},
        )


def _decoded(body: bytes | None) -> object:
    """The JSON; nothing if it is encrypted with a key that this process lacks."""
    return None if body is None or is_sealed(body) else msgspec.json.decode(body)


class Announcer:
    """Sends announcements, tries again those that fail, and gives up those that are too old."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        queue: AnnouncementQueue,
        composer: MessageComposer,
        channels: Mapping[str, Channel],
        clock: Clock,
        events: Events,
        *,
        lease: Singleton,
        holder: str,
        signal: AnnouncementSignal,
        count: Callable[[str, str], None] = lambda _channel, _result: None,
    ) -> None:
        """`count` counts a result of a channel for the metrics."""
        self._queue = queue
        self._composer = composer
        self._channels = channels
        self._clock = clock
        self._events = events
        self._lease = lease
        self._holder = holder
        self._signal = signal
        self._count = count
        #: By channel.
        self._in_hand = Counter[str]()
        #: The last announcement of each line: those of one line are sent one after the other.
        self._lines: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        longest = max((one.timeout_ms for one in channels.values()), default=_LONGEST_TIMEOUT_MS)
        self._claim_ms = longest + _CLAIM_MARGIN_MS
        #: Until when, by the clock of this process, a channel wants no requests, and a job waits for another try.
        self._paused: dict[str, float] = {}
        self._retrying: dict[tuple[str, ...], float] = {}
        self.failing_channels = FailingChannels(clock)
        self.backoff = Backoff(events, component_names.ANNOUNCER)

    async def step(self) -> float:
        """Claim due announcements and begin to send them. Returns how many seconds to wait before the next step."""
        return await self.backoff.attempt(self._step)

    async def _step(self) -> float:
        if not await self._lease.ours():
            return self._lease.retry_seconds
        due_at = await self._queue.next_at()
        if due_at is None:
            return _POLL_SECONDS
        wait = max(0.0, self._clock.until(due_at))
        if wait > 0:
            return min(wait, _POLL_SECONDS)
        began = self._clock.elapsed()
        found = await self._claim()
        for one in found:
            self._begin(ClaimedAnnouncement(one, began + self._claim_ms / 1000))
        # The end of one that is under way wakes the loop.
        return 0.0 if found else _BUSY_SECONDS

    async def _claim(self) -> list[Announcement]:
        free = _PARALLEL - self._in_hand.total()
        if free <= 0:
            return []
        now = self._clock.elapsed()
        self._paused = {channel: until for channel, until in self._paused.items() if until > now}
        self._retrying = {line: until for line, until in self._retrying.items() if until > now}
        full = [channel for channel, count in self._in_hand.items() if count > _ENOUGH_IN_HAND]
        claim = AnnouncementClaim(
            holder=self._holder,
            limit=free,
            per_channel=_PER_CHANNEL,
            claim_ms=self._claim_ms,
            without={*full, *self._paused},
        )
        return list(await self._queue.claim(claim))

    @property
    def status(self) -> ComponentStatus:
        """Its health: that of the store, and of the channels."""
        if self.backoff.failing:
            return ComponentStatus(HealthCondition.ERROR, self.backoff.error)
        return self.failing_channels.status()

    # ---- one announcement --------------------------------------------------------------------

    def _begin(self, held: ClaimedAnnouncement) -> None:
        one = held.announcement
        line = self._line(one)
        before = self._lines.get(line)
        task = asyncio.create_task(self._send_behind(before, held))
        self._lines[line] = task
        self._under_way.add(task)
        self._in_hand[one.channel] += 1

        def ended(_: asyncio.Task[None]) -> None:
            self._under_way.discard(task)
            self._in_hand -= Counter([one.channel])
            if self._lines.get(line) is task:
                del self._lines[line]
            if self._in_hand[one.channel] <= _ENOUGH_IN_HAND:
                self._signal.wake.set()

        task.add_done_callback(ended)

    def _line(self, one: Announcement) -> tuple[str, ...]:
        channel = self._channels.get(one.channel)
        if channel is not None and channel.traits.limit is not None:
            # The parts of two texts must not mix.
            return one.channel, one.recipient
        return _job_line(one)

    async def _send_behind(self, before: asyncio.Task[None] | None, held: ClaimedAnnouncement) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await self._send(held)
        except Unavailable as error:
            # The claim ends by itself, and the announcement is found again.
            self.backoff.failed(error)
        except Exception as error:  # noqa: BLE001 - a faulty announcement must not stop the others
            self._events.emit("step_failed", step=component_names.ANNOUNCER, error=repr(error))
            reason = f"an unexpected error: {type(error).__name__}"
            with suppress(Unavailable):
                await self._failed(held, reason, give_up_ms=_UNKNOWN_GIVE_UP_MS)

    async def _send(self, held: ClaimedAnnouncement) -> None:
        one = held.announcement
        channel = self._channels.get(one.channel)
        if channel is None:
            await self._failed(held, _UNKNOWN, give_up_ms=_UNKNOWN_GIVE_UP_MS)
            return
        if self._must_wait(one):
            await self._write(one)
            return
        failing = self.failing_channels.reason(one.channel)
        if failing is not None and not one.tries and self._clock.now() >= one.since_at + channel.give_up_ms:
            await self._give_up(held, f"{_TOO_LATE}{failing}", tried=False)
            return
        try:
            await self._send_parts(held, channel)
        except ChannelRefused as error:
            await self._give_up(held, str(error))
        except ChannelFailed as error:
            await self._failed(held, str(error), give_up_ms=channel.give_up_ms, asked_ms=error.retry_after_ms)

    def _must_wait(self, one: Announcement) -> bool:
        """Whether its channel wants a pause, or an earlier one of its job has failed since both were claimed."""
        now = self._clock.elapsed()
        return self._paused.get(one.channel, now) > now or self._retrying.get(_job_line(one), now) > now

    async def _send_parts(self, held: ClaimedAnnouncement, channel: Channel) -> None:
        recipient = channel.recipient_for(held.announcement)
        text = await self._composer.text(held.announcement)
        if text is None:
            await self._end(held, AnnouncementState.SILENT, note="there was nothing to say")
            return
        parts = split_text(channel.readable(text), channel.traits.limit)
        for number in range(held.announcement.parts_sent, len(parts)):
            if not await self._still_ours(held, channel):
                return
            message = ChannelMessage(
                announcement=held.announcement,
                recipient=recipient,
                text=parts[number],
                part=number + 1,
                parts=len(parts),
                now=self._clock.now(),
            )
            await channel.send(message)
            self.failing_channels.worked(held.announcement.channel)
            if number + 1 == len(parts):
                await self._end(held, AnnouncementState.SENT, parts=number + 1)
            elif not await self._note_part(held, number + 1):
                return
            else:
                await self._clock.sleep(channel.traits.pause_ms / 1000)

    async def _still_ours(self, held: ClaimedAnnouncement, channel: Channel) -> bool:
        """Whether the claim lasts long enough for one more request; it is renewed if not."""
        left_ms = (held.claimed_until - self._clock.elapsed()) * 1000
        if left_ms > channel.timeout_ms + _SAFETY_MS:
            return True
        return await self._note_part(held, held.announcement.parts_sent)

    # ---- results -------------------------------------------------------------------

    async def _note_part(self, held: ClaimedAnnouncement, parts: int) -> bool:
        """Write how many parts were sent, and renew the claim; return whether it was still ours."""
        began = self._clock.elapsed()
        noted = replace(held.announcement, parts_sent=parts)
        if not await self._write(noted, claim_ms=self._claim_ms):
            return False
        held.announcement, held.claimed_until = noted, began + self._claim_ms / 1000
        return True

    async def _end(
        self, held: ClaimedAnnouncement, state: AnnouncementState, *, note: str | None = None, parts: int | None = None
    ) -> None:
        one = held.announcement
        sent = one.parts_sent if parts is None else parts
        over = replace(one, state=state, parts_sent=sent, ended_at=self._clock.now(), note=note)
        if await self._write(over):
            self._count_result(one.channel, state.value)
            if state is AnnouncementState.SENT:
                self._events.emit("announced", **_facts(one))

    async def _failed(
        self, held: ClaimedAnnouncement, reason: str, *, give_up_ms: int, asked_ms: int | None = None
    ) -> None:
        """Try again later, or give up an announcement that is too old."""
        one, now = held.announcement, self._clock.now()
        self.failing_channels.failed(one.channel, reason)
        tries = one.tries + 1
        until = one.since_at + give_up_ms
        if now >= until:
            await self._give_up(held, reason)
            await self._give_up_stale(one.channel, reason, now - give_up_ms)
            return
        # The last try is at the end, however long the channel asks to wait.
        next_at = min(now + retry_delay_ms(tries, asked_ms), until)
        resumes = self._clock.elapsed() + (next_at - now) / 1000
        self._retrying[_job_line(one)] = resumes
        if asked_ms is not None:
            self._paused[one.channel] = resumes
        if await self._write(replace(one, tries=tries, next_at=next_at, note=reason)):
            self._count_result(one.channel, "delayed")
            self._events.emit("announcement_delayed", **_facts(one), error=reason, tries=tries, next_at=next_at)

    async def _give_up(self, held: ClaimedAnnouncement, reason: str, *, tried: bool = True) -> None:
        one = held.announcement
        over = replace(
            one, state=AnnouncementState.GIVEN_UP, tries=one.tries + tried, ended_at=self._clock.now(), note=reason
        )
        if await self._write(over):
            self._count_result(one.channel, AnnouncementState.GIVEN_UP.value)
            self._events.emit("announcement_given_up", **_facts(one), error=reason, tries=over.tries)

    async def _give_up_stale(self, channel: str, reason: str, since_before: int) -> None:
        """Give up the others that have waited as long for the channel: it has just failed again."""
        note, now = f"{_TOO_LATE}{reason}", self._clock.now()
        gone = await self._queue.give_up_stale(
            channel, since_before=since_before, note=note, limit=_STALE_BATCH, now=now
        )
        for name in gone:
            self._count_result(channel, AnnouncementState.GIVEN_UP.value)
            self._events.emit("announcement_given_up", announcement=name, channel=channel, error=note, tries=0)

    def _count_result(self, channel: str, result: str) -> None:
        # The names of configured channels are few.
        self._count(channel if channel in self._channels else OTHER_LABEL, result)

    async def _write(self, one: Announcement, *, claim_ms: int = 0) -> bool:
        update = AnnouncementUpdate(announcement=one, claim_ms=claim_ms)
        return one.announcement_id in await self._queue.update([update], now=self._clock.now())

    async def drain(self) -> None:
        """Let the requests under way end within a short time: this process is about to end."""
        if self._under_way:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_DRAIN_SECONDS):
                    await asyncio.wait(self._under_way)
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)


def _job_line(one: Announcement) -> tuple[str, ...]:
    return one.channel, one.recipient, one.tenant, one.job


def _facts(one: Announcement) -> Mapping[str, object]:
    return {
        "tenant": one.tenant,
        "job": one.job,
        "announcement": one.announcement_id,
        "channel": one.channel,
        "moment": one.moment.value,
    }
