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

    async def reported(self, run: Run | None = None) -> list[Announcement]:
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
def harness(service: ChannelServer) -> AnnouncerHarness:
    return AnnouncerHarness(service)


# ---- what is sent --------------------------------------------------------------------------------


@pytest.mark.req("Z-07")
async def test_output_and_error_are_in_the_text_and_the_announcement_is_sent(harness: AnnouncerHarness) -> None:
    job = await harness.job(AnnounceRule(channel="ops", on=ALL))
    good = await harness.ran(job, "a")
    bad = await harness.ran(job, "b", None, error="disk full")
    back = await harness.ran(job, "c", b'{"rows": 3}')

    await harness.settle()

    assert harness.service.texts == [
        "12 rows",
        "disk full",
        'backup succeeded again after 1 failure\n\n{\n  "rows": 3\n}',
    ]
    for run in (good, bad, back):
        [reported] = await harness.reported(run)
        assert (reported.state, reported.parts_sent, reported.tries, reported.note) == (
            AnnouncementState.SENT,
            1,
            0,
            None,
        )
    assert harness.events.names() == ["announced"] * 3
    assert harness.counts == [("ops", "sent")] * 3
    assert harness.announcer.status.condition is HealthCondition.OK


async def test_the_text_can_show_the_output_of_a_graph_and_of_its_steps(harness: AnnouncerHarness) -> None:
    text = "${job.name} ${run.id}: ${steps.main.output.rows} rows of ${input.day}, ${output.rows}"
    job = await harness.job(AnnounceRule(channel="ops", text=text))
    await harness.ran(job, "a", b'{"rows": 3}')

    await harness.settle()

    assert harness.service.texts == ["backup run_a: 3 rows of , 3"]


@pytest.mark.req("Z-07")
@pytest.mark.parametrize("output", [b'" \\n"', b"null", b'"NO_REPLY"', b'"no_reply: nothing new"'])
async def test_blank_output_and_no_reply_send_nothing(harness: AnnouncerHarness, output: bytes) -> None:
    run = await harness.ran(await harness.job(AnnounceRule(channel="ops", best_effort=False)), "a", output)

    await harness.settle()

    [reported] = await harness.reported(run)
    assert (reported.state, reported.note) == (AnnouncementState.SILENT, "there was nothing to say")
    assert harness.service.requests == []
    assert await harness.status(run) == (RunStatus.COMPLETED, None)
    assert harness.counts == [("ops", "silent")]


# ---- parts ---------------------------------------------------------------------------------------


def telegram(service: ChannelServer, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - settings of the channel
    return {"kind": "telegram", "url": service.url, "token": "12:secret", "to": "5", **fields}


def bodies(service: ChannelServer) -> str:
    return "".join(text.removeprefix(CONTINUED).removesuffix(CONTINUES) for text in service.texts)


@pytest.mark.req("Z-07")
async def test_a_long_text_is_sent_in_parts_and_resumes_where_it_stopped(service: ChannelServer) -> None:
    harness = AnnouncerHarness(service, **telegram(service))
    text = " ".join(str(number) for number in range(3000))
    run = await harness.ran(await harness.job(), "a", f'"{text}"'.encode())
    good = ScriptedAnswer(json={"ok": True})
    # The second part fails, with and without Markdown.
    service.answers = [good, BUSY, BUSY]

    await harness.settle()

    [reported] = await harness.reported(run)
    assert (reported.state, reported.parts_sent, reported.tries, reported.next_at) == (
        AnnouncementState.PENDING,
        1,
        1,
        NOON + 1100,
    )
    assert reported.note == "answered 500 (with Markdown: answered 500)"
    first, *failed = service.requests
    service.requests[:] = [first]
    harness.clock.advance(1000)
    await harness.settle(harness.new_announcer("b"))

    [reported] = await harness.reported(run)
    assert (reported.state, reported.parts_sent) == (AnnouncementState.SENT, len(service.requests))
    assert bodies(service) == text
    assert failed[0].json["text"] == service.texts[1]


# ---- trying again --------------------------------------------------------------------------------


async def test_a_failure_is_tried_again_ever_later_and_then_given_up(service: ChannelServer) -> None:
    harness = AnnouncerHarness(service, give_up="1m")
    run = await harness.ran(await harness.job(), "a")
    service.usual = BUSY
    waits = []
    while True:
        await harness.settle()
        [reported] = await harness.reported(run)
        if reported.over:
            break
        waits.append(reported.next_at - harness.clock.now())
        harness.clock.advance(reported.next_at - harness.clock.now())

    assert waits == [1000, 2000, 4000, 8000, 16_000, 29_000]
    assert (reported.state, reported.tries, reported.note) == (AnnouncementState.GIVEN_UP, 7, "answered 500")
    assert reported.ended_at == NOON + MINUTE
    assert await harness.status(run) == (RunStatus.COMPLETED, None)
    assert harness.events.names() == ["announcement_delayed"] * 6 + ["announcement_given_up"]
    assert harness.counts == [("ops", "delayed")] * 6 + [("ops", "given_up")]
    assert harness.announcer.status.condition is HealthCondition.ERROR
    assert harness.announcer.status.message == "channel ops: answered 500"


@pytest.mark.req("Z-07")
async def test_a_channel_that_asks_for_a_pause_gets_it_and_other_channels_go_on(service: ChannelServer) -> None:
    harness = AnnouncerHarness(service)
    async with channel_server() as other:
        hook = {"kind": "webhook", "url": other.url, "secret": "s"}
        harness.announcer = harness.new_announcer(hook=hook)
        job = await harness.job(AnnounceRule(channel="ops"))
        second = await harness.job(AnnounceRule(channel="ops"), AnnounceRule(channel="hook"), name="second")
        service.answers = [ScriptedAnswer(429, None, {"Retry-After": "30"})]
        await harness.ran(job, "a")
        await harness.settle()
        await harness.ran(second, "b")
        await harness.settle()

        assert len(service.requests) == 1
        assert len(other.requests) == 1
        harness.clock.advance(29_999)
        await harness.settle()
        assert len(service.requests) == 1
        harness.clock.advance(1)
        await harness.settle()
        assert len(service.requests) == 3


@pytest.mark.req("Z-07")
async def test_a_refusal_is_given_up_at_once_and_can_be_tried_again(harness: AnnouncerHarness) -> None:
    run = await harness.ran(await harness.job(), "a")
    harness.service.answers = [ScriptedAnswer(json={"ok": False, "error": "channel_not_found"})]
    await harness.settle()
    [reported] = await harness.reported(run)
    assert (reported.state, reported.note) == (AnnouncementState.GIVEN_UP, "answered with the error channel_not_found")

    assert await harness.store.announcements.retry(
        "default", reported.announcement_id, actor="ada", now=harness.clock.now()
    )
    await harness.settle()

    assert [one.state for one in await harness.reported(run)] == [AnnouncementState.SENT]
    assert len(harness.service.requests) == 2


@pytest.mark.req("Z-07")
async def test_a_run_that_is_not_announced_fails_and_its_work_is_not_repeated(harness: AnnouncerHarness) -> None:
    run = await harness.ran(await harness.job(AnnounceRule(channel="ops", best_effort=False)), "a")
    harness.service.usual = ScriptedAnswer(403)
    assert await harness.status(run) == (RunStatus.RUNNING, None)

    await harness.settle()

    assert await harness.status(run) == (RunStatus.FAILED, "not announced to ops: answered 403")
    [task] = await harness.store.history.tasks([run])
    assert task.fence == 1


async def test_a_channel_that_the_settings_lack_by_now_is_waited_for(harness: AnnouncerHarness) -> None:
    job = await harness.job(AnnounceRule(channel="gone"))
    run = await harness.ran(job, "a")
    await harness.settle()
    [reported] = await harness.reported(run)
    assert (reported.state, reported.note) == (AnnouncementState.PENDING, "no channel of this name is configured")
    assert harness.counts == [("other", "delayed")]

    harness.clock.advance(HOUR)
    await harness.settle(harness.new_announcer("b", gone=harness.channels["ops"]))

    assert [one.state for one in await harness.reported(run)] == [AnnouncementState.SENT]


async def test_announcements_that_waited_for_a_failing_channel_are_given_up_with_it(service: ChannelServer) -> None:
    """Otherwise a channel that is down for a day would tell a day of old news when it is back."""
    harness = AnnouncerHarness(service, give_up="1m")
    job = await harness.job()
    service.usual = BUSY
    for number in range(3):
        await harness.ran(job, f"{number}")
    harness.clock.advance(MINUTE)
    await harness.settle()

    assert {one.state for one in await harness.reported()} == {AnnouncementState.GIVEN_UP}
    assert len(service.requests) == 1
    assert [one.note for one in await harness.reported()] == ["answered 500", *["not tried in time: answered 500"] * 2]


async def test_after_an_outage_of_the_scheduler_old_announcements_are_still_sent(harness: AnnouncerHarness) -> None:
    run = await harness.ran(await harness.job(), "a")
    harness.clock.advance(24 * HOUR)

    await harness.settle()

    assert [one.state for one in await harness.reported(run)] == [AnnouncementState.SENT]


# ---- order and shares ----------------------------------------------------------------------------


async def test_a_recovery_is_not_announced_before_the_failure(harness: AnnouncerHarness) -> None:
    job = await harness.job(AnnounceRule(channel="ops", on=ALL))
    other = await harness.job(AnnounceRule(channel="ops", on=ALL), name="other")
    await harness.ran(job, "a", error="disk full")
    await harness.ran(job, "b")
    await harness.ran(other, "c", b'"of another job"')
    harness.service.answers = [BUSY]

    await harness.settle()
    assert harness.service.texts == ["disk full", "of another job"]
    harness.clock.advance(1000)
    await harness.settle()

    assert harness.service.texts[2] == "disk full"
    assert harness.service.texts[3].startswith("backup succeeded again")


async def test_a_channel_that_never_answers_delays_no_other(service: ChannelServer) -> None:
    harness = AnnouncerHarness(service)
    service.usual = SILENT
    async with channel_server() as other:
        good = {"kind": "slack", "url": other.url, "token": "t", "to": "C1"}
        harness.announcer = harness.new_announcer(good=good)
        for number in range(100):
            job = await harness.job(AnnounceRule(channel="ops", to=f"C{number}"), name=f"dead{number}")
            await harness.ran(job, f"dead{number}")
        await harness.ran(await harness.job(AnnounceRule(channel="good"), name="good"), "good")

        await harness.announcer.step()
        async with asyncio.timeout(20):
            await other.until(1)
            await harness.announcer.drain()

    assert len(service.requests) < 100


async def test_a_backlog_of_one_tenant_delays_another_by_its_turn(service: ChannelServer) -> None:
    harness = AnnouncerHarness(service, tenants=["default", "second"])
    first, second = await harness.job(name="a"), await harness.job(name="b", tenant="second")
    for number in range(200):
        await harness.ran(first, f"a{number}", f'"first {number}"'.encode())
    await harness.ran(second, "b", b'"second"')

    await harness.settle()

    assert harness.service.texts.index("second") < 60
    assert len(harness.service.texts) == 201


async def test_texts_for_one_chat_are_sent_one_after_the_other(service: ChannelServer) -> None:
    harness = AnnouncerHarness(service)
    service.delay = 0.01
    for number in range(5):
        await harness.ran(await harness.job(name=f"j{number}"), f"{number}", f'"{number}"'.encode())

    await harness.settle()

    assert service.most_under_way == 1
    assert service.texts == [str(number) for number in range(5)]


# ---- two of them ---------------------------------------------------------------------------------


@pytest.mark.req("Z-07")
async def test_two_announcers_on_one_store_send_each_part_once(service: ChannelServer) -> None:
    harness = AnnouncerHarness(service, **telegram(service))
    texts = {}
    for number in range(6):
        texts[f"r{number}"] = f"{number} " * 3000
        job = await harness.job(AnnounceRule(channel="ops", to=str(number)), name=f"j{number}")
        await harness.ran(job, f"r{number}", f'"{texts[f"r{number}"]}"'.encode())
    announcers: Sequence[Announcer] = [harness.announcer, harness.new_announcer("b")]

    await asyncio.gather(*(harness.settle(one) for one in announcers))

    sent = [(one.json["chat_id"], one.json["text"]) for one in service.requests]
    assert len(sent) == len(set(sent)) == 6 * 2
    assert {one.state for one in await harness.reported()} == {AnnouncementState.SENT}


async def test_a_sender_that_has_lost_its_claim_stops(service: ChannelServer) -> None:
    """Another node has waited for the end of the claim of a node that was stopped for too long."""
    harness = AnnouncerHarness(service, **telegram(service))
    await harness.ran(await harness.job(), "a", f'"{"x" * 9000}"'.encode())
    service.usual = SILENT
    await harness.announcer.step()
    await service.until(1)
    harness.clock.advance(HOUR)
    claim = AnnouncementClaim(holder="b", limit=1, per_channel=1, claim_ms=MINUTE)
    [theirs] = await harness.store.announcement_queue.claim(claim)
    assert theirs.fence == 2

    service.usual = ScriptedAnswer(json={"ok": True})
    async with asyncio.timeout(20):
        await harness.announcer.drain()

    [reported] = await harness.reported()
    assert (reported.fence, reported.parts_sent, reported.state) == (2, 0, AnnouncementState.PENDING)


# ---- secrets -------------------------------------------------------------------------------------


@pytest.mark.req("Z-07")
async def test_no_token_is_in_a_row_an_event_or_the_health(service: ChannelServer) -> None:
    token = "123456:AAF-very_secret"  # noqa: S105 - of a test
    harness = AnnouncerHarness(service, **telegram(service, token=token, give_up="1s"))
    run = await harness.ran(await harness.job(AnnounceRule(channel="ops", best_effort=False)), "a")
    service.usual = ScriptedAnswer(500, {"description": f"cannot serve /bot{token}/sendMessage"})
    for _ in range(2):
        await harness.settle()
        harness.clock.advance(1000)

    assert (await harness.status(run))[0] is RunStatus.FAILED
    shown = [
        repr(harness.events.seen),
        harness.announcer.status.message,
        repr(await harness.reported()),
        repr(await harness.status(run)),
    ]
    assert all("answered 500" in text for text in shown)
    assert not any(token in text or "AAF-very" in text for text in shown)


async def test_an_announcement_that_cannot_be_composed_is_tried_again_and_stops_no_other(
    harness: AnnouncerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await harness.job()
    broken, good = await harness.ran(job, "a"), await harness.ran(await harness.job(name="other"), "b")
    compose = MessageComposer.text

    async def text(self: MessageComposer, one: Announcement) -> str | None:
        if one.run_id == broken.run_id:
            raise RuntimeError("a defect")
        return await compose(self, one)

    monkeypatch.setattr(MessageComposer, "text", text)
    await harness.settle()

    [held] = await harness.reported(broken)
    assert (held.state, held.note) == (AnnouncementState.PENDING, "an unexpected error: RuntimeError")
    assert [one.state for one in await harness.reported(good)] == [AnnouncementState.SENT]
    assert "step_failed" in harness.events.names()
