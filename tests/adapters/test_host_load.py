"""How busy this machine is, as far as it tells."""

import os
from pathlib import Path

import pytest

from gnomon.adapters.host import CpuMeter, LoadSampler

pytestmark = pytest.mark.req("R-18")


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    return tmp_path / "cards"


class Machine:
    """Processors and a control group whose counters a test sets."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self._stat, self._group = folder / "stat", folder / "group"
        self._group.mkdir()
        self.processors(busy=1000, idle=1000)

    def processors(self, *, busy: int, idle: int) -> None:
        # user nice system idle iowait irq softirq steal guest guest_nice; guests are counted as users, too.
        half = idle // 2
        self._stat.write_text(f"cpu  {busy - 30} 10 10 {half} {idle - half} 0 5 5 400 0\ncpu0 1 2 3 4\n")

    def group(self, *, limit: str, used_seconds: float) -> None:
        (self._group / "cpu.max").write_text(f"{limit} 100000\n")
        (self._group / "cpu.stat").write_text(f"usage_usec {round(used_seconds * 1e6)}\nuser_usec 1\n")

    def meter(self) -> CpuMeter:
        return CpuMeter(lambda: self.now, processors=self._stat, control_group=self._group)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_load_of_the_cpu_is_its_use_since_the_last_measurement(machine: Machine, cards: Path) -> None:
    sampler = LoadSampler(cards, machine.meter())
    assert sampler.load().cpu is None

    machine.now += 1
    machine.processors(busy=1300, idle=1100)
    assert sampler.load().cpu == 75
    # Not measured again at once: too few ticks would say nothing.
    machine.processors(busy=1300, idle=1500)
    assert sampler.load().cpu == 75
    machine.now += 10
    assert sampler.load().cpu == 0


def test_many_processes_that_wait_are_no_load(machine: Machine, cards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (348.0, 300.0, 200.0))
    sampler = LoadSampler(cards, machine.meter())

    machine.now += 5
    machine.processors(busy=1001, idle=1099)

    assert sampler.load().cpu == 1


def test_in_a_container_the_use_of_its_limit_counts(machine: Machine, cards: Path) -> None:
    machine.group(limit="50000", used_seconds=7)
    sampler = LoadSampler(cards, machine.meter())

    # Of ten seconds half is allowed, and 4.5 are used: the machine is idle, the container is not.
    machine.now += 10
    machine.group(limit="50000", used_seconds=11.5)
    machine.processors(busy=1010, idle=1990)

    assert sampler.load().cpu == 90


def test_a_control_group_without_a_limit_does_not_count(machine: Machine, cards: Path) -> None:
    machine.group(limit="max", used_seconds=7)
    sampler = LoadSampler(cards, machine.meter())
    machine.now += 10
    machine.group(limit="max", used_seconds=17)
    machine.processors(busy=1010, idle=1990)

    assert sampler.load().cpu == 1


def test_a_machine_without_load_figures_has_unknown_load(
    cards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    now = iter(range(0, 100, 10))
    nowhere = tmp_path / "nowhere"

    sampler = LoadSampler(cards, CpuMeter(lambda: next(now), processors=nowhere, control_group=nowhere))

    assert (sampler.load().cpu, sampler.load().gpu) == (None, None)


def test_this_machine_has_load_figures(cards: Path) -> None:
    now = iter((0.0, 0.0, 0.0, 10.0, 10.0, 10.0))
    percent = LoadSampler(cards, CpuMeter(lambda: next(now, 20.0))).load().cpu

    # None only if no tick has passed in between.
    assert percent is None or 0 <= percent <= 100


def test_the_busiest_graphics_card_counts(cards: Path) -> None:
    for number, said in enumerate(("7\n", "93\n", "nonsense")):
        file = cards / f"card{number}" / "device" / "gpu_busy_percent"
        file.parent.mkdir(parents=True)
        file.write_text(said)

    assert LoadSampler(cards).load().gpu == 93


def test_the_load_program_runs_in_the_background_and_its_answer_is_used_next_time(
    cards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 12\necho 34\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    meter = LoadSampler(cards)
    assert meter.load().gpu is None

    while (gpu := meter.load().gpu) is None:
        pass

    assert gpu == 34
    meter.close()
