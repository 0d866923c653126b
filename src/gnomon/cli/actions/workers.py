"""`gnomon workers`: who can execute what, and how busy they are."""

from gnomon.cli.output import Format, moment, print_list
from gnomon.cli.target import Where, answer_to
from gnomon.client import requests
from gnomon.core.responses import WorkerDetail

_COLUMNS = ("worker", "pool", "in hand", "cpu", "gpu", "heard of", "says", "functions")


def list_workers(where: Where, form: Format) -> None:
    """List the workers that are alive."""
    found = answer_to(where, requests.workers()).items
    none = "no worker is alive: gnomon up starts one, and so does gnomon worker"
    print_list(found, form, list(_COLUMNS), _row, none)


def _row(card: WorkerDetail) -> list[str]:
    return [
        card.worker,
        card.pool,
        f"{card.in_hand}/{card.slots}" + (" draining" if card.draining else ""),
        _percent(card.cpu),
        _percent(card.gpu),
        moment(card.seen_at),
        " ".join([*(f"{key}={value}" for key, value in card.labels.items()), *card.capabilities]),
        ", ".join(card.functions),
    ]


def _percent(value: int | None) -> str:
    return "" if value is None else f"{value} %"
