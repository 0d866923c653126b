"""The pinger: what jobs want to have called is called, over real sockets, and nobody waits for it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from msgspec.structs import replace

from contracts.store import NOON
from gnomon.adapters.http_client import HttpPingSender
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.runs import MemoryExecutions
from gnomon.config.sections import WatchdogSettings
from gnomon.core.model import Result, Run, RunId
from gnomon.core.outgoing import AllowedHosts
from gnomon.core.pings import Ping, PingMoment
from gnomon.core.runs.outcomes import Assignment
from gnomon.errors import FieldError
from gnomon.services.maintenance.pinger import Pinger
from gnomon.testing.clock import VirtualClock
from runners.runner_harness import assignment
from support.execution import ExecutionHarness, FakeRunner
from support.http_listener import HttpListener, listener
from support.task_steps import workflow

ALL = tuple(PingMoment)


class ObservedRunner(FakeRunner):
    """A runner whose starts are heard."""

    pinger: Pinger | None = None

    def start(self, assignments: Sequence[Assignment]) -> None:
        super().start(assignments)
        if self.pinger is not None:
            self.pinger.started(assignments)


class PingFixture:
    """A harness whose runs are told to a listener."""

    def __init__(
        self,
        heard: HttpListener,
        harness: ExecutionHarness | None = None,
        allowed: Sequence[str] = ("127.0.0.1",),
        **settings: object,
    ) -> None:
        self.heard, self.allowed = heard, AllowedHosts(allowed, field="security.allowed_hosts")
        self.harness = harness or ExecutionHarness()
        self.settings = WatchdogSettings(**{"ping_timeout_ms": 200, "ping_tries": 3, **settings})  # type: ignore[arg-type]
        self.deciding = False
        self.pinger = self._pinger()
        self.runner = ObservedRunner()
        self.runner.pinger = self.pinger
        self.harness.worker = self.harness.new_worker("w1", self.runner)

    def _pinger(self) -> Pinger:
        harness = self.harness
        return Pinger(
            harness.store.executions,
            harness.workflow_cache,
            HttpPingSender(self.allowed),
            harness.clock,
            harness.events,
            self.settings,
            deciding=lambda: self.deciding,
            secrets=self.secret,
        )

    def secret(self, url: str, tenant: str, job: str) -> str:
        assert tenant
        assert job
        if "NONE" in url:
            raise FieldError("secret", "NONE", "is missing")
        return url.replace("${secret:KEY}", "5a2c")

    async def run(
        self, name: str, path: str, *, result: Result = Result.SUCCEEDED, on: tuple[PingMoment, ...] = ALL
    ) -> None:
        """A run of a job that wants pings comes to its end."""
        await self.begin(name, path, on=on)
        await self.end(result)

    async def begin(self, name: str, path: str, *, on: tuple[PingMoment, ...]) -> None:
        """It is under way."""
        ping = Ping(url=self.heard.url(path), on=on)
        if await self.harness.store.schedules.find("default", "report") is None:
            await self.harness.job(workflow(ping=ping))
        job = await self.harness.store.schedules.find("default", "report")
        assert job is not None
        await self.harness.run(job, name)
        await self.harness.run_until_idle()

    async def end(self, result: Result = Result.SUCCEEDED) -> None:
        """Calls in flight end, and arrive."""
        self.runner.end_all(result)
        before = len(self.harness.events.seen)
        await self.harness.run_until_idle()
        for name_, facts in self.harness.events.seen[before:]:
            self.pinger.heard(name_, facts)

    async def settle(self) -> None:
        """Everything that can be sent now was sent."""
        while True:
            await self.pinger.step()
            if not self.pinger._under_way:  # noqa: SLF001 - what a loop would wait for
                return
            await asyncio.wait(self.pinger._under_way)  # noqa: SLF001


@pytest.fixture
async def heard() -> AsyncIterator[HttpListener]:
    async with listener() as made:
        yield made


@pytest.mark.parametrize(
    ("result", "on", "calls"),
    [
        (Result.SUCCEEDED, ALL, {"/p/start", "/p"}),
        (Result.FAILED, ALL, {"/p/start", "/p/fail"}),
        (Result.SUCCEEDED, (PingMoment.FAILURE,), set()),
        (Result.FAILED, (PingMoment.FAILURE,), {"/p/fail"}),
        (Result.CANCELLED, (PingMoment.SUCCESS, PingMoment.FAILURE), set()),
    ],
)
async def test_only_the_configured_addresses_are_called(
    heard: HttpListener, result: Result, on: tuple[PingMoment, ...], calls: set[str]
) -> None:
    setup = PingFixture(heard)

    await setup.run("a", "/p", result=result, on=on)
    await setup.settle()

    assert set(heard.calls) == calls
    assert len(heard.calls) == len(calls)


async def test_a_run_is_pinged_once_however_often_its_end_is_reported(heard: HttpListener) -> None:
    setup = PingFixture(heard)
    await setup.run("a", "/p", on=(PingMoment.SUCCESS,))
    await setup.settle()
    for _ in range(3):
        setup.pinger.heard("task_succeeded", {"run": "run_a"})
        await setup.settle()

    assert heard.calls == ["/p"]


class BusyExecutions(MemoryExecutions):
    """Something happens after a run was read and before the caller has it."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def find_run(self, run_id: RunId) -> Run | None:
        found = await super().find_run(run_id)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found


async def test_a_run_that_ends_during_the_lookup_is_pinged(heard: HttpListener) -> None:
    clock = VirtualClock(NOON)
    store = MemoryStore(clock.now)
    store.executions = busy = BusyExecutions(store.state)
    setup = PingFixture(heard, ExecutionHarness(store=store, clock=clock))
    await setup.begin("a", "/p", on=(PingMoment.SUCCESS,))
    busy.meanwhile = setup.end
    setup.pinger.heard("task_succeeded", {"run": RunId("run_a")})
    await setup.settle()

    assert setup.pinger.wake.is_set()
    await setup.settle()

    assert heard.calls == ["/p"]


async def test_the_end_of_a_run_that_another_node_started_is_pinged_too(heard: HttpListener) -> None:
    setup = PingFixture(heard)
    setup.runner.pinger = None
    await setup.run("a", "/p", result=Result.FAILED)
    assert heard.calls == []

    setup.pinger.heard("attempt_ended_by_reconciler", {"run": RunId("run_a")})
    await setup.settle()

    assert heard.calls == ["/p/fail"]


async def test_a_call_that_fails_is_tried_again_after_a_pause(heard: HttpListener) -> None:
    setup = PingFixture(heard)
    heard.statuses = [503, 503]
    await setup.run("a", "/p", on=(PingMoment.SUCCESS,))

    await setup.settle()
    assert heard.calls == ["/p"]
    assert await setup.pinger.step() == pytest.approx(1)
    setup.harness.clock.advance(1000)
    await setup.settle()
    setup.harness.clock.advance(1999)
    await setup.settle()
    assert heard.calls == ["/p"] * 2
    setup.harness.clock.advance(1)
    await setup.settle()
    assert (heard.calls, setup.pinger.sent, setup.pinger.failed) == (["/p"] * 3, 1, 0)


async def test_a_call_that_fails_too_often_is_given_up_without_telling_its_address(heard: HttpListener) -> None:
    setup = PingFixture(heard)
    heard.statuses = [500] * 9
    await setup.run("a", "/my-key", on=(PingMoment.SUCCESS,))

    for _ in range(5):
        await setup.settle()
        setup.harness.clock.advance(60_000)

    assert heard.calls == ["/my-key"] * 3
    [facts] = [facts for name, facts in setup.harness.events.seen if name == "ping_failed"]
    assert facts == {"job": "report", "url": "http://127.0.0.1/…", "error": "answered 500", "tries": 3}
    assert "my-key" not in str(setup.harness.events.seen)


async def test_a_call_to_an_address_that_jobs_may_not_reach_is_given_up_at_once(heard: HttpListener) -> None:
    setup = PingFixture(heard, allowed=())
    await setup.run("a", "/my-key", on=(PingMoment.SUCCESS,))
    await setup.settle()

    [facts] = [facts for name, facts in setup.harness.events.seen if name == "ping_failed"]
    assert (facts["tries"], "security.allowed_hosts" in str(facts["error"])) == (0, True)
    assert heard.calls == []


async def test_the_own_address_of_the_scheduler_may_be_on_this_machine(heard: HttpListener) -> None:
    setup = PingFixture(heard, allowed=(), ping_url=heard.url("/own"), ping_every_ms=1000)
    setup.deciding = True
    await setup.settle()

    assert heard.calls == ["/own"]


async def test_secrets_are_put_in_where_it_is_called_and_one_that_is_missing_is_named(heard: HttpListener) -> None:
    setup = PingFixture(heard)
    await setup.run("a", "/${secret:KEY}", on=(PingMoment.SUCCESS,))
    await setup.settle()
    assert heard.calls == ["/5a2c"]

    other = PingFixture(heard)
    await other.run("a", "/${secret:NONE}", on=(PingMoment.SUCCESS,))
    await other.settle()
    assert [facts["error"] for name, facts in other.harness.events.seen if name == "ping_failed"] == [
        "secret: 'NONE' is missing"
    ]


async def test_one_that_hangs_holds_up_nobody_else(heard: HttpListener) -> None:
    setup = PingFixture(heard, ping_timeout_ms=60_000, ping_url=heard.url("/alive"))
    setup.deciding = True
    heard.hangs = True
    await setup.run("a", "/p", on=(PingMoment.SUCCESS,))
    await setup.pinger.step()
    await heard.until(2)
    heard.hangs = False

    await setup.run("b", "/p", on=(PingMoment.SUCCESS,))
    await setup.pinger.step()
    await heard.until(3)

    assert sorted(heard.calls) == ["/alive", "/p", "/p"]
    await stopped(setup.pinger)


async def test_only_so_many_are_under_way_at_once(heard: HttpListener) -> None:
    setup = PingFixture(heard, ping_parallel=2, ping_timeout_ms=60_000)
    heard.hangs = True
    for name in "abcd":
        await setup.run(name, "/p", on=(PingMoment.SUCCESS,))
    await setup.pinger.step()
    await heard.until(2)
    await setup.pinger.step()

    assert len(heard.calls) == 2
    await stopped(setup.pinger)


def first_attempt(tenant: str, url: str) -> Assignment:
    """The first attempt of a run whose job has its start called."""
    held = assignment("report")
    of_tenant = replace(held.run, tenant=tenant)
    return replace(held, run=of_tenant, workflow=replace(held.workflow, ping=Ping(url=url, on=(PingMoment.START,))))


@pytest.mark.req("H-22")
async def test_addresses_of_one_tenant_delay_the_calls_of_another_by_one_call(heard: HttpListener) -> None:
    setup = PingFixture(heard, ping_parallel=1)
    setup.pinger.started([first_attempt("acme", heard.url(f"/acme{number}")) for number in range(5)])
    await setup.pinger.step()
    setup.pinger.started([first_attempt("beta", heard.url("/beta"))])

    while len(heard.calls) < 6:
        await setup.settle()

    assert heard.calls[:3] == ["/acme0/start", "/beta/start", "/acme1/start"]


async def test_the_monitor_is_called_while_addresses_of_jobs_hang(heard: HttpListener) -> None:
    setup = PingFixture(heard, ping_parallel=1, ping_timeout_ms=60_000, ping_url=heard.url("/alive"))
    heard.hangs = True
    setup.pinger.started([first_attempt("acme", heard.url("/acme")) for _ in range(3)])
    await setup.pinger.step()
    await heard.until(1)

    setup.deciding = True
    await setup.pinger.step()
    await heard.until(2)

    assert heard.calls == ["/acme/start", "/alive"]
    await stopped(setup.pinger)


async def test_the_ping_of_the_scheduler_is_sent_while_it_decides(heard: HttpListener) -> None:
    setup = PingFixture(heard, ping_url=heard.url("/alive"), ping_every_ms=60_000)
    await setup.settle()
    assert heard.calls == []

    setup.deciding = True
    await setup.settle()
    setup.harness.clock.advance(59_999)
    await setup.settle()
    assert heard.calls == ["/alive"]
    setup.harness.clock.advance(1)
    await setup.settle()
    assert heard.calls == ["/alive"] * 2


async def test_runs_that_end_while_the_process_stops_are_still_pinged(heard: HttpListener) -> None:
    setup = PingFixture(heard)
    await setup.run("a", "/p", on=(PingMoment.SUCCESS,))

    await setup.pinger.drain()

    assert heard.calls == ["/p"]


async def test_a_stop_does_not_wait_for_one_that_hangs(heard: HttpListener) -> None:
    setup = PingFixture(heard, ping_timeout_ms=50)
    heard.hangs = True
    await setup.run("a", "/p", on=(PingMoment.SUCCESS,))

    async with asyncio.timeout(30):
        await setup.pinger.drain()

    assert heard.calls == ["/p"]


async def stopped(pinger: Pinger) -> None:
    """Calls in flight are given up."""
    under_way = list(pinger._under_way)  # noqa: SLF001 - nobody else would end them
    for task in under_way:
        task.cancel()
    await asyncio.wait(under_way)
