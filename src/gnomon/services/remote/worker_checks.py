"""The limits of what a remote worker says about itself: servers keep it in memory, in the store and in answers."""

from gnomon.core.jobs.fields import printable
from gnomon.core.jobs.routing_fields import check_worker
from gnomon.errors import FieldError
from gnomon.ports.tasks import WorkerInfo

#: The names of a worker and of its functions; how many functions it may have, and their length together.
_LONGEST_NAME = 255
_MOST_FUNCTIONS, _LONGEST_FUNCTIONS = 5_000, 262_144
#: No number of a worker is larger: all of them fit into the columns of every store.
_LARGEST_COUNT, _LARGEST_INSTANT = 1_000_000, 2**53


def check_worker_info(card: WorkerInfo) -> None:
    """Raise FieldError unless a worker may describe itself like this."""
    printable("card.worker", card.worker, longest=_LONGEST_NAME)
    check_worker(card.pool, card.labels, card.capabilities)
    if len(card.functions) > _MOST_FUNCTIONS or sum(map(len, card.functions)) > _LONGEST_FUNCTIONS:
        reason = f"are too many: at most {_MOST_FUNCTIONS} with {_LONGEST_FUNCTIONS} characters together are allowed"
        raise FieldError("card.functions", len(card.functions), reason)
    for name in card.functions:
        printable("card.functions", name, longest=_LONGEST_NAME)
    counts = {"in_hand": card.in_hand, "load.cpu": card.load.cpu, "load.gpu": card.load.gpu}
    for field, count in counts.items():
        if count is not None and not 0 <= count <= _LARGEST_COUNT:
            raise FieldError(f"card.{field}", count, f"must be from 0 to {_LARGEST_COUNT}")
    if not 0 <= card.started_at <= _LARGEST_INSTANT:
        raise FieldError("card.started_at", card.started_at, "is no instant")
