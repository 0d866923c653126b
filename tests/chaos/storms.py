"""Storms: faults in pairs at random moments, while operators change jobs and callers repeat their keys.

A storm is a plan drawn from a seed. Each window has one fault or two that overlap; between windows all of it recovers
and runs undisturbed for a while, so that lateness can be judged there.
"""

import asyncio
import contextlib
import itertools
import os
import random
import re
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import aiohttp

import gnomon
from chaos import fault_injection as do
from gnomon.adapters.host import SystemClock
from gnomon.app.operations import Operations
from gnomon.config.settings import Settings
from gnomon.errors import GnomonError, KeyTaken, Unavailable
from support.chaos_fleet import (
    LEASE_MS,
    PAST_LEASE_SECONDS,
    READY,
    ChaosFleet,
    ChaosTopology,
    LoggedProcess,
    wait_until,
)
from support.fault_proxy import WireFault as Wire
from support.storm_workload import EVENT, EXCEPTED, KEYED, PAUSED, edited_job

InjectFault = Callable[[ChaosFleet], Awaitable[None]]
Role = Literal["server", "worker"]

#: After a fault ended, leases end and are taken over, and lost work is found.
RECOVERY_MS = LEASE_MS + 4_000
#: An hour ahead, some seconds ahead, and a minute back.
_CLOCK_STEPS = (3_600_000, 5_000, -60_000)
_PORT = re.compile(r"http://127\.0\.0\.1:(\d+)")


async def killed(fleet: ChaosFleet, role: Role) -> None:
    """Kill a process, and start another one as a supervisor does."""
    victim = _one(fleet, role)
    victim.kill()
    await asyncio.sleep(0.5)
    await _replace(fleet, role)


async def frozen(fleet: ChaosFleet, role: Role) -> None:
    with _one(fleet, role).frozen():
        await asyncio.sleep(PAST_LEASE_SECONDS)


async def stopped(fleet: ChaosFleet, role: Role) -> None:
    """Stop a process, and start another one as in a rolling update."""
    victim = _one(fleet, role)
    victim.signal(signal.SIGTERM)
    await victim.ended()
    await _replace(fleet, role)


def _one(fleet: ChaosFleet, role: Role) -> LoggedProcess:
    """The oldest process of this role that runs. On a file, the one that schedules: the others stand by."""
    running = [one for one in (fleet.servers if role == "server" else fleet.workers) if one.runs]
    return next((one for one in running if "scheduling on" in one.log.read_text()), running[0])


async def _replace(fleet: ChaosFleet, role: Role) -> None:
    """Start processes until one is ready: while a service that it needs is away, a process may end at its start."""
    while True:
        started = fleet.start_server() if role == "server" else fleet.start_worker()
        await wait_until(partial(_said_or_ended, started))
        if started.runs:
            return


async def _said_or_ended(proc: LoggedProcess) -> bool:
    return not proc.runs or proc.has_logged(*READY)


async def clock_set(fleet: ChaosFleet, by_ms: int) -> None:
    """Set the clock of one server while it decides, and set it right after some seconds."""
    file = fleet.clock_file(fleet.servers.index(_one(fleet, "server")))
    file.write_text(str(by_ms))
    await asyncio.sleep(4)
    file.write_text("0")


def _wire(name: str, fault: Wire) -> InjectFault:
    async def hurt(fleet: ChaosFleet) -> None:
        await do.wire_fault(fleet, name, fault)

    return hurt


_ON_FILE: list[InjectFault] = [partial(fault, role="server") for fault in (killed, frozen, stopped)]
_PROCESSES: list[InjectFault] = [*_ON_FILE, *(partial(fault, role="worker") for fault in (killed, frozen, stopped))]
_DATABASE: list[InjectFault] = [
    do.pg_killed,
    do.pg_hangs_up,
    _wire("server-db", Wire.MUTE),
    _wire("worker-db", Wire.CUT),
]
_BUS: list[InjectFault] = [do.nats_killed, _wire("server-nats", Wire.UNHEARD), _wire("worker-nats", Wire.DEAF)]


def faults_of(shape: ChaosTopology) -> list[InjectFault]:
    """The faults that a storm on this topology may have."""
    if shape.sqlite:
        found = _ON_FILE
    elif shape.bus:
        found = [*_PROCESSES, *_BUS, do.pg_killed, do.pg_hangs_up, _wire("server-db", Wire.MUTE)]
    else:
        found = _PROCESSES + _DATABASE
    return found


@dataclass
class Storm:
    """The plan of a storm, and what was done in it."""

    fleet: ChaosFleet
    seed: int
    windows: int = 3
    #: Around windows all of it runs undisturbed for so long, beyond the recovery.
    quiet_seconds: float = 5.0
    #: The number that each key was accepted with; None if that is unknown.
    accepted: dict[str, int | None] = field(default_factory=dict)
    #: The mistakes in the answers to callers.
    wrong_answers: list[str] = field(default_factory=list)
    #: The keys of events that were confirmed.
    emitted: set[str] = field(default_factory=set)
    #: The worst lateness of a timer of this process, by second.
    _stalls: dict[int, int] = field(default_factory=dict)
    #: The load of the machine, by second.
    _loads: dict[int, float] = field(default_factory=dict)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    async def rage(self, beside: Callable[[], Awaitable[None]] | None = None) -> None:
        """Carry out the plan: load, operators and callers all the time, and faults in windows.

        `beside` is one more fault.
        """
        rng = random.Random(self.seed)
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for work in (self.fleet.generate_load, self._operate, self._call, self._emit, self._watch_stalls):
                tasks.create_task(work(over))
            try:
                await self.fleet.wait_for_effects()
                await asyncio.sleep(self.quiet_seconds)
                if beside is not None:
                    await beside()
                for _ in range(self.windows):
                    await self._window(rng)
                    await asyncio.sleep(self.quiet_seconds)
                await self.fleet.wait_until_decided()
            finally:
                over.set()

    async def _window(self, rng: random.Random) -> None:
        """One fault or two that overlap, and the time in which all of it recovers."""
        chosen = rng.sample(faults_of(self.fleet.shape), rng.choice((1, 2, 2)))
        if self.fleet.shape.settable_clocks:
            chosen[0] = partial(clock_set, by_ms=rng.choice(_CLOCK_STEPS))
        began = SystemClock().now()

        async def hurt(number: int, fault: InjectFault) -> None:
            await asyncio.sleep(number * rng.uniform(0, 1.5))
            await fault(self.fleet)

        await asyncio.gather(*(hurt(number, fault) for number, fault in enumerate(chosen)))
        await self.fleet.wait_until_decided()
        await asyncio.sleep(RECOVERY_MS / 1000)
        self.fleet.fault_windows.append((began, SystemClock().now()))

    # ---- what operators and callers do -------------------------------------------------------

    async def _operate(self, over: asyncio.Event) -> None:
        """Pause and resume, edit, skip and move."""
        rng = random.Random(self.seed)
        operations = Operations(self.fleet.store, Settings())
        version = itertools.count(1)

        async def pause() -> None:
            await operations.jobs.pause(PAUSED, actor="operator")

        async def resume() -> None:
            await operations.jobs.resume(PAUSED, actor="operator")

        async def edit() -> None:
            await operations.jobs.apply(gnomon.read_jobs([edited_job(next(version))]), actor="operator")

        async def skip() -> None:
            [*_, later] = await operations.jobs.next(EXCEPTED, 3)
            await operations.jobs.skip(EXCEPTED, later, actor="operator")

        async def move() -> None:
            [*_, later] = await operations.jobs.next(EXCEPTED, 3)
            await operations.jobs.skip(EXCEPTED, later, move_to=later + 700, actor="operator")

        while not over.is_set():
            with contextlib.suppress(GnomonError):
                await rng.choice((pause, resume, edit, skip, move))()
            await _wait(over, 0.7)

    async def _call(self, over: asyncio.Event) -> None:
        """Trigger with a key, and at once again with the same key and another input, each on any way in."""
        rng = random.Random(self.seed + 1)
        while not over.is_set():
            key = f"key {self.seed} {next(self._numbers)}"
            ways = rng.sample((self._trigger_directly, self._trigger_over_http), 2)
            outcomes = [await way(key, number) for number, way in enumerate(ways, 1)]
            accepted = [number for number, outcome in enumerate(outcomes, 1) if outcome is True]
            if len(accepted) > 1:
                self.wrong_answers.append(f"S15: {key} was accepted with two inputs")
            self.accepted[key] = accepted[0] if accepted else None
            await _wait(over, 0.3)

    async def _trigger_directly(self, key: str, number: int) -> bool | None:
        """True if it was accepted, False if the key was taken, None if the outcome is unknown."""
        operations = Operations(self.fleet.store, Settings())
        try:
            await operations.launcher.trigger(KEYED, actor="caller", input={"n": number}, key=key)
        except KeyTaken:
            return False
        except Unavailable:
            return None
        return True

    async def _trigger_over_http(self, key: str, number: int) -> bool | None:
        ports = [port for proc in self.fleet.servers if proc.runs for port in _PORT.findall(proc.log.read_text())[:1]]
        if not ports:
            return None
        # Any of them: one that stands by hands no task to a dispatcher.
        url = f"http://127.0.0.1:{random.Random(key).choice(ports)}/v1/jobs/{KEYED}/trigger"
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
                session.post(url, json={"input": {"n": number}}, headers={"Idempotency-Key": key}) as answer,
            ):
                return {202: True, 201: True, 200: True, 409: False}.get(answer.status)
        return None

    async def _emit(self, over: asyncio.Event) -> None:
        """Emit events, each twice with the same key."""
        operations = Operations(self.fleet.store, Settings())
        while not over.is_set():
            key = f"event {next(self._numbers)}"
            for _ in range(2):
                with contextlib.suppress(Unavailable):
                    await operations.events.emit(EVENT, {"key": key}, actor="caller", key=key)
                    self.emitted.add(key)
            await _wait(over, 0.5)

    # ---- how busy the machine is -------------------------------------------------------------

    async def _watch_stalls(self, over: asyncio.Event) -> None:
        """Record how late a timer of this process is, and how many processes want the processor: all share it."""
        loop = asyncio.get_running_loop()
        while not over.is_set():
            asked = loop.time() + 0.02
            await asyncio.sleep(0.02)
            late, second = round((loop.time() - asked) * 1000), SystemClock().now() // 1000
            self._stalls[second] = max(late, self._stalls.get(second, 0))
            self._loads[second] = os.getloadavg()[0]

    def late_by(self, planned_at: int) -> int | None:
        """By how much a tick planned then may be decided late; None during faults and the recovery."""
        if any(since - RECOVERY_MS <= planned_at <= until for since, until in self.fleet.fault_windows):
            return None
        second = planned_at // 1000
        if not {second, second + 1} <= self._stalls.keys():
            return None
        near = [second + more for more in range(-1, 4)]
        crowd = max(self._loads.get(one, 0) for one in near) / (os.cpu_count() or 1)
        return round(2_000 * max(1, crowd)) + 10 * sum(self._stalls.get(one, 0) for one in near)

    # ---- what callers were promised ----------------------------------------------------------

    async def broken_promises(self) -> Sequence[str]:
        """Keys whose run has another input than was accepted, and events that did not start exactly one run."""
        found = list(self.wrong_answers)
        store = self.fleet.store
        runs = await self.fleet.runs()
        keyed = {run.idempotency_key: run for run in runs if run.schedule_id == KEYED}
        inputs = await store.executions.payloads([run.run_id for run in keyed.values()], "input")
        for key, number in self.accepted.items():
            if number is None:
                continue
            run = keyed.get(key)
            if run is None or inputs.get(run.run_id) != f'{{"n":{number}}}'.encode():
                found.append(f"S15: {key} was accepted with {number}, on record is {run and inputs.get(run.run_id)!r}")
        started: dict[str, int] = {}
        for effect in self.fleet.effects():
            if effect.what == "start" and effect.job == "listener":
                key = effect.input["event"]["body"]["key"]
                started[effect.run_id] = 1
                found += [] if key in self.emitted or key.startswith("event ") else [f"S15: unknown {key}"]
        listening = [run for run in runs if run.schedule_id == "listener"]
        by_key = [run.idempotency_key for run in listening]
        if len(listening) < len(self.emitted) or len(set(by_key)) != len(by_key):
            found.append(f"H-24: {len(self.emitted)} events, {len(listening)} runs")
        return found


async def _wait(over: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), seconds)
