"""The checks of storms can fail: each planted defect is found, and found as what it is."""

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.storms import Storm, frozen, killed
from chaos.test_storms import FILE, stormy_fleet
from support import defective_process as defects
from support.chaos_fleet import ChaosFleet
from support.fleet_checker import violations

_FOUND = {
    defects.loses_ticks: "K1",
    defects.ignores_overlap: "C-05",
    defects.ignores_exceptions: "K2",
    defects.has_no_grace: "K2",
    defects.decides_late: "K5",
    defects.repeats_what_runs_once: "S5",
    defects.retries_too_often: "S9",
    defects.retries_at_once: "H-08",
    defects.decides_early: "K5",
    defects.leaves_no_dead_letters: "S14",
    defects.runs_what_was_refused: "S15",
    defects.forgets_inputs: "S15",
    defects.starts_steps_early: "S13",
}
#: The defects that show only beside a fault.
_BESIDE = {defects.repeats_what_runs_once: killed, defects.has_no_grace: frozen}
_QUICK = (defects.loses_ticks,)


def cases() -> list[object]:
    return [
        pytest.param(one.__name__, rule, id=one.__name__, marks=() if one in _QUICK else pytest.mark.thorough)
        for one, rule in _FOUND.items()
    ]


def test_every_defect_has_a_rule() -> None:
    assert set(defects.DEFECTS) == set(_FOUND)


def test_every_defect_replaces_a_function_that_exists() -> None:
    plant_all = "from support.defective_process import DEFECTS\nfor plant in DEFECTS:\n    plant()"
    tests = Path(defects.__file__).parents[1]
    planted = subprocess.run([sys.executable, "-c", plant_all], cwd=tests, check=False, capture_output=True, text=True)

    assert (planted.returncode, planted.stderr) == (0, "")


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("defect", "rule"), cases())
async def test_a_planted_defect_is_found(defect: str, rule: str, tmp_path: Path) -> None:
    async with stormy_fleet(tmp_path, FILE, defect=defect) as fleet:
        storm = Storm(fleet, seed=1, windows=0, quiet_seconds=12)
        await storm.rage(beside=lambda: _fault(fleet, defect))
        await fleet.drain()
        found = [*await violations(fleet, late_by=storm.late_by), *await storm.broken_promises()]
        assert any(one.startswith(rule) for one in found), found


async def _fault(fleet: ChaosFleet, defect: str) -> None:
    for one, fault in _BESIDE.items():
        if one.__name__ == defect:
            await fault(fleet, "server")
