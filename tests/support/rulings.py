"""The rulings about the tasks of a run."""

from gnomon.core.model import RunId
from gnomon.core.policy.ruling import StoredRuling
from gnomon.ports.store import Store


async def rulings_of(store: Store, run_id: RunId) -> list[StoredRuling]:
    """All rulings about the tasks of a run, task by task."""
    return [one for task in await store.rulings.of_tasks(run_id, limit=1000) for one in task.rulings]
