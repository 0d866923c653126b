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
]


def request(dice: random.Random, name: str) -> dict[str, Any]:
    """A schedule of some kind."""
    said = dict(dice.choice(TRIGGERS))
    said |= {
        "schedule_id": name,
        "workflow_id": "work",
        "overlap": dice.choice(["skip", "allow", "queue", "replace"]),
        "catchup": dice.choice(["none", "latest", "all", "spread"]),
        "jitter_ms": dice.choice([0, 0, 0, 5_000, 100_000]),
        "misfire_grace_ms": dice.choice([60_000, 60_000, 1_000, 600_000]),
        "catchup_window_ms": dice.choice([24 * HOUR, HOUR]),
    }
    return said


class World:
    """A simulation with operators who keep changing their minds."""

    def __init__(self, store: Store, clock: VirtualClock, seed: object, *, chances: Chances | None = None) -> None:
        self.dice = random.Random(f"world {seed}")
        usual = Chances(crash=0.001, failure=0.002, slowness=0.002, race=0.02)
        self.simulation = Simulation(store, clock, seed=seed, chances=chances or usual)
        self.uids: dict[str, ScheduleUid] = {}

    async def populate(self, schedules: int = 4, nodes: int = 2) -> None:
        for number in range(schedules):
            name = f"job-{number}"
            self.uids[name] = await self.simulation.register(request(self.dice, name))
        for _ in range(nodes):
            self.simulation.add_node()
        self.simulation.after(self.dice.randrange(HOUR), self._operate)
        self.simulation.after(self.dice.randrange(6 * HOUR), self._set_the_clock)

    async def _operate(self) -> None:
        name = self.dice.choice(sorted(self.uids))
        registrar = self.simulation.registrar
        act = self.dice.choice(["pause", "resume", "resume", "edit", "recreate"])
        try:
            if act == "pause":
                await registrar.pause(name, actor="operator")
            elif act == "resume":
                await registrar.resume(name, actor="operator")
            elif act == "edit":
                await registrar.upsert(request(self.dice, name), actor="operator")
            else:
                await self.simulation.delete(self.uids[name])
                self.uids[name] = await self.simulation.register(request(self.dice, name))
        except NotFound:
            pass
        self.simulation.wake()
        self.simulation.after(self.dice.choice([1000, 5 * MINUTE, HOUR, 4 * HOUR]), self._operate)

    async def _set_the_clock(self) -> None:
        self.simulation.set_clock(self.dice.choice([-2 * HOUR, -90_000, -3_000, 5_000, 70_000, 3 * HOUR]))
        self.simulation.after(self.dice.randrange(8 * HOUR), self._set_the_clock)
