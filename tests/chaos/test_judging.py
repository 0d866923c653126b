"""The judge of a trial: it has nothing to say about a quiet one, and notices whatever is wrong."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.servers import postgres
from support.trial import Shape, Trial, on_trial
from support.verdicts import violations

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def trial(tmp_path: Path) -> AsyncIterator[Trial]:
    """One that is over, and in which nothing was hurt."""
    pg = postgres(18)
    async with on_trial(tmp_path, Shape(servers=1, workers=1), pg, await pg.fresh()) as trial:
        await trial.ask(2)
        await trial.decided(2)
        await trial.drained()
        await trial.stopped()
        yield trial


async def rules(trial: Trial) -> set[str]:
    return {one.partition(" ")[0].rstrip(":") for one in await violations(trial)}


async def tampered(trial: Trial, *statements: str) -> None:
    for one in statements:
        await trial.pg.run(one, url=trial.database)


async def test_every_lie_is_noticed_and_the_truth_is_not(trial: Trial) -> None:
    assert await violations(trial) == []

    witness = trial.folder / "witness"
    true = witness.read_text()
    first = next(line for line in true.splitlines(keepends=True) if line.startswith("start once"))
    witness.write_text(true + first)
    assert await rules(trial) == {"S9", "S5"}, "begun twice"

    witness.write_text("".join(line for line in true.splitlines(keepends=True) if not line.startswith("end slow")))
    assert await rules(trial) == {"S7"}, "never ended"

    early = [line.split() for line in true.splitlines() if " every-second " in line]
    witness.write_text(true.replace(early[0][-1], str(int(early[0][-1]) - 60_000)))
    assert "S3" in await rules(trial), "begun before its time"

    witness.write_text(true + first.replace(first.split()[4], "task_of_nobody"))
    with pytest.raises(AssertionError, match="not on record"):
        await violations(trial)
    trial.forgotten = 0, int(first.split()[-1])
    assert await violations(trial) == [], "what the store has forgotten"
    trial.forgotten = 0, 0

    witness.write_text(true)
    trial.promised.add(type(next(iter(trial.promised)))("run_of_nobody"))
    assert await rules(trial) == {"S15"}
    trial.promised.discard(next(one for one in trial.promised if one == "run_of_nobody"))

    trial.holders[0, 1] |= {"one", "other"}
    assert await rules(trial) == {"C3"}
    trial.holders[0, 1].clear()

    await tampered(trial, "UPDATE tick SET term = 0 WHERE planned_at = (SELECT max(planned_at) FROM tick)")
    assert await rules(trial) == {"K16"}
    await tampered(trial, "DELETE FROM tick WHERE planned_at = (SELECT min(planned_at) FROM tick)")
    assert {"K1", "K3"} <= await rules(trial)
