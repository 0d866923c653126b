"""The checker of fault tests: it accepts a run without faults, and detects every violation."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from support.chaos_fleet import ChaosFleet, ChaosTopology, chaos_fleet
from support.effect_functions import Effect, read_effects
from support.fleet_checker import violations
from support.postgres_server import postgres

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def chaos_run(tmp_path: Path) -> AsyncIterator[ChaosFleet]:
    """A finished run without faults."""
    pg = postgres(18)
    async with chaos_fleet(tmp_path, ChaosTopology(servers=1, workers=1), pg, await pg.fresh()) as chaos_run:
        await chaos_run.trigger_runs(2)
        await chaos_run.wait_until_decided(2)
        await chaos_run.drain()
        await chaos_run.stop_processes()
        yield chaos_run


async def rules(chaos_run: ChaosFleet) -> set[str]:
    return {one.partition(" ")[0].rstrip(":") for one in await violations(chaos_run)}


async def tampered(chaos_run: ChaosFleet, *statements: str) -> None:
    for one in statements:
        await chaos_run.pg.run(one, url=chaos_run.database)


async def test_every_lie_is_noticed_and_the_truth_is_not(chaos_run: ChaosFleet) -> None:
    assert await violations(chaos_run) == []

    witness = chaos_run.folder / "witness"
    true = witness.read_text()
    lines = true.splitlines(keepends=True)
    first = next(line for line in lines if line.startswith('{"what":"start","job":"once"'))
    start = msgspec.json.decode(first, type=Effect)
    witness.write_text(true + first)
    assert await rules(chaos_run) == {"S9", "S5"}, "begun twice"

    witness.write_text("".join(line for line in lines if not line.startswith('{"what":"end","job":"slow"')))
    assert await rules(chaos_run) == {"S7"}, "never ended"

    early = next(one for one in read_effects(witness) if one.job == "every-second")
    witness.write_text(true.replace(f'"at":{early.at},', f'"at":{early.at - 60_000},'))
    assert "S3" in await rules(chaos_run), "begun before its time"

    witness.write_text(true.replace(first, first.replace('"input":{', '"input":{"other":1')))
    assert await rules(chaos_run) == {"S15"}, "another input"

    witness.write_text(true + first.replace(start.task_id, "task_of_nobody"))
    with pytest.raises(AssertionError, match="not on record"):
        await violations(chaos_run)
    chaos_run.forgotten = 0, start.at
    assert await violations(chaos_run) == [], "what the store has forgotten"
    chaos_run.forgotten = 0, 0

    witness.write_text(true)
    chaos_run.promised.add(type(next(iter(chaos_run.promised)))("run_of_nobody"))
    assert await rules(chaos_run) == {"S15"}
    chaos_run.promised.discard(next(one for one in chaos_run.promised if one == "run_of_nobody"))

    chaos_run.holders[0, 1] |= {"one", "other"}
    assert await rules(chaos_run) == {"C3"}
    chaos_run.holders[0, 1].clear()

    await tampered(chaos_run, "UPDATE tick SET term = 0 WHERE planned_at = (SELECT max(planned_at) FROM tick)")
    assert await rules(chaos_run) == {"K16"}
    await tampered(chaos_run, "DELETE FROM tick WHERE planned_at = (SELECT min(planned_at) FROM tick)")
    assert {"K1", "K3"} <= await rules(chaos_run)
