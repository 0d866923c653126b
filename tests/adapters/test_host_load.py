"""How busy this machine is, as far as it tells."""

import os
from pathlib import Path

import pytest

from gnomon.adapters.host import LoadSampler

pytestmark = pytest.mark.req("R-18")


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    return tmp_path / "cards"


def test_the_load_of_the_cpu_is_the_average_over_all_cores(cards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (3.0, 9.0, 9.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)

    assert LoadSampler(cards).load().cpu == 75


def test_a_machine_that_does_not_tell_is_not_known(cards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", unknown)
    monkeypatch.setenv("PATH", "")

    load = LoadSampler(cards).load()

    assert (load.cpu, load.gpu) == (None, None)


def test_the_busiest_graphics_card_counts(cards: Path) -> None:
    for number, said in enumerate(("7\n", "93\n", "nonsense")):
        file = cards / f"card{number}" / "device" / "gpu_busy_percent"
        file.parent.mkdir(parents=True)
        file.write_text(said)

    assert LoadSampler(cards).load().gpu == 93


def test_a_program_is_asked_and_its_answer_told_the_next_time(
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
