"""News of runs for those who follow the stream: what each commit made true of them."""

from collections.abc import Sequence

from gnomon.core.model import Run, RunStatus, Verdict
from gnomon.core.runs.admission import Waiting
from gnomon.core.runs.outcomes import Ending
from gnomon.ports.commit_observer import Finish
from gnomon.services.hub import Hub


class RunNews:
    """A tally that counts nothing, and tells the hub which runs were asked for, have begun or are over."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def launched(self, runs: Sequence[Run]) -> None:
        """See Tally.launched."""
        for run in runs:
            self._hub.run_changed(run, RunStatus.PENDING)

    def started(self, runs: Sequence[Run], now: int) -> None:
        """See Tally.started."""
        del now
        for run in runs:
            self._hub.run_changed(run, RunStatus.RUNNING)

    def ended(self, finishes: Sequence[Finish]) -> None:
        """See Tally.ended."""
        for run, status, error, _ in finishes:
            self._hub.run_changed(run, status, None if status is RunStatus.COMPLETED else run.error or error)

    # ---- what the hub hears of by other ways, or is no news of a run -------------------------------

    def decided(self, verdicts: Sequence[Verdict], now: int) -> None:
        """See Tally.decided."""

    def taken(self, tasks: Sequence[Waiting], now: int) -> None:
        """See Tally.taken."""

    def tried(self, endings: Sequence[Ending]) -> None:
        """See Tally.tried."""

    def called_off(self, count: int) -> None:
        """See Tally.called_off."""

    def buried(self, jobs: Sequence[str]) -> None:
        """See Tally.buried."""

    def graphs_ended(self, runs: Sequence[Run]) -> None:
        """See Tally.graphs_ended."""
