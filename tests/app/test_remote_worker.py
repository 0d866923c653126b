"""A worker that knows only NATS, from its beginning to its end, in this process."""

import asyncio

import msgspec
import pytest

from gnomon.adapters.host import SystemClock
from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.queue import NatsServerBus
from gnomon.app.remote_worker import RemoteWorkerOptions, run_remote_worker
from gnomon.config.settings import load
from gnomon.errors import Unavailable, UsageError
from gnomon.ports.messaging import HeartbeatReply, HeartbeatRequest, RequestHandler
from gnomon.runners.registry import Functions
from gnomon.testing.clock import Recorder
from support.nats_redis_servers import Nats
from support.server_process import free_port

HOUR = 3_600_000


async def test_without_an_address_of_nats_it_says_what_is_missing() -> None:
    with pytest.raises(UsageError, match=r"nats\.url"):
        await run_remote_worker(RemoteWorkerOptions(settings=load(), functions=Functions()), asyncio.Event())


async def test_if_nats_cannot_be_reached_it_says_so_and_does_not_start() -> None:
    settings = load(flags={"nats.url": f"nats://127.0.0.1:{free_port()}", "nats.timeout_ms": 200})
    with pytest.raises(Unavailable, match="cannot reach NATS"):
        await run_remote_worker(
            RemoteWorkerOptions(settings=settings, functions=Functions(), events=Recorder()), asyncio.Event()
        )


async def worked(beat: RequestHandler, stop: asyncio.Event, functions: Functions, events: Recorder) -> None:
    """A worker has worked until it was told to stop; its heartbeats were answered."""

    async def asked(_: str, body: bytes) -> bytes:
        return body

    with Nats() as nats:
        settings = load(flags={"nats.url": nats.url, "worker.slots": 7})
        client = await connect(settings.nats, Recorder(), name="server")
        side = NatsServerBus(client, settings.nats, Recorder(), ack_wait_ms=30_000)
        await side.prepare(["default"])
        await side.answer(heartbeats=beat, grants=asked)
        await run_remote_worker(RemoteWorkerOptions(settings=settings, functions=functions, events=events), stop)
        await side.close()
        await client.close()


@pytest.mark.guarantee("S26")
@pytest.mark.req("R-18")
async def test_it_shows_up_with_its_functions_and_says_goodbye() -> None:
    functions, stop, heard = Functions(), asyncio.Event(), list[HeartbeatRequest]()

    @functions.function("reports.make")
    async def make() -> None:
        """Nothing to do."""

    async def beat(_: str, body: bytes) -> bytes:
        heard.append(msgspec.json.decode(body, type=HeartbeatRequest))
        stop.set()
        return msgspec.json.encode(HeartbeatReply(lease_ms=30_000))

    await worked(beat, stop, functions, Recorder())

    first, last = heard[0], heard[-1]
    assert (first.card.slots, "reports.make" in first.card.functions, first.leaves) == (7, True, False)
    assert (last.card.worker, last.leaves) == (first.card.worker, True)
    assert first.card.worker.startswith("field_")


@pytest.mark.guarantee("C10")
async def test_it_goes_by_the_clock_of_whoever_answers_it() -> None:
    stop, events, answers = asyncio.Event(), Recorder(), list[int]()

    async def beat(_sender: str, _body: bytes) -> bytes:
        answers.append(SystemClock().now() + HOUR)
        stop.set()
        return msgspec.json.encode(HeartbeatReply(lease_ms=30_000, now=answers[-1]))

    await worked(beat, stop, Functions(), events)

    [wrong] = [facts["wrong_ms"] for name, facts in events.seen if name == "clock_corrected"]
    assert wrong == pytest.approx(-HOUR, abs=5_000)
    assert len(answers) > 1, "it was asked again, and then nothing was wrong"
