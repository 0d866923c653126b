"""`gnomon workers`: who can execute what, and how busy they are."""

from gnomon.cli.output import Format, format_instant, print_list
from gnomon.cli.target import Target, send
from gnomon.client import requests
from gnomon.core.responses import WorkerDetail

_COLUMNS = ("worker", "pool", "in hand", "cpu", "gpu", "heard of", "says", "functions")


def list_workers(target: Target, form: Format) -> None:
    """List the workers that are alive."""
    found = send(target, requests.workers()).items
    none = "no worker is alive: gnomon up starts one, and so does gnomon worker"
    print_list(found, form, list(_COLUMNS), _row, none)


def _row(card: WorkerDetail) -> list[str]:
    return [
        card.worker,
        card.pool,
        f"{card.in_hand}/{card.slots}" + (" draining" if card.draining else ""),
        _percent(card.cpu),
        _percent(card.gpu),
        format_instant(card.seen_at),
        " ".join([*(f"{key}={value}" for key, value in card.labels.items()), *card.capabilities]),
        ", ".join(card.functions),
    ]


def _percent(value: int | None) -> str:
    return "" if value is None else f"{value} %"
