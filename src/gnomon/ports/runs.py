"""What becomes of runs once they are made. Every method is one transaction."""

from typing import Protocol

from gnomon.core.model import RunId, RunStatus


class Runs(Protocol):
    """Ending runs."""

    async def finish(self, run_id: RunId, status: RunStatus, *, now: int) -> bool:
        """End a run that is not over, and let the next queued run of its schedule take its place.

        False, and nothing is done, if the run is over already or unknown.
        """
        ...
