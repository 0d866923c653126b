"""The attempts that a worker may start, renew and end."""

import pytest

from gnomon.core.worker_ids import may_hold

SERVER, SHARED = "node_1", "field_abc"
GPU, GPU_TOO, CPU = "field_gpu.one.1", "field_gpu.two.1", "field_cpu.one.1"


@pytest.mark.parametrize("worker", [GPU, GPU_TOO, SHARED])
def test_a_task_of_a_pool_is_anybodys_in_it_until_one_has_started_it(worker: str) -> None:
    assert may_hold(worker, holder=SERVER, started=False, pool="gpu")
    assert not may_hold(worker, holder=SERVER, started=True, pool="gpu")
    assert not may_hold(worker, holder="field_gpu.three.1", started=True, pool="gpu")


def test_a_worker_of_another_pool_may_not() -> None:
    assert not may_hold(CPU, holder=SERVER, started=False, pool="gpu")
    assert not may_hold(CPU, holder=SERVER, started=False, pool=None)


def test_a_task_that_was_sent_to_one_worker_is_its_own() -> None:
    assert may_hold(GPU, holder=GPU, started=False, pool="gpu")
    assert may_hold(GPU, holder=GPU, started=True, pool="gpu")
    assert not may_hold(GPU_TOO, holder=GPU, started=False, pool="gpu")
