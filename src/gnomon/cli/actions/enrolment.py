"""`gnomon worker enroll`, `revoke` and `enrolled`: credentials for workers on NATS."""

from pathlib import Path

from gnomon.app.enrolment import EnrolledWorker, enroll_worker, enrolled_workers, revoke_worker
from gnomon.cli.output import Format, format_fields, format_instant, print_list
from gnomon.cli.target import echo
from gnomon.core.durations import duration_ms
from gnomon.core.model import DAY_MS, SECOND_MS

_LONGEST_MS = 3650 * DAY_MS
_COLUMNS = ("worker", "pool", "enrolled", "expires", "revoked", "key")


def enroll(name: str, keys: Path, *, pool: str, expires: str | None) -> None:
    """Write the credentials of a worker, and print which file goes where."""
    lasts_ms = None if expires is None else duration_ms("expires", expires, low=SECOND_MS, high=_LONGEST_MS)
    files = enroll_worker(keys, name, pool=pool, lasts_ms=lasts_ms)
    fields = [
        (str(files.worker), f"credentials of the worker {name} of pool {pool}: move them to its nats.creds_file"),
        (str(files.server), "credentials of servers: copy them to their nats.creds_file"),
        (str(files.configuration), "include it in the configuration of NATS"),
    ]
    echo("\n".join(format_fields(fields)))


def revoke(name: str, keys: Path) -> None:
    """Revoke the credentials of a worker, and print what is left to do."""
    files = revoke_worker(keys, name)
    echo(f"{name} is revoked in {files.configuration}: copy it to NATS and reload NATS (nats-server --signal reload)")


def list_enrolled(keys: Path, form: Format) -> None:
    """Print the enrolled workers."""
    print_list(enrolled_workers(keys), form, list(_COLUMNS), _row, "no worker is enrolled")


def _row(worker: EnrolledWorker) -> list[str]:
    times = (worker.enrolled_at, worker.expires_at, worker.revoked_at)
    return [worker.name, worker.pool, *("" if at is None else format_instant(at) for at in times), worker.key]
