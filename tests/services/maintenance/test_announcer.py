"""The announcer: what is to be told is told, over real sockets, once while it lives, and nobody waits for it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.adapters.memory import MemoryStore
from gnomon.app.channels import open_channels
from gnomon.config.settings import load
from gnomon.core.announcements.model import Announcement, AnnouncementState, AnnounceMoment, AnnounceRule
from gnomon.core.announcements.split import CONTINUED, CONTINUES
from gnomon.core.health import HealthCondition
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource, RunStatus, Schedule
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.triggers import OnDemand
from gnomon.ports.announcements import AnnouncementClaim, AnnouncementQuery
from gnomon.ports.schedules import JobChangeset
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.maintenance.announcer import AnnouncementSignal, Announcer, MessageComposer
from gnomon.testing.clock import Recorder, VirtualClock
from support.channel_server import SILENT, ChannelServer, ScriptedAnswer, channel_server
from support.task_steps import completion_of, take_task, workflow

BUSY = ScriptedAnswer(500)
ALL = tuple(AnnounceMoment)


class AnnouncerHarness:
    """A store, a service that is told, and announcers."""

    def __init__(self, service: ChannelServer, **fields: Any) -> None:  # noqa: ANN401 - settings of the channel
        self.service = service
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        self.events = Recorder()
        self.counts: list[tuple[str, str]] = []
        slack = {"kind": "slack", "url": service.url, "token": "xoxb-token", "to": "C1", **fields}
        self.channels: dict[str, Mapping[str, Any]] = {"ops": slack}
        self.announcer = self.new_announcer()

    def new_announcer(self, holder: str = "a", **others: Mapping[str, Any]) -> Announcer:
        channels = load(file={"channels": {**self.channels, **others}})
        return Announcer(
            self.store.announcement_queue,
            MessageComposer(self.store.executions, self.store.run_tasks, WorkflowCache(self.store.jobs)),
            open_channels(channels),
            self.clock,
            self.events,
            lease=AlwaysHeldSingleton(),
            holder=holder,
            signal=AnnouncementSignal(),
            count=lambda channel, result: self.counts.append((channel, result)),
        )

    async def job(self, *rules: AnnounceRule, name: str = "backup", tenant: str = "default") -> Schedule:
        made = minutely(name, tenant=tenant, trigger=OnDemand(), overlap=Overlap.ALLOW, workflow_id=name)
        made = replace(made, next_fire_at=None)
        definition = workflow(name, announce=rules or (AnnounceRule(channel="ops"),), tenant=tenant)
        changes = JobChangeset(workflows=[definition], added=[made])
        assert await self.store.jobs.apply(changes, now=NOON, actor="ada", tzdata="")
        return made

    async def ran(
        self, job: Schedule, name: str, output: bytes | None = b'"12 rows"', *, error: str | None = None
    ) -> Run:
        """A run of the job that has ended: well, or with an error."""
        now = self.clock.now()
        run = new_requested_run(RunId(f"run_{name}"), job, source=RunSource.MANUAL, now=now)
        await self.store.runs.launch([LaunchRequest(run=run, first_steps=job.spec.first_steps)], now=now)
        taken = await take_task(self.store, "worker", run, now=now)
        definition = await self.store.jobs.workflow(job.tenant, job.spec.workflow_id)
        result = Result.SUCCEEDED if error is None else Result.FAILED
        done = completion_of(taken, result, now=now, definition=definition, output=output, error=error)
        assert await self.store.attempts.report([done])
        return run

    async def settle(self, announcer: Announcer | None = None) -> None:
        """Everything that can be sent now was sent."""
        announcer = announcer or self.announcer
        while True:
            await announcer.step()
            under_way = announcer._under_way  # noqa: SLF001 - what a loop would wait for
            if not under_way:
                return
            await asyncio.wait(under_way)

    async def told(self, run: Run | None = None) -> list[Announcement]:
        """All announcements, or those of a run, oldest first."""
        found = await self.store.announcements.page(AnnouncementQuery())
        return [one for one in reversed(found) if run is None or one.run_id == run.run_id]

    async def status(self, run: Run) -> tuple[RunStatus, str | None]:
        found = await self.store.executions.find_run(run.run_id)
        assert found is not None
        return found.status, found.error


@pytest.fixture
async def service() -> AsyncIterator[ChannelServer]:
    async with channel_server() as running:
        yield running


@pytest.fixture
def desk(service: ChannelServer) -> AnnouncerHarness:
    return AnnouncerHarness(service)


# ---- what is sent --------------------------------------------------------------------------------


@pytest.mark.req("Z-07")
async def test_output_and_error_are_told_and_the_announcement_is_sent(desk: AnnouncerHarness) -> None:
    job = await desk.job(AnnounceRule(channel="ops", on=ALL))
    good = await desk.ran(job, "a")
    bad = await desk.ran(job, "b", None, error="disk full")
    back = await desk.ran(job, "c", b'{"rows": 3}')

    await desk.settle()

    assert desk.service.texts == ["12 rows", "disk full", 'backup succeeded again after 1 failure\n\n{\n  "rows": 3\n}']
    for run in (good, bad, back):
        [told] = await desk.told(run)
        assert (told.state, told.parts_sent, told.tries, told.note) == (AnnouncementState.SENT, 1, 0, None)
    assert desk.events.names() == ["announced"] * 3
    assert desk.counts == [("ops", "sent")] * 3
    assert desk.announcer.status.condition is HealthCondition.OK


async def test_the_output_of_a_graph_and_of_its_steps_can_be_told(desk: AnnouncerHarness) -> None:
    text = "${job.name} ${run.id}: ${steps.main.output.rows} rows of ${input.day}, ${output.rows}"
    job = await desk.job(AnnounceRule(channel="ops", text=text))
    await desk.ran(job, "a", b'{"rows": 3}')

    await desk.settle()

    assert desk.service.texts == ["backup run_a: 3 rows of , 3"]


@pytest.mark.req("Z-07")
@pytest.mark.parametrize("output", [b'" \\n"', b"null", b'"NO_REPLY"', b'"no_reply: nothing new"'])
async def test_blank_output_and_no_reply_send_nothing(desk: AnnouncerHarness, output: bytes) -> None:
    run = await desk.ran(await desk.job(AnnounceRule(channel="ops", best_effort=False)), "a", output)

    await desk.settle()

    [told] = await desk.told(run)
    assert (told.state, told.note) == (AnnouncementState.SILENT, "there was nothing to say")
    assert desk.service.requests == []
    assert await desk.status(run) == (RunStatus.COMPLETED, None)
    assert desk.counts == [("ops", "silent")]


# ---- parts ---------------------------------------------------------------------------------------


def telegram(service: ChannelServer, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - settings of the channel
    return {"kind": "telegram", "url": service.url, "token": "12:secret", "to": "5", **fields}


def bodies(service: ChannelServer) -> str:
    return "".join(text.removeprefix(CONTINUED).removesuffix(CONTINUES) for text in service.texts)


@pytest.mark.req("Z-07")
async def test_a_long_text_is_sent_in_parts_and_goes_on_where_it_stopped(service: ChannelServer) -> None:
    desk = AnnouncerHarness(service, **telegram(service))
    text = " ".join(str(number) for number in range(3000))
    run = await desk.ran(await desk.job(), "a", f'"{text}"'.encode())
    good = ScriptedAnswer(json={"ok": True})
    # The second part fails, with and without Markdown.
    service.answers = [good, BUSY, BUSY]

    await desk.settle()

    [told] = await desk.told(run)
    assert (told.state, told.parts_sent, told.tries, told.next_at) == (AnnouncementState.PENDING, 1, 1, NOON + 1100)
    assert told.note == "answered 500 (with Markdown: answered 500)"
    first, *failed = service.requests
    service.requests[:] = [first]
    desk.clock.advance(1000)
    await desk.settle(desk.new_announcer("b"))

    [told] = await desk.told(run)
    assert (told.state, told.parts_sent) == (AnnouncementState.SENT, len(service.requests))
    assert bodies(service) == text
    assert failed[0].json["text"] == service.texts[1]


# ---- trying again --------------------------------------------------------------------------------


async def test_a_failure_is_tried_again_ever_later_and_then_given_up(service: ChannelServer) -> None:
    desk = AnnouncerHarness(service, give_up="1m")
    run = await desk.ran(await desk.job(), "a")
    service.usual = BUSY
    waits = []
    while True:
        await desk.settle()
        [told] = await desk.told(run)
        if told.over:
            break
        waits.append(told.next_at - desk.clock.now())
        desk.clock.advance(told.next_at - desk.clock.now())

    assert waits == [1000, 2000, 4000, 8000, 16_000, 29_000]
    assert (told.state, told.tries, told.note) == (AnnouncementState.GIVEN_UP, 7, "answered 500")
    assert told.ended_at == NOON + MINUTE
    assert await desk.status(run) == (RunStatus.COMPLETED, None)
    assert desk.events.names() == ["announcement_delayed"] * 6 + ["announcement_given_up"]
    assert desk.counts == [("ops", "delayed")] * 6 + [("ops", "given_up")]
    assert desk.announcer.status.condition is HealthCondition.ERROR
    assert desk.announcer.status.message == "channel ops: answered 500"


@pytest.mark.req("Z-07")
async def test_a_channel_that_asks_for_a_pause_gets_it_and_other_channels_go_on(service: ChannelServer) -> None:
    desk = AnnouncerHarness(service)
    async with channel_server() as other:
        hook = {"kind": "webhook", "url": other.url, "secret": "s"}
        desk.announcer = desk.new_announcer(hook=hook)
        job = await desk.job(AnnounceRule(channel="ops"))
        second = await desk.job(AnnounceRule(channel="ops"), AnnounceRule(channel="hook"), name="second")
        service.answers = [ScriptedAnswer(429, None, {"Retry-After": "30"})]
        await desk.ran(job, "a")
        await desk.settle()
        await desk.ran(second, "b")
        await desk.settle()

        assert len(service.requests) == 1
        assert len(other.requests) == 1
        desk.clock.advance(29_999)
        await desk.settle()
        assert len(service.requests) == 1
        desk.clock.advance(1)
        await desk.settle()
        assert len(service.requests) == 3


@pytest.mark.req("Z-07")
async def test_a_refusal_is_given_up_at_once_and_can_be_tried_again(desk: AnnouncerHarness) -> None:
    run = await desk.ran(await desk.job(), "a")
    desk.service.answers = [ScriptedAnswer(json={"ok": False, "error": "channel_not_found"})]
    await desk.settle()
    [told] = await desk.told(run)
    assert (told.state, told.note) == (AnnouncementState.GIVEN_UP, "answered with the error channel_not_found")

    assert await desk.store.announcements.retry("default", told.announcement_id, actor="ada", now=desk.clock.now())
    await desk.settle()

    assert [one.state for one in await desk.told(run)] == [AnnouncementState.SENT]
    assert len(desk.service.requests) == 2


@pytest.mark.req("Z-07")
async def test_a_run_that_is_not_announced_fails_and_its_work_is_not_repeated(desk: AnnouncerHarness) -> None:
    run = await desk.ran(await desk.job(AnnounceRule(channel="ops", best_effort=False)), "a")
    desk.service.usual = ScriptedAnswer(403)
    assert await desk.status(run) == (RunStatus.RUNNING, None)

    await desk.settle()

    assert await desk.status(run) == (RunStatus.FAILED, "not announced to ops: answered 403")
    [task] = await desk.store.history.tasks([run])
    assert task.fence == 1


async def test_a_channel_that_the_settings_lack_by_now_is_waited_for(desk: AnnouncerHarness) -> None:
    job = await desk.job(AnnounceRule(channel="gone"))
    run = await desk.ran(job, "a")
    await desk.settle()
    [told] = await desk.told(run)
    assert (told.state, told.note) == (AnnouncementState.PENDING, "no channel of this name is configured")
    assert desk.counts == [("other", "delayed")]

    desk.clock.advance(HOUR)
    await desk.settle(desk.new_announcer("b", gone=desk.channels["ops"]))

    assert [one.state for one in await desk.told(run)] == [AnnouncementState.SENT]


async def test_what_was_never_tried_while_its_channel_failed_is_given_up_with_it(service: ChannelServer) -> None:
    """Otherwise a channel that is down for a day would tell a day of old news when it is back."""
    desk = AnnouncerHarness(service, give_up="1m")
    job = await desk.job()
    service.usual = BUSY
    for number in range(3):
        await desk.ran(job, f"{number}")
    desk.clock.advance(MINUTE)
    await desk.settle()

    assert {one.state for one in await desk.told()} == {AnnouncementState.GIVEN_UP}
    assert len(service.requests) == 1
    assert [one.note for one in await desk.told()] == ["answered 500", *["not tried in time: answered 500"] * 2]


async def test_after_an_outage_of_the_scheduler_what_is_old_is_still_told(desk: AnnouncerHarness) -> None:
    run = await desk.ran(await desk.job(), "a")
    desk.clock.advance(24 * HOUR)

    await desk.settle()

    assert [one.state for one in await desk.told(run)] == [AnnouncementState.SENT]


# ---- order and shares ----------------------------------------------------------------------------


async def test_a_recovery_is_not_told_before_the_failure(desk: AnnouncerHarness) -> None:
    job = await desk.job(AnnounceRule(channel="ops", on=ALL))
    other = await desk.job(AnnounceRule(channel="ops", on=ALL), name="other")
    await desk.ran(job, "a", error="disk full")
    await desk.ran(job, "b")
    await desk.ran(other, "c", b'"of another job"')
    desk.service.answers = [BUSY]

    await desk.settle()
    assert desk.service.texts == ["disk full", "of another job"]
    desk.clock.advance(1000)
    await desk.settle()

    assert desk.service.texts[2] == "disk full"
    assert desk.service.texts[3].startswith("backup succeeded again")


async def test_a_channel_that_never_answers_delays_no_other(service: ChannelServer) -> None:
    desk = AnnouncerHarness(service)
    service.usual = SILENT
    async with channel_server() as other:
        good = {"kind": "slack", "url": other.url, "token": "t", "to": "C1"}
        desk.announcer = desk.new_announcer(good=good)
        for number in range(100):
            job = await desk.job(AnnounceRule(channel="ops", to=f"C{number}"), name=f"dead{number}")
            await desk.ran(job, f"dead{number}")
        await desk.ran(await desk.job(AnnounceRule(channel="good"), name="good"), "good")

        await desk.announcer.step()
        async with asyncio.timeout(20):
            await other.until(1)
            await desk.announcer.drain()

    assert len(service.requests) < 100


async def test_a_backlog_of_one_tenant_delays_another_by_its_turn(service: ChannelServer) -> None:
    desk = AnnouncerHarness(service)
    first, second = await desk.job(name="a"), await desk.job(name="b", tenant="second")
    for number in range(200):
        await desk.ran(first, f"a{number}", f'"first {number}"'.encode())
    await desk.ran(second, "b", b'"second"')

    await desk.settle()

    assert desk.service.texts.index("second") < 60
    assert len(desk.service.texts) == 201


async def test_texts_for_one_chat_are_sent_one_after_the_other(service: ChannelServer) -> None:
    desk = AnnouncerHarness(service)
    service.delay = 0.01
    for number in range(5):
        await desk.ran(await desk.job(name=f"j{number}"), f"{number}", f'"{number}"'.encode())

    await desk.settle()

    assert service.most_under_way == 1
    assert service.texts == [str(number) for number in range(5)]


# ---- two of them ---------------------------------------------------------------------------------


@pytest.mark.req("Z-07")
async def test_two_announcers_on_one_store_send_each_part_once(service: ChannelServer) -> None:
    desk = AnnouncerHarness(service, **telegram(service))
    texts = {}
    for number in range(6):
        texts[f"r{number}"] = f"{number} " * 3000
        job = await desk.job(AnnounceRule(channel="ops", to=str(number)), name=f"j{number}")
        await desk.ran(job, f"r{number}", f'"{texts[f"r{number}"]}"'.encode())
    announcers: Sequence[Announcer] = [desk.announcer, desk.new_announcer("b")]

    await asyncio.gather(*(desk.settle(one) for one in announcers))

    sent = [(one.json["chat_id"], one.json["text"]) for one in service.requests]
    assert len(sent) == len(set(sent)) == 6 * 2
    assert {one.state for one in await desk.told()} == {AnnouncementState.SENT}


async def test_a_sender_that_has_lost_its_claim_stops(service: ChannelServer) -> None:
    """Another node has waited for the end of the claim of a node that was stopped for too long."""
    desk = AnnouncerHarness(service, **telegram(service))
    await desk.ran(await desk.job(), "a", f'"{"x" * 9000}"'.encode())
    service.usual = SILENT
    await desk.announcer.step()
    await service.until(1)
    desk.clock.advance(HOUR)
    claim = AnnouncementClaim(holder="b", limit=1, per_channel=1, claim_ms=MINUTE)
    [theirs] = await desk.store.announcement_queue.claim(claim)
    assert theirs.fence == 2

    service.usual = ScriptedAnswer(json={"ok": True})
    async with asyncio.timeout(20):
        await desk.announcer.drain()

    [told] = await desk.told()
    assert (told.fence, told.parts_sent, told.state) == (2, 0, AnnouncementState.PENDING)


# ---- secrets -------------------------------------------------------------------------------------


@pytest.mark.req("Z-07")
async def test_no_token_is_in_a_row_an_event_or_the_health(service: ChannelServer) -> None:
    token = "123456:AAF-very_secret"  # noqa: S105 - of a test
    desk = AnnouncerHarness(service, **telegram(service, token=token, give_up="1s"))
    run = await desk.ran(await desk.job(AnnounceRule(channel="ops", best_effort=False)), "a")
    service.usual = ScriptedAnswer(500, {"description": f"cannot serve /bot{token}/sendMessage"})
    for _ in range(2):
        await desk.settle()
        desk.clock.advance(1000)

    assert (await desk.status(run))[0] is RunStatus.FAILED
    shown = [
        repr(desk.events.seen),
        desk.announcer.status.message,
        repr(await desk.told()),
        repr(await desk.status(run)),
    ]
    assert all("answered 500" in text for text in shown)
    assert not any(token in text or "AAF-very" in text for text in shown)


async def test_an_announcement_that_cannot_be_composed_is_tried_again_and_stops_no_other(
    desk: AnnouncerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await desk.job()
    broken, good = await desk.ran(job, "a"), await desk.ran(await desk.job(name="other"), "b")
    compose = MessageComposer.text

    async def text(self: MessageComposer, one: Announcement) -> str | None:
        if one.run_id == broken.run_id:
            raise RuntimeError("a defect")
        return await compose(self, one)

    monkeypatch.setattr(MessageComposer, "text", text)
    await desk.settle()

    [held] = await desk.told(broken)
    assert (held.state, held.note) == (AnnouncementState.PENDING, "an unexpected error: RuntimeError")
    assert [one.state for one in await desk.told(good)] == [AnnouncementState.SENT]
    assert "step_failed" in desk.events.names()
