"""`gnomon workers`: live workers, their load and their functions."""

from gnomon.cli.actions.executions import NO_WORKER
from gnomon.cli.output import Format, format_instant, print_list
from gnomon.cli.target import Target, send
from gnomon.client import requests
from gnomon.core.responses.system import WorkerDetail

_COLUMNS = ("worker", "pool", "tasks", "cpu", "gpu", "last heartbeat", "labels", "functions")


def list_workers(target: Target, form: Format) -> None:
    """Print the live workers."""
    found = send(target, requests.workers()).items
    print_list(found, form, list(_COLUMNS), _row, NO_WORKER)


def _row(worker: WorkerDetail) -> list[str]:
    return [
        worker.worker,
        worker.pool,
        f"{worker.in_hand}/{worker.slots}" + (" draining" if worker.draining else ""),
        _percent(worker.cpu),
        _percent(worker.gpu),
        format_instant(worker.seen_at),
        " ".join([*(f"{key}={value}" for key, value in worker.labels.items()), *worker.capabilities]),
        ", ".join(worker.functions),
    ]


def _percent(value: int | None) -> str:
    return "" if value is None else f"{value} %"
