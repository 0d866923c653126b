"""Random worlds for the simulator: schedules, operators, clocks and faults, the same for the same seed."""

import random
from datetime import UTC, datetime
from typing import Any

from gnomon.core.model import ScheduleUid
from gnomon.errors import NotFound
from gnomon.testing.clock import VirtualClock
from gnomon.testing.faults import Chances, Store
from gnomon.testing.simulation import Simulation

MINUTE = 60_000
HOUR = 60 * MINUTE

#: Beginnings from which a day and a half leads through a change of the clocks somewhere.
STARTS = [
    datetime(2026, 3, 7, 18, 0, 13, tzinfo=UTC),
    datetime(2026, 10, 31, 12, 31, 7, tzinfo=UTC),
    datetime(2026, 10, 3, 9, 0, 0, tzinfo=UTC),
]
TRIGGERS: list[dict[str, Any]] = [
    {"schedule": "* * * * *"},
    {"schedule": "*/5 * * * *"},
    {"schedule": "*/20 1-3 * * *", "timezone": "America/New_York"},
    {"schedule": "30 2 * * *", "timezone": "America/New_York"},
    {"schedule": "30 1 * * *", "timezone": "America/New_York", "dst": {"gap": "skip", "fold": "both"}},
    {"schedule": "15 * * * *", "timezone": "Australia/Lord_Howe"},
    {"schedule": "0 */3 * * *", "timezone": "Europe/Berlin"},
    {"schedule": "every 7 minutes"},
    {"schedule": "every 90s"},
    {"schedule": "*/40 * * * * *"},
]


def request(dice: random.Random, name: str, *, now: int) -> dict[str, Any]:
    """A schedule of some kind, whose window, if it has one, is around the time."""
    said = dict(dice.choice([*TRIGGERS, {"schedule": _instant(now + dice.randrange(4 * HOUR))}]))
    said |= {
        "schedule_id": name,
        "workflow_id": "work",
        "overlap": dice.choice(["skip", "allow", "queue", "replace"]),
        "catchup": dice.choice(["none", "latest", "all", "spread"]),
        "jitter_ms": dice.choice([0, 0, 0, 5_000, 100_000]),
        "misfire_grace_ms": dice.choice([60_000, 60_000, 1_000, 600_000]),
        "catchup_window_ms": dice.choice([24 * HOUR, HOUR]),
        "queue_limit": dice.choice([100, 100, 1, 3]),
    }
    if dice.random() < 0.2:
        said["start_at"] = _instant(now + dice.randrange(-HOUR, 2 * HOUR))
    if dice.random() < 0.2:
        said["end_at"] = _instant(now + dice.randrange(2 * HOUR, 8 * HOUR))
    return said


def _instant(at: int) -> str:
    return datetime.fromtimestamp(at // 1000, UTC).isoformat()


class World:
    """A simulation with operators who keep changing their minds."""

    def __init__(self, store: Store, clock: VirtualClock, seed: object, *, chances: Chances | None = None) -> None:
        self.dice = random.Random(f"world {seed}")
        usual = Chances(crash=0.001, failure=0.002, slowness=0.002, race=0.02, mishap=0.03)
        self.simulation = Simulation(store, clock, seed=seed, chances=chances or usual)
        self.uids: dict[str, ScheduleUid] = {}

    async def populate(self, schedules: int = 4, nodes: int | None = None) -> None:
        for number in range(schedules):
            name = f"job-{number}"
            self.uids[name] = await self.simulation.register(self._request(name))
        for _ in range(nodes or self.dice.choice([2, 2, 3])):
            self.simulation.add_node()
        self.simulation.after(self.dice.randrange(HOUR), self._operate)
        self.simulation.after(self.dice.randrange(6 * HOUR), self._set_the_clock)

    def _request(self, name: str) -> dict[str, Any]:
        return request(self.dice, name, now=self.simulation.clock.now())

    async def _operate(self) -> None:
        name = self.dice.choice(sorted(self.uids))
        simulation, registrar = self.simulation, self.simulation.registrar
        act = self.dice.choice(["pause", "resume", "resume", "edit", "recreate"])
        try:
            if act == "pause":
                await simulation.persist(lambda: registrar.pause(name, actor="operator"))
            elif act == "resume":
                await simulation.persist(lambda: registrar.resume(name, actor="operator"))
            elif act == "edit":
                said = self._request(name)
                await simulation.persist(lambda: registrar.upsert(said, actor="operator"))
            else:
                await simulation.delete(self.uids[name])
                self.uids[name] = await simulation.register(self._request(name))
        except NotFound:
            pass
        self.simulation.wake()
        self.simulation.after(self.dice.choice([1000, 5 * MINUTE, HOUR, 4 * HOUR]), self._operate)

    async def _set_the_clock(self) -> None:
        self.simulation.set_clock(self.dice.choice([-2 * HOUR, -90_000, -3_000, 5_000, 70_000, 3 * HOUR]))
        self.simulation.after(self.dice.randrange(8 * HOUR), self._set_the_clock)
